//! `DetWoORAM` with rolling areas: write traces depend on the number of writes alone, nothing live
//! is ever overwritten, and no journal is needed.
//!
//! A main area holds each block at a fixed place, a holding area takes the writes in order. Write
//! number p goes to holding slot p, and the next K main blocks are rewritten with their newest
//! contents, changed or not; so every write reaches the main area before its holding slot is used
//! again. Both areas are rings with some slack: refresh number r goes to main slot r, one slack
//! ahead of the copy that it replaces, which stays intact until the next sync.
//!
//! The only map is `w`, the count of each block's last write. Place and version follow from it and
//! from the total count in closed form, so a refresh needs no map access, a read touches one slot,
//! and after a crash the map is rebuilt from the holding entries. A map too large for memory lies
//! in further tiers of the same scheme, each holding the last writes of the tier before, 64 a
//! block: every write, to any address, rewrites one block in each tier. For comparison the map may
//! hold the authors' self-invalidating pointers instead ([`MapEntries`]).
//!
//! Discarded blocks are marked in a map of bits, in further blocks of the same scheme
//! (`detwo/discards.rs`).
//!
//! Paper: the papers' Algorithm 1 with its wrap error corrected; docs/papers.md lists the
//! differences. Not hidden: reads, the number of writes, and the times of syncs.
//!
//! The events of a write do not depend on the address that is written:
//!
//! ```
//! use std::sync::Arc;
//! use traceless_block::detwo::{DetWoGeometry, Refresh};
//! use traceless_core::rng::System;
//! use traceless_core::scheme::SchemeContext;
//! use traceless_core::scheme::contract::{BlockScheme, Scheme};
//! use traceless_core::store::{MemStore, WatchedStore};
//! use traceless_core::trace::{Event, Recorder};
//! use traceless_core::{Addr, Result};
//!
//! /// What an adversary observes while the blocks `addrs` are written.
//! fn trace_of(addrs: [u64; 3]) -> Result<Vec<Event>> {
//!     let scheme = DetWoGeometry::new(1000, 4096, Refresh::new(1, 3)?, 0)?;
//!     let witness = Arc::new(Recorder::default());
//!     let store = WatchedStore::new(MemStore::new(scheme.store_len()), witness.clone());
//!     let context = SchemeContext::over(Arc::new(store), Box::new(System));
//!     let mut oram = scheme.create_block(context)?;
//!     addrs.iter().try_for_each(|&addr| oram.write(Addr(addr), &[1; 4096]))?;
//!     oram.sync()?;
//!     Ok(witness.take())
//! }
//!
//! # fn main() -> Result {
//! let trace = trace_of([7, 7, 7])?;
//! assert_eq!(trace, trace_of([3, 998, 41])?);
//! assert!(trace.len() > 3);
//! # Ok(())
//! # }
//! ```

mod discards;
mod geometry;
mod keys;
mod lookup;
mod map;
mod passes;
mod pointer;
mod read;
mod recover;
mod refresh;
mod scheme;
mod write;

pub use crate::tiers::MAP_TIERS_MAX;
pub use geometry::{DetWoGeometry, MAP_FAN, MapEntries, UNSYNCED_MAX};
pub use passes::{DetWoLocation, Passes};
pub use refresh::{REFRESH_TERM_MAX, Refresh};
pub use scheme::DETWO;
pub use traceless_core::scheme::contract::BLOCKS_MAX;

use crate::log::DamagePolicy;
use crate::pool::Pool;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use discards::DiscardMap;
use geometry::DetWoTierGeometry;
use keys::DetWoKeyRing;
use read::DetWoReadScratch;
use traceless_core::error::{Error, Place, Result};
use traceless_core::oram::{BlockOram, Hides, Oram, check_range, check_request, write_zeros};
use traceless_core::scheme::SchemeContext;
use traceless_core::scheme::lifecycle::Lifecycle;
use traceless_core::scheme::openings::{Opening, SchemeState, dummies_to_retire, key_bytes_max};
use traceless_core::store::{Area, Cursor, Store};
use traceless_core::types::{Addr, Slot};
use write::DetWoWriteScratch;

