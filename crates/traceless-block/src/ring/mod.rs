//! Ring ORAM for block devices: it hides which blocks are read, too, and survives crashes.
//!
//! As in Ring ORAM, blocks lie in the buckets of a tree, each on the path to a random *leaf* of its
//! own. A bucket has slots for blocks and for dummies, in a secret random order. An access reads
//! one slot of each bucket on the path of its block: the block's own slot, elsewhere an unread
//! dummy. The block moves to the *stash* in memory and gets another leaf. After every A accesses
//! one path is *evicted*: its buckets are read whole and written anew, with the blocks of the stash
//! that may lie there. A bucket without an unread dummy is read whole until its turn comes.
//!
//! What differs from the paper makes a disk of it:
//!
//! - **Wide buckets, few levels.** Much memory takes the place of the tree's upper part. A bucket
//!   has hundreds of slots, and up to 32 buckets below it, so that two or three levels are enough,
//!   and few slots stay unused.
//! - **A log.** Each access appends one record: the block with its contents, or a dummy. So the
//!   stash is on the store, and a FLUSH is one `fdatasync`. Evictions come around to each bucket of
//!   the first level long before the log does.
//! - **Nothing live is overwritten.** The path of an eviction follows from its number, in
//!   reverse-lexicographic order, and so do the places of the buckets that it writes: around a ring
//!   in which some places are free. At most as many evictions may be made between two syncs.
//! - **Versions are counts.** The number of a record or an eviction is known without asking the
//!   store, so an old copy of a slot does not verify.
//! - **The map is not saved.** It is in memory, 8 bytes a block. Slots name their blocks, with the
//!   number of the last record of each (its *birth*), from which its leaf follows while it is in
//!   the log; in a level it is written down. An opening reads these entries.
//!
//! **After a crash** the store may lack the last records, of accesses that an adversary observed.
//! A block that was accessed then would be read from the same leaf again. So the opening gives each
//! block another leaf, in a pass of evictions in their usual order, before it reads any slot alone.
//! How long this takes depends on the geometry alone.
//!
//! Opened for reading only a ring cannot move what it reads, so that each request reads all of it.
//!
//! ```
//! use traceless_block::ring::{Ring, RingGeometry};
//! use traceless_core::Addr;
//! use traceless_core::oram::Oram;
//! use traceless_core::rng::System;
//! use traceless_core::scheme::SchemeContext;
//!
//! # fn main() -> traceless_core::Result {
//! let geometry = RingGeometry::new(1000, 256)?;
//! assert!(geometry.blocks_per_access() < 20.0);
//!
//! let context = SchemeContext::in_memory(geometry.store_len(), Box::new(System))?;
//! let mut oram = Ring::create(&geometry, context)?;
//! oram.write(Addr(7), &[1; 256])?;
//! let mut block = [0; 256];
//! oram.read(Addr(7), &mut block)?;
//! assert_eq!(block, [1; 256]);
//! # Ok(())
//! # }
//! ```

mod access;
mod chunk;
mod entry;
mod evict;
mod geometry;
mod map;
mod marks;
mod read_trace;
mod recover;
mod relabel;
mod scan;
mod scheme;
mod stash;
mod state;

pub use geometry::{
    BUCKET_SLOTS_MAX, LEVELS_MAX, MEMORY, MEMORY_PER_BLOCK, RATE_MAX, RingGeometry, RingLevel,
};
pub use scheme::RING;

use alloc::sync::Arc;
use alloc::vec::Vec;
use chunk::RingChunk;
use entry::RingKeyRing;
use map::RingMap;
use marks::Marks;
use stash::RingStash;
use state::RingState;
use std::sync::{Mutex, MutexGuard};
use traceless_core::error::{Place, Result};
use traceless_core::oram::{BlockOram, Hides, Oram, check_request};
use traceless_core::rng::SeededRng;
use traceless_core::scheme::SchemeContext;
use traceless_core::scheme::lifecycle::Lifecycle;
use traceless_core::scheme::openings::{dummies_to_retire, key_bytes_max};
use traceless_core::store::{Area, Cursor, Run, Store};
use traceless_core::types::Addr;

