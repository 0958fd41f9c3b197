//! Write-only ORAMs that write uniformly random slots, made safe against crashes.
//!
//! There are two slots for each logical block. A write puts its block into the *stash*, a short
//! queue in memory, draws k = 3 distinct slots, uniformly and independently of everything else, and
//! writes each of them anew: a *free* slot, which holds no block's newest contents, takes a block
//! of the stash, or a dummy if there is none; a live one is sealed again under a fresh version.
//! Nobody without the key can tell the three cases apart. [`hive`](super::hive) and
//! [`datalair`](super::datalair) differ in how they know whether a slot is free ([`Vacancy`]).
//!
//! **No crash loses anything.** Writing a slot in place could destroy the only copy of a block. So
//! a write goes to a *journal* first, a ring written in order: k records with the slots drawn, byte
//! for byte as they will be, and one with a block of the stash. After the next sync, which makes
//! them durable, the slots are written in place; until then reads take them from memory. So a FLUSH
//! is one `fdatasync`. The stash is recorded again and again, oldest first, before the ring comes
//! round. Recovery reads the journal, finds how many writes are there whole, and copies their slots
//! to their places once more.
//!
//! **What is trusted.** The map tells slot and *birth* of each block's newest contents: a number
//! that no other contents have. A slot that was put back from an older copy has another birth, or
//! is the same contents under an older version, which harms nobody. After an opening the map is
//! rebuilt from the entries on the store, the newest version of each block. Each record
//! carries, sealed, a *fingerprint*: the sum of a keyed hash over all (block, birth). If the map
//! that was found has another one, something on the store was changed or put back, and it is
//! refused ([`Error::WrongMap`]). What no fingerprint can tell is the loss of the last writes
//! themselves, journal included: that looks like a crash, unless the trusted state or an anchor
//! knows their number.
//!
//! **A large map** lies in further tiers of the same scheme, 32 places a map block. A block that is
//! placed changes one map block, which goes into the stash of the next tier; each tier does the
//! same work at each write, needed or not. Only the last tier's map is in memory.
//!
//! What is written, and where, follows from the number of writes, how they were grouped, the syncs
//! and openings, and the random draws, whose number does not depend on data: with equal draws
//! traces are equal. Not hidden: reads, the number of writes, and when syncs happen.

mod entry;
mod geometry;
mod keys;
mod map;
mod read;
mod recover;
mod scheme;
mod stash;
mod write;

pub use crate::scheme::tiers::MAP_TIERS_MAX;
pub use geometry::{BLOCKS_MAX, DRAWS, MAP_FAN, RandomGeometry, SLOTS_PER_BLOCK, UNSYNCED_MAX};
pub use scheme::RandomScheme;

use crate::error::{Error, Place, Result};
use crate::oram::{BlockOram, Hides, Oram, check_request};
use crate::scheme::Parts;
use crate::scheme::contract::SchemeKind;
use crate::scheme::lifecycle::Lifecycle;
use crate::scheme::openings::{EpochState, OPENINGS_MANY, key_bytes_max};
use crate::scheme::pool::Pool;
use crate::store::{Area, Cursor, Store};
use crate::types::Addr;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use geometry::RandomTierGeometry;
use keys::RandomKeyRing;
use map::Spot;
use read::RandomReadScratch;
use stash::{Pending, RandomStash};
use write::{RandomWriteScratch, SlotDraw};

/// How a scheme knows whether a slot is free.
pub trait Vacancy: Send + Sync + Sized {
    /// The kind of scheme that it makes.
    const KIND: &'static SchemeKind;

    /// Whether a record is kept in memory, which an opening must fill.
    const KEEPS_RECORD: bool;

    /// For an area of `slots` slots, all of them free.
    fn new(slots: u64) -> Self;

    /// What the record says of a slot: whether it is free. Nothing without a record: then the slot
    /// must be read, and the map asked.
    fn is_free(&self, slot: u64) -> Option<bool>;

    /// The slot holds a block's newest contents from now on.
    fn fill(&mut self, slot: u64);

    /// It does not any more.
    fn release(&mut self, slot: u64);
}

