//! The scheme that touches everything, with its parameters.

use super::Linear;
use alloc::boxed::Box;
use traceless_core::error::Result;
use traceless_core::oram::{Hides, Oram};
use traceless_core::scheme::SchemeContext;
use traceless_core::scheme::contract::Scheme;

/// The parameters of [`Linear`]. All of them are public.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinearScheme {
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_len: usize,
}

impl Scheme for LinearScheme {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn block_len(&self) -> usize {
        self.block_len
    }

    fn store_len(&self) -> u64 {
        Linear::store_len(self.blocks, self.block_len)
    }

    fn write_amplification(&self) -> f64 {
        self.blocks as f64
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }

    fn create(&self, context: SchemeContext) -> Result<Box<dyn Oram>> {
        Ok(Box::new(Linear::create(self.blocks, self.block_len, context)?))
    }

    fn open(
        &self,
        context: SchemeContext,
        state: &[u8],
        _progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn Oram>> {
        Ok(Box::new(Linear::open(self.blocks, self.block_len, context, state)?))
    }
}
