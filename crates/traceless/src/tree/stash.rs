//! Blocks that wait in trusted memory.

use super::{HEADER_LEN, Header};
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::durable::{Durable, take_saved};
use traceless_core::error::{Error, Result};
use traceless_core::types::Addr;

/// Blocks that are in no slot of the tree, each on the path of its label. Its memory never grows.
pub struct Stash {
    headers: Vec<Header>,
    bodies: Vec<u8>,
    body_len: usize,
    limit: usize,
}

impl Stash {
    /// An empty stash with room for `limit` blocks between accesses, and one more during them.
    pub fn new(limit: usize, body_len: usize) -> Self {
        let room = limit + 1;
        Self {
            headers: Vec::with_capacity(room),
            bodies: vec![0; room * body_len],
            body_len,
            limit,
        }
    }

    /// Number of blocks in the stash.
    #[inline]
    pub fn len(&self) -> usize {
        self.headers.len()
    }

    /// Whether the stash is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    /// Number of blocks that the stash may hold between accesses.
    #[inline]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The headers of the blocks.
    #[inline]
    pub fn headers(&self) -> &[Header] {
        &self.headers
    }

    /// The index of a block in the stash.
    #[inline]
    pub fn find(&self, addr: Addr) -> Option<usize> {
        self.headers.iter().position(|h| h.is_of(addr))
    }

    /// The body of block number `nth`.
    #[inline]
    pub fn body(&self, nth: usize) -> &[u8] {
        &self.bodies[nth * self.body_len..][..self.body_len]
    }

    /// The body of block number `nth`, mutable.
    #[inline]
    pub fn body_mut(&mut self, nth: usize) -> &mut [u8] {
        &mut self.bodies[nth * self.body_len..][..self.body_len]
    }

    /// Puts block number `nth` onto another path.
    #[inline]
    pub fn relabel(&mut self, nth: usize, header: Header) {
        self.headers[nth] = header;
    }

    /// Adds a block and returns its index; the caller fills in the body.
    #[inline]
    pub fn push(&mut self, header: Header) -> Result<usize> {
        if self.headers.len() > self.limit {
            return Err(self.overflow());
        }
        self.headers.push(header);
        Ok(self.headers.len() - 1)
    }

    /// Removes block number `nth`; the last one takes its index.
    #[inline]
    pub fn remove(&mut self, nth: usize) {
        let last = self.headers.len() - 1;
        self.headers.swap_remove(nth);
        if nth != last {
            let from = last * self.body_len;
            self.bodies.copy_within(from..from + self.body_len, nth * self.body_len);
        }
    }

    /// Removes all blocks.
    pub fn clear(&mut self) {
        self.headers.clear();
    }

    /// Fails if the stash holds more blocks than it may between accesses.
    #[inline]
    pub fn check(&self) -> Result {
        if self.headers.len() > self.limit { Err(self.overflow()) } else { Ok(()) }
    }

    fn overflow(&self) -> Error {
        Error::StashOverflow { blocks: self.headers.len() as u64, limit: self.limit as u64 }
    }
}

/// Padded to the limit, so that the length does not reveal how many blocks wait.
impl Durable for Stash {
    fn save(&self, out: &mut Vec<u8>) {
        for nth in 0..self.limit {
            let header = self.headers.get(nth).copied().unwrap_or(Header::EMPTY);
            out.extend_from_slice(&header.to_bytes());
        }
        let filled = self.headers.len() * self.body_len;
        out.extend_from_slice(&self.bodies[..filled]);
        out.resize(out.len() + self.limit * self.body_len - filled, 0);
    }

    fn load(&mut self, from: &mut &[u8]) -> Result {
        let headers = take_saved(from, self.limit * HEADER_LEN)?.chunks_exact(HEADER_LEN);
        let headers = headers.map(Header::from_bytes);
        self.headers.clear();
        self.headers.extend(headers.take_while(|header| !header.is_empty()));
        let bodies = take_saved(from, self.limit * self.body_len)?;
        self.bodies[..bodies.len()].copy_from_slice(bodies);
        Ok(())
    }
}
