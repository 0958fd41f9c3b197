//! Circuit ORAM: one tree and its stash, without a position map.
//!
//! An access reads the path of its block and puts the block into the stash; one eviction along that
//! path and two along the next path in reverse-lexicographic order bring blocks back into the tree.
//! Every slot of both paths and of the stash is read and written each time, so that an adversary
//! that observes each address learns the two paths and nothing else.

use super::greedy::WaitingBlocks;
use super::plan::{EvictionPlan, Headers, Lanes};
use super::secret_words::{load_secret, save_secret};
use super::tree::{ACCESSED, EVICTED, Memory, SLOTS};
use super::width::Width;
use super::{BLOCKS_MAX, LANES, STASH_MAX};
use crate::scheme::circuit;
use alloc::vec::Vec;
use traceless_core::durable::{Durable, load_words, save_words, take_saved};
use traceless_core::error::{Error, Result};
use traceless_sys::Words;
use traceless_sys::ct::secret::{classify, made_public};
use traceless_sys::ct::{self, Kernel, MovingBlock as _, Vector};

/// How blocks move from the stash into the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvictionKind {
    /// Circuit ORAM: at most one block of each bucket moves at a time.
    Circuit,
    /// Path ORAM, for comparison: all blocks of a path go as far as they may, on both paths of an
    /// access.
    Path,
}

/// One tree of blocks, and its stash.
pub struct CircuitTree<W: Width, M> {
    width: W,
    levels: u32,
    memory: M,
    /// Headers of the open path: first slots, second slots.
    path: [Headers; SLOTS],
    stash: Headers,
    stash_bodies: Words,
    stash_limit: usize,
    /// Number of the next path to evict along; it is public.
    next_path: u32,
    /// Whether the stash had no empty slot left after an access. Secret until `check` reveals it.
    full: u32,
    /// Buffers for the bodies that evictions move.
    held: [Vec<u64>; 3],
    /// Present if blocks are moved as in Path ORAM.
    pool: Option<WaitingBlocks<W>>,
}

/// Levels of the tree for `blocks` blocks.
pub fn levels_for(blocks: u64) -> Result<u32> {
    if blocks > BLOCKS_MAX {
        return Err(Error::Geometry("there are more blocks than labels for them"));
    }
    Ok(circuit::levels_for(blocks))
}

