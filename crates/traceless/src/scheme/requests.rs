//! What a controller keeps besides its tree: the requests that wait.

use crate::error::{Error, Result};
use crate::types::Addr;
use alloc::collections::VecDeque;

/// The requests of an array of blocks, first come first served.
pub struct Requests {
    blocks: u64,
    waiting: VecDeque<(u64, Addr)>,
}

impl Requests {
    /// None yet, for `blocks` blocks.
    pub fn new(blocks: u64) -> Self {
        Self { blocks, waiting: VecDeque::new() }
    }

    /// Blocks of the array.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Adds one.
    pub fn submit(&mut self, id: u64, addr: Addr) -> Result {
        if addr.0 >= self.blocks {
            return Err(Error::OutOfRange { addr, blocks: self.blocks });
        }
        self.waiting.push_back((id, addr));
        Ok(())
    }

    /// The next one to be served.
    pub fn first(&self) -> Option<(u64, Addr)> {
        self.waiting.front().copied()
    }

    /// Forgets it.
    pub fn finish(&mut self) {
        self.waiting.pop_front();
    }
}
