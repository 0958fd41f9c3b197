//! Integrity by blocks: a tag beside each block, over its contents, its address and the number of
//! the access that wrote it (PMMAC).
//!
//! The numbers are trusted state. So only the block of an access is verified, and not the rest of
//! its path, which saves much hashing; in return, a change is noticed when the block is requested,
//! not when it is read. So **an adversary that changes a block learns from the error when the block
//! is requested**, and one that puts forged blocks into empty slots learns how full the stash is.
//! Paths reveal nothing more as long as the labels are trusted: the scheme below must keep its
//! whole map in trusted memory, which is not checked here.
//!
//! Paper: Fletcher et al., Freecursive ORAM, section 6; there the numbers lie in the position map.
//!
//! A byte of a block is changed in the store, and the next request for that block fails. To find
//! the block, the example does not encrypt the tree:
//!
//! ```
//! use std::sync::Arc;
//! use traceless::controller::SteppedOram;
//! use traceless::oram::Oram;
//! use traceless::rng::System;
//! use traceless::scheme::path::PathOram;
//! use traceless::scheme::pmmac::Pmmac;
//! use traceless::seal::{Aead, NoSeal, Salt, Secret, TAG_LEN};
//! use traceless::store::{MemStore, Store};
//! use traceless::tree::{STASH_BLOCKS, SealedTree, Shape};
//! use traceless::{Addr, Error, Extent};
//!
//! # fn main() -> traceless::Result {
//! let (shape, len) = (Shape::uniform(6, 4)?, Salt::LEN + TAG_LEN + 64);
//! let store = Arc::new(MemStore::new(SealedTree::store_len(&shape, len, &NoSeal)));
//! let tree = SealedTree::create(store.clone(), 0, "tree", shape, len, NoSeal, Box::new(System))?;
//! let path = PathOram::new(100, vec![tree], STASH_BLOCKS, Box::new(System))?;
//! let sealer = Aead::new(&Secret::random(&mut System));
//! let mut oram = SteppedOram::new(Pmmac::new(path, sealer, Box::new(System))?);
//! oram.write(Addr(7), &[5; 64])?;
//!
//! let place = store.snapshot().windows(64).position(|bytes| bytes == [5; 64]);
//! store.write(&[Extent::new(place.expect("it lies there") as u64, 1)], &[6])?;
//! let read = oram.read(Addr(7), &mut [0; 64]);
//! assert!(matches!(read, Err(Error::Tampered { place }) if place.block == Some(7)));
//! # Ok(())
//! # }
//! ```

use crate::controller::{Controller, Serve, StepOutcome};
use crate::scheme::health::Health;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Place, Result};
use traceless_core::oram::Hides;
use traceless_core::rng::Rng;
use traceless_core::seal::{Nonce, Salt, Sealer};
use traceless_core::types::Addr;

/// A controller that verifies its blocks. A block of the inner controller is longer by a tag.
pub struct Pmmac<C, S> {
    inner: C,
    sealer: S,
    tags: Tags,
    requests: VecDeque<(u64, Addr)>,
    health: Health,
}

struct Tags {
    /// For each block, the number of the access that wrote it, or 0.
    written: Vec<u64>,
    accesses: u64,
    /// Draws a salt for each tag.
    salts: Box<dyn Rng>,
    /// Bytes of a salt and a tag.
    len: usize,
    /// The bytes that a tag covers: address and contents.
    bound: Vec<u8>,
}

impl<C: Controller, S: Sealer> Pmmac<C, S> {
    /// Wraps `inner`, which must be empty. `sealer` must have tags and must never have sealed
    /// anything. `salts` must give fresh values at each call.
    pub fn new(inner: C, sealer: S, salts: Box<dyn Rng>) -> Result<Self> {
        let len = Salt::LEN + sealer.tag_len();
        if sealer.tag_len() == 0 || inner.block_len() <= len {
            return Err(Error::Geometry("a block has room for its tag and a byte"));
        }
        let blocks = usize::try_from(inner.blocks()).map_err(|_| Error::Geometry("map"))?;
        Ok(Self {
            tags: Tags { written: vec![0; blocks], accesses: 0, salts, len, bound: Vec::new() },
            inner,
            sealer,
            requests: VecDeque::new(),
            health: Health::default(),
        })
    }

    /// The inner controller.
    pub fn inner(&self) -> &C {
        &self.inner
    }

