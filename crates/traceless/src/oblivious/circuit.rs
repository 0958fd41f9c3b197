//! Circuit ORAM: one tree and its stash, without a position map.
//!
//! An access reads the path of its block and puts the block into the stash; one eviction along
//! that path and two along the next path in reverse-lexicographic order bring blocks back into the
//! tree. Every slot of both paths and of the stash is read and written each time, so that an
//! adversary who sees each address learns the two paths and nothing else.

use super::plan::{Headers, Plan};
use super::tree::{Memory, SLOTS};
use super::width::Width;
use super::{LEVELS_MAX, STASH_MAX};
use crate::error::{Error, Result};
use traceless_sys::{Words, ct};

/// Evictions along the second path of an access. With one the stash grows without bound.
const EVICTIONS: usize = 2;

/// One tree of blocks, and its stash.
pub struct Circuit<W: Width, M> {
    width: W,
    levels: u32,
    memory: M,
    /// Headers of the open path: first slots, second slots.
    path: [Headers; SLOTS],
    stash: Headers,
    stash_bodies: Words,
    stash_limit: usize,
    /// The next path to evict along; its number is public.
    next_path: u32,
    /// Whether the stash had no empty slot left after an access. Secret until it is asked for.
    full: u32,
    held: W::Block,
}

/// Levels of the tree for `blocks` blocks: half of its slots are used at most.
pub fn levels_for(blocks: u64) -> Result<u32> {
    let leaves = (blocks.max(2).next_power_of_two() / 2).trailing_zeros();
    if leaves as usize >= LEVELS_MAX {
        return Err(Error::Geometry("there are more blocks than labels for them"));
    }
    Ok(leaves + 1)
}

impl<W: Width, M: Memory> Circuit<W, M> {
    /// A tree over `memory`, which is empty and has `levels` levels. `stash_limit` blocks fit the
    /// stash.
    pub fn new(width: W, levels: u32, memory: M, stash_limit: usize) -> Result<Self> {
        assert!((1..=STASH_MAX).contains(&stash_limit), "the stash has room for a block");
        let bodies = Words::zeroed(STASH_MAX * width.words());
        Ok(Self {
            width,
            levels,
            memory,
            path: [Headers::EMPTY; SLOTS],
            stash: Headers::EMPTY,
            stash_bodies: bodies.ok_or(Error::Geometry("there is not enough memory"))?,
            stash_limit,
            next_path: 0,
            full: 0,
            held: width.block(),
        })
    }

    /// The bits of a random number that make a label.
    #[inline(always)]
    pub fn label_mask(&self) -> u32 {
        (1 << (self.levels - 1)) - 1
    }

    /// Asks for the path to `leaf`, which is public.
    #[inline(always)]
    pub fn prefetch(&self, leaf: u32) {
        self.memory.prefetch(leaf);
    }

    /// Asks for the path that the next access evicts along.
    #[inline(always)]
    pub fn prefetch_eviction(&self) {
        self.memory.prefetch(self.next_path & self.label_mask());
    }

    /// Takes the block `addr` out of the tree into `block`, if it is there, else zeros. `leaf` is
    /// its label and public, `addr` is secret.
    #[inline(always)]
    pub fn fetch(&mut self, addr: u32, leaf: u32, block: &mut W::Block) -> Result {
        let addr = addr.wrapping_add(1);
        self.memory.open(leaf)?;
        self.load_headers(leaf);
        let in_stash = self.stash.find(addr);
        let in_path = [self.path[0].find(addr), self.path[1].find(addr)];
        self.stash.clear(&in_stash);
        self.path[0].clear(&in_path[0]);
        self.path[1].clear(&in_path[1]);
        let words = self.width.words();
        let mut found = core::mem::take(block);
        let into = &mut found.as_mut()[..words];
        into.fill(0);
        for (from, mask) in self.stash_bodies.chunks_exact(words).zip(in_stash.0) {
            ct::gather(into, &from[..words], mask);
        }
        for level in 0..self.levels {
            let bodies = self.memory.bodies(level, leaf);
            for slot in 0..SLOTS {
                let from = &bodies[slot * words..][..words];
                ct::gather(into, from, in_path[slot].0[level as usize]);
            }
        }
        *block = found;
        Ok(())
    }

