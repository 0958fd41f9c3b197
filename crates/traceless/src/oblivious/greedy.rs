//! Path ORAM's eviction: all blocks of a path and of the stash go as far down as they may.
//!
//! The blocks are collected in a pool, and each slot takes a block that may be there, from the leaf
//! up to the root; the stash takes the rest. The order of the slots is public, the choice of a
//! block is not: each slot scans all blocks. The cost is quadratic in their number, so this
//! eviction is for comparison only.

use super::plan::{Headers, Lanes, ones_if};
use super::tree::SLOTS;
use super::width::Width;
use super::{LANES, STASH_MAX};
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_sys::Words;
use traceless_sys::ct::{Mask, MovingBlock as _, Vector};

/// The stash, and both slots of each level.
const PARTS: usize = 1 + SLOTS;

/// Blocks that wait for a slot.
pub struct WaitingBlocks<W> {
    width: W,
    headers: [Headers; PARTS],
    /// How far down each block may go; zero if there is none, or it has left the pool.
    reach: [[u32; LANES]; PARTS],
    bodies: Words,
    held: Vec<u64>,
}

impl<W: Width> WaitingBlocks<W> {
    /// An empty pool.
    pub fn new(width: W) -> Result<Self> {
        let bodies = Words::zeroed(PARTS * LANES * width.words());
        Ok(Self {
            width,
            headers: [Headers::EMPTY; PARTS],
            reach: [[0; LANES]; PARTS],
            bodies: bodies.ok_or(Error::Geometry("there is not enough memory"))?,
            held: width.buffer(),
        })
    }

    /// The buffer for a block's body, to be filled before [`fill`](Self::fill).
    #[inline(always)]
    pub fn body_mut(&mut self, part: usize, lane: usize) -> &mut [u64] {
        let words = self.width.words();
        &mut self.bodies[(part * LANES + lane) * words..][..words]
    }

    /// Adds the blocks of the stash and of the path to `leaf`; their bodies are already in place.
    #[inline(always)]
    pub fn fill(&mut self, headers: [&Headers; PARTS], leaf: u32, levels: u32) {
        for (part, headers) in headers.into_iter().enumerate() {
            self.headers[part] = *headers;
            self.reach[part] = headers.reach(&headers.used(), leaf, levels);
        }
    }

    /// Moves one of the blocks that may go deeper than `above` levels to a slot; without one the
    /// header is empty and the body arbitrary. Returns the block's address and label.
    #[inline(always)]
    pub fn give<V: Vector>(&mut self, v: V, above: u32, slot: &mut [u64]) -> (u32, u32) {
        let mut wanted = Mask::any(1);
        let (mut addr, mut label) = (0, 0);
        let words = self.width.words();
        let mut held = self.width.hold(v, &mut self.held);
        held.clear();
        for part in 0..PARTS {
            let may = Lanes::made(|lane| ones_if(self.reach[part][lane] > above));
            let first = wanted.keep(may.first());
            wanted = wanted & !Mask::any(first.into());
            let chosen = Lanes::made(|lane| ones_if(first & (1 << lane) != 0));
            for lane in 0..LANES {
                let mask = chosen.mask(lane);
                addr |= self.headers[part].addrs[lane] & mask;
                label |= self.headers[part].labels[lane] & mask;
                self.reach[part][lane] &= !mask;
            }
            let bodies = &self.bodies[part * LANES * words..][..LANES * words];
            for (lane, body) in bodies.chunks_exact(words).enumerate() {
                held.gather(body, chosen.mask(lane));
            }
        }
        held.copy_into(slot, u32::MAX);
        self.width.release(held, &mut self.held);
        (addr, label)
    }
}

const _: () = assert!(STASH_MAX == LANES, "the stash is a part of the pool");
