//! The Oblivious client: an ORAM for programs whose own memory is watched.
//!
//! Whoever sees every address that the program touches, such as the operating system below an
//! enclave, learns nothing of which block is meant: no branch, no address and no end of a loop
//! depends on it. What is seen are uniformly random paths, one for each tree and access, and a
//! second path in a fixed order.
//!
//! Circuit ORAM (Wang, Chan, Shi 2015), recursive: labels of the blocks lie 16 to a block in a
//! smaller tree of the same kind, theirs in the next, and those of the last in a table that is
//! scanned. Few blocks are scanned at each access, without any tree.
//!
//! | file | what it holds |
//! |---|---|
//! | `tree` | where buckets lie |
//! | `plan` | what an eviction moves where |
//! | `circuit` | one tree and its stash |
//! | `labels` | labels by number |
//! | `draws` | random labels |
//! | `width` | the length of a block |
//! | `scan` | few blocks |

mod circuit;
mod draws;
mod labels;
mod plan;
mod scan;
#[cfg(test)]
mod tests;
mod tree;
mod width;

pub use scan::Scan;
pub use width::{Dynamic, Fixed, Width};

use crate::error::{Error, Result};
use crate::oram::{Hides, Oram, check_request};
use crate::rng::Rng;
use crate::types::Addr;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use circuit::Circuit;
use draws::Draws;
use labels::{FAN_OUT, FAN_OUT_BITS};
use traceless_sys::ct::{self, Kernel, secret::made_public};
use tree::{Memory, Ram};

/// Slots that masks are computed for at once.
const LANES: usize = 32;

/// Blocks that fit a stash. With trees that are half full at most, an access needs more with a
/// probability below 2^-60: measured down to 2^-24, where each further block halves it 1.8 times.
pub const STASH_MAX: usize = LANES;

/// Levels of a tree. Labels are then below 2^30.
const LEVELS_MAX: usize = 31;

/// Labels that are scanned rather than kept in a tree.
const BASE_LABELS: u64 = 4096;

/// Blocks of 64 bytes that are scanned faster than a tree is accessed; of longer blocks fewer.
pub const SCAN_BLOCKS: u64 = 256;

type MapTree = Circuit<Fixed<{ FAN_OUT / 2 }>, Ram>;

/// An array of blocks that may be watched. See the [module](self).
///
/// Blocks never written hold zeros.
pub struct Oblivious<W: Width = Dynamic> {
    blocks: u64,
    block_len: usize,
    core: Core<W, Ram>,
}

/// The fastest array for that many blocks of that length.
pub fn create(blocks: u64, block_len: usize, rng: Box<dyn Rng>) -> Result<Box<dyn Oram>> {
    if blocks <= SCAN_BLOCKS * 64 / (block_len.max(64) as u64) {
        return Ok(Box::new(Scan::new(blocks, block_len)?));
    }
    Ok(match block_len.div_ceil(8) {
        1 => Box::new(Oblivious::with_width(blocks, block_len, Fixed::<1>, rng)?),
        2 => Box::new(Oblivious::with_width(blocks, block_len, Fixed::<2>, rng)?),
        3..=4 => Box::new(Oblivious::with_width(blocks, block_len, Fixed::<4>, rng)?),
        5..=8 => Box::new(Oblivious::with_width(blocks, block_len, Fixed::<8>, rng)?),
        9..=16 => Box::new(Oblivious::with_width(blocks, block_len, Fixed::<16>, rng)?),
        17..=32 => Box::new(Oblivious::with_width(blocks, block_len, Fixed::<32>, rng)?),
        words => Box::new(Oblivious::with_width(blocks, block_len, Dynamic(words), rng)?),
    })
}

impl Oblivious<Dynamic> {
    /// `blocks` blocks of `block_len` bytes, whose labels are drawn from `rng`.
    pub fn new(blocks: u64, block_len: usize, rng: Box<dyn Rng>) -> Result<Self> {
        Self::with_width(blocks, block_len, Dynamic(block_len.div_ceil(8)), rng)
    }
}

impl<W: Width> Oblivious<W> {
    /// `blocks` blocks of `block_len` bytes that take up `width` in memory.
    pub fn with_width(blocks: u64, block_len: usize, width: W, rng: Box<dyn Rng>) -> Result<Self> {
        if block_len == 0 || block_len > 8 * width.words() {
            return Err(Error::Geometry("blocks need a length, and to fit into their words"));
        }
        let levels = circuit::levels_for(blocks)?;
        let memory = Ram::new(levels, width.words())?;
        let data = Circuit::new(width, levels, memory, STASH_MAX)?;
        Ok(Self { blocks, block_len, core: Core::new(blocks, width, data, rng)? })
    }

    /// Hands the block `addr`, which is secret, to `visit`, which may change it.
    ///
    /// What `visit` does is seen: it must not branch on the block, or on anything secret, either.
    pub fn access<R>(&mut self, addr: Addr, visit: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        // One bit becomes public, and that only in a program that has an error.
        if !made_public(addr.0 < self.blocks) {
            return Err(Error::OutOfRange { addr, blocks: self.blocks });
        }
        let block_len = self.block_len;
        let visit = |block: &mut [u64]| visit(&mut ct::bytes_of_mut(block)[..block_len]);
        ct::dispatch(Access { core: &mut self.core, addr: addr.0 as u32, visit })
    }

    /// Blocks in each stash, that of the blocks first. For statistics only: the numbers are secret.
    pub fn stash_blocks(&self) -> Vec<usize> {
        let maps = self.core.maps.iter().map(Circuit::stash_blocks);
        core::iter::once(self.core.data.stash_blocks()).chain(maps).collect()
    }
}