impl<W: Width, M: Memory> CircuitTree<W, M> {
    /// A tree over `memory`, which is empty and has `levels` levels. `stash_limit` blocks fit the
    /// stash.
    pub fn new(
        width: W,
        levels: u32,
        memory: M,
        stash_limit: usize,
        eviction: EvictionKind,
    ) -> Result<Self> {
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
            held: core::array::from_fn(|_| width.buffer()),
            pool: match eviction {
                EvictionKind::Circuit => None,
                EvictionKind::Path => Some(WaitingBlocks::new(width)?),
            },
        })
    }

    /// The mask that turns a random number into a label.
    #[inline(always)]
    pub fn label_mask(&self) -> u32 {
        (1 << (self.levels - 1)) - 1
    }

    /// Prefetches the path to `leaf`, which is public.
    #[inline(always)]
    pub fn prefetch(&self, leaf: u32) {
        self.memory.prefetch(leaf);
    }

    /// Moves the block `addr` out of the tree into `block`, which becomes zeros if the block is not
    /// there. `leaf` is its label and public, `addr` is secret. If a path cannot be opened, nothing
    /// has changed.
    #[inline(always)]
    pub fn fetch<V: Vector>(&mut self, v: V, addr: u32, leaf: u32, block: &mut Vec<u64>) -> Result {
        let addr = addr.wrapping_add(1);
        self.memory.open(ACCESSED, leaf)?;
        self.memory.open(EVICTED, self.next_path & self.label_mask())?;
        self.load_headers(ACCESSED);
        let in_stash = self.stash.take(addr);
        let in_path = [self.path[0].take(addr), self.path[1].take(addr)];
        let words = self.width.words();
        let mut found = self.width.hold(v, block);
        found.clear();
        for (lane, from) in self.stash_bodies.chunks_exact(words).enumerate() {
            found.gather(from, in_stash.mask(lane));
        }
        for level in 0..self.levels as usize {
            let (first, second) = self.memory.bodies(ACCESSED, level).split_at(words);
            found.gather(first, in_path[0].mask(level));
            found.gather(second, in_path[1].mask(level));
        }
        self.width.release(found, block);
        Ok(())
    }

    /// Puts the block `addr` back under the new label `label`, both secret. This ends the access
    /// that fetched it from the path to `old`.
    #[inline(always)]
    pub fn put<V: Vector>(
        &mut self,
        v: V,
        addr: u32,
        label: u32,
        block: &mut Vec<u64>,
        old: u32,
    ) -> Result {
        let place = self.stash.insert(addr.wrapping_add(1), label, self.stash_limit);
        if let Some(mut pool) = self.pool.take() {
            // A separate kernel, so that this code does not slow down the faster one.
            let rest = Greedily { tree: self, pool: &mut pool, block, place, old };
            let put = ct::dispatch(rest);
            self.pool = Some(pool);
            return put;
        }
        let first = EvictionPlan::made(&mut self.stash, &mut self.path, old, self.levels);
        self.store_headers(ACCESSED);

        let next = self.next_path & self.label_mask();
        self.next_path = self.next_path.wrapping_add(1);
        self.load_headers(EVICTED);
        let second = EvictionPlan::made(&mut self.stash, &mut self.path, next, self.levels);
        let third = EvictionPlan::made(&mut self.stash, &mut self.path, next, self.levels);
        self.store_headers(EVICTED);
        self.full |= (!self.stash.has_room(self.stash_limit)).bits();

        // It is fetched until the next access, and is as public as the open path.
        self.memory.prefetch(self.next_path & self.label_mask());
        self.move_bodies(v, block, &place, &[first, second, third]);
        self.memory.close()
    }

    /// Moves all blocks of the stash and of an open path as far down as they may go.
    #[inline(always)]
    fn evict_greedily<V: Vector>(
        &mut self,
        v: V,
        pool: &mut WaitingBlocks<W>,
        path: usize,
        leaf: u32,
    ) {
        let words = self.width.words();
        for (lane, body) in self.stash_bodies.chunks_exact(words).enumerate() {
            pool.body_mut(0, lane).copy_from_slice(body);
        }
        for level in 0..self.levels as usize {
            let bodies = self.memory.bodies(path, level);
            for (slot, body) in bodies.chunks_exact(words).enumerate() {
                pool.body_mut(1 + slot, level).copy_from_slice(body);
            }
        }
        let [first, second] = &self.path;
        pool.fill([&self.stash, first, second], leaf, self.levels);
        for level in (0..self.levels as usize).rev() {
            let bodies = self.memory.bodies(path, level);
            for (slot, body) in bodies.chunks_exact_mut(words).enumerate() {
                let (addr, label) = pool.give(v, level as u32, body);
                self.path[slot].addrs[level] = addr;
                self.path[slot].labels[level] = label;
            }
        }
        // The stash then has at most one block more, the accessed one: each block of the path could
        // have stayed in its slot.
        for (lane, body) in self.stash_bodies.chunks_exact_mut(words).enumerate() {
            let (addr, label) = pool.give(v, 0, body);
            self.stash.addrs[lane] = addr;
            self.stash.labels[lane] = label;
        }
        self.store_headers(path);
    }

    /// Fails if the last access left no room in the stash. No block was lost, but no further access
    /// is allowed.
    #[inline(always)]
    pub fn check(&self) -> Result {
        if made_public(self.full) == 0 {
            return Ok(());
        }
        let limit = self.stash_limit as u64;
        Err(Error::StashOverflow { blocks: limit, limit })
    }

    /// The memory of the tree.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// The memory of the tree, mutable.
    pub fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }

    /// Inserts a block that is in neither tree nor stash under the label `label`, by an access to
    /// the path `leaf`, which is public. The address `u32::MAX` inserts nothing, and looks the same
    /// to an observer.
    pub fn insert(
        &mut self,
        addr: u32,
        label: u32,
        body: &[u64],
        leaf: u32,
        block: &mut Vec<u64>,
    ) -> Result {
        self.check()?;
        ct::dispatch(Insertion { tree: self, addr, label, body, leaf, block })
    }

    /// Passes every slot of stash and tree to `visit`, always in the same order: the address of its
    /// block, or `u32::MAX`, and its body. Both are secret.
    pub fn visit_slots(&mut self, visit: &mut dyn FnMut(u32, &[u64]) -> Result) -> Result {
        let words = self.width.words();
        for (body, addr) in self.stash_bodies.chunks_exact(words).zip(self.stash.addrs) {
            visit(addr.wrapping_sub(1), body)?;
        }
        for leaf in 0..=self.label_mask() {
            self.memory.open(ACCESSED, leaf)?;
            for level in 0..self.levels as usize {
                // Visit each bucket once, with the smallest label that crosses it.
                if leaf >> level != 0 {
                    continue;
                }
                let [addrs, _] = self.memory.header(ACCESSED, level);
                let (first, second) = self.memory.bodies(ACCESSED, level).split_at(words);
                visit((addrs as u32).wrapping_sub(1), first)?;
                visit(((addrs >> 32) as u32).wrapping_sub(1), second)?;
            }
        }
        Ok(())
    }

    /// Bytes that a tree saves besides its memory.
    pub fn saved_len(width: W) -> u64 {
        let headers = SLOTS * size_of::<[u32; LANES]>();
        let bodies = (STASH_MAX * width.words() + 1) * size_of::<u64>();
        (headers + bodies) as u64
    }

    /// Addresses plus one, and labels, in the stash. For statistics only: they are secret.
    #[cfg(test)]
    pub fn stash_labels(&self) -> impl Iterator<Item = (u32, u32)> {
        self.stash.addrs.into_iter().zip(self.stash.labels)
    }

    /// Number of blocks in the stash. For statistics only: the number is secret.
    pub fn stash_blocks(&self) -> usize {
        self.stash.addrs.iter().filter(|&&addr| addr != 0).count()
    }

    /// Moves the bodies as three evictions have planned, the first along the path of the access.
    /// Before that `block` goes to `place` in the stash.
    #[inline(always)]
    fn move_bodies<V: Vector>(
        &mut self,
        v: V,
        block: &mut Vec<u64>,
        place: &Lanes,
        [first, second, third]: &[EvictionPlan; 3],
    ) {
        let (width, words) = (self.width, self.width.words());
        let new = width.hold(v, block);
        let [a, b, c] = &mut self.held;
        let (mut a, mut b, mut c) = (width.hold(v, a), width.hold(v, b), width.hold(v, c));
        a.clear();
        b.clear();
        c.clear();
        for (lane, body) in self.stash_bodies.chunks_exact_mut(words).enumerate() {
            new.copy_into(body, place.mask(lane));
            a.gather(body, first.stash.mask(lane));
            b.gather(body, second.stash.mask(lane));
            c.gather(body, third.stash.mask(lane));
        }
        for level in 0..self.levels as usize {
            let (body, other) = self.memory.bodies(ACCESSED, level).split_at_mut(words);
            a.exchange(body, first.slots[0].mask(level));
            a.exchange(other, first.slots[1].mask(level));
        }
        for level in 0..self.levels as usize {
            let (body, other) = self.memory.bodies(EVICTED, level).split_at_mut(words);
            b.exchange(body, second.slots[0].mask(level));
            c.exchange(body, third.slots[0].mask(level));
            b.exchange(other, second.slots[1].mask(level));
            c.exchange(other, third.slots[1].mask(level));
        }
        width.release(new, block);
        for (held, buffer) in [a, b, c].into_iter().zip(&mut self.held) {
            width.release(held, buffer);
        }
    }

    #[inline(always)]
    fn load_headers(&mut self, path: usize) {
        for level in 0..self.levels as usize {
            let [addrs, labels] = self.memory.header(path, level);
            self.path[0].addrs[level] = addrs as u32;
            self.path[1].addrs[level] = (addrs >> 32) as u32;
            self.path[0].labels[level] = labels as u32;
            self.path[1].labels[level] = (labels >> 32) as u32;
        }
    }

    #[inline(always)]
    fn store_headers(&mut self, path: usize) {
        let both = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        for level in 0..self.levels as usize {
            let [first, second] = &self.path;
            let addrs = both(first.addrs[level], second.addrs[level]);
            let labels = both(first.labels[level], second.labels[level]);
            self.memory.set_header(path, level, [addrs, labels]);
        }
    }
}