    fn try_step(&mut self, serve: Serve<'_>) -> Result<StepOutcome> {
        let Self { inner, sealer, tags, requests, .. } = self;
        let mut forged = None;
        let issued = inner.step(&mut |id, body| {
            let &(_, addr) = requests.front().expect("requests are served in order");
            if tags.verify(sealer, addr, body) {
                serve(id, &mut body[tags.len..]);
                tags.renew(sealer, addr, body);
            } else {
                forged = Some(addr);
            }
        })?;
        if let Some(addr) = forged {
            let place = Place { area: "tree", slot: addr.0, block: Some(addr.0) };
            return Err(Error::Tampered { place });
        }
        if issued.finished.is_some() {
            self.requests.pop_front();
        }
        Ok(issued)
    }
}

impl Tags {
    /// Whether `body`, tag and contents, is the last version written. A block that was never
    /// written becomes zeros, and `body` is ignored.
    fn verify(&mut self, sealer: &impl Sealer, addr: Addr, body: &mut [u8]) -> bool {
        let (front, contents) = body.split_at_mut(self.len);
        let version = self.written[addr.0 as usize];
        if version == 0 {
            contents.fill(0);
            return true;
        }
        self.bind(addr, contents);
        let (salt, tag) = Salt::split(front);
        sealer.open_in_place(Nonce::new(version, salt), &self.bound, &mut [], tag).is_ok()
    }

    fn renew(&mut self, sealer: &impl Sealer, addr: Addr, body: &mut [u8]) {
        let (front, contents) = body.split_at_mut(self.len);
        self.accesses += 1;
        self.written[addr.0 as usize] = self.accesses;
        self.bind(addr, contents);
        let salt = self.salts.salt();
        let nonce = Nonce::new(self.accesses, salt);
        sealer.seal_in_place(nonce, &self.bound, &mut [], salt.put(front));
    }

    fn bind(&mut self, addr: Addr, contents: &[u8]) {
        self.bound.clear();
        self.bound.extend_from_slice(&addr.0.to_le_bytes());
        self.bound.extend_from_slice(contents);
    }
}

impl<C: Controller, S: Sealer> Controller for Pmmac<C, S> {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn block_len(&self) -> usize {
        self.inner.block_len() - self.tags.len
    }

    fn submit(&mut self, id: u64, addr: Addr) -> Result {
        self.inner.submit(id, addr)?;
        self.requests.push_back((id, addr));
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.inner.waiting()
    }

    fn step(&mut self, serve: Serve<'_>) -> Result<StepOutcome> {
        self.health.check()?;
        // The inner controller keeps track of all other failures.
        let issued = self.try_step(serve);
        self.health.after_read(issued)
    }

    fn sync(&mut self) -> Result {
        self.health.check()?;
        self.inner.sync()
    }

    fn hides(&self) -> Hides {
        self.inner.hides()
    }

    fn close(&mut self) -> Result {
        self.health.check()?;
        self.inner.close()
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::scheme::path::PathOram;
    use crate::scheme::tree_rig::{behaves_like_an_array, trees};
    use crate::tree::Shape;
    use traceless_core::rng::SeededRng;
    use traceless_core::seal::{Aead, NoSeal, Secret, TAG_LEN};

    const FRONT_LEN: usize = Salt::LEN + TAG_LEN;

    fn salts() -> Box<dyn Rng> {
        Box::new(SeededRng::new(2))
    }

    fn over(
        blocks: u64,
        len: usize,
    ) -> impl Iterator<Item = PathOram<Box<dyn crate::tree::BucketTree>>> {
        let trees = trees(&Shape::uniform(4, 4).unwrap(), len);
        trees.into_iter().map(move |tree| {
            PathOram::new(blocks, vec![tree], 50, Box::new(SeededRng::new(1))).unwrap()
        })
    }

    #[test]
    fn is_an_array_over_every_tree() {
        for inner in over(30, FRONT_LEN + 5) {
            let key = Aead::new(&Secret::from_bytes([8; 32]));
            let pmmac = Pmmac::new(inner, key, salts()).unwrap();
            assert_eq!(pmmac.block_len(), 5);
            behaves_like_an_array(pmmac, 3000);
        }
    }

    #[test]
    fn tags_need_room_and_a_key() {
        let key = || Aead::new(&Secret::from_bytes([8; 32]));
        for inner in over(30, FRONT_LEN) {
            assert!(Pmmac::new(inner, key(), salts()).is_err());
        }
        for inner in over(30, FRONT_LEN + 1) {
            assert!(Pmmac::new(inner, NoSeal, salts()).is_err(), "it has no tags");
        }
    }
}
