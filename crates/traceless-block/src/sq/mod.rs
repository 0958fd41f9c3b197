//! `SqORAM`: a write-only ORAM that keeps logical neighbours together, so that reading in order
//! stays reading in order, also after many small writes.
//!
//! Writes go to a log, level 0, in the order in which they come. Each `bucket` of them is a
//! *flush*: every further level then gets one bucket more of the generation that it is building,
//! merged in the order of addresses from the k generations of the level before that were completed
//! last; the last level, which is in address order, gets K times as many slots, old contents sealed
//! anew where nothing newer has come. So where everything is written follows from the number of
//! writes alone, and the work of each flush is the same.
//!
//! The map keeps one number for each block, the flush that carried it. Level and generation follow
//! from it in closed form (`schedule`), and the place in the generation from its sorted addresses
//! (`index`). Rings with some slack, as in [`detwo`](super::detwo), make a journal superfluous:
//! level 0 is a log anyhow, and a merge that a crash cut short is made again, byte for byte, from
//! sources that are still there.
//!
//! Paper: sqoram, sections 5 and 6, generalised from k = 2 and K = 1; docs/papers.md lists what
//! differs, and what the printed algorithms get wrong. Not hidden: reads, the number of writes, and
//! when syncs happen.
//!
//! * `mod`: `Sq`, its life: create, open, openings, close; the traits
//! * `scheme`: SqORAM as a kind of block scheme
//! * `geometry`: sizes of all areas from a handful of parameters, their limits, and the choice of a
//!   shape
//! * `schedule`: when each bucket is delivered, and where a block lies: arithmetic on the number of
//!   flushes, nothing else
//! * `write`: slots appended to the log and held back; leaves of the map with them; the cadences
//! * `flush`: a bucket for each level, a window of the last
//! * `merge`: sorted runs into one; of equal addresses the newest is kept
//! * `discard`: dead runs, given back to the store
//! * `read`: locate, join neighbours, fetch, open, fetch ahead; verifying
//! * `reader_cache`: the readers' cache: chunks of addresses, leaves, sequential readers
//! * `recent`: the log in memory: addresses by bucket, contents until they are merged
//! * `level`: a level between log and last: its ring, what is known of its generations
//! * `index`: sorted addresses in Elias-Fano coding
//! * `times`: the access-time map in memory, in 2 bytes or 4
//! * `leaves`: the access-time map on the disk
//! * `search`: finding blocks without the access-time map, to make a lost leaf again
//! * `keys`: keys by opening, found by write, flush, slot or refresh
//! * `recover`: opening after a close or a crash
//! * `salvage`: opening without what is damaged
//!
//! The geometry is chosen for the number of blocks. One request reads several blocks:
//!
//! ```
//! use traceless_block::sq::{SqGeometry, SqPreferences};
//! use traceless_core::Addr;
//! use traceless_core::rng::System;
//! use traceless_core::scheme::SchemeContext;
//! use traceless_core::scheme::contract::{BlockScheme, Scheme};
//!
//! # fn main() -> traceless_core::Result {
//! let scheme = SqGeometry::new(2000, 256, SqPreferences::default())?;
//! assert!(scheme.levels > 0);
//!
//! let context = SchemeContext::in_memory(scheme.store_len(), Box::new(System))?;
//! let mut oram = scheme.create_block(context)?;
//! for addr in 0..2000 {
//!     oram.write(Addr(addr), &[addr as u8; 256])?;
//! }
//! let mut blocks = [0; 3 * 256];
//! oram.read_shared(&[Addr(100), Addr(101), Addr(102)], &mut blocks)?;
//! assert_eq!([blocks[0], blocks[256], blocks[512]], [100, 101, 102]);
//! # Ok(())
//! # }
//! ```

mod discard;
mod flush;
mod geometry;
mod index;
mod keys;
mod leaves;
mod level;
mod merge;
mod read;
mod reader_cache;
mod recent;
mod recover;
mod salvage;
mod schedule;
mod scheme;
mod search;
mod times;
mod write;

pub use geometry::{
    BUCKET_MAX, BUCKET_MIN, Cadence, FANOUT_MAX, FLUSHES_MAX, LEVELS_MAX, SqGeometry,
    SqPreferences, UNSYNCED_MAX,
};

