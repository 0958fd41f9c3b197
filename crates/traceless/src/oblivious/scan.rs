//! An array of few blocks: an access touches every one.

use super::width::{Dynamic, Width};
use super::{BLOCKS_MAX, check_block};
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::oram::{Hides, Oram, one_by_one};
use traceless_core::types::Addr;
use traceless_sys::Words;
use traceless_sys::ct::{self, Kernel, Mask, MovingBlock as _, Vector, secret::made_public};

/// An array of blocks in memory that an adversary may watch. The time of an access is proportional
/// to the array's size.
pub struct ScanArray<W: Width = Dynamic> {
    blocks: u64,
    block_len: usize,
    width: W,
    bodies: Words,
    block: Vec<u64>,
}

impl<W: Width> ScanArray<W> {
    /// `blocks` blocks of `block_len` bytes, all zeros, that take up `width` in memory.
    pub fn new(blocks: u64, block_len: usize, width: W) -> Result<Self> {
        check_block(block_len, width)?;
        let words = usize::try_from(blocks).ok().and_then(|n| n.checked_mul(width.words()));
        let bodies = words.filter(|_| blocks <= BLOCKS_MAX).and_then(Words::zeroed);
        let bodies = bodies.ok_or(Error::Geometry("too many blocks to touch them all"))?;
        Ok(Self { blocks, block_len, width, bodies, block: width.buffer() })
    }

    /// Passes the block `addr`, which is secret, to `visit`, which may change it.
    ///
    /// An adversary observes what `visit` does: it must not branch on the block, or on any other
    /// secret.
    pub fn access<R>(&mut self, addr: Addr, visit: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        if !made_public(addr.0 < self.blocks) {
            return Err(Error::OutOfRange { addr, blocks: self.blocks });
        }
        Ok(ct::dispatch(ScanAccess { scan: self, addr: addr.0 as u32, visit }))
    }
}

struct ScanAccess<'a, W: Width, F> {
    scan: &'a mut ScanArray<W>,
    addr: u32,
    visit: F,
}

impl<R, W: Width, F: FnOnce(&mut [u8]) -> R> Kernel for ScanAccess<'_, W, F> {
    type Output = R;

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> R {
        let ScanArray { block_len, width, bodies, block, .. } = self.scan;
        let mask = |i: usize| Mask::equal(self.addr, i as u32).bits();
        let mut held = width.hold(v, block);
        held.clear();
        for (i, from) in bodies.chunks_exact(width.words()).enumerate() {
            held.gather(from, mask(i));
        }
        width.release(held, block);
        let seen = (self.visit)(&mut ct::bytes_of_mut(block)[..*block_len]);
        let held = width.hold(v, block);
        for (i, into) in bodies.chunks_exact_mut(width.words()).enumerate() {
            held.copy_into(into, mask(i));
        }
        width.release(held, block);
        seen
    }
}

impl<W: Width> Oram for ScanArray<W> {
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
        Ok(())
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }

    fn close(&mut self) -> Result {
        Ok(())
    }
}