/// The scheme. See the [module](self).
pub struct Ring {
    blocks: u64,
    block_len: usize,
    core: Mutex<RingCore>,
}

/// What accesses change.
struct RingCore {
    geometry: RingGeometry,
    store: Arc<dyn Store>,
    log: Area,
    log_cursor: Cursor,
    levels: Vec<Area>,
    marks_area: Area,
    keys: RingKeyRing,
    map: RingMap,
    marks: Marks,
    stash: RingStash,
    /// Records made, which is also the number of the next one.
    count: u64,
    /// Accesses of the user.
    accesses: u64,
    life: Lifecycle,
    /// Draws leaves for dummies, and places in buckets.
    draws: SeededRng,
    /// The chunk that failed to be read: its read is made again before any other.
    failed: Option<RingChunk>,
    input: Run,
    output: Run,
    key_bytes_max: u64,
}

impl Ring {
    /// Creates the scheme on a store; its old contents do not matter. Every block reads as zeros.
    pub fn create(geometry: &RingGeometry, context: SchemeContext) -> Result<Self> {
        let mut core = RingCore::assemble(geometry, context, &RingState::default())?;
        core.begin_opening()?;
        Ok(Self::new(core))
    }

    /// Opens the scheme from the last `state` in its vault, after a close or a crash at any point.
    /// `progress` gets the done and total parts of the map, and after a crash of the evictions.
    pub fn open(
        geometry: &RingGeometry,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let state = RingState::decode(state)?;
        let expected = context.expect_writes;
        let mut core = RingCore::assemble(geometry, context, &state)?;
        let knows_marks = core.recover(&state, expected, progress)?;
        if core.life.takes_writes() {
            // The data found may still be in a volatile cache only.
            core.sync()?;
            core.begin_opening()?;
            if !knows_marks {
                core.relabel(progress)?;
            }
            core.retire_old_openings()?;
        }
        Ok(Self::new(core))
    }

    /// The number of accesses recorded in a state, and whether it was closed.
    pub fn peek_state(state: &[u8]) -> Result<(u64, bool)> {
        RingState::decode(state).map(|state| (state.accesses, state.scheme.clean))
    }

    /// Blocks in the stash. For tests and curiosity; secret from an adversary.
    pub fn stashed(&self) -> usize {
        self.core().stash.len()
    }

    fn new(core: RingCore) -> Self {
        let (blocks, block_len) = (core.geometry.blocks, core.geometry.block_len);
        Self { blocks, block_len, core: Mutex::new(core) }
    }

    fn core(&self) -> MutexGuard<'_, RingCore> {
        self.core.lock().expect("no access panics")
    }
}

impl RingCore {
    fn assemble(
        geometry: &RingGeometry,
        context: SchemeContext,
        state: &RingState,
    ) -> Result<Self> {
        geometry.check()?;
        context.check(geometry.store_len())?;
        let placed = geometry.areas();
        let levels = geometry.levels.len();
        let level = |nth: usize| context.area(placed[1 + nth], geometry.level(nth));
        let log = context.area(placed[0], geometry.log());
        let levels = (0..levels).map(level).collect();
        let marks_area = context.area(placed[placed.len() - 1], geometry.marks());
        let mut rng = context.rng;
        Ok(Self {
            levels,
            marks_area,
            log_cursor: Cursor::at_start(log.layout()),
            log,
            map: RingMap::new(geometry)?,
            marks: Marks::new(geometry)?,
            stash: RingStash::new(geometry.levels[0].buckets),
            keys: RingKeyRing::new(
                context.key,
                context.cipher,
                geometry.levels.len(),
                &state.scheme,
            ),
            geometry: geometry.clone(),
            store: context.store,
            count: 0,
            accesses: 0,
            draws: SeededRng::drawn(&mut *rng),
            life: Lifecycle::new(context.read_only, context.vault, rng),
            failed: None,
            input: Run::default(),
            output: Run::default(),
            key_bytes_max: key_bytes_max(geometry.block_len),
        })
    }

