//! Finds the newest copy of a block from its map entry. A last write count gives the place
//! directly; an authors' pointer gives two candidates, and their contents decide.

use super::pointer::Pointer;
use super::{DetWo, DetWoLocation, MapEntries};
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::store::Run;

/// The information of a map entry about the newest copy of a block.
#[derive(Clone, Copy)]
pub(super) struct Lookup {
    /// The place of the newest copy. With a pointer, the place of the main copy.
    place: DetWoLocation,
    /// A pointer, and the number of the write in the slot that it points to.
    newer: Option<(u64, Pointer)>,
}

/// A lookup, and the indices in a run of the slots to fetch for it.
pub(super) struct Fetch {
    lookup: Lookup,
    place_at: usize,
    newer_at: usize,
}

impl Fetch {
    pub fn new(lookup: Lookup) -> Self {
        Self { lookup, place_at: 0, newer_at: 0 }
    }
}

/// Contents of some slots, with a mark for slots that do not open.
pub(super) struct SlotContents {
    bytes: Vec<u8>,
    whole: Vec<bool>,
    len: usize,
}

impl SlotContents {
    pub fn get(&self, nth: usize) -> Option<&[u8]> {
        self.whole[nth].then(|| &self.bytes[nth * self.len..][..self.len])
    }
}

impl DetWo {
    /// The lookup of `entry` for `block` after `count` writes and `refreshed` refreshes.
    pub(super) fn lookup(
        &self,
        tier: usize,
        block: u64,
        entry: u64,
        refreshed: u64,
        count: u64,
    ) -> Lookup {
        let t = &self.tiers[tier];
        if self.geometry.map_entries == MapEntries::Counts {
            return Lookup { place: t.locate(block, entry, refreshed), newer: None };
        }
        let newer = Pointer::decode(entry, t.main.layout().body_len).and_then(|pointer| {
            let held = t.held_in(pointer.slot, count)?;
            // A blind pointer never looks stale. It is stale if even the current write in its slot
            // was refreshed, since the pointer's own write was this one or an earlier one.
            let live = t.locate(block, held + 1, refreshed) == DetWoLocation::Hold(held);
            (live || !pointer.is_blind()).then_some((held, pointer))
        });
        Lookup { place: t.main_location(block, refreshed), newer }
    }

    /// Adds the slots of `fetches` to `run`: first all places, then all holding slots of pointers,
    /// so that neighbouring slots are read together.
    pub(super) fn add_fetches(&self, tier: usize, fetches: &mut [Fetch], run: &mut Run) {
        let mut at = run.slots();
        self.add_locations(tier, fetches.iter().map(|f| f.lookup.place), run);
        let newer = |f: &Fetch| f.lookup.newer.map(|(held, _)| DetWoLocation::Hold(held));
        self.add_locations(tier, fetches.iter().filter_map(newer), run);
        let mut take = || {
            at += 1;
            at - 1
        };
        for fetch in fetches.iter_mut().filter(|f| f.lookup.place != DetWoLocation::Nowhere) {
            fetch.place_at = take();
        }
        for fetch in fetches.iter_mut().filter(|f| f.lookup.newer.is_some()) {
            fetch.newer_at = take();
        }
    }

    /// Opens the newest copy of `block`, fetched into `run`. Returns its place.
    pub(super) fn open_fetch(
        &self,
        tier: usize,
        block: u64,
        fetch: &Fetch,
        run: &Run,
        into: &mut [u8],
    ) -> Result<DetWoLocation> {
        let Lookup { place, newer } = fetch.lookup;
        let main = self.open_place(tier, block, place, (run, fetch.place_at), into);
        let Some((count, pointer)) = newer else { return main.map(|()| place) };
        if main.is_ok() && pointer.is_stale(into) {
            return Ok(place);
        }
        // The slot holds no later write than `count`. So if write `count` was to this block, the
        // pointer means this write, and it is the newest copy, even if the main copy is damaged.
        let hold = DetWoLocation::Hold(count);
        let opened = self.open_place(tier, block, hold, (run, fetch.newer_at), into);
        match (main, opened) {
            (_, Ok(())) => Ok(hold),
            (Err(main), _) => Err(main),
            (Ok(()), Err(error)) => {
                // A blind pointer is surely stale if another block has the slot now.
                let (entry, _) = run.slot(fetch.newer_at);
                let now = self.open_entry(tier, entry);
                if !pointer.is_blind() || now.is_none_or(|(c, home)| c != count || home == block) {
                    return Err(error);
                }
                self.open_place(tier, block, place, (run, fetch.place_at), into)?;
                Ok(place)
            }
        }
    }

    /// Opens the copy of `block` at `place`, which is slot `at` of the run unless `place` is
    /// nowhere.
    fn open_place(
        &self,
        tier: usize,
        block: u64,
        place: DetWoLocation,
        (run, at): (&Run, usize),
        into: &mut [u8],
    ) -> Result {
        if place == DetWoLocation::Nowhere {
            into.fill(0);
            return Ok(());
        }
        let (entry, body) = run.slot(at);
        self.open_slot(tier, block, place, entry, body, into)
    }

    /// Reads the newest copy of one block in a run of its own. Returns its place.
    pub(super) fn read_lookup(
        &self,
        tier: usize,
        block: u64,
        lookup: Lookup,
        into: &mut [u8],
    ) -> Result<DetWoLocation> {
        let mut fetch = [Fetch::new(lookup)];
        let mut run = Run::default();
        self.add_fetches(tier, &mut fetch, &mut run);
        run.read(&*self.store)?;
        self.open_fetch(tier, block, &fetch[0], &run, into)
    }

    /// Reads the copies of several blocks at given places.
    pub(super) fn copies(
        &self,
        tier: usize,
        places: &[(u64, DetWoLocation)],
    ) -> Result<SlotContents> {
        let len = self.tiers[tier].main.layout().body_len;
        let mut run = Run::default();
        let lookup = |&(_, place): &(u64, DetWoLocation)| Fetch::new(Lookup { place, newer: None });
        let mut fetches: Vec<Fetch> = places.iter().map(lookup).collect();
        self.add_fetches(tier, &mut fetches, &mut run);
        run.read(&*self.store)?;
        let mut copies = SlotContents { bytes: vec![0; places.len() * len], whole: vec![], len };
        let into = copies.bytes.chunks_exact_mut(len);
        for ((fetch, into), &(block, _)) in fetches.iter().zip(into).zip(places) {
            match self.open_fetch(tier, block, fetch, &run, into) {
                Ok(_) => copies.whole.push(true),
                Err(Error::Tampered { .. }) => copies.whole.push(false),
                Err(other) => return Err(other),
            }
        }
        Ok(copies)
    }
}
