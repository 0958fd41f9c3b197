//! Pieces of objects that are being written.

use super::names::blocks_of;
use super::value::size_class;

/// A piece of an object that is being written. It is invisible until a name is bound to it. A draft
/// that is not bound must be given back ([`Gateway::abandon`](super::Gateway::abandon)), or its
/// blocks stay reserved until the gateway is opened again.
#[derive(Default)]
#[must_use]
pub struct Draft {
    ids: Vec<u32>,
    len: u64,
    /// Bytes that do not fill a block yet.
    tail: Vec<u8>,
    /// Dummy queries made to fill the size class.
    padded: usize,
}

impl Draft {
    /// Bytes appended so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes appended so far, and the blocks that hold them.
    pub(super) fn into_parts(self) -> (u64, Vec<u32>) {
        (self.len, self.ids)
    }

    /// Appends bytes. Returns the blocks that got full, which are to be written.
    pub(crate) fn fill(&mut self, mut bytes: &[u8], block_len: usize) -> Vec<Vec<u8>> {
        self.len += bytes.len() as u64;
        let mut full = Vec::new();
        while self.tail.len() + bytes.len() >= block_len {
            let (part, rest) = bytes.split_at(block_len - self.tail.len());
            self.tail.extend_from_slice(part);
            bytes = rest;
            full.push(core::mem::take(&mut self.tail));
        }
        self.tail.extend_from_slice(bytes);
        full
    }

    /// Records the blocks that were written.
    pub(crate) fn extend(&mut self, ids: &[u32]) {
        self.ids.extend_from_slice(ids);
    }

    /// The last block, which is to be written, unless it was written as a full one.
    pub(crate) fn take_last_block(&mut self, block_len: usize) -> Option<Vec<u8>> {
        (self.ids.len() < blocks_of(self.len, block_len as u64)).then(|| {
            let mut last = core::mem::take(&mut self.tail);
            last.resize(block_len, 0);
            last
        })
    }

    /// Dummy queries that are to be made to fill the size class.
    pub(crate) fn dummies_left(&self) -> usize {
        size_class(self.ids.len()) - self.ids.len() - self.padded
    }

    /// Records dummy queries that were made.
    pub(crate) fn count_dummies(&mut self, count: usize) {
        self.padded += count;
    }
}
