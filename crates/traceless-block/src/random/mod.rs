//! Write-only ORAMs that write uniformly random slots, made safe against crashes.
//!
//! There are two slots for each logical block. A write puts its block into the *stash*, a short
//! queue in memory, draws k = 3 distinct slots, uniformly and independently of everything else, and
//! rewrites each of them: a *free* slot, which holds no block's newest contents, takes a block of
//! the stash, or a dummy if the stash is empty; a live slot is sealed again under a fresh version.
//! Without the key the three cases cannot be distinguished. [`hive`](super::hive) and
//! [`datalair`](super::datalair) differ in how they decide whether a slot is free ([`Vacancy`]).
//!
//! **No crash loses anything.** Writing a slot in place could destroy the only copy of a block. So
//! a write goes to a *journal* first, a ring written in order: k records with the new bytes of the
//! drawn slots, and one record with a block of the stash. After the next sync, which makes the
//! records durable, the slots are written in place; until then reads take them from memory. So a
//! FLUSH is one `fdatasync`. Blocks in the stash are recorded again and again, oldest first, before
//! the ring wraps around. Recovery reads the journal, counts the complete writes, and copies their
//! slots to their places once more.
//!
//! **What is trusted.** The map holds slot and *birth* of each block's newest contents; a birth is
//! a number that no other contents of the block have. A slot replaced by an older copy has another
//! birth, or has the same contents under an older version, which is harmless. After an opening the
//! map is rebuilt from the entries on the store, the newest version of each block. Each record
//! carries, sealed, a *fingerprint*: the sum of a keyed hash over all (block, birth). If the
//! rebuilt map has another fingerprint, something on the store was changed or replayed, and the
//! opening is refused ([`Error::WrongMap`]). No fingerprint can detect the loss of the last writes
//! themselves, journal included: that looks like a crash, unless the trusted state or an anchor has
//! their number.
//!
//! **A large map** lies in further tiers of the same scheme, 32 places a map block. A block that is
//! placed changes one map block, which goes into the stash of the next tier; each tier does the
//! same work at each write, needed or not. Only the last tier's map is in memory.
//!
//! Contents and places of writes follow from the number of writes, their grouping, the syncs and
//! openings, and the random draws. The number of draws does not depend on data: with equal draws
//! traces are equal. Not hidden: reads, the number of writes, and the times of syncs.
//!
//! The number of slots and the cost of a write follow from the geometry. Few blocks wait in the
//! stash:
//!
//! ```
//! use traceless_block::hive::Hive;
//! use traceless_block::random::{DRAWS, RandomGeometry, SLOTS_PER_BLOCK};
//! use traceless_core::Addr;
//! use traceless_core::oram::Oram;
//! use traceless_core::rng::System;
//! use traceless_core::scheme::SchemeContext;
//!
//! # fn main() -> traceless_core::Result {
//! let geometry = RandomGeometry::new(1000, 256, 0)?;
//! assert_eq!(geometry.slots().slots, 1000 * SLOTS_PER_BLOCK);
//! assert!(geometry.write_amplification() > DRAWS as f64, "each slot drawn is written");
//!
//! let context = SchemeContext::in_memory(geometry.store_len(), Box::new(System))?;
//! let mut oram = Hive::create(geometry, context)?;
//! for addr in 0..1000 {
//!     oram.write(Addr(addr), &[1; 256])?;
//! }
//! assert!(oram.stashed()[0] < 100);
//! # Ok(())
//! # }
//! ```

mod entry;
mod geometry;
mod keys;
mod map;
mod read;
mod recover;
mod scheme;
mod stash;
mod write;

pub use crate::tiers::MAP_TIERS_MAX;
pub use geometry::{BLOCKS_MAX, DRAWS, MAP_FAN, RandomGeometry, SLOTS_PER_BLOCK, UNSYNCED_MAX};
pub use scheme::RandomScheme;

