//! The Oblivious client: an ORAM for programs in memory that an adversary watches.
//!
//! An adversary that observes every address of the program, like the operating system below an
//! enclave, does not learn which block is accessed: no branch, address or loop bound depends on it.
//! The adversary observes uniformly random paths, one for each tree and access, and a second path
//! in a fixed order.
//!
//! Circuit ORAM (Wang, Chan, Shi 2015), recursive: labels of the blocks lie 16 to a block in a
//! smaller tree of the same kind, the labels of that tree in the next, and so on; the labels of the
//! last tree are in a table that is scanned. An array of few blocks is scanned at each access,
//! without any tree.
//!
//! [`Oblivious`] gives access to a block in place:
//!
//! ```
//! use traceless::oblivious::{Lines, Oblivious, Traffic};
//! use traceless::rng::System;
//! use traceless::Addr;
//!
//! # fn main() -> traceless::Result {
//! let mut counters = Oblivious::new(5000, 64, Lines::<1>, Box::new(System))?;
//! let add = |block: &mut [u8]| {
//!     block[0] += 1;
//!     block[0]
//! };
//! assert_eq!(counters.access(Addr(7), add)?, 1);
//! assert_eq!(counters.access(Addr(7), add)?, 2);
//!
//! // The memory traffic of each access is the same, and known beforehand.
//! let traffic = Traffic::in_memory(5000, 64)?;
//! assert!(traffic.paths > 0 && traffic.bytes > 10_000);
//! # Ok(())
//! # }
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `tree` | where buckets lie |
//! | `plan` | which blocks an eviction moves |
//! | `sealed` | a tree with its lower levels encrypted on a store |
//! | `durable` | an array over a sealed tree that is saved |
//! | `secret_words` | secret words in saved state |
//! | `scheme` | the saved array as a scheme |
//! | `public_trace` | which events of a trace are public (feature `suite`) |
//! | `circuit` | one tree and its stash |
//! | `greedy` | Path ORAM's eviction, for comparison |
//! | `positions` | the position map |
//! | `labels` | arrays of labels |
//! | `draws` | random labels |
//! | `width` | the length of a block |
//! | `traffic` | the memory traffic of an access |
//! | `scan` | an array of few blocks |

#![expect(clippy::inline_always, reason = "what is not inlined is compiled for the base level")]

mod circuit;
mod draws;
pub(crate) mod durable;
mod greedy;
mod labels;
mod plan;
mod positions;
#[cfg(feature = "suite")]
mod public_trace;
mod scan;
mod scheme;
mod sealed;
mod secret_words;
#[cfg(test)]
mod tests;
mod traffic;
mod tree;
mod width;

pub use circuit::EvictionKind;
pub use durable::{ArrayGeometry, create_durable, open_durable};
pub use scan::ScanArray;
pub use sealed::SealedPages;
pub use traffic::Traffic;
pub use tree::{Memory, Ram};
pub use width::{Dynamic, Lines, Width};

use crate::scheme::health::Health;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use circuit::CircuitTree;
use draws::Draws;
use positions::Positions;
use traceless_core::error::{Error, Result};
use traceless_core::oram::{Hides, Oram, one_by_one};
use traceless_core::rng::Rng;
use traceless_core::seal::{Aead, Secret};
use traceless_core::store::Store;
use traceless_core::types::Addr;
use traceless_sys::ct::{self, Kernel, Vector, secret::made_public};
use width::{LINE, Make};

/// Number of slots for which masks are computed at once.
const LANES: usize = 32;

/// Number of blocks that fit a stash. An access needs more with a probability of about 2^-60:
/// measured down to 2^-22, where each further block is about 3.4 times less likely, and
/// extrapolated.
pub const STASH_MAX: usize = LANES;

/// Levels of a tree, at most. Labels are then below 2^30.
const LEVELS_MAX: usize = 31;

/// Blocks of an array, at most.
pub const BLOCKS_MAX: u64 = 1 << LEVELS_MAX;

/// Bytes of a block, at most.
pub const BLOCK_LEN_MAX: usize = 1 << 28;

/// Number of 64-byte blocks that a scan accesses as fast as a tree does; fewer for longer blocks.
pub const SCAN_BLOCKS: u64 = 512;

/// An array of blocks in memory that an adversary may watch. See the [module](self).
///
/// Blocks never written hold zeros.
pub struct Oblivious<W: Width = Dynamic, M: Memory = Ram> {
    blocks: u64,
    block_len: usize,
    data: CircuitTree<W, M>,
    block: Vec<u64>,
    positions: Positions,
    draws: Draws,
    /// An access with paths that could not be read; it must be repeated first.
    unread: Option<PendingAccess>,
    health: Health,
}

/// An access that the map has recorded, and the tree not yet.
#[derive(Clone, Copy)]
struct PendingAccess {
    addr: u32,
    /// The path that the block is on, which is public, and its new label.
    old: u32,
    new: u32,
}

