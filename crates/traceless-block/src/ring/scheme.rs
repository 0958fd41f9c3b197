//! Ring ORAM as a kind of block scheme.

use super::read_trace::read_trace;
use super::{Ring, RingGeometry, RingLevel};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::oram::{BlockOram, Hides, Oram};
use traceless_core::scheme::contract::{
    BlockScheme, MapPlace, ReadTrace, Samples, Scheme, SchemeKind, SchemeOptions, SharedScheme,
    Timetable,
};
use traceless_core::scheme::{Facts, PlacedArea, SchemeContext};
use traceless_core::store::SlotLayout;
use traceless_core::trace::Event;

/// Ring ORAM: reads are hidden, too.
pub static RING: SchemeKind = SchemeKind {
    name: "ring",
    about: "Ring ORAM: hides reads, too",
    code: 6,
    options: &[],
    choose,
    decode: |blocks, block_len, parameters| {
        Ok(Arc::new(RingGeometry::from_bytes(blocks, block_len, parameters)?))
    },
    samples,
};

impl Scheme for RingGeometry {
    fn name(&self) -> &'static str {
        RING.name
    }

    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn block_len(&self) -> usize {
        self.block_len
    }

    fn store_len(&self) -> u64 {
        self.store_len()
    }

    fn areas(&self) -> Vec<PlacedArea> {
        self.areas()
    }

    fn write_amplification(&self) -> f64 {
        self.write_amplification()
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }

    fn draws_places(&self) -> bool {
        true
    }

    fn check(&self) -> Result {
        self.check()
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

    #[cfg(feature = "suite")]
    fn public_trace(&self, trace: &[Event]) -> Vec<Event> {
        read_trace(self, trace).expect("the trace of a ring").public
    }
}

impl BlockScheme for RingGeometry {
    fn kind(&self) -> &'static SchemeKind {
        &RING
    }

    fn parameters(&self) -> Vec<u8> {
        self.to_bytes()
    }

    fn facts(&self, _accesses: u64) -> Facts {
        Facts {
            map: Some("memory"),
            map_bytes: self.map_memory(),
            buffer_bytes: self.buffer_memory(),
            levels: Some(self.levels.len() as u64),
            bucket: self.levels.last().map(RingLevel::slots),
            ..Facts::default()
        }
    }

    fn timetable(&self) -> Timetable {
        let pass = self.leaves() * u64::from(self.rate);
        Timetable {
            areas: 1 + self.levels.len() as u64,
            gaps: 0,
            warm_up: 0,
            cycle: pass,
            whole_cycle: pass + self.unsynced_max() + self.log().slots,
            unsynced_max: self.unsynced_max(),
        }
    }

    fn slots_in_turn(&self) -> Vec<(u64, SlotLayout)> {
        let levels = (0..self.levels.len()).map(|nth| self.level(nth));
        let layouts = core::iter::once(self.log()).chain(levels);
        self.areas().into_iter().map(|(_, at, _)| at).zip(layouts).collect()
    }

    fn read_trace(&self, trace: &[Event]) -> Option<core::result::Result<ReadTrace, &'static str>> {
        Some(read_trace(self, trace))
    }

    fn resized(&self, blocks: u64) -> Result<SharedScheme> {
        Ok(Arc::new(Self::new(blocks, self.block_len)?))
    }

    fn create_block(&self, context: SchemeContext) -> Result<Box<dyn BlockOram>> {
        Ok(Box::new(Ring::create(self, context)?))
    }

    fn open_block(
        &self,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn BlockOram>> {
        Ok(Box::new(Ring::open(self, context, state, progress)?))
    }

    fn peek_state(&self, state: &[u8]) -> Result<(u64, bool)> {
        Ring::peek_state(state)
    }
}

fn choose(blocks: u64, block_len: usize, options: &SchemeOptions) -> Result<SharedScheme> {
    if options.map == Some(MapPlace::Disk) {
        return Err(Error::Geometry("the map of a ring is in memory"));
    }
    Ok(Arc::new(RingGeometry::new(blocks, block_len)?))
}

/// A ring of one, two and three levels.
fn samples(blocks: u64, _map_blocks: u64, block_len: usize) -> Result<Samples> {
    let leaves = (blocks / 12).max(2);
    let sample = |name, rate, buckets: &[u64]| {
        let scheme: SharedScheme =
            Arc::new(RingGeometry::with_buckets(blocks, block_len, rate, buckets)?);
        Ok((name, scheme))
    };
    let (two, three) = (leaves.div_ceil(2), leaves.div_ceil(6));
    vec![
        sample("one level", 8, &[leaves]),
        sample("two levels", 8, &[two, 2 * two]),
        sample("three levels", 4, &[three, 2 * three, 6 * three]),
    ]
    .into_iter()
    .collect()
}
