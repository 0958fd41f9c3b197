//! What a controller keeps besides its tree: the requests that wait, and whether it has failed.

use crate::error::{Error, Result};
use crate::types::Addr;
use alloc::collections::VecDeque;

/// The requests of an array of blocks, first come first served.
pub struct Requests {
    blocks: u64,
    waiting: VecDeque<(u64, Addr)>,
    failed: bool,
}

impl Requests {
    /// None yet, for `blocks` blocks.
    pub fn new(blocks: u64) -> Self {
        Self { blocks, waiting: VecDeque::new(), failed: false }
    }

    /// Blocks of the array.
    pub fn blocks(&self) -> u64 {
        self.blocks
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

    /// Fails after a failure: what was half done cannot be done again, since labels have changed.
    pub fn check(&self) -> Result {
        if self.failed { Err(Error::Poisoned) } else { Ok(()) }
    }

    /// Passes on what came of a step, and remembers a failure.
    pub fn noted<R>(&mut self, outcome: Result<R>) -> Result<R> {
        self.failed |= outcome.is_err();
        outcome
    }
}