use crate::log::DamagePolicy;
use alloc::sync::Arc;
use alloc::vec::Vec;
use keys::SqKeyRing;
use leaves::Leaves;
use level::{Generation, Level};
use merge::{Merge, SortedRun};
use read::Readers;
use recent::Recent;
use schedule::Schedule;
pub use scheme::SQ;
use times::Times;
use traceless_core::error::{Error, Place, Result};
use traceless_core::oram::{BlockOram, Hides, Oram, check_request};
use traceless_core::scheme::SchemeContext;
pub use traceless_core::scheme::contract::{BLOCKS_MAX, MapPlace};
use traceless_core::scheme::lifecycle::Lifecycle;
use traceless_core::scheme::openings::{SchemeState, dummies_to_retire, key_bytes_max};
use traceless_core::store::{Area, Cursor, Store};
use traceless_core::types::{Addr, Slot};
use write::SqWriteScratch;

/// The scheme. See the [module](self).
pub struct Sq {
    geometry: SqGeometry,
    schedule: Schedule,
    store: Arc<dyn Store>,
    keys: SqKeyRing,
    log: Area,
    log_cursor: Cursor,
    recent: Recent,
    /// The levels from 1 on, without the last.
    levels: Vec<Level>,
    main: Area,
    main_cursor: Cursor,
    /// The current merge into each level from 1 on, including the last.
    merges: Vec<Option<Merge>>,
    /// The first sources of the next merge into each level.
    ready: Vec<Vec<SortedRun>>,
    /// The times of the map's leaves, or, with the map in memory, of all blocks.
    times: Times,
    leaves: Leaves,
    /// Slots of level 0 written.
    count: u64,
    /// Number of flushes done; the location of a block is computed from it.
    flushes: u64,
    life: Lifecycle,
    /// Whether a salvage is not complete yet.
    half_salvaged: bool,
    key_bytes_max: u64,
    readers: Readers,
    writer: SqWriteScratch,
}

/// The place of a block's newest copy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum SqLocation {
    /// Nowhere: neither written nor refreshed since creation. It reads as zeros.
    Nowhere,
    /// In level 0, put there by write number `.0`.
    Log(u64),
    /// In level `.0`, in slot number `.1`, counted from creation on.
    Level(usize, u64),
    /// In the last level, put there by refresh number `.0`.
    Main(u64),
}

impl Sq {
    /// Creates the scheme on a store; its old contents do not matter. Every block reads as zeros.
    pub fn create(geometry: SqGeometry, context: SchemeContext) -> Result<Self> {
        let mut new = Self::assemble(geometry, context, &SchemeState::default())?;
        new.begin_opening()?;
        Ok(new)
    }

    /// Opens the scheme from the last `state` in its vault, after a close or a crash at any point.
    /// Work that a crash interrupted is redone byte for byte; `progress` gets the done and total
    /// parts of the maps.
    pub fn open(
        geometry: SqGeometry,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let mut state = SchemeState::decode(state)?;
        if state.half_salvaged {
            return Err(Error::HalfSaved);
        }
        state.at_least = state.at_least.max(context.expect_writes * geometry.slots_per_write());
        let read_only = context.read_only;
        let mut opened = Self::assemble(geometry, context, &state)?;
        opened.recover(&state, DamagePolicy::Refuse, progress)?;
        if !read_only {
            opened.begin_opening()?;
            opened.retire_old_openings()?;
            opened.discard_all_dead();
        }
        Ok(opened)
    }

    /// The number of writes recorded in a state, and whether it was closed.
    pub fn peek_state(geometry: &SqGeometry, state: &[u8]) -> Result<(u64, bool)> {
        SchemeState::decode(state).map(|s| (s.at_least / geometry.slots_per_write(), s.clean))
    }

    /// The parameters of the scheme.
    pub fn geometry(&self) -> &SqGeometry {
        &self.geometry
    }

    /// Bytes of memory that the maps and the buffers take now.
    pub fn memory(&self) -> (usize, usize) {
        let maps = self.levels.iter().map(Level::memory).sum::<usize>() + self.times.memory();
        (maps, self.recent.memory())
    }

