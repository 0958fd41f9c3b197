//! Requests that need no path access: the block is in trusted memory already (IR-Stash), or a cache
//! above returns it.

use super::{Group, Maps, Unified, UnifiedRequest, Verb};
use crate::controller::{Serve, StepKind};
use crate::posmap::Labels;
use crate::tree::{BucketTree, Header, Substash};
use traceless_core::error::Result;
use traceless_core::types::Addr;

impl<T: BucketTree, L: Labels> Unified<T, L> {
    /// Lets requests finish without a path access if the block is in the stash, or where the tree
    /// finds it by its address (ir-oram, section IV-C); blocks of the map come into the PLB the
    /// same way. The blocks keep their labels, which no observer has learned.
    ///
    /// A path is then read for a block only once the block has left trusted memory, and it leaves
    /// when a path near its own is accessed. So **leaves are no longer independent of each other**:
    /// an observer of the leaves can distinguish repeated accesses to a few blocks from accesses to
    /// many, even at a fixed rate. Without this call, by default, every request accesses a path.
    pub fn search_first(&mut self) {
        self.searches_first = true;
    }

    /// Finishes a request that needs no path access and returns true; otherwise brings map blocks
    /// for it into the PLB where that needs no path.
    pub(super) fn finish_in_passing(
        &mut self,
        request: UnifiedRequest,
        serve: Serve<'_>,
    ) -> Result<bool> {
        let is_done = match request.verb {
            Verb::Return => self.take_back(request, serve)?,
            _ if self.searches_first => self.serve_found(request, serve)?,
            _ => false,
        };
        if is_done {
            self.forget(request);
        }
        Ok(is_done)
    }

    /// Serves a block if all its parts are in trusted memory.
    fn serve_found(&mut self, request: UnifiedRequest, serve: Serve<'_>) -> Result<bool> {
        let Self { engine, maps, body, .. } = self;
        let parts = || (0..maps.places.parts).map(|part| maps.places.addr(0, request.addr.0, part));
        if !parts().all(|part| engine.find_without_path(part).is_some()) {
            self.bring_found(request.addr)?;
            return Ok(false);
        }
        let len = engine.tree().body_len();
        let of = |nth: usize| nth * len..(nth + 1) * len;
        for (nth, part) in parts().enumerate() {
            body[of(nth)].copy_from_slice(engine.find_without_path(part).expect("found before"));
        }
        serve(request.id, body);
        for (nth, part) in parts().enumerate() {
            if request.verb == Verb::Fetch {
                engine.extract(part, &mut body[of(nth)]);
            } else {
                engine
                    .find_without_path(part)
                    .expect("found before")
                    .copy_from_slice(&body[of(nth)]);
            }
        }
        Ok(true)
    }

    /// Puts a block that a cache above returns into the stash, if its label is in trusted memory
    /// and the stash has room.
    fn take_back(&mut self, request: UnifiedRequest, serve: Serve<'_>) -> Result<bool> {
        if self.searches_first {
            self.bring_found(request.addr)?;
        }
        let is_possible = self.maps.first_missing(request.addr) == 0 && !self.is_crowded();
        if is_possible {
            self.put_back(request, serve)?;
        }
        Ok(is_possible)
    }

    /// Puts a returned block into the stash. The group entries of its label must be in the PLB or
    /// in the top level.
    pub(super) fn put_back(&mut self, request: UnifiedRequest, serve: Serve<'_>) -> Result {
        serve(request.id, &mut self.body);
        let Maps { places, groups, draw, .. } = &mut self.maps;
        let fanout = groups.fanout(places, 0);
        let Group { labels, entries, .. } = groups.of(places, 0, request.addr.0 / fanout);
        let own = (request.addr.0 % fanout) as usize;
        let len = self.engine.tree().body_len();
        for part in 0..places.parts {
            let addr = places.addr(0, request.addr.0, part);
            let labelled = places.labelled(0, request.addr.0, part);
            let header = Header::new(addr, labels.leaf(entries, own, labelled, draw));
            self.engine.put(header, &self.body[part as usize * len..][..len])?;
        }
        Ok(())
    }

    /// Moves into the PLB the map blocks that a walk to `addr` begins with, as long as they are in
    /// trusted memory. Blocks that leave the PLB go into the stash, so there must be room.
    fn bring_found(&mut self, addr: Addr) -> Result {
        while !self.is_crowded() {
            let level = self.maps.first_missing(addr);
            let block = self.maps.places.addr(level, self.maps.places.nth(level, addr), 0);
            if level == 0 || self.engine.find_without_path(block).is_none() {
                break;
            }
            let way = self.make_room(block)?;
            let plb = &mut self.maps.groups.plb;
            let header = self.engine.extract(block, plb.body_mut(way)).expect("found before");
            plb.fill(way, header);
        }
        Ok(())
    }

    /// Whether a new request for this block, served before all that wait, would take no path
    /// access. This is possible only after [`search_first`](Self::search_first).
    pub fn is_served_without_path(&mut self, addr: Addr) -> bool {
        let Self { engine, maps, .. } = self;
        let mut parts = (0..maps.places.parts).map(|part| maps.places.addr(0, addr.0, part));
        self.searches_first && parts.all(|part| engine.find_without_path(part).is_some())
    }

    fn is_crowded(&self) -> bool {
        self.drains.is_crowded(self.engine.stash().len())
    }

    /// Makes `paths` path accesses that only evict, before a context switch, and returns the number
    /// of blocks that remain in the stash. `paths` must not depend on that number.
    pub fn flush(&mut self, paths: u64) -> Result<usize> {
        self.check_ready()?;
        for _ in 0..paths {
            self.change(|unified| unified.unrequested_access(StepKind::Eviction))?;
        }
        Ok(self.engine.stash().len())
    }
}

/// A context switch (ir-oram, section IV-C).
impl<T: BucketTree, L: Labels> Unified<Substash<T>, L> {
    /// Flushes the stash by `paths` path accesses, then writes the sub-stash to `home` and empties
    /// it. No access is possible until [`resume`](Self::resume). Returns the number of blocks that
    /// remain in the stash.
    pub fn suspend(&mut self, paths: u64, home: &mut dyn BucketTree) -> Result<usize> {
        self.check_ready()?;
        let waiting = self.flush(paths)?;
        self.engine.tree_mut().take_away(home)?;
        self.is_suspended = true;
        Ok(waiting)
    }

    /// Reads the sub-stash back from `home`, and rebuilds its pointer table.
    pub fn resume(&mut self, home: &mut dyn BucketTree) -> Result {
        self.engine.tree_mut().bring_back(home)?;
        self.is_suspended = false;
        Ok(())
    }
}
