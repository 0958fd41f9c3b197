//! Exchanges: one access takes one block out and puts another block in, for an owner, like a pager,
//! that keeps the blocks it works on.
//!
//! A block is in the ORAM (tree or stash) or with its owner, never in both. The block that is taken
//! out is read on its own path, once; the block that is put in needs no path, since it waits in the
//! stash for the regular evictions. As without exchanges, each access adds at most one block to the
//! stash, so evictions keep up.

use super::{Ring, RingAccess, RingPurpose, RingTree};
use crate::controller::Controller;
use crate::tree::Header;
use traceless_core::error::{Error, Result};
use traceless_core::types::{Addr, Leaf};

impl<T: RingTree> Ring<T> {
    /// Whether a block is in the ORAM: it was put in, and not taken out since.
    pub fn holds(&self, addr: Addr) -> bool {
        self.map.label(addr).is_some()
    }

    /// One access that puts in block `out` from `body`, if there is one, and then takes out block
    /// `wanted` into `body`, if there is one; a `wanted` block that is not in the ORAM reads as
    /// zeros. If block `out` is already in the ORAM, the result is [`Error::Misplaced`].
    ///
    /// An observer sees one access, and an eviction after every A accesses, whichever blocks move.
    ///
    /// If the store cannot serve a read, no block has moved, and the next call first repeats this
    /// read. An owner uses either exchanges or requests, not both.
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

    /// Evicts after an exchange. The exchange itself is done, so an eviction with a failed read is
    /// left to the next call.
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

    /// Ends an exchange after a failed read was repeated: the wanted block stays in the ORAM, under
    /// a label that no observer knows.
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

    /// Copies a block out of the stash, or out of the slot that was read.
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