/// The scheme. See the [module](self).
pub struct RandomSlots<V> {
    geometry: RandomGeometry,
    store: Arc<dyn Store>,
    tiers: Vec<RandomTier<V>>,
    keys: RandomKeyRing,
    /// Where the blocks of the last tier are, those in its stash included.
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
    /// Sum of the hashes of what no other map vouches for: the stash, and in the last tier all
    /// blocks.
    fingerprint: u128,
}

impl<V: Vacancy> RandomSlots<V> {
    /// Makes a new one on a store whose contents do not matter. Every block reads as zeros.
    pub fn create(geometry: RandomGeometry, parts: Parts) -> Result<Self> {
        let mut new = Self::assemble(geometry, parts, &EpochState::default())?;
        new.begin_opening()?;
        Ok(new)
    }

    /// Opens the one whose vault last kept `state`, after a close or a crash at any point. Work
    /// that a crash cut short is redone byte for byte; `progress` tells done and all of the map.
    pub fn open(
        geometry: RandomGeometry,
        parts: Parts,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let mut state = EpochState::decode(state)?;
        state.at_least = state.at_least.max(parts.expect_writes);
        let read_only = parts.read_only;
        let mut opened = Self::assemble(geometry, parts, &state)?;
        opened.recover(&state, progress)?;
        if !read_only {
            opened.begin_opening()?;
            opened.retire_old_openings()?;
        }
        Ok(opened)
    }

    /// Writes that a state's keeper had seen, and whether it was closed.
    pub fn peek_state(state: &[u8]) -> Result<(u64, bool)> {
        EpochState::decode(state).map(|s| (s.at_least, s.clean))
    }

    /// Blocks in the stash of each tier. For tests and curiosity; never shown to an adversary.
    pub fn stashed(&self) -> Vec<usize> {
        self.tiers.iter().map(|t| t.stash.len()).collect()
    }

    fn assemble(geometry: RandomGeometry, parts: Parts, state: &EpochState) -> Result<Self> {
        geometry.check()?;
        parts.check_room(geometry.store_len())?;
        let placed = geometry.areas();
        let tier = |(geometry, placed): (RandomTierGeometry, &[_])| RandomTier {
            slots: parts.area(placed[0], geometry.slots),
            journal: parts.area(placed[1], geometry.journal),
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
            keys: RandomKeyRing::new(parts.key, parts.cipher, &geometry, state),
            top: vec![Spot::NEVER; top_blocks],
            geometry,
            store: parts.store,
            tiers,
            count: 0,
            life: Lifecycle::new(parts.read_only, parts.vault, parts.rng),
            key_bytes_max: key_bytes_max(geometry.block_len),
            readers: Pool::default(),
            writer: RandomWriteScratch::default(),
        })
    }

    /// Draws the id of a new opening and makes it durable, before anything is written under it.
    /// Everything written so far must be durable.
    fn begin_opening(&mut self) -> Result {
        let opening = self.keys.openings().next(self.life.draw_id(), self.count);
        self.keys.push(opening).inspect_err(|_| self.life.poison())?;
        self.keep_state(false)
    }

    fn keep_state(&mut self, clean: bool) -> Result {
        self.life.keep(&self.keys.openings().state(clean, self.count).encode())
    }

    /// A slot keeps its opening until it is drawn, which may take for ever. So once there are many
    /// openings, all slots are written anew in order, and all but the newest are forgotten. When
    /// that happens depends on the number of openings.
    fn retire_old_openings(&mut self) -> Result {
        if self.keys.openings().len() < OPENINGS_MANY {
            return Ok(());
        }
        let pass =
            |t: &RandomTier<V>| t.slots.slots().div_ceil(DRAWS).max(t.geometry.journal_writes);
        let passes = self.tiers.iter().map(pass).max().unwrap_or(0);
        for nth in 0..passes {
            self.write_nobody(SlotDraw::InOrder(nth * DRAWS))?;
        }
        self.settle()?;
        self.keys.forget_old();
        self.keep_state(false)
    }

    /// Makes everything durable in its place.
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
        self.write_nobody(SlotDraw::Random)
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64), damaged: &mut dyn FnMut(Place)) -> Result {
        self.verify_tiers(progress, damaged)
    }
}

#[cfg(all(test, feature = "std"))]
mod tests;
