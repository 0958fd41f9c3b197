//! Saved Path ORAM as a scheme with its parameters.

use super::{DurablePath, PathGeometry};
use alloc::boxed::Box;
use alloc::vec::Vec;
use traceless_core::error::Result;
use traceless_core::oram::{Hides, Oram};
#[cfg(feature = "std")]
use traceless_core::rng::Rng;
use traceless_core::scheme::contract::Scheme;
use traceless_core::scheme::{PlacedArea, SchemeContext};
use traceless_core::types::Addr;

impl Scheme for PathGeometry {
    fn name(&self) -> &'static str {
        "path"
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
        Ok(Box::new(DurablePath::create(*self, context)?))
    }

    fn open(
        &self,
        context: SchemeContext,
        state: &[u8],
        _progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn Oram>> {
        Ok(Box::new(DurablePath::open(*self, context, state)?))
    }

    fn create_filled(
        &self,
        context: SchemeContext,
        contents: &mut dyn FnMut(Addr, &mut [u8]),
    ) -> Result<Box<dyn Oram>> {
        Ok(Box::new(DurablePath::create_filled(*self, context, contents)?))
    }

    #[cfg(feature = "std")]
    fn create_in_memory(&self, mut rng: Box<dyn Rng>) -> Result<Box<dyn Oram>> {
        Ok(Box::new(super::in_memory(self, &mut *rng)?))
    }

    #[cfg(feature = "std")]
    fn create_in_memory_filled(
        &self,
        mut rng: Box<dyn Rng>,
        contents: &mut dyn FnMut(Addr, &mut [u8]),
    ) -> Result<Box<dyn Oram>> {
        Ok(Box::new(super::in_memory_filled(self, &mut *rng, contents)?))
    }

    #[cfg(feature = "suite")]
    fn public_trace(
        &self,
        trace: &[traceless_core::trace::Event],
    ) -> Vec<traceless_core::trace::Event> {
        super::public_trace::template(self, trace)
    }
}
