//! Linear scan: each access reads one copy of all blocks and writes another.
//!
//! The simplest scheme that hides reads and writes, and the fastest for a handful of blocks. There
//! are three copies: the copy of the last sync stays intact while the other two take turns.
//!
//! Which blocks are read or written makes no difference to the events:
//!
//! ```
//! use std::sync::Arc;
//! use traceless::rng::System;
//! use traceless::scheme::SchemeContext;
//! use traceless::scheme::contract::Scheme;
//! use traceless::scheme::linear::LinearScheme;
//! use traceless::store::{MemStore, WatchedStore};
//! use traceless::trace::{Event, Recorder};
//! use traceless::{Addr, Result};
//!
//! /// What an adversary observes while one block is written and another one is read.
//! fn trace_of(written: u64, read: u64) -> Result<Vec<Event>> {
//!     let scheme = LinearScheme { blocks: 10, block_len: 64 };
//!     let witness = Arc::new(Recorder::default());
//!     let store = WatchedStore::new(MemStore::new(scheme.store_len()), witness.clone());
//!     let mut oram = scheme.create(SchemeContext::over(Arc::new(store), Box::new(System)))?;
//!     oram.write(Addr(written), &[1; 64])?;
//!     oram.read(Addr(read), &mut [0; 64])?;
//!     Ok(witness.take())
//! }
//!
//! # fn main() -> Result {
//! let trace = trace_of(3, 3)?;
//! assert_eq!(trace, trace_of(0, 9)?);
//! assert!(!trace.is_empty());
//! # Ok(())
//! # }
//! ```

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Place, Result};
use traceless_core::oram::{Hides, Oram, check_request};
use traceless_core::scheme::SchemeContext;
use traceless_core::scheme::lifecycle::Lifecycle;
use traceless_core::seal::{Aead, Nonce, Salt, Sealer, Secret, TAG_LEN};
use traceless_core::store::Store;
use traceless_core::types::{Addr, Extent};

const COPIES: u64 = 3;
const STATE_LEN: usize = 2 + 16 + 8 + 1;

/// Bytes in front of a sealed copy: its salt and its tag.
const FRONT_LEN: usize = Salt::LEN + TAG_LEN;

mod scheme;

pub use scheme::LinearScheme;

/// The scheme. See the [module](self).
pub struct Linear {
    blocks: u64,
    block_len: usize,
    store: Arc<dyn Store>,
    first: u64,
    key: Secret,
    life: Lifecycle,
    /// The current copy.
    current: Copy,
    /// The copy that the vault records.
    synced: Copy,
    /// The id of this opening.
    opening: [u8; 16],
    version: u64,
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Copy {
    opening: [u8; 16],
    version: u64,
    place: u8,
}

impl Linear {
    /// Bytes that `blocks` blocks of `block_len` bytes take on a store.
    pub fn store_len(blocks: u64, block_len: usize) -> u64 {
        let copy = blocks.saturating_mul(block_len as u64).saturating_add(FRONT_LEN as u64);
        copy.saturating_mul(COPIES)
    }

    /// Creates a store of `blocks` blocks; every block reads as zeros.
    pub fn create(blocks: u64, block_len: usize, context: SchemeContext) -> Result<Self> {
        let nothing = Copy { opening: [0; 16], version: 0, place: 0 };
        let mut new = Self::assemble(blocks, block_len, context, nothing)?;
        new.write_copy()?;
        new.sync()?;
        Ok(new)
    }

    /// Opens the ORAM from the last `state` in its vault, as it was at its last sync.
    pub fn open(
        blocks: u64,
        block_len: usize,
        context: SchemeContext,
        state: &[u8],
    ) -> Result<Self> {
        if state.len() != STATE_LEN || state[..2] != [1, 0] || u64::from(state[26]) >= COPIES {
            return Err(Error::State("it is of another version"));
        }
        let kept = Copy {
            opening: state[2..18].try_into().expect("16 bytes"),
            version: u64::from_le_bytes(state[18..26].try_into().expect("8 bytes")),
            place: state[26],
        };
        let mut opened = Self::assemble(blocks, block_len, context, kept)?;
        opened.read_copy()?;
        Ok(opened)
    }

    fn assemble(
        blocks: u64,
        block_len: usize,
        context: SchemeContext,
        current: Copy,
    ) -> Result<Self> {
        let end = context.first.saturating_add(Self::store_len(blocks, block_len));
        if blocks == 0 || context.store.len() < end {
            return Err(Error::Geometry("the store is smaller than three copies of the blocks"));
        }
        let mut life = Lifecycle::new(context.read_only, context.vault, context.rng);
        let len = usize::try_from(blocks).map_err(|_| Error::Geometry("too many blocks"))?;
        Ok(Self {
            plain: vec![0; len * block_len],
            sealed: vec![0; len * block_len + FRONT_LEN],
            blocks,
            block_len,
            store: context.store,
            first: context.first,
            key: context.key,
            current,
            synced: current,
            // Nothing sealed under this id can pass for a version of another opening, so the id
            // need not be durable before the sync that records it.
            opening: life.draw_id(),
            life,
            version: 0,
        })
    }

    fn extent(&self, place: u8) -> Extent {
        let at = self.first + u64::from(place) * self.sealed.len() as u64;
        Extent::new(at, self.sealed.len())
    }

    fn sealer(&self, opening: [u8; 16]) -> Aead {
        Aead::new(&self.key.derive(&[b"linear", &opening]))
    }