    fn assemble(geometry: SqGeometry, context: SchemeContext, state: &SchemeState) -> Result<Self> {
        geometry.check()?;
        context.check(geometry.store_len())?;
        let schedule = geometry.schedule();
        let mut areas = geometry.areas().into_iter().enumerate().map(|(i, placed)| {
            let last = i == schedule.last();
            let layout = if last { geometry.main() } else { geometry.ring(i) };
            context.area(placed, layout)
        });
        let log = areas.next().expect("there is a level 0");
        let mut levels: Vec<Level> = areas
            .zip(1..)
            .map(|(area, i)| {
                Level::new(i, area, schedule.width(i) * u64::from(geometry.bucket), &geometry)
            })
            .collect();
        let main = levels.pop().expect("there is a last level").area;
        let timed = match geometry.map {
            MapPlace::Memory => geometry.blocks,
            MapPlace::Disk => geometry.leaves(),
        };
        Ok(Self {
            keys: SqKeyRing::new(context.key, context.cipher, &geometry, state),
            log_cursor: Cursor::at_start(log.layout()),
            main_cursor: Cursor::at_start(main.layout()),
            recent: Recent::new(geometry.bucket, geometry.block_len),
            merges: (0..geometry.levels).map(|_| None).collect(),
            ready: (0..geometry.levels).map(|_| Vec::new()).collect(),
            times: Times::new(
                usize::try_from(timed).map_err(|_| Error::Geometry("map"))?,
                schedule.oldest_time(),
            ),
            leaves: Leaves::default(),
            geometry,
            schedule,
            store: context.store,
            log,
            levels,
            main,
            count: 0,
            flushes: 0,
            life: Lifecycle::new(context.read_only, context.vault, context.rng),
            half_salvaged: false,
            key_bytes_max: key_bytes_max(geometry.block_len),
            readers: Readers::default(),
            writer: SqWriteScratch::default(),
        })
    }

    /// Draws the id of a new opening and makes it durable before anything is written under it. All
    /// earlier writes must be durable.
    fn begin_opening(&mut self) -> Result {
        self.keys.prune(&self.schedule, self.count, self.geometry.unsynced_max);
        let opening = self.keys.openings().next(self.life.draw_id(), self.count);
        self.keys.push(opening).inspect_err(|_| self.life.poison())?;
        self.keep_state(false)
    }

    fn keep_state(&mut self, clean: bool) -> Result {
        let state = self.keys.openings().state(clean, self.count);
        self.life.keep(&SchemeState { half_salvaged: self.half_salvaged, ..state }.encode())
    }

    fn retire_old_openings(&mut self) -> Result {
        let pass = keys::lifetime(&self.schedule) * u64::from(self.geometry.bucket);
        let pass = pass + self.geometry.unsynced_max;
        for _ in 0..dummies_to_retire(self.keys.openings().len(), pass) {
            self.write_dummy()?;
        }
        Ok(())
    }

    fn bucket(&self) -> u64 {
        u64::from(self.geometry.bucket)
    }

    fn main_slot(&self, r: u64) -> Slot {
        Slot(r % self.main.slots())
    }

    fn log_slot(&self, write: u64) -> Slot {
        Slot(write % self.log.slots())
    }

    /// A generation that a merge reads, or in which a block was located.
    fn generation(&self, level: usize, generation: u64) -> &Generation {
        self.levels[level - 1].generation(generation).expect("nothing needed is forgotten")
    }
}

impl Oram for Sq {
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
        self.write_blocks(addrs, from)
    }

    fn sync(&mut self) -> Result {
        self.write_out()?;
        self.sync_shared()
    }

    fn hides(&self) -> Hides {
        match self.geometry.cadence {
            Cadence::Strict => Hides::WritesOnly,
            Cadence::Paper => Hides::Nothing,
        }
    }

    fn close(&mut self) -> Result {
        if !self.life.takes_writes() {
            return Ok(());
        }
        self.sync()?;
        self.keep_state(true)?;
        self.life.end();
        Ok(())
    }
}

impl BlockOram for Sq {
    fn read_shared(&self, addrs: &[Addr], into: &mut [u8]) -> Result {
        check_request(self.geometry.blocks, self.geometry.block_len, addrs, into.len())?;
        self.read_blocks(addrs, into)
    }

    fn write_out(&mut self) -> Result {
        // Opened for reading only, it holds nothing back.
        if self.written() == self.count {
            return Ok(());
        }
        self.life.check_not_poisoned()?;
        self.write_pending()
    }

    fn sync_shared(&self) -> Result {
        self.life.sync(&*self.store, self.written())
    }

    fn writes(&self) -> u64 {
        self.count / self.geometry.slots_per_write()
    }

    fn write_dummy(&mut self) -> Result {
        self.write_one_dummy()
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64), damaged: &mut dyn FnMut(Place)) -> Result {
        self.verify_blocks(progress, damaged)
    }
}
#[cfg(all(test, feature = "std"))]
mod tests;
