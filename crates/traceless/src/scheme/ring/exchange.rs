//! One block goes, another one comes, in one access: for an owner who keeps the blocks that it
//! works on, as a pager does.
//!
//! A block is in the tree and the stash, or with its owner, never both. The one that comes is taken
//! out on its own path, which is read once; the one that goes needs no path, since it waits in the
//! stash for the evictions that come anyway. As without exchanges, each access adds one block to
//! the stash at most, so that evictions keep up.

use super::{Ring, RingAccess, RingPurpose, RingTree};
use crate::controller::Controller;
use crate::error::{Error, Result};
use crate::tree::Header;
use crate::types::{Addr, Leaf};

impl<T: RingTree> Ring<T> {
    /// Whether a block is here: it was put here, and not taken since.
    pub fn holds(&self, addr: Addr) -> bool {
        self.map.label(addr).is_some()
    }

    /// One access: `body` holds the block `out`, if one goes, and then the block `wanted`, if one
    /// comes; one that is not here is zeros. To put a block here that is here already is
    /// [`Error::Misplaced`].
    ///
    /// It shows one access, and an eviction after every A of them, whether blocks go or come.
    ///
    /// If the store cannot serve a read, no block has gone or come, and the next call makes the
    /// same read again before its own. An owner makes exchanges, or requests, but not both.
    pub fn exchange(&mut self, out: Option<Addr>, wanted: Option<Addr>, body: &mut [u8]) -> Result {
        let blocks = self.requests.blocks();
        if let Some(addr) = [out, wanted].into_iter().flatten().find(|addr| addr.0 >= blocks) {
            return Err(Error::OutOfRange { addr, blocks });
        }
        if let Some(addr) = out.filter(|&addr| self.holds(addr)) {
            return Err(Error::Misplaced { addr });
        }
        self.health.check()?;
        while self.next.is_some() || self.is_eviction_due() {
            self.step(&mut |_, _| {})?;
        }
        let (any, new) = (self.draw_leaf(), self.draw_leaf());
        let leaf = wanted.and_then(|addr| self.map.label(addr)).unwrap_or(any);
        let next = self.read(RingAccess::new(leaf, RingPurpose::Exchange(wanted, new)))?;
        self.health.begin();
        let exchanged = self.end_exchange(out, next, body);
        self.health.end(exchanged)?;
        if self.is_eviction_due() { self.evict_after_exchange() } else { Ok(()) }
    }

    fn end_exchange(&mut self, out: Option<Addr>, next: RingAccess, body: &mut [u8]) -> Result {
        let RingPurpose::Exchange(wanted, new) = next.purpose else {
            unreachable!("it was read for an exchange")
        };
        if let Some(addr) = wanted {
            self.map.take(addr);
        }
        if let Some(addr) = out {
            self.map.remap(addr, new);
            let nth = self.stash.push(Header::new(addr, new))?;
            self.stash.body_mut(nth).copy_from_slice(body);
        }
        if let Some(addr) = wanted {
            self.take_out(addr, next.found, body);
        }
        self.end_access()
    }

    /// The exchange is done. An eviction whose read fails is made before the next.
    fn evict_after_exchange(&mut self) -> Result {
        let next = self.next_eviction();
        match self.read(next) {
            Ok(_) => {
                self.health.begin();
                let evicted = self.evict();
                self.health.end(evicted)
            }
            Err(error) if self.health.check().is_err() => Err(error),
            Err(_) => Ok(()),
        }
    }

    /// The end of an exchange whose read failed at first: the block that was wanted stays here,
    /// under a label that was not seen.
    pub(super) fn give_up_exchange(
        &mut self,
        wanted: Option<Addr>,
        new: Leaf,
        read: Option<usize>,
    ) -> Result {
        let Some(addr) = wanted.filter(|&addr| self.holds(addr)) else { return Ok(()) };
        self.map.remap(addr, new);
        self.keep(Header::new(addr, new), read).map(|_| ())
    }

    /// Takes a block out of the stash, or of the slot that was read.
    fn take_out(&mut self, addr: Addr, read: Option<usize>, body: &mut [u8]) {
        if let Some(nth) = self.stash.find(addr) {
            body.copy_from_slice(self.stash.body(nth));
            self.stash.remove(nth);
        } else if let Some(nth) = read {
            body.copy_from_slice(self.tree.body(nth));
        } else {
            body.fill(0);
        }
    }
}