/// The stash must not be full.
impl<W: Width, M: Memory + Durable> Durable for CircuitTree<W, M> {
    fn save(&self, out: &mut Vec<u8>) {
        self.memory.save(out);
        for lanes in [&self.stash.addrs, &self.stash.labels] {
            out.extend(lanes.iter().flat_map(|lane| lane.to_le_bytes()));
        }
        save_secret(&self.stash_bodies, out);
        save_words(&[self.next_path.into()], out);
    }

    fn load(&mut self, from: &mut &[u8]) -> Result {
        self.memory.load(from)?;
        for lanes in [&mut self.stash.addrs, &mut self.stash.labels] {
            let saved = take_saved(from, size_of_val(lanes))?;
            for (lane, bytes) in lanes.iter_mut().zip(saved.as_chunks().0) {
                *lane = u32::from_le_bytes(*bytes);
            }
            classify(lanes);
        }
        load_secret(&mut self.stash_bodies, from)?;
        let mut next_path = [0];
        load_words(&mut next_path, from)?;
        self.next_path = next_path[0] as u32;
        Ok(())
    }
}

/// The insertion of a block into a tree.
struct Insertion<'a, W: Width, M> {
    tree: &'a mut CircuitTree<W, M>,
    addr: u32,
    label: u32,
    body: &'a [u64],
    leaf: u32,
    block: &'a mut Vec<u64>,
}

