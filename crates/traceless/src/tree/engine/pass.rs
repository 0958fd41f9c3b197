//! The eviction of Circuit ORAM, which moves each block at most once: its scans over the open path.

use super::{BucketTree, Engine};

/// The source of a block: its index in the stash, or its slot of the path.
#[derive(Clone, Copy)]
pub(super) enum PassSource {
    Stash(usize),
    Slot(usize),
}

impl<T: BucketTree> Engine<T> {
    /// One pass along the open path, before it is written: at most one block of the stash goes
    /// down, and each bucket receives and gives at most one block (Circuit ORAM, section 3:
    /// `EvictOnceFast`).
    pub fn evict_once(&mut self) {
        assert!(self.is_open, "a path is fetched before it is evicted");
        self.find_offers();
        // The move into a lower bucket that is still to be made. Moves are made from the leaf up,
        // so that a bucket that both gives and receives a block has room by then.
        let mut wanted = None;
        for level in (0..self.shape().levels()).rev() {
            let first = self.shape().path_start(level);
            if let Some((PassSource::Slot(slot), to)) = wanted
                && slot >= first
            {
                self.tree.copy_body(slot, to);
                self.headers[to] = core::mem::take(&mut self.headers[slot]);
                wanted = None;
            }
            let bucket = &self.headers[first..self.shape().path_start(level + 1)];
            if let Some(room) = bucket.iter().position(|h| h.is_empty())
                && wanted.is_none()
            {
                wanted = self.eviction.offers[level].map(|from| (from, first + room));
            }
        }
        if let Some((PassSource::Stash(nth), to)) = wanted
            && self.tree.admit(to, self.stash.headers()[nth])
        {
            self.tree.body_mut(to).copy_from_slice(self.stash.body(nth));
            self.headers[to] = self.stash.headers()[nth];
            self.stash.remove(nth);
        }
    }

    /// For each level, the block from above that may go deepest of all, if it may come as far as
    /// this level (`PrepareDeepest`).
    fn find_offers(&mut self) {
        let Self { tree, stash, leaf, headers, eviction, .. } = self;
        let shape = tree.shape();
        let waiting = stash.headers().iter().enumerate();
        let waiting = waiting.map(|(nth, h)| (shape.meet(h.leaf(), *leaf), PassSource::Stash(nth)));
        let mut best = waiting.max_by_key(|(reach, _)| *reach);
        eviction.offers.clear();
        for level in 0..shape.levels() {
            eviction.offers.push(best.filter(|(reach, _)| *reach >= level).map(|(_, from)| from));
            let bucket = shape.path_start(level)..shape.path_start(level + 1);
            for (slot, header) in bucket.clone().zip(&headers[bucket]) {
                if !header.is_empty() {
                    let reach = shape.meet(header.leaf(), *leaf);
                    if best.is_none_or(|(farthest, _)| reach > farthest) {
                        best = Some((reach, PassSource::Slot(slot)));
                    }
                }
            }
        }
    }
}
