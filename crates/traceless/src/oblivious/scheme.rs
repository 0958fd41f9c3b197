//! The saved array of the Oblivious client as a scheme with its parameters.

use super::ArrayGeometry;
use super::durable::{create_durable, open_durable};
use alloc::boxed::Box;
use alloc::vec::Vec;
use traceless_core::error::Result;
use traceless_core::oram::{Hides, Oram};
#[cfg(feature = "std")]
use traceless_core::rng::Rng;
use traceless_core::scheme::contract::Scheme;
use traceless_core::scheme::{PlacedArea, SchemeContext};

impl Scheme for ArrayGeometry {
    fn name(&self) -> &'static str {
        "oblivious"
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
        self.draws_places()
    }

    fn check(&self) -> Result {
        self.check()
    }

    fn create(&self, context: SchemeContext) -> Result<Box<dyn Oram>> {
        create_durable(*self, context)
    }

    fn open(
        &self,
        context: SchemeContext,
        state: &[u8],
        _progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn Oram>> {
        open_durable(*self, context, state)
    }

    #[cfg(feature = "std")]
    fn create_in_memory(&self, rng: Box<dyn Rng>) -> Result<Box<dyn Oram>> {
        super::create(self.blocks, self.block_len, rng)
    }

    #[cfg(feature = "suite")]
    fn public_trace(
        &self,
        trace: &[traceless_core::trace::Event],
    ) -> Vec<traceless_core::trace::Event> {
        super::public_trace::template(self, trace)
    }
}