impl<W: Width, M: Memory> Kernel for Insertion<'_, W, M> {
    type Output = Result;

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> Result {
        let Self { tree, addr, label, body, leaf, block } = self;
        tree.fetch(v, addr, leaf, block)?;
        block.copy_from_slice(body);
        tree.put(v, addr, label, block, leaf)
    }
}

/// The second half of an access with Path ORAM's evictions.
struct Greedily<'a, W: Width, M> {
    tree: &'a mut CircuitTree<W, M>,
    pool: &'a mut WaitingBlocks<W>,
    block: &'a mut Vec<u64>,
    /// The place of the block in the stash.
    place: Lanes,
    old: u32,
}

impl<W: Width, M: Memory> Kernel for Greedily<'_, W, M> {
    type Output = Result;

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> Result {
        let Self { tree, pool, block, place, old } = self;
        let new = tree.width.hold(v, block);
        let bodies = tree.stash_bodies.chunks_exact_mut(tree.width.words());
        for (lane, body) in bodies.enumerate() {
            new.copy_into(body, place.mask(lane));
        }
        tree.width.release(new, block);
        tree.evict_greedily(v, pool, ACCESSED, old);

        let next = tree.next_path & tree.label_mask();
        tree.next_path = tree.next_path.wrapping_add(1);
        tree.load_headers(EVICTED);
        tree.evict_greedily(v, pool, EVICTED, next);
        tree.full |= (!tree.stash.has_room(tree.stash_limit)).bits();
        tree.memory.close()
    }
}