/// The scheme. See the [module](self).
pub struct DetWo {
    geometry: DetWoGeometry,
    store: Arc<dyn Store>,
    tiers: Vec<DetWoTier>,
    keys: DetWoKeyRing,
    /// Map entries of the blocks of the last tier; 0 means never written.
    top: Vec<u64>,
    /// The blocks that read as zeros; `None` if the geometry has no discard map.
    discards: Option<DiscardMap>,
    count: u64,
    life: Lifecycle,
    key_bytes_max: u64,
    readers: Pool<DetWoReadScratch>,
    writer: DetWoWriteScratch,
}

/// The data (tier 0), or the map of the tier before.
struct DetWoTier {
    geometry: DetWoTierGeometry,
    passes: Passes,
    hold: Area,
    main: Area,
    hold_cursor: Cursor,
    main_cursor: Cursor,
    /// Refreshes done, which is also the number of the next one. Creation counts as the first
    /// `blocks` refreshes.
    refreshed: u64,
    /// Only for reading: substitutes for refreshes that a crash lost. Maps the number of a refresh
    /// to the place of the copy that it was to carry.
    substitutes: BTreeMap<u64, DetWoLocation>,
}

impl DetWo {
    /// Creates the scheme on a store; its old contents do not matter. Every block reads as zeros.
    pub fn create(geometry: DetWoGeometry, context: SchemeContext) -> Result<Self> {
        let mut new = Self::assemble(geometry, context, &SchemeState::default())?;
        new.begin_opening()?;
        Ok(new)
    }

    /// Opens the scheme from the last `state` in its vault, after a close or a crash at any point.
    /// Work that a crash interrupted is redone byte for byte; `progress` gets the done and total
    /// parts of the map.
    pub fn open(
        geometry: DetWoGeometry,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let mut opened = Self::open_alone(geometry, context, state, progress)?;
        for _ in 0..opened.dummies_due() {
            opened.write_dummy()?;
        }
        Ok(opened)
    }

    /// As [`DetWo::open`], without the [`dummies_due`](Self::dummies_due), which are left to the
    /// caller.
    pub(crate) fn open_alone(
        geometry: DetWoGeometry,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let mut state = SchemeState::decode(state)?;
        state.at_least = state.at_least.max(context.expect_writes);
        let read_only = context.read_only;
        let mut opened = Self::assemble(geometry, context, &state)?;
        opened.recover(&state, DamagePolicy::Refuse, progress)?;
        opened.load_discards(DamagePolicy::Refuse)?;
        if !read_only {
            opened.begin_opening()?;
        }
        Ok(opened)
    }

    /// Opens a scheme with damage that makes [`DetWo::open`] fail: where live holding entries are
    /// lost, their addresses are lost too, and **the affected blocks may read as they were
    /// earlier**. Then writes dummies until no later opening needs these entries. If nothing but
    /// the discard map is damaged, all entries are known, and only the blocks that it covers may
    /// read so. Returns the lost places.
    pub fn salvage(
        geometry: DetWoGeometry,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Self, Vec<Place>)> {
        if context.read_only {
            return Err(Error::ReadOnly);
        }
        let mut state = SchemeState::decode(state)?;
        state.at_least = state.at_least.max(context.expect_writes);
        let mut opened = Self::assemble(geometry, context, &state)?;
        // Without a discard map only lost entries keep a volume closed.
        let refusing =
            |opened: &mut Self| opened.recover(&state, DamagePolicy::Refuse, &mut |_, _| {});
        let known = match geometry.discards.then(|| refusing(&mut opened)) {
            Some(Ok(_)) => None,
            // Nothing but the count and the last tier's entries was found so far.
            None | Some(Err(Error::Tampered { .. } | Error::RolledBack { .. })) => {
                opened.top.fill(0);
                Some(opened.recover(&state, DamagePolicy::Accept, progress)?)
            }
            Some(Err(e)) => return Err(e),
        };
        let parts = opened.load_discards(DamagePolicy::Accept)?;
        let places = parts.iter().map(|part| part.place);
        opened.begin_opening()?;
        opened.replace_parts(&parts)?;
        let Some(mut lost) = known else {
            opened.sync_shared()?;
            return Ok((opened, places.collect()));
        };
        lost.extend(places);
        let top = opened.tiers.last().expect("the data is a tier");
        let pass = top.geometry.live_writes + geometry.unsynced_max;
        for done in 0..pass {
            progress(done, pass);
            opened.write_one_dummy()?;
        }
        opened.sync_shared()?;
        progress(pass, pass);
        Ok((opened, lost))
    }

