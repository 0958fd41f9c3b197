//! The scheme as a block scheme. It is of no kind of the registry: only a deniable image holds it.

use super::{Deniable, DeniableGeometry, LanePolicy};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::oram::{BlockOram, Hides, Oram};
use traceless_core::scheme::contract::{
    BlockScheme, Samples, Scheme, SchemeKind, SchemeOptions, SharedScheme, Timetable, u64_at,
};
use traceless_core::scheme::{Facts, PlacedArea, SchemeContext};
use traceless_core::store::SlotLayout;

/// A public volume with room for hidden ones.
pub static DENIABLE: SchemeKind = SchemeKind {
    name: "deniable",
    about: "Deterministic write-only ORAM with room for hidden volumes",
    code: 6,
    options: &[],
    choose,
    decode,
    samples,
};

impl Scheme for DeniableGeometry {
    fn name(&self) -> &'static str {
        DENIABLE.name
    }

    fn blocks(&self) -> u64 {
        self.public.blocks
    }

    fn block_len(&self) -> usize {
        self.public.block_len
    }

    fn store_len(&self) -> u64 {
        self.store_len()
    }

    fn areas(&self) -> Vec<PlacedArea> {
        let mut areas = self.public.areas();
        areas.push(self.lane_area());
        areas
    }

    fn write_amplification(&self) -> f64 {
        let slot = self.public.block_len + super::entry::ENTRY_LEN;
        self.public.write_amplification() + slot as f64 / self.public.block_len as f64
    }

    fn hides(&self) -> Hides {
        Hides::WritesOnly
    }

    fn check(&self) -> Result {
        self.checked().map(|_| ())
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

impl BlockScheme for DeniableGeometry {
    fn kind(&self) -> &'static SchemeKind {
        &DENIABLE
    }

    fn parameters(&self) -> Vec<u8> {
        let mut parameters = vec![0; 8];
        parameters.extend(self.lane_slots.to_le_bytes());
        parameters
    }

    fn facts(&self, writes: u64) -> Facts {
        self.public.facts(writes)
    }

    fn timetable(&self) -> Timetable {
        let public = self.public.timetable();
        Timetable {
            areas: public.areas + 1,
            whole_cycle: public.whole_cycle.max(self.lane_slots),
            ..public
        }
    }

    fn slots_in_turn(&self) -> Vec<(u64, SlotLayout)> {
        let mut areas = self.public.slots_in_turn();
        areas.push((self.lane_area().1, self.lane()));
        areas
    }

    /// Everything follows from the number of blocks.
    fn resized(&self, blocks: u64) -> Result<SharedScheme> {
        Ok(Arc::new(Self::new(blocks, self.public.block_len)?))
    }

    fn create_block(&self, context: SchemeContext) -> Result<Box<dyn BlockOram>> {
        Ok(Box::new(Deniable::create(*self, context)?))
    }

    /// Opens the public volume alone.
    fn open_block(
        &self,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn BlockOram>> {
        let alone = (&[][..], LanePolicy::Refuse);
        Ok(Box::new(Deniable::open(*self, context, state, alone, progress)?))
    }

    fn peek_state(&self, state: &[u8]) -> Result<(u64, bool)> {
        crate::detwo::DetWo::peek_state(state)
    }
}

fn choose(blocks: u64, block_len: usize, _: &SchemeOptions) -> Result<SharedScheme> {
    Ok(Arc::new(DeniableGeometry::new(blocks, block_len)?))
}

fn decode(blocks: u64, block_len: usize, parameters: &[u8]) -> Result<SharedScheme> {
    let geometry = DeniableGeometry::new(blocks, block_len)?;
    if u64_at(parameters, 8) != geometry.lane_slots {
        return Err(Error::Geometry("a lane of another length"));
    }
    Ok(Arc::new(geometry))
}

fn samples(blocks: u64, _: u64, block_len: usize) -> Result<Samples> {
    let sample: SharedScheme = Arc::new(DeniableGeometry::new(blocks, block_len)?);
    Ok(vec![("one lane", sample)])
}
