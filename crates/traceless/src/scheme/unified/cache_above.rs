//! Operations for a cache above: it takes blocks out and returns them (delayed remapping, LLC-D),
//! and it offers dirty lines to be written back when no request waits (IR-DWB).

use super::{Unified, UnifiedRequest, Verb};
use crate::posmap::Labels;
use crate::tree::BucketTree;
use traceless_core::error::{Error, Result};
use traceless_core::types::Addr;

impl<T: BucketTree, L: Labels> Unified<T, L> {
    /// Requests a block that is to leave: the block is served, and then the caller has the only
    /// copy. Until it is returned it cannot be accessed.
    pub fn submit_fetch(&mut self, id: u64, addr: Addr) -> Result {
        self.submit_as(UnifiedRequest { id, addr, verb: Verb::Fetch })
    }

    /// Returns a block that was fetched; `serve` fills in its body when the request is processed.
    /// The map must give the block's path, which may take path accesses; the block itself takes
    /// none.
    pub fn submit_return(&mut self, id: u64, addr: Addr) -> Result {
        self.submit_as(UnifiedRequest { id, addr, verb: Verb::Return })
    }

    pub(super) fn submit_as(&mut self, request: UnifiedRequest) -> Result {
        let UnifiedRequest { addr, verb, .. } = request;
        let blocks = self.maps.places.count[0];
        if addr.0 >= blocks {
            return Err(Error::OutOfRange { addr, blocks });
        }
        if self.taken.contains(&addr.0) != (verb == Verb::Return) {
            return Err(Error::Misplaced { addr });
        }
        match verb {
            Verb::Access => {}
            Verb::Fetch => {
                // A block that leaves the ORAM needs no write-back any more.
                if self.offered.is_some_and(|offered| offered.addr == addr) {
                    self.withdraw();
                }
                self.taken.insert(addr.0);
            }
            Verb::Return => {
                self.taken.remove(&addr.0);
            }
        }
        self.requests.push_back(request);
        Ok(())
    }

    /// Offers a dirty line in place of any earlier offer. A step that no request needs then works
    /// on writing it back, one path access per step: first for the map blocks that are not in the
    /// PLB, at last for the block of the line, which is served like any other and then finished.
    /// Requests go first, and the line waits.
    ///
    /// Only the caller knows which line will soon have to be written back, and when it is no longer
    /// dirty, so the caller hands the line in and there is no callback.
    pub fn offer(&mut self, id: u64, addr: Addr) -> Result {
        if addr.0 >= self.maps.places.count[0] {
            return Err(Error::OutOfRange { addr, blocks: self.maps.places.count[0] });
        }
        if self.taken.contains(&addr.0) {
            return Err(Error::Misplaced { addr });
        }
        self.withdraw();
        self.offered = Some(UnifiedRequest { id, addr, verb: Verb::Access });
        Ok(())
    }

    /// Takes the offer back: the line was used again, or has to leave at once. Path accesses that
    /// its changed labels already require are still made.
    pub fn withdraw(&mut self) {
        let is_walking = |request: &UnifiedRequest| self.walk.request == Some(*request);
        if self.offered.take().is_some_and(|offered| is_walking(&offered)) {
            self.walk.request = None;
        }
    }

    /// Number of path accesses until the offered line is written back, if no request comes in
    /// between; 0 without an offer.
    pub fn stage(&self) -> usize {
        self.offered.map_or(0, |offered| self.maps.first_missing(offered.addr) + 1)
    }
}