    /// The number of writes recorded in a state, and whether it was closed.
    pub fn peek_state(state: &[u8]) -> Result<(u64, bool)> {
        SchemeState::decode(state).map(|s| (s.at_least, s.clean))
    }

    /// The parameters of the scheme.
    pub fn geometry(&self) -> &DetWoGeometry {
        &self.geometry
    }

    fn assemble(
        geometry: DetWoGeometry,
        context: SchemeContext,
        state: &SchemeState,
    ) -> Result<Self> {
        geometry.check()?;
        context.check(geometry.store_len())?;
        let (placed, k) = (geometry.areas(), geometry.refresh);
        let tier = |(geometry, placed): (DetWoTierGeometry, &[_])| DetWoTier {
            hold: context.area(placed[0], geometry.hold),
            main: context.area(placed[1], geometry.main),
            hold_cursor: Cursor::at_start(&geometry.hold),
            main_cursor: Cursor::at_start(&geometry.main),
            refreshed: geometry.blocks,
            passes: Passes { blocks: geometry.blocks, refresh: k },
            substitutes: BTreeMap::new(),
            geometry,
        };
        let tiers: Vec<_> =
            geometry.tiers().into_iter().zip(placed.chunks_exact(2)).map(tier).collect();
        let top_blocks = tiers.last().expect("the data is a tier").geometry.blocks;
        Ok(Self {
            keys: DetWoKeyRing::new(context.key, context.cipher, geometry, state),
            top: vec![0; usize::try_from(top_blocks).map_err(|_| Error::Geometry("map"))?],
            discards: geometry.discards.then(|| DiscardMap::new(&geometry)).transpose()?,
            writer: DetWoWriteScratch::default(),
            readers: Pool::default(),
            geometry,
            store: context.store,
            tiers,
            count: 0,
            life: Lifecycle::new(context.read_only, context.vault, context.rng),
            key_bytes_max: key_bytes_max(geometry.block_len),
        })
    }

    /// Draws the id of a new opening and makes it durable before anything is written under it. All
    /// earlier writes must be durable.
    fn begin_opening(&mut self) -> Result {
        self.keys.prune(self.count);
        let opening = self.keys.openings().next(self.life.draw_id(), self.count);
        self.keys.push(opening).inspect_err(|_| self.life.poison())?;
        self.keep_state(false)
    }

    fn keep_state(&mut self, clean: bool) -> Result {
        self.life.keep(&self.keys.openings().state(clean, self.count).encode())
    }

    /// If there are many openings: enough dummies to write now that the oldest ones retire in time,
    /// a whole pass before there are too many. Their number depends on the number of openings.
    pub(crate) fn dummies_due(&self) -> u64 {
        if !self.life.takes_writes() {
            return 0;
        }
        let slowest = self.tiers.iter().map(|t| t.geometry.live_writes).max().unwrap_or(0);
        let pass = slowest + self.geometry.unsynced_max;
        dummies_to_retire(self.keys.openings().len(), pass)
    }

