//! Blocks that were lost with damaged slots.

use crate::error::{Error, Result};

/// A block that was lost with a damaged slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostBlock(pub u32);

impl From<LostBlock> for Error {
    fn from(LostBlock(id): LostBlock) -> Self {
        Self::Lost { id: id.into() }
    }
}

/// What was read of a block.
pub type BlockRead = Result<Vec<u8>, LostBlock>;