/// The fastest array of `blocks` blocks of `block_len` bytes. Labels are drawn from `rng`.
pub fn create(blocks: u64, block_len: usize, rng: Box<dyn Rng>) -> Result<Box<dyn Oram>> {
    width::fastest(block_len, InPrivateMemory { blocks, block_len, rng })
}

/// As [`create`], but always trees, with Path ORAM's evictions: slower, and only for comparison.
pub fn create_path(blocks: u64, block_len: usize, rng: Box<dyn Rng>) -> Result<Box<dyn Oram>> {
    let width = Dynamic::of(block_len);
    check_block(block_len, width)?;
    let memory = Ram::new(circuit::levels_for(blocks)?, width.words())?;
    let oram = Oblivious::over(blocks, block_len, width, memory, EvictionKind::Path, rng)?;
    Ok(Box::new(oram))
}

/// As [`create`], but the lower levels of the tree lie on `store`, sealed. Position map, stashes
/// and upper levels stay in memory.
///
/// The array cannot be opened again: its key is not kept, so the store's contents are lost.
pub fn create_sealed(
    blocks: u64,
    block_len: usize,
    store: Arc<dyn Store>,
    rng: Box<dyn Rng>,
) -> Result<Box<dyn Oram>> {
    width::fastest(block_len, OnSealedStore { blocks, block_len, store, rng })
}

/// Bytes of the store that [`create_sealed`] needs.
pub fn sealed_len(blocks: u64, block_len: usize) -> Result<u64> {
    width::fastest(block_len, Measure { blocks, block_len })
}

struct InPrivateMemory {
    blocks: u64,
    block_len: usize,
    rng: Box<dyn Rng>,
}

impl Make for InPrivateMemory {
    type Output = Result<Box<dyn Oram>>;

    fn make(self, width: impl Width + 'static) -> Self::Output {
        let Self { blocks, block_len, rng } = self;
        if is_scanned(blocks, width) {
            return Ok(Box::new(ScanArray::new(blocks, block_len, width)?));
        }
        Ok(Box::new(Oblivious::new(blocks, block_len, width, rng)?))
    }
}

struct OnSealedStore {
    blocks: u64,
    block_len: usize,
    store: Arc<dyn Store>,
    rng: Box<dyn Rng>,
}

impl Make for OnSealedStore {
    type Output = Result<Box<dyn Oram>>;

    fn make(self, width: impl Width + 'static) -> Self::Output {
        let Self { blocks, block_len, store, mut rng } = self;
        let geometry = sealed_geometry(blocks, block_len, width)?;
        let sealer = Aead::new(&Secret::random(&mut *rng));
        let memory = SealedPages::new(geometry, store, 0, sealer, rng.fork())?;
        Ok(Box::new(Oblivious::over(blocks, block_len, width, memory, EvictionKind::Circuit, rng)?))
    }
}

struct Measure {
    blocks: u64,
    block_len: usize,
}

impl Make for Measure {
    type Output = Result<u64>;

    fn make(self, width: impl Width + 'static) -> Result<u64> {
        sealed_geometry(self.blocks, self.block_len, width)?.store_len()
    }
}

fn sealed_geometry(
    blocks: u64,
    block_len: usize,
    width: impl Width,
) -> Result<sealed::PageGeometry> {
    check_block(block_len, width)?;
    let levels = circuit::levels_for(blocks)?;
    Ok(sealed::PageGeometry::new(levels, sealed::MEMORY_LEVELS_MIN, width.words()))
}

impl<W: Width> Oblivious<W> {
    /// `blocks` blocks of `block_len` bytes that take up `width` in memory. Always a tree, even for
    /// few blocks. Their labels are drawn from `rng`.
    pub fn new(blocks: u64, block_len: usize, width: W, rng: Box<dyn Rng>) -> Result<Self> {
        check_block(block_len, width)?;
        let memory = Ram::new(circuit::levels_for(blocks)?, width.words())?;
        Self::over(blocks, block_len, width, memory, EvictionKind::Circuit, rng)
    }
}

impl<W: Width, M: Memory> Oblivious<W, M> {
    fn over(
        blocks: u64,
        block_len: usize,
        width: W,
        memory: M,
        eviction: EvictionKind,
        rng: Box<dyn Rng>,
    ) -> Result<Self> {
        let levels = circuit::levels_for(blocks)?;
        Ok(Self {
            blocks,
            block_len,
            data: CircuitTree::new(width, levels, memory, STASH_MAX, eviction)?,
            block: width.buffer(),
            positions: Positions::new(blocks, eviction)?,
            draws: Draws::new(rng),
            unread: None,
            health: Health::default(),
        })
    }

    /// Passes the block `addr`, which is secret, to `visit`, which may change it.
    ///
    /// An adversary observes what `visit` does: it must not branch on the block, or on any other
    /// secret.
    pub fn access<R>(&mut self, addr: Addr, visit: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        self.check_addr(addr)?;
        // `visit` becomes a `dyn` closure, so that the kernel is compiled once for each processor
        // level.
        let (mut visit, mut seen) = (Some(visit), None);
        let block_len = self.block_len;
        self.access_words(addr.0 as u32, &mut |block| {
            let visit = visit.take().expect("a block is visited once");
            seen = Some(visit(&mut ct::bytes_of_mut(block)[..block_len]));
        })?;
        Ok(seen.expect("a block is visited"))
    }

