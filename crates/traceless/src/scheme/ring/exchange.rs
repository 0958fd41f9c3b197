//! One block goes, another one comes, in one access: for an owner who keeps the blocks that it
//! works on, as a pager does.
//!
//! A block is in the tree and the stash, or with its owner, never both. The one that comes is taken
//! out on its own path, which is read once; the one that goes needs no path, since it waits in the
//! stash for the evictions that come anyway. As without exchanges, each access adds one block to
//! the stash at most, so that evictions keep up.

use super::{Ring, RingTree};
use crate::error::{Error, Result};
use crate::tree::Header;
use crate::types::Addr;

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
    pub fn exchange(&mut self, out: Option<Addr>, wanted: Option<Addr>, body: &mut [u8]) -> Result {
        let blocks = self.requests.blocks();
        if let Some(addr) = [out, wanted].into_iter().flatten().find(|addr| addr.0 >= blocks) {
            return Err(Error::OutOfRange { addr, blocks });
        }
        if let Some(addr) = out.filter(|&addr| self.holds(addr)) {
            return Err(Error::Misplaced { addr });
        }
        self.requests.check()?;
        let outcome = self.try_exchange(out, wanted, body);
        self.requests.noted(outcome)
    }

    fn try_exchange(&mut self, out: Option<Addr>, wanted: Option<Addr>, body: &mut [u8]) -> Result {
        let (any, new) = (self.draw_leaf(), self.draw_leaf());
        let leaf = wanted.and_then(|addr| self.map.take(addr)).unwrap_or(any);
        self.access(leaf, wanted, |ring, found| {
            if let Some(addr) = out {
                ring.map.remap(addr, new);
                let nth = ring.stash.push(Header::new(addr, new))?;
                ring.stash.body_mut(nth).copy_from_slice(body);
            }
            if let Some(addr) = wanted {
                ring.take_out(addr, found, body);
            }
            Ok(())
        })?;
        if self.is_eviction_due() { self.evict() } else { Ok(()) }
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