use crate::pool::Pool;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use geometry::RandomTierGeometry;
use keys::RandomKeyRing;
use map::Spot;
use read::RandomReadScratch;
use stash::{Pending, RandomStash};
use traceless_core::error::{Error, Place, Result};
use traceless_core::oram::{BlockOram, Hides, Oram, check_request};
use traceless_core::scheme::SchemeContext;
use traceless_core::scheme::contract::SchemeKind;
use traceless_core::scheme::lifecycle::Lifecycle;
use traceless_core::scheme::openings::{OPENINGS_MANY, SchemeState, key_bytes_max};
use traceless_core::store::{Area, Cursor, Store};
use traceless_core::types::Addr;
use write::{RandomWriteScratch, SlotDraw};

/// The way in which a scheme decides whether a slot is free.
pub trait Vacancy: Send + Sync + Sized {
    /// The kind of scheme that it makes.
    const KIND: &'static SchemeKind;

    /// Whether there is a record in memory, which an opening must fill.
    const KEEPS_RECORD: bool;

    /// A record for an area of `slots` slots, all of them free.
    fn new(slots: u64) -> Self;

    /// Whether a slot is free, by the record. `None` without a record: then the caller must read
    /// the slot and look up its block in the map.
    fn is_free(&self, slot: u64) -> Option<bool>;

    /// Records that the slot now holds a block's newest contents.
    fn fill(&mut self, slot: u64);

    /// Records that the slot no longer holds a block's newest contents.
    fn release(&mut self, slot: u64);
}

/// The scheme. See the [module](self).
pub struct RandomSlots<V> {
    geometry: RandomGeometry,
    store: Arc<dyn Store>,
    tiers: Vec<RandomTier<V>>,
    keys: RandomKeyRing,
    /// The places of the last tier's blocks, including blocks in its stash.
    top: Vec<Spot>,
    count: u64,
    life: Lifecycle,
    key_bytes_max: u64,
    readers: Pool<RandomReadScratch>,
    writer: RandomWriteScratch,
}

/// The data (tier 0), or the map of the tier before.
struct RandomTier<V> {
    geometry: RandomTierGeometry,
    slots: Area,
    journal: Area,
    cursor: Cursor,
    stash: RandomStash,
    pending: Pending,
    vacancy: V,
    /// Sum of the hashes of all contents that no other map covers: the stash, and in the last tier
    /// all blocks.
    fingerprint: u128,
}

impl<V: Vacancy> RandomSlots<V> {
    /// Creates the scheme on a store; its old contents do not matter. Every block reads as zeros.
    pub fn create(geometry: RandomGeometry, context: SchemeContext) -> Result<Self> {
        let mut new = Self::assemble(geometry, context, &SchemeState::default())?;
        new.begin_opening()?;
        Ok(new)
    }

    /// Opens the scheme from the last `state` in its vault, after a close or a crash at any point.
    /// Work that a crash interrupted is redone byte for byte; `progress` gets the done and total
    /// parts of the map.
    pub fn open(
        geometry: RandomGeometry,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let mut state = SchemeState::decode(state)?;
        state.at_least = state.at_least.max(context.expect_writes);
        let read_only = context.read_only;
        let mut opened = Self::assemble(geometry, context, &state)?;
        opened.recover(&state, progress)?;
        if !read_only {
            opened.begin_opening()?;
            opened.retire_old_openings()?;
        }
        Ok(opened)
    }

    /// The number of writes recorded in a state, and whether it was closed.
    pub fn peek_state(state: &[u8]) -> Result<(u64, bool)> {
        SchemeState::decode(state).map(|s| (s.at_least, s.clean))
    }

    /// Blocks in the stash of each tier. For tests and curiosity; secret from an adversary.
    pub fn stashed(&self) -> Vec<usize> {
        self.tiers.iter().map(|t| t.stash.len()).collect()
    }