    /// Number of blocks in each stash, first that of the data tree. For statistics only: the
    /// numbers are secret.
    pub fn stash_blocks(&self) -> Vec<usize> {
        let maps = self.positions.stash_blocks();
        core::iter::once(self.data.stash_blocks()).chain(maps).collect()
    }

    fn access_words(&mut self, addr: u32, visit: &mut dyn FnMut(&mut [u64])) -> Result {
        self.check_stashes()?;
        self.finish_unread(&mut |_| {})?;
        self.health.begin();
        self.draws.reserve(1 + self.positions.trees());
        let drawn = self.draws.label(self.data.label_mask());
        let data = &self.data;
        let found = |entry| {
            // Prefetch the path while the map evicts.
            let old = drawn.old(entry);
            data.prefetch(old);
            old
        };
        let old = self.positions.exchange(addr, drawn.fresh, &mut self.draws, &found);
        let old = self.health.end(old)?;
        self.access_tree(PendingAccess { addr, old, new: drawn.fresh }, visit)
    }

    /// Repeats the access with paths that could not be read, if there is one.
    fn finish_unread(&mut self, change: &mut dyn FnMut(&mut [u8])) -> Result {
        let Some(unread) = self.unread else { return Ok(()) };
        let len = self.block_len;
        self.access_tree(unread, &mut |block| change(&mut ct::bytes_of_mut(block)[..len]))
    }

    /// The second half of an access. If paths cannot be read, the tree is unchanged, and the map is
    /// one access ahead of it: so the same paths must be read again before any other.
    fn access_tree(&mut self, access: PendingAccess, visit: &mut dyn FnMut(&mut [u64])) -> Result {
        let PendingAccess { addr, old, new } = access;
        let Self { data, block, health, unread, .. } = self;
        *unread = Some(access);
        health.begin();
        let mut is_read = false;
        let accessed =
            ct::dispatch(Access { data, block, addr, old, new, visit, is_read: &mut is_read });
        if !is_read {
            return health.after_read(accessed);
        }
        *unread = None;
        health.end(accessed)
    }

    fn check_addr(&self, addr: Addr) -> Result {
        // One bit becomes public, and only in a program with a wrong address.
        let is_one = made_public(addr.0 < self.blocks);
        if is_one { Ok(()) } else { Err(Error::OutOfRange { addr, blocks: self.blocks }) }
    }

    fn check_stashes(&self) -> Result {
        self.health.check()?;
        self.data.check()?;
        self.positions.check_stashes()
    }
}

/// One access to the tree of the blocks.
struct Access<'a, W: Width, M> {
    data: &'a mut CircuitTree<W, M>,
    block: &'a mut Vec<u64>,
    addr: u32,
    old: u32,
    new: u32,
    visit: &'a mut dyn FnMut(&mut [u64]),
    /// Whether both paths were read. Before that nothing has changed.
    is_read: &'a mut bool,
}

impl<W: Width, M: Memory> Kernel for Access<'_, W, M> {
    type Output = Result;

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> Result {
        self.data.fetch(v, self.addr, self.old, self.block)?;
        *self.is_read = true;
        (self.visit)(self.block);
        self.data.put(v, self.addr, self.new, self.block, self.old)
    }
}

/// Whether a scan is faster than a tree.
fn is_scanned(blocks: u64, width: impl Width) -> bool {
    blocks <= SCAN_BLOCKS * LINE as u64 / width.words().max(LINE) as u64
}

/// Checks that blocks have a length, fit their width, and cause no overflow in sizes.
fn check_block(block_len: usize, width: impl Width) -> Result {
    if block_len == 0 || block_len > BLOCK_LEN_MAX {
        return Err(Error::Geometry("blocks are of 1 to 2^28 bytes"));
    }
    if block_len.div_ceil(size_of::<u64>()) > width.words() || width.words() > BLOCK_LEN_MAX {
        return Err(Error::Geometry("blocks do not fit into their words"));
    }
    Ok(())
}

impl<W: Width, M: Memory> Oram for Oblivious<W, M> {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn block_len(&self) -> usize {
        self.block_len
    }

    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        for (addr, part) in one_by_one(addrs, self.block_len, into.len())? {
            self.access(addr, |block| into[part].copy_from_slice(block))?;
        }
        Ok(())
    }

    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        for (addr, part) in one_by_one(addrs, self.block_len, from.len())? {
            self.access(addr, |block| block.copy_from_slice(&from[part]))?;
        }
        Ok(())
    }

    fn update(&mut self, addr: Addr, change: &mut dyn FnMut(&mut [u8])) -> Result {
        self.access(addr, change)
    }

    fn sync(&mut self) -> Result {
        self.check_stashes()?;
        self.finish_unread(&mut |_| {})
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }

    fn close(&mut self) -> Result {
        self.sync()
    }
}
