//! The parameters, which `DetWoORAM` shares.

use super::Twice;
use crate::detwo::{DetWo, DetWoGeometry, Refresh};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::Result;
use traceless_core::oram::{BlockOram, Hides, Oram};
use traceless_core::scheme::contract::{
    BlockScheme, Samples, Scheme, SchemeKind, SchemeOptions, SharedScheme, Timetable, u64_at,
};
use traceless_core::scheme::{Facts, PlacedArea, SchemeContext};

/// `DetWoORAM` with a dummy write after each write.
pub static TWICE: SchemeKind = SchemeKind {
    name: "twice",
    about: "A toy: detwo with a dummy write after each write",
    code: 0x7001,
    options: &[],
    choose,
    decode,
    samples,
};

/// The parameters. All of them are public.
#[derive(Clone, Copy, Debug)]
pub struct TwiceScheme(DetWoGeometry);

impl Scheme for TwiceScheme {
    fn name(&self) -> &'static str {
        TWICE.name
    }

    fn blocks(&self) -> u64 {
        self.0.blocks
    }

    fn block_len(&self) -> usize {
        self.0.block_len
    }

    fn store_len(&self) -> u64 {
        self.0.store_len()
    }

    fn areas(&self) -> Vec<PlacedArea> {
        self.0.areas()
    }

    fn write_amplification(&self) -> f64 {
        2.0 * self.0.write_amplification()
    }

    fn hides(&self) -> Hides {
        Hides::WritesOnly
    }

    fn create(&self, context: SchemeContext) -> Result<Box<dyn Oram>> {
        Ok(self.create_block(context)?)
    }

    fn open(
        &self,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn Oram>> {
        Ok(self.open_block(context, state, progress)?)
    }
}

impl BlockScheme for TwiceScheme {
    fn kind(&self) -> &'static SchemeKind {
        &TWICE
    }

    fn parameters(&self) -> Vec<u8> {
        self.0.unsynced_max.to_le_bytes().to_vec()
    }

    fn facts(&self, _writes: u64) -> Facts {
        Facts { map: Some("memory"), map_bytes: self.0.map_memory(), ..Facts::default() }
    }

    fn timetable(&self) -> Timetable {
        let detwo = self.0.timetable();
        let cycle = detwo.cycle.div_ceil(2);
        Timetable { cycle, unsynced_max: detwo.unsynced_max.div_ceil(2), ..detwo }
    }

    fn resized(&self, blocks: u64) -> Result<SharedScheme> {
        Ok(Arc::new(Self(self.0.resized(blocks)?)))
    }

    fn create_block(&self, context: SchemeContext) -> Result<Box<dyn BlockOram>> {
        Ok(Box::new(Twice(DetWo::create(self.0, context)?)))
    }

    fn open_block(
        &self,
        mut context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn BlockOram>> {
        context.expect_writes *= 2;
        Ok(Box::new(Twice(DetWo::open(self.0, context, state, progress)?)))
    }

    fn peek_state(&self, state: &[u8]) -> Result<(u64, bool)> {
        let (writes, clean) = DetWo::peek_state(state)?;
        Ok((writes / 2, clean))
    }
}

fn choose(blocks: u64, block_len: usize, _: &SchemeOptions) -> Result<SharedScheme> {
    Ok(Arc::new(TwiceScheme(DetWoGeometry::new(blocks, block_len, Refresh::ONE, 0)?)))
}

fn decode(blocks: u64, block_len: usize, parameters: &[u8]) -> Result<SharedScheme> {
    let geometry = DetWoGeometry::new(blocks, block_len, Refresh::ONE, 0)?;
    let geometry = DetWoGeometry { unsynced_max: u64_at(parameters, 0), ..geometry };
    geometry.check()?;
    Ok(Arc::new(TwiceScheme(geometry)))
}

fn samples(blocks: u64, _: u64, block_len: usize) -> Result<Samples> {
    Ok(vec![("K = 1", choose(blocks, block_len, &SchemeOptions::default())?)])
}