    /// Draws the id of a new opening and makes it durable before anything is written under it. All
    /// earlier writes must be durable.
    fn begin_opening(&mut self) -> Result {
        let dead = self.geometry.records_to_renew();
        let count = self.count;
        self.keys.openings_mut().prune(|next| next + dead <= count);
        let opening = self.keys.openings().next(self.life.draw_id(), count);
        self.keys.push(opening).inspect_err(|_| self.life.poison())?;
        self.keep_state(false)
    }

    fn keep_state(&mut self, clean: bool) -> Result {
        let scheme = self.keys.openings().state(clean, self.count);
        self.life.keep(&RingState { scheme, accesses: self.accesses }.encode())
    }

    /// If there are many openings, makes enough dummy accesses that the oldest ones retire in time.
    fn retire_old_openings(&mut self) -> Result {
        let pass = self.geometry.records_to_renew();
        for _ in 0..dummies_to_retire(self.keys.openings().len(), pass) {
            self.access_dummy()?;
        }
        Ok(())
    }

    fn sync(&self) -> Result {
        self.life.sync(&*self.store, self.count)
    }

    fn close(&mut self) -> Result {
        if !self.life.takes_writes() {
            return Ok(());
        }
        self.repeat_failed_read()?;
        self.sync()?;
        let salt = self.life.rng.salt();
        let saved = self.marks.save(self.keys.newest(), salt, &self.marks_area, &*self.store);
        saved.inspect_err(|_| self.life.poison())?;
        self.sync()?;
        self.keep_state(true)?;
        self.life.end();
        Ok(())
    }
}

impl Oram for Ring {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn block_len(&self) -> usize {
        self.block_len
    }

    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        self.read_shared(addrs, into)
    }

    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        check_request(self.blocks, self.block_len, addrs, from.len())?;
        let len = self.block_len;
        self.core().access(addrs, true, &mut |nth, block| {
            block.copy_from_slice(&from[nth * len..(nth + 1) * len]);
        })
    }

    fn sync(&mut self) -> Result {
        self.sync_shared()
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }

    fn close(&mut self) -> Result {
        self.core().close()
    }

    fn update(&mut self, addr: Addr, change: &mut dyn FnMut(&mut [u8])) -> Result {
        self.update_many(&[addr], &mut |_, block| change(block))
    }

    fn update_many(&mut self, addrs: &[Addr], change: &mut dyn FnMut(usize, &mut [u8])) -> Result {
        check_request(self.blocks, self.block_len, addrs, addrs.len() * self.block_len)?;
        self.core().access(addrs, false, change)
    }
}

impl BlockOram for Ring {
    fn read_shared(&self, addrs: &[Addr], into: &mut [u8]) -> Result {
        check_request(self.blocks, self.block_len, addrs, into.len())?;
        let len = self.block_len;
        let mut core = self.core();
        if core.life.is_read_only() {
            return core.read_all_for(addrs, into);
        }
        core.access(addrs, false, &mut |nth, block| {
            into[nth * len..(nth + 1) * len].copy_from_slice(block);
        })
    }

    fn sync_shared(&self) -> Result {
        self.core().sync()
    }

    /// Accesses of the user, reads among them.
    fn writes(&self) -> u64 {
        self.core().accesses
    }

    fn write_dummy(&mut self) -> Result {
        self.core().access_dummy()
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64), damaged: &mut dyn FnMut(Place)) -> Result {
        self.core().verify(progress, damaged)
    }
}

#[cfg(test)]
mod tests;