    /// Puts the block `addr` back under the new label `leaf`, both secret, and ends the access
    /// that fetched it from the path to `old`.
    #[inline(always)]
    pub fn put(&mut self, addr: u32, leaf: u32, block: &W::Block, old: u32) -> Result {
        self.put_into_stash(addr.wrapping_add(1), leaf, block);
        self.evict(old);
        self.store_headers(old);
        self.memory.close(old)?;

        let next = self.next_path & self.label_mask();
        self.next_path = self.next_path.wrapping_add(1);
        self.memory.open(next)?;
        self.load_headers(next);
        for _ in 0..EVICTIONS {
            self.evict(next);
        }
        self.store_headers(next);
        let (room, _) = self.stash.first_empty(self.stash_limit);
        self.full |= (!room).bits();
        self.memory.close(next)
    }

    /// Fails if the last access left no room in the stash. Nothing was lost, but nothing more may
    /// be accessed.
    #[inline(always)]
    pub fn check(&self) -> Result {
        if ct::secret::made_public(self.full) == 0 {
            return Ok(());
        }
        let limit = self.stash_limit as u64;
        Err(Error::StashOverflow { blocks: limit, limit })
    }

    /// Blocks in the stash. For statistics only: the number is secret.
    pub fn stash_blocks(&self) -> usize {
        self.stash.addrs.iter().filter(|&&addr| addr != 0).count()
    }

    #[inline(always)]
    fn put_into_stash(&mut self, addr: u32, leaf: u32, block: &W::Block) {
        let words = self.width.words();
        let (_, place) = self.stash.first_empty(self.stash_limit);
        for lane in 0..STASH_MAX {
            let mask = place.0[lane] as u32;
            self.stash.addrs[lane] |= addr & mask;
            let old = self.stash.leaves[lane];
            self.stash.leaves[lane] = (leaf & mask) | (old & !mask);
        }
        for (into, mask) in self.stash_bodies.chunks_exact_mut(words).zip(place.0) {
            ct::replace(&mut into[..words], &block.as_ref()[..words], mask);
        }
    }

    /// One eviction along the open path.
    #[inline(always)]
    fn evict(&mut self, leaf: u32) {
        let words = self.width.words();
        let plan = Plan::new(&self.stash, &self.path, leaf, self.levels);
        let mut block = core::mem::take(&mut self.held);
        let held = &mut block.as_mut()[..words];
        held.fill(0);
        let (mut addr, mut label) = (0, 0);
        for lane in 0..STASH_MAX {
            let mask = plan.stash.0[lane] as u32;
            addr |= self.stash.addrs[lane] & mask;
            label |= self.stash.leaves[lane] & mask;
        }
        self.stash.clear(&plan.stash);
        for (from, mask) in self.stash_bodies.chunks_exact(words).zip(plan.stash.0) {
            ct::gather(held, &from[..words], mask);
        }
        for level in 0..self.levels {
            let bodies = self.memory.bodies(level, leaf);
            for slot in 0..SLOTS {
                let mask = plan.slots[slot].0[level as usize];
                let headers = &mut self.path[slot];
                exchange_u32(&mut headers.addrs[level as usize], &mut addr, mask as u32);
                exchange_u32(&mut headers.leaves[level as usize], &mut label, mask as u32);
                ct::exchange(&mut bodies[slot * words..][..words], held, mask);
            }
        }
        self.held = block;
    }

    #[inline(always)]
    fn load_headers(&mut self, leaf: u32) {
        for level in 0..self.levels {
            let [addrs, labels] = self.memory.header(level, leaf);
            for slot in 0..SLOTS {
                self.path[slot].addrs[level as usize] = (addrs >> (32 * slot)) as u32;
                self.path[slot].leaves[level as usize] = (labels >> (32 * slot)) as u32;
            }
        }
    }

    #[inline(always)]
    fn store_headers(&mut self, leaf: u32) {
        let both = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        for level in 0..self.levels {
            let [first, second] = &self.path;
            let lane = level as usize;
            let addrs = both(first.addrs[lane], second.addrs[lane]);
            let labels = both(first.leaves[lane], second.leaves[lane]);
            self.memory.set_header(level, leaf, [addrs, labels]);
        }
    }
}

#[inline(always)]
fn exchange_u32(a: &mut u32, b: &mut u32, mask: u32) {
    let (x, y) = (*a, *b);
    *a = (y & mask) | (x & !mask);
    *b = (x & mask) | (y & !mask);
}
