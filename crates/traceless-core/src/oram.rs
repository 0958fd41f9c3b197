//! The interface that every scheme offers its clients.
//!
//! Code that uses an ORAM needs only the trait, and works with every scheme. The array in this
//! example is plain memory, which hides nothing:
//!
//! ```
//! use traceless_core::Addr;
//! use traceless_core::oram::Oram;
//! # use traceless_core::oram::{Hides, check_request, one_by_one};
//! # use traceless_core::Result;
//! # struct Plain(Vec<[u8; 8]>);
//! # impl Oram for Plain {
//! #     fn blocks(&self) -> u64 {
//! #         self.0.len() as u64
//! #     }
//! #     fn block_len(&self) -> usize {
//! #         8
//! #     }
//! #     fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
//! #         check_request(self.blocks(), 8, addrs, into.len())?;
//! #         for (addr, bytes) in one_by_one(addrs, 8, into.len())? {
//! #             into[bytes].copy_from_slice(&self.0[addr.0 as usize]);
//! #         }
//! #         Ok(())
//! #     }
//! #     fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
//! #         check_request(self.blocks(), 8, addrs, from.len())?;
//! #         for (addr, bytes) in one_by_one(addrs, 8, from.len())? {
//! #             self.0[addr.0 as usize].copy_from_slice(&from[bytes]);
//! #         }
//! #         Ok(())
//! #     }
//! #     fn sync(&mut self) -> Result {
//! #         Ok(())
//! #     }
//! #     fn hides(&self) -> Hides {
//! #         Hides::Nothing
//! #     }
//! #     fn close(&mut self) -> Result {
//! #         Ok(())
//! #     }
//! # }
//!
//! /// Moves an amount from one account to another. Each block is a number of 8 bytes.
//! fn transfer(oram: &mut dyn Oram, from: Addr, to: Addr, amount: u64) -> traceless_core::Result {
//!     let amounts = [amount.wrapping_neg(), amount];
//!     oram.update_many(&[from, to], &mut |nth, block| {
//!         let old = u64::from_le_bytes((&*block).try_into().expect("8 bytes"));
//!         block.copy_from_slice(&old.wrapping_add(amounts[nth]).to_le_bytes());
//!     })
//! }
//!
//! # fn main() -> Result {
//! # let mut oram = Plain(vec![[0; 8]; 10]);
//! oram.write(Addr(3), &100u64.to_le_bytes())?;
//! transfer(&mut oram, Addr(3), Addr(5), 30)?;
//! let mut both = [0; 16];
//! oram.read_many(&[Addr(3), Addr(5)], &mut both)?;
//! assert_eq!(both[..8], 70u64.to_le_bytes());
//! assert_eq!(both[8..], 30u64.to_le_bytes());
//! # Ok(())
//! # }
//! ```

use crate::error::{Error, Result};
use crate::types::Addr;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// What a scheme's claim covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hides {
    /// Neither reads nor writes reveal which block is accessed.
    ReadsAndWrites,
    /// Writes reveal only their number. **Reads reveal their blocks.**
    WritesOnly,
    /// Nothing but the contents. The insecure control.
    Nothing,
}

/// The interface of every scheme: an array of blocks. Object-safe.
pub trait Oram: Send {
    /// Number of blocks.
    fn blocks(&self) -> u64;

    /// Bytes in a block.
    fn block_len(&self) -> usize;

    /// Reads the blocks `addrs` into `into`, which holds exactly `addrs.len()` blocks.
    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result;

    /// Writes `from`, which holds exactly `addrs.len()` blocks, in order. After an error some of
    /// the first blocks may have been written; each block is old or new as a whole.
    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result;

    /// Makes every write that has returned durable.
    fn sync(&mut self) -> Result;

    /// What the claim covers; the auditor chooses its tests by this.
    fn hides(&self) -> Hides;

    /// Syncs, and records a clean end. The scheme accepts no write after it.
    fn close(&mut self) -> Result;

    /// Reads one block.
    fn read(&mut self, addr: Addr, into: &mut [u8]) -> Result {
        self.read_many(&[addr], into)
    }

    /// Writes one block.
    fn write(&mut self, addr: Addr, from: &[u8]) -> Result {
        self.write_many(&[addr], from)
    }