    fn read_copy(&mut self) -> Result {
        let extent = self.extent(self.current.place);
        self.store.read(&[extent], &mut self.sealed)?;
        let (front, body) = self.sealed.split_at(FRONT_LEN);
        let (salt, tag) = Salt::split(front);
        let nonce = Nonce::new(self.current.version, salt);
        let place = Place { area: "linear", slot: u64::from(self.current.place), block: None };
        self.sealer(self.current.opening)
            .open(nonce, &[self.current.place], body, tag, &mut self.plain)
            .map_err(|_| Error::Tampered { place })
    }

    /// Reseals all blocks into a copy that is neither the current nor the synced one.
    fn write_copy(&mut self) -> Result {
        let place = (0..COPIES as u8)
            .find(|&p| p != self.current.place && p != self.synced.place)
            .expect("three copies, two of them taken");
        let version = self.version;
        self.version += 1;
        let sealer = self.sealer(self.opening);
        let salt = self.life.rng.salt();
        let (front, body) = self.sealed.split_at_mut(FRONT_LEN);
        let tag = salt.put(front);
        sealer.seal(Nonce::new(version, salt), &[place], &self.plain, body, tag);
        self.store.write(&[self.extent(place)], &self.sealed)?;
        self.current = Copy { opening: self.opening, version, place };
        Ok(())
    }

    fn access(&mut self, addrs: &[Addr], visit: &mut dyn FnMut(usize, &mut [u8])) -> Result {
        self.life.writable()?;
        for (i, addr) in addrs.iter().enumerate() {
            self.read_copy()?;
            let at = addr.0 as usize * self.block_len;
            visit(i, &mut self.plain[at..at + self.block_len]);
            self.write_copy()?;
        }
        Ok(())
    }
}

impl Oram for Linear {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn block_len(&self) -> usize {
        self.block_len
    }

    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        check_request(self.blocks, self.block_len, addrs, into.len())?;
        let len = self.block_len;
        self.access(addrs, &mut |i, block| into[i * len..(i + 1) * len].copy_from_slice(block))
    }

    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        check_request(self.blocks, self.block_len, addrs, from.len())?;
        let len = self.block_len;
        self.access(addrs, &mut |i, block| block.copy_from_slice(&from[i * len..(i + 1) * len]))
    }

    fn update(&mut self, addr: Addr, change: &mut dyn FnMut(&mut [u8])) -> Result {
        check_request(self.blocks, self.block_len, &[addr], self.block_len)?;
        self.access(&[addr], &mut |_, block| change(block))
    }

    fn sync(&mut self) -> Result {
        if !self.life.takes_writes() {
            return Ok(());
        }
        self.life.sync(&*self.store, self.version)?;
        let mut state = Vec::with_capacity(STATE_LEN);
        state.extend_from_slice(&1u16.to_le_bytes());
        state.extend_from_slice(&self.current.opening);
        state.extend_from_slice(&self.current.version.to_le_bytes());
        state.push(self.current.place);
        self.life.keep(&state)?;
        self.synced = self.current;
        Ok(())
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }

    fn close(&mut self) -> Result {
        self.sync()?;
        self.life.end();
        Ok(())
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use core::sync::atomic::{AtomicBool, Ordering};
    use traceless_core::durable::MemVault;
    use traceless_core::rng::SeededRng;
    use traceless_core::seal::Cipher;
    use traceless_core::store::MemStore;

    /// A store that fails its next sync, once.
    struct Dropping(MemStore, AtomicBool);

    impl Store for Dropping {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
            self.0.read(extents, into)
        }
        fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
            self.0.write(extents, from)
        }
        fn sync(&self) -> Result {
            if self.1.swap(false, Ordering::AcqRel) { Err(Error::Store("dropped")) } else { Ok(()) }
        }
    }

    fn linear() -> (Arc<Dropping>, MemVault, Linear) {
        let store = Arc::new(Dropping(MemStore::new(Linear::store_len(4, 8)), false.into()));
        let vault = MemVault::default();
        let context = SchemeContext {
            store: store.clone(),
            first: 0,
            key: Secret::from_bytes([1; 32]),
            vault: Box::new(vault.clone()),
            rng: Box::new(SeededRng::new(1)),
            read_only: false,
            cipher: Cipher::default(),
            expect_writes: 0,
        };
        let linear = Linear::create(4, 8, context).unwrap();
        (store, vault, linear)
    }

    #[test]
    fn a_failed_sync_is_final() {
        let (store, vault, mut linear) = linear();
        let kept = vault.kept();
        linear.write(Addr(1), &[1; 8]).unwrap();
        store.1.store(true, Ordering::Release);
        assert!(matches!(linear.sync(), Err(Error::Store(_))));
        assert!(matches!(linear.sync(), Err(Error::Poisoned)), "it is never tried again");
        assert!(matches!(linear.write(Addr(1), &[1; 8]), Err(Error::Poisoned)));
        assert!(matches!(linear.close(), Err(Error::Poisoned)));
        assert_eq!(vault.kept(), kept, "nothing names what the disk may have dropped");
    }

    #[test]
    fn nothing_is_accessed_after_the_close() {
        let (_, _, mut linear) = linear();
        linear.close().unwrap();
        linear.close().unwrap();
        assert!(matches!(linear.write(Addr(1), &[1; 8]), Err(Error::ReadOnly)));
    }
}