    fn assemble(
        geometry: RandomGeometry,
        context: SchemeContext,
        state: &SchemeState,
    ) -> Result<Self> {
        geometry.check()?;
        context.check(geometry.store_len())?;
        let placed = geometry.areas();
        let tier = |(geometry, placed): (RandomTierGeometry, &[_])| RandomTier {
            slots: context.area(placed[0], geometry.slots),
            journal: context.area(placed[1], geometry.journal),
            cursor: Cursor::at_start(&geometry.journal),
            stash: RandomStash::default(),
            pending: Pending::new(),
            vacancy: V::new(geometry.slots.slots),
            fingerprint: 0,
            geometry,
        };
        let tiers: Vec<_> =
            geometry.tiers().into_iter().zip(placed.chunks_exact(2)).map(tier).collect();
        let top_blocks = tiers.last().expect("the data is a tier").geometry.blocks;
        let top_blocks = usize::try_from(top_blocks).map_err(|_| Error::Geometry("map"))?;
        Ok(Self {
            keys: RandomKeyRing::new(context.key, context.cipher, &geometry, state),
            top: vec![Spot::NEVER; top_blocks],
            geometry,
            store: context.store,
            tiers,
            count: 0,
            life: Lifecycle::new(context.read_only, context.vault, context.rng),
            key_bytes_max: key_bytes_max(geometry.block_len),
            readers: Pool::default(),
            writer: RandomWriteScratch::default(),
        })
    }

    /// Draws the id of a new opening and makes it durable before anything is written under it. All
    /// earlier writes must be durable.
    fn begin_opening(&mut self) -> Result {
        let opening = self.keys.openings().next(self.life.draw_id(), self.count);
        self.keys.push(opening).inspect_err(|_| self.life.poison())?;
        self.keep_state(false)
    }

    fn keep_state(&mut self, clean: bool) -> Result {
        self.life.keep(&self.keys.openings().state(clean, self.count).encode())
    }

    /// A slot keeps its opening until it is drawn, which may take forever. So once there are many
    /// openings, all slots are rewritten in order, and all openings but the newest are forgotten.
    /// The time of this pass depends on the number of openings.
    fn retire_old_openings(&mut self) -> Result {
        if self.keys.openings().len() < OPENINGS_MANY {
            return Ok(());
        }
        let pass =
            |t: &RandomTier<V>| t.slots.slots().div_ceil(DRAWS).max(t.geometry.journal_writes);
        let passes = self.tiers.iter().map(pass).max().unwrap_or(0);
        for nth in 0..passes {
            self.write_dummy_at(SlotDraw::InOrder(nth * DRAWS))?;
        }
        self.settle()?;
        self.keys.forget_old();
        self.keep_state(false)
    }

    /// Writes all slots to their places and makes them durable.
    fn settle(&mut self) -> Result {
        self.sync_shared()?;
        self.write_in_place()?;
        self.sync_shared()
    }

    fn is_last_tier(&self, tier: usize) -> bool {
        tier + 1 == self.tiers.len()
    }
}

impl<V: Vacancy> Oram for RandomSlots<V> {
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
        self.settle()?;
        self.keep_state(true)?;
        self.life.end();
        Ok(())
    }
}

impl<V: Vacancy> BlockOram for RandomSlots<V> {
    fn read_shared(&self, addrs: &[Addr], into: &mut [u8]) -> Result {
        check_request(self.geometry.blocks, self.geometry.block_len, addrs, into.len())?;
        self.read_tier(0, addrs, into)
    }

    fn sync_shared(&self) -> Result {
        self.life.sync(&*self.store, self.count)
    }

    fn writes(&self) -> u64 {
        self.count
    }

    fn write_dummy(&mut self) -> Result {
        self.write_dummy_at(SlotDraw::Random)
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64), damaged: &mut dyn FnMut(Place)) -> Result {
        self.verify_tiers(progress, damaged)
    }
}

#[cfg(all(test, feature = "std"))]
mod tests;