    /// Changes one block in place. Schemes that can do it in one access override this.
    fn update(&mut self, addr: Addr, change: &mut dyn FnMut(&mut [u8])) -> Result {
        let mut block = vec![0; self.block_len()];
        self.read(addr, &mut block)?;
        change(&mut block);
        self.write(addr, &block)
    }

    /// Changes blocks in place, in order; `change` gets the index in `addrs` and the block. After
    /// an error some of the first blocks may have been changed.
    fn update_many(&mut self, addrs: &[Addr], change: &mut dyn FnMut(usize, &mut [u8])) -> Result {
        for (nth, &addr) in addrs.iter().enumerate() {
            self.update(addr, &mut |block| change(nth, block))?;
        }
        Ok(())
    }
}

/// An [`Oram`] that a block device can serve: reads and syncs go through `&self`, so that they do
/// not wait for each other.
pub trait BlockOram: Oram + Sync {
    /// As [`Oram::read_many`].
    fn read_shared(&self, addrs: &[Addr], into: &mut [u8]) -> Result;

    /// Hands to the store the writes that are still held back in memory. [`Oram::sync`] is this and
    /// [`sync_shared`](Self::sync_shared).
    fn write_out(&mut self) -> Result {
        Ok(())
    }

    /// Makes `blocks` read as zeros, also after a crash once that is durable. The writes that it
    /// makes follow from `blocks` and the number of earlier writes. After an error some of the
    /// first blocks may read as zeros.
    fn discard(&mut self, blocks: Range<u64>) -> Result {
        check_range(self.blocks(), &blocks)?;
        write_zeros(self, blocks)
    }

    /// Makes every write durable that returned before the last [`write_out`](Self::write_out).
    fn sync_shared(&self) -> Result;

    /// Number of writes since creation, dummies included. Public.
    fn writes(&self) -> u64;

    /// Makes a write that changes nothing and looks like any other.
    fn write_dummy(&mut self) -> Result;

    /// Verifies every live unit, calls `progress` with the number of units done and in all, and
    /// passes each damaged place to `damaged`. Writes nothing.
    fn verify(
        &self,
        progress: &mut dyn FnMut(u64, u64),
        damaged: &mut dyn FnMut(crate::error::Place),
    ) -> Result;
}

/// Checks a request of whole blocks against the scheme's geometry.
pub fn check_request(blocks: u64, block_len: usize, addrs: &[Addr], bytes: usize) -> Result {
    check_len(addrs, block_len, bytes)?;
    match addrs.iter().find(|a| a.0 >= blocks) {
        Some(&addr) => Err(Error::OutOfRange { addr, blocks }),
        None => Ok(()),
    }
}

/// Refuses a range that ends beyond the `blocks` blocks of an ORAM.
pub fn check_range(blocks: u64, range: &Range<u64>) -> Result {
    if range.end > blocks {
        return Err(Error::OutOfRange { addr: Addr(range.end - 1), blocks });
    }
    Ok(())
}

/// Blocks of zeros that are written in one request.
const ZEROS_PER_WRITE: u64 = 64;

/// Writes zeros to `blocks`, which are in range.
pub fn write_zeros(oram: &mut (impl Oram + ?Sized), blocks: Range<u64>) -> Result {
    let len = oram.block_len();
    let mut at = blocks.start;
    while at < blocks.end {
        let end = (at + ZEROS_PER_WRITE).min(blocks.end);
        let addrs: Vec<Addr> = (at..end).map(Addr).collect();
        oram.write_many(&addrs, &vec![0; addrs.len() * len])?;
        at = end;
    }
    Ok(())
}

/// Splits a request for several blocks of `block_len` bytes, which fill a buffer of `bytes` bytes,
/// into accesses to one block: each block's address, and where its bytes are in the buffer.
pub fn one_by_one(
    addrs: &[Addr],
    block_len: usize,
    bytes: usize,
) -> Result<impl Iterator<Item = (Addr, Range<usize>)>> {
    check_len(addrs, block_len, bytes)?;
    let part = move |nth: usize| nth * block_len..(nth + 1) * block_len;
    Ok(addrs.iter().enumerate().map(move |(nth, &addr)| (addr, part(nth))))
}

/// Checks the length of a request. Addresses may be secret, so the check does not look at them.
fn check_len(addrs: &[Addr], block_len: usize, bytes: usize) -> Result {
    match addrs.len() * block_len {
        want if want == bytes => Ok(()),
        want => Err(Error::WrongLength { want, got: bytes }),
    }
}
