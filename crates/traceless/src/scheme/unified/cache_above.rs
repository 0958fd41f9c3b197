//! What a cache above may ask for: to take blocks out and return them (delayed remapping, LLC-D),
//! and to have lines written back that are still dirty when there is nothing else to do (IR-DWB).

use super::{Unified, UnifiedRequest, Verb};
use crate::error::{Error, Result};
use crate::posmap::{Labels, Lookaside};
use crate::tree::BucketTree;
use crate::types::Addr;

impl<T: BucketTree, L: Labels, P: Lookaside> Unified<T, L, P> {
    /// Asks for a block that is to leave: it is served, and then the caller has the only copy.
    /// Until it is returned it cannot be accessed.
    pub fn submit_fetch(&mut self, id: u64, addr: Addr) -> Result {
        self.submit_as(UnifiedRequest { id, addr, verb: Verb::Fetch })
    }

    /// Returns a block that was fetched; `serve` fills in its body when its turn comes. The map
    /// must say on which path it is, which may take path accesses; the block itself takes none.
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
                // What leaves needs no write-back any more.
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

    /// Offers a dirty line in place of whatever was offered before. A step that no request needs is
    /// then spent on writing it back, one path access a step: for the blocks of the map that are
    /// not in the PLB, and at last for the line's own, which is served as any other and then
    /// finished. Requests go first, and the line waits.
    ///
    /// It is the caller who knows which line will have to be written back soon, and when it is
    /// dirty no longer: so the line is handed in, and nothing is asked.
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
    /// its labels need by now are made all the same, for nobody.
    pub fn withdraw(&mut self) {
        let is_walking = |request: &UnifiedRequest| self.walk.request == Some(*request);
        if self.offered.take().is_some_and(|offered| is_walking(&offered)) {
            self.walk.request = None;
        }
    }

    /// Path accesses that are missing until the offered line is written back, if none of them is
    /// disturbed: 0 without an offer.
    pub fn stage(&self) -> usize {
        self.offered.map_or(0, |offered| self.maps.first_missing(offered.addr) + 1)
    }
}