    /// The openings that are not forgotten, oldest first.
    pub(crate) fn openings(&self) -> Vec<Opening> {
        self.keys.openings().list()
    }

    /// The newest opening.
    pub(crate) fn opening(&self) -> Opening {
        *self.keys.openings().last()
    }

    /// Writes that are known to be durable.
    pub(crate) fn synced(&self) -> u64 {
        self.life.synced()
    }

    /// Whether it was opened for writing and is not closed.
    pub(crate) fn takes_writes(&self) -> bool {
        self.life.takes_writes()
    }

    /// Number of refreshes in a tier after `count` writes, including the refreshes of its creation.
    fn refreshed_after(&self, tier: usize, count: u64) -> u64 {
        self.tiers[tier].passes.after(count)
    }
}

impl DetWoTier {
    /// The place of the newest copy of `block` after `refreshed` refreshes; `last` is one more than
    /// the count of its last write, or 0 if there was none.
    fn locate(&self, block: u64, last: u64, refreshed: u64) -> DetWoLocation {
        self.stood_in(self.passes.locate(block, last, refreshed))
    }

    /// The place of the main copy of `block` after `refreshed` refreshes.
    fn main_location(&self, block: u64, refreshed: u64) -> DetWoLocation {
        self.stood_in(self.passes.in_main(block, refreshed))
    }

    /// The copy itself, or the substitute for a refresh that a crash lost.
    fn stood_in(&self, copy: DetWoLocation) -> DetWoLocation {
        match copy {
            DetWoLocation::Main(r) => self.substitutes.get(&r).copied().unwrap_or(copy),
            _ => copy,
        }
    }

    fn hold_slot(&self, count: u64) -> Slot {
        Slot(count % self.hold.slots())
    }

    /// The last of `count` writes that went to holding slot `slot`, if there is one.
    fn held_in(&self, slot: u64, count: u64) -> Option<u64> {
        let newest = count.checked_sub(1)?;
        Some(newest - newest.checked_sub(slot)? % self.hold.slots())
    }

    fn main_slot(&self, r: u64) -> Slot {
        Slot(r % self.main.slots())
    }
}

impl Oram for DetWo {
    fn blocks(&self) -> u64 {
        self.geometry.blocks
    }

    fn block_len(&self) -> usize {
        self.geometry.block_len
    }

    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        self.read_shared(addrs, into)
    }

    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        check_request(self.geometry.blocks, self.geometry.block_len, addrs, from.len())?;
        self.write_in_chunks(addrs, from)
    }

    fn sync(&mut self) -> Result {
        self.sync_shared()
    }

    fn hides(&self) -> Hides {
        Hides::WritesOnly
    }

    fn close(&mut self) -> Result {
        if !self.life.takes_writes() {
            return Ok(());
        }
        self.sync_shared()?;
        self.keep_state(true)?;
        self.life.end();
        Ok(())
    }
}

impl BlockOram for DetWo {
    fn read_shared(&self, addrs: &[Addr], into: &mut [u8]) -> Result {
        check_request(self.geometry.blocks, self.geometry.block_len, addrs, into.len())?;
        self.read_tier(0, addrs, into)
    }

    fn discard(&mut self, blocks: Range<u64>) -> Result {
        check_range(self.geometry.blocks, &blocks)?;
        match self.discards {
            Some(_) => self.discard_by_map(&blocks),
            None => write_zeros(self, blocks),
        }
    }

    fn sync_shared(&self) -> Result {
        self.life.sync(&*self.store, self.count)
    }

    fn writes(&self) -> u64 {
        self.count
    }

    fn write_dummy(&mut self) -> Result {
        self.write_one_dummy()
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64), damaged: &mut dyn FnMut(Place)) -> Result {
        self.verify_tiers(progress, damaged)
    }
}

#[cfg(all(test, feature = "std"))]
mod discard_tests;
#[cfg(all(test, feature = "std"))]
mod tests;
