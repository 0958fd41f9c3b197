//! The request queue of a controller.

use alloc::collections::VecDeque;
use traceless_core::error::{Error, Result};
use traceless_core::types::Addr;

/// The requests for an array of blocks, first come first served.
pub struct Requests {
    blocks: u64,
    waiting: VecDeque<(u64, Addr)>,
}

impl Requests {
    /// An empty queue for `blocks` blocks.
    pub fn new(blocks: u64) -> Self {
        Self { blocks, waiting: VecDeque::new() }
    }

    /// Blocks of the array.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Number of requests in the queue.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a request.
    pub fn submit(&mut self, id: u64, addr: Addr) -> Result {
        if addr.0 >= self.blocks {
            return Err(Error::OutOfRange { addr, blocks: self.blocks });
        }
        self.waiting.push_back((id, addr));
        Ok(())
    }

    /// The next request to be served.
    pub fn first(&self) -> Option<(u64, Addr)> {
        self.waiting.front().copied()
    }

    /// Removes the first request.
    pub fn finish(&mut self) {
        self.waiting.pop_front();
    }
}