/// The trees: that of the blocks, and those of the labels, the largest first.
struct Core<W: Width, M> {
    data: Circuit<W, M>,
    maps: Vec<MapTree>,
    /// Labels of the last tree.
    base: Vec<u32>,
    draws: Draws,
    block: W::Block,
}

/// Trees that an access goes through, at most.
const TREES_MAX: usize = 8;

/// What an access draws for one tree.
#[derive(Clone, Copy, Default)]
struct Drawn {
    /// The label that the block gets.
    fresh: u32,
    /// The path that is read for a block never accessed.
    unused: u32,
}

impl<W: Width, M: Memory> Core<W, M> {
    fn new(blocks: u64, width: W, data: Circuit<W, M>, rng: Box<dyn Rng>) -> Result<Self> {
        let mut maps = vec![];
        let mut labels = blocks;
        while labels > BASE_LABELS {
            labels = labels.div_ceil(FAN_OUT as u64);
            let levels = circuit::levels_for(labels)?;
            maps.push(Circuit::new(Fixed, levels, Ram::new(levels, FAN_OUT / 2)?, STASH_MAX)?);
        }
        assert!(maps.len() < TREES_MAX, "the number of labels is limited");
        Ok(Self {
            data,
            maps,
            base: vec![0; (labels as usize).next_multiple_of(FAN_OUT)],
            draws: Draws::new(rng),
            block: width.block(),
        })
    }

    #[inline(always)]
    fn access<R>(&mut self, addr: u32, visit: impl FnOnce(&mut [u64]) -> R) -> Result<R> {
        self.check_stashes()?;
        self.data.prefetch_eviction();
        let drawn = self.draw();
        let old = self.look_up(addr, &drawn)?;
        self.data.fetch(addr, old, &mut self.block)?;
        let seen = visit(self.block.as_mut());
        self.data.put(addr, drawn[0].fresh, &self.block, old)?;
        Ok(seen)
    }

    /// Gives the block `addr` its new label, and returns the old one, which becomes public by it.
    #[inline(always)]
    fn look_up(&mut self, addr: u32, drawn: &[Drawn; TREES_MAX]) -> Result<u32> {
        let digits = |depth: usize| addr.wrapping_shr(FAN_OUT_BITS * depth as u32);
        let mut depth = self.maps.len();
        let new = labels::entry_of(drawn[depth].fresh);
        let entry = labels::exchange(&mut self.base, digits(depth), new);
        let mut old = self.reveal(depth, entry, drawn);
        while depth > 0 {
            let index = digits(depth);
            let mut block = [0; FAN_OUT / 2];
            self.maps[depth - 1].fetch(index, old, &mut block)?;
            let new = labels::entry_of(drawn[depth - 1].fresh);
            let place = digits(depth - 1) & (FAN_OUT as u32 - 1);
            let entry = labels::exchange_in_block(&mut block, place, new);
            // The next path comes near while this tree evicts.
            let next = self.reveal(depth - 1, entry, drawn);
            self.maps[depth - 1].put(index, drawn[depth].fresh, &block, old)?;
            (depth, old) = (depth - 1, next);
        }
        Ok(old)
    }

    /// The label that a tree's block had; the tree is told.
    #[inline(always)]
    fn reveal(&self, depth: usize, entry: u32, drawn: &[Drawn; TREES_MAX]) -> u32 {
        let label = made_public(labels::label_of(entry, drawn[depth].unused));
        match depth {
            0 => self.data.prefetch(label),
            _ => self.maps[depth - 1].prefetch(label),
        }
        label
    }

    #[inline(always)]
    fn draw(&mut self) -> [Drawn; TREES_MAX] {
        self.draws.reserve(self.maps.len() + 1);
        let mut drawn = [Drawn::default(); TREES_MAX];
        for (depth, drawn) in drawn[..=self.maps.len()].iter_mut().enumerate() {
            let (fresh, unused) = self.draws.pair();
            let mask = match depth {
                0 => self.data.label_mask(),
                _ => self.maps[depth - 1].label_mask(),
            };
            *drawn = Drawn { fresh: fresh & mask, unused: unused & mask };
        }
        drawn
    }

    #[inline(always)]
    fn check_stashes(&self) -> Result {
        self.data.check()?;
        self.maps.iter().try_for_each(Circuit::check)
    }
}

struct Access<'a, W: Width, M, V> {
    core: &'a mut Core<W, M>,
    addr: u32,
    visit: V,
}

impl<W: Width, M: Memory, R, V: FnOnce(&mut [u64]) -> R> Kernel for Access<'_, W, M, V> {
    type Output = Result<R>;

    #[inline(always)]
    fn run(self) -> Result<R> {
        self.core.access(self.addr, self.visit)
    }
}

impl<W: Width> Oram for Oblivious<W> {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn block_len(&self) -> usize {
        self.block_len
    }

    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        check_request(self.blocks, self.block_len, addrs, into.len())?;
        for (&addr, into) in addrs.iter().zip(into.chunks_exact_mut(self.block_len)) {
            self.access(addr, |block| into.copy_from_slice(block))?;
        }
        Ok(())
    }

    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        check_request(self.blocks, self.block_len, addrs, from.len())?;
        for (&addr, from) in addrs.iter().zip(from.chunks_exact(self.block_len)) {
            self.access(addr, |block| block.copy_from_slice(from))?;
        }
        Ok(())
    }

    fn update(&mut self, addr: Addr, change: &mut dyn FnMut(&mut [u8])) -> Result {
        self.access(addr, change)
    }

    fn sync(&mut self) -> Result {
        self.core.check_stashes()
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }

    fn close(&mut self) -> Result {
        self.sync()
    }
}
