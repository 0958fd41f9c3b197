//! Sizes of all areas of a `Sq` on its store, derived from a few parameters.

use super::index::INDEXED_MAX;
use super::reader_cache::CHUNKS_PER_GENERATION;
use super::recent::CACHED_MAX;
use super::schedule::Schedule;
use super::times::Times;
use crate::{log, refreshed};
use alloc::format;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::scheme::contract::{MapPlace, check_size};
use traceless_core::scheme::{Facts, place_areas};
use traceless_core::store::SlotLayout;

/// Slots of a bucket, at least.
pub const BUCKET_MIN: u32 = 2;
/// Slots of a bucket, at most.
pub const BUCKET_MAX: u32 = 1 << 14;
/// Generations of a level that are merged into one generation of the next, at most.
pub const FANOUT_MAX: u32 = 1 << 10;
/// Levels before the last, at most.
pub const LEVELS_MAX: u8 = 40;
/// Slots that may be written between two syncs, at most.
pub const UNSYNCED_MAX: u64 = 1 << 14;
/// Flushes in the life of a volume: times take 4 bytes on the disk. At 256 slots a bucket, 4 PiB of
/// 4 KiB blocks.
pub const FLUSHES_MAX: u64 = u32::MAX as u64 - 1;

/// Bytes of a time in the access-time map on the disk.
pub const TIME_LEN: usize = 4;

/// Number of slots with entries that are read together: a chunk begins at each multiple, counted
/// from the beginning of its generation. With buckets of whole stripes a chunk is a stripe.
pub(super) const CHUNK: u64 = log::STRIPE;

/// Slots read or written in one round trip, at most.
pub(super) const SLOTS_PER_BATCH: u64 = 256;

/// Names of the levels before the last, and of the last.
const LEVEL_NAMES: [&str; LEVELS_MAX as usize] = [
    "level 0", "level 1", "level 2", "level 3", "level 4", "level 5", "level 6", "level 7",
    "level 8", "level 9", "level 10", "level 11", "level 12", "level 13", "level 14", "level 15",
    "level 16", "level 17", "level 18", "level 19", "level 20", "level 21", "level 22", "level 23",
    "level 24", "level 25", "level 26", "level 27", "level 28", "level 29", "level 30", "level 31",
    "level 32", "level 33", "level 34", "level 35", "level 36", "level 37", "level 38", "level 39",
];
const LAST_NAME: &str = "last level";

/// The rule for the number of slots that a write takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cadence {
    /// The same number for each write, to any address.
    Strict,
    /// As in the paper: map blocks shared by several writes of a bucket are written once. **The
    /// flushes then reveal how close to each other the addresses are.**
    Paper,
}

/// The parameters of a `Sq`. All of them are public.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SqGeometry {
    /// Logical blocks, N.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_len: usize,
    /// Slots of a bucket, the paper's beta.
    pub bucket: u32,
    /// Generations that are merged into one, k.
    pub fanout: u32,
    /// Levels before the last, H.
    pub levels: u8,
    /// The place of the access-time map and of the maps of the generations. In memory they take 2
    /// bytes a block, 4 in large volumes, and about one byte per slot of a level. On the disk times
    /// lie in blocks of the ORAM itself, addresses in the entries of the levels.
    pub map: MapPlace,
    /// The rule for the number of slots that a write takes.
    pub cadence: Cadence,
    /// Whether to merge a whole generation when its sources are complete: the same total work, but
    /// the writer waits for all of it.
    pub amortized: bool,
    /// Slots written between two syncs at most, S.
    pub unsynced_max: u64,
}

/// The parameters that the user has fixed. The remaining ones are chosen.
#[derive(Clone, Copy, Default, Debug)]
pub struct SqPreferences {
    /// Slots of a bucket.
    pub bucket: Option<u32>,
    /// Generations that are merged into one.
    pub fanout: Option<u32>,
    /// Slots of the last level written per slot that a user's write takes, K.
    pub refresh: Option<f64>,
    /// Whether the maps must lie on the disk.
    pub map_on_disk: bool,
}

/// Default K: the smallest value that keeps the image below twice its contents.
const REFRESH_DEFAULT: f64 = 7.0 / 3.0;
const BUCKET_DEFAULT: u32 = 256;
/// Shapes with a fan-out up to this come from a user's request, except in the smallest volumes.
const FANOUT_NARROW: u32 = 4;
/// Largest default fan-outs by number of levels. A larger fan-out saves a level, but costs memory:
/// a stripe and a bucket for each generation.
const FANOUT_COMFORTABLE: [u32; 3] = [40, 40, 128];

impl SqGeometry {
    /// The best geometry for `blocks` and `preferences`.
    pub fn new(blocks: u64, block_len: usize, preferences: SqPreferences) -> Result<Self> {
        let refresh = preferences.refresh.unwrap_or(REFRESH_DEFAULT);
        if !(0.05..=1000.0).contains(&refresh) {
            return Err(Error::Geometry("the refresh ratio must be from 0.05 to 1000"));
        }
        let map = if preferences.map_on_disk { MapPlace::Disk } else { MapPlace::Memory };
        let buckets: &[u32] = match &preferences.bucket {
            Some(bucket) => core::slice::from_ref(bucket),
            None => &[BUCKET_DEFAULT, 192, 320, 128, 64, 32, 16, 8, 4, 2],
        };
        let mut best: Option<(f64, Self)> = None;
        for &bucket in buckets {
            // More levels than two-way merges need are never better.
            for levels in 1..=LEVELS_MAX.min(blocks.max(2).ilog2() as u8 + 1) {
                let comfortable = FANOUT_COMFORTABLE.get(usize::from(levels) - 1).copied();
                let most = comfortable.unwrap_or(32);
                let fanouts = preferences.fanout.map_or(2..=most, |k| k..=k);
                for fanout in fanouts {
                    let shape =
                        Self { bucket, fanout, levels, map, ..Self::blank(blocks, block_len) };
                    let Ok(shape) = shape.with_slack() else { continue };
                    let cost = shape.distance(refresh);
                    if best.is_none_or(|(least, _)| cost < least) {
                        best = Some((cost, shape));
                    }
                }
            }
        }
        let (_, shape) = best.ok_or(Error::Geometry("no levels fit that number of blocks"))?;
        Ok(shape)
    }

    /// A geometry of exactly this shape, with the maps in memory.
    pub fn with_shape(
        blocks: u64,
        block_len: usize,
        bucket: u32,
        fanout: u32,
        levels: u8,
    ) -> Result<Self> {
        Self { bucket, fanout, levels, ..Self::blank(blocks, block_len) }.with_slack()
    }

    fn blank(blocks: u64, block_len: usize) -> Self {
        Self {
            blocks,
            block_len,
            bucket: BUCKET_DEFAULT,
            fanout: 2,
            levels: 1,
            map: MapPlace::Memory,
            cadence: Cadence::Strict,
            amortized: false,
            unsynced_max: 1,
        }
    }

    /// This geometry with the longest interval between syncs that costs little space.
    fn with_slack(mut self) -> Result<Self> {
        let bucket = u64::from(self.bucket);
        self.unsynced_max = (self.blocks / 64).clamp(1, UNSYNCED_MAX).next_multiple_of(bucket);
        self.unsynced_max = self.unsynced_max.min(UNSYNCED_MAX / bucket.max(1) * bucket);
        self.check()?;
        Ok(self)
    }

    /// A cost that measures how far a shape is from the preferences; less is better.
    fn distance(&self, refresh: f64) -> f64 {
        // A ratio above the requested one costs writes, one below costs space. A level costs a
        // write, a smaller bucket costs seeks.
        let ratio = self.refresh() / refresh;
        let (off, weight) = if ratio < 1.0 { (1.0 / ratio, 400.0) } else { (ratio, 40.0) };
        let smaller = BUCKET_DEFAULT.ilog2().abs_diff(self.bucket.ilog2());
        (off - 1.0) * (off - 1.0) * weight + f64::from(self.levels) + f64::from(smaller)
    }

    /// Refuses invalid parameters, so that code which reads saved parameters can rely on them.
    pub fn check(&self) -> Result {
        check_size(self.blocks, self.block_len)?;
        if !(BUCKET_MIN..=BUCKET_MAX).contains(&self.bucket) || !self.bucket.is_multiple_of(2) {
            return Err(Error::Geometry("a bucket has 2 to 16384 slots, an even number"));
        }
        if !(2..=FANOUT_MAX).contains(&self.fanout) {
            return Err(Error::Geometry("the fan-out must be from 2 to 1024"));
        }
        if !(1..=LEVELS_MAX).contains(&self.levels) {
            return Err(Error::Geometry("there must be 1 to 40 levels"));
        }
        if self.cadence == Cadence::Paper && self.map == MapPlace::Memory {
            return Err(Error::Geometry("the paper's cadence needs the map on the disk"));
        }
        if !(self.slots_per_write()..=UNSYNCED_MAX).contains(&self.unsynced_max) {
            return Err(Error::Geometry("slots between two syncs must be one write to 16384"));
        }
        // A generous bound, so that no later product overflows.
        let pass = u128::from(self.fanout).checked_pow(u32::from(self.levels));
        let slots = pass.and_then(|p| p.checked_mul(u128::from(self.bucket)));
        if slots.is_none_or(|s| s > 64 * u128::from(self.blocks) + 64) {
            return Err(Error::Geometry(
                "so many levels are far larger than the blocks they serve",
            ));
        }
        let slots = 3 * slots.unwrap_or(0) + 2 * u128::from(self.addresses());
        if slots * (self.block_len as u128 + 128) * 2 > 1 << 62 {
            return Err(Error::Geometry("the image would be larger than 4 EiB"));
        }
        if self.indexed() > INDEXED_MAX {
            return Err(Error::Geometry(
                "a level is too large for its map: fewer levels, a smaller fan-out, or the map on \
                 the disk",
            ));
        }
        // One pass over the last level must be longer than the unsynced part.
        if self.unsynced_refreshes() >= self.addresses() {
            return Err(Error::Geometry("too few blocks for buckets of this size"));
        }
        Ok(())
    }

    /// Addresses in the map of a generation, at most: the generations of the level before the last
    /// are the largest.
    fn indexed(&self) -> u64 {
        let generation = self.pass() / u64::from(self.fanout) * u64::from(self.bucket);
        match self.map {
            MapPlace::Memory => generation,
            MapPlace::Disk => generation.div_ceil(CHUNK),
        }
    }

    /// Blocks of the access-time map that are part of the ORAM.
    pub(super) fn leaves(&self) -> u64 {
        match self.map {
            MapPlace::Memory => 0,
            MapPlace::Disk => self.blocks.div_ceil(self.leaf_fan()),
        }
    }

    /// Times in a block of the access-time map.
    pub(super) fn leaf_fan(&self) -> u64 {
        (self.block_len / TIME_LEN) as u64
    }

    /// Blocks of the ORAM: the user's blocks, then the blocks of its map.
    pub(super) fn addresses(&self) -> u64 {
        self.blocks + self.leaves()
    }

    /// The schedule of the deliveries.
    pub(super) fn schedule(&self) -> Schedule {
        let (fanout, levels) = (u64::from(self.fanout), usize::from(self.levels));
        Schedule::new(fanout, levels, self.addresses(), self.amortized)
    }

    /// Slots that one write takes, if every write takes the same number.
    pub(super) fn slots_per_write(&self) -> u64 {
        match (self.map, self.cadence) {
            (MapPlace::Disk, Cadence::Strict) => 2,
            _ => 1,
        }
    }

    /// Flushes of a pass over the last level: k^H.
    fn pass(&self) -> u64 {
        u64::from(self.fanout).pow(u32::from(self.levels))
    }

    /// K: slots of the last level written per slot of level 0.
    pub fn refresh(&self) -> f64 {
        self.addresses() as f64 / (self.pass() as f64 * f64::from(self.bucket))
    }

    /// Generations of a level that exist at once, at most: the sources of a merge, the generations
    /// that come after them, and the ones that an amortized level gets before the sources are
    /// forgotten.
    pub(super) fn generations(&self) -> u64 {
        2 * u64::from(self.fanout) + 2
    }

    /// Buckets that may have been delivered to each level since the last sync.
    pub(super) fn slack_buckets(&self) -> u64 {
        self.unsynced_max.div_ceil(u64::from(self.bucket)) + 2
    }

    /// Refreshes of the last level that may be unsynced.
    fn unsynced_refreshes(&self) -> u64 {
        self.refreshes_in(self.slack_buckets())
    }

    /// Refreshes of the last level in `flushes` flushes, at most.
    fn refreshes_in(&self, flushes: u64) -> u64 {
        self.addresses().div_ceil(self.pass()).saturating_mul(flushes)
    }

    /// Buckets that a level keeps beyond the needed ones. Recovery starts as many buckets before
    /// the found end as may have been unsynced; and before the crash, as many may have been written
    /// after that end.
    pub(super) fn kept_buckets(&self) -> u64 {
        2 * self.unsynced_max.div_ceil(u64::from(self.bucket)) + 2
    }

    /// Buckets that the ring of a level before the last has, slack included.
    pub(super) fn ring_buckets(&self, level: usize) -> u64 {
        let generation = u64::from(self.fanout).pow(level as u32);
        // An amortized level gets a whole generation before the oldest ones are forgotten.
        let at_once = if self.amortized && level > 0 { generation } else { 0 };
        let needed = 2 * u64::from(self.fanout) * generation + at_once;
        // The levels start one flush later than their sources allow.
        needed + 2 * level as u64 + self.kept_buckets()
    }

    pub(super) fn ring(&self, level: usize) -> SlotLayout {
        // A header is written whole, which overwrites the entries behind the cursor.
        let slots = self.ring_buckets(level) * u64::from(self.bucket) + log::STRIPE;
        log::layout(slots, self.block_len)
    }

    pub(super) fn main(&self) -> SlotLayout {
        // An amortized pass is made at once, and needs the whole pass before it until it is
        // complete.
        let passes = if self.amortized { 2 } else { 1 };
        let kept = self.refreshes_in(self.kept_buckets());
        let slots = passes * self.addresses() + kept + refreshed::STRIPE;
        refreshed::layout(slots, self.block_len)
    }

    /// Total bytes of all areas.
    pub fn store_len(&self) -> u64 {
        self.areas().iter().map(|(_, _, len)| len).sum()
    }

    /// Name, first byte and length of each area, in order. Public.
    pub fn areas(&self) -> Vec<(&'static str, u64, u64)> {
        let rings = (0..usize::from(self.levels)).map(|i| (LEVEL_NAMES[i], self.ring(i)));
        place_areas(rings.chain([(LAST_NAME, self.main())]))
    }

    /// Bytes written to the store per byte written by the user, headers included.
    pub fn write_amplification(&self) -> f64 {
        let entry = |layout: SlotLayout| layout.stripe_len() as f64 / layout.stripe_slots as f64;
        let per_slot =
            f64::from(self.levels) * entry(self.ring(0)) + self.refresh() * entry(self.main());
        per_slot * self.slots_per_write() as f64 / self.block_len as f64
    }

    /// This geometry for another number of blocks. A narrow tree comes from a user's request and
    /// keeps its fan-out; otherwise the best shape is chosen again.
    pub fn resized(&self, blocks: u64) -> Result<Self> {
        let narrow = self.fanout <= FANOUT_NARROW;
        let preferences = SqPreferences {
            bucket: narrow.then_some(self.bucket),
            fanout: narrow.then_some(self.fanout),
            refresh: Some(self.refresh()),
            map_on_disk: self.map == MapPlace::Disk,
        };
        let shape = Self::new(blocks, self.block_len, preferences)?;
        let resized = Self { cadence: self.cadence, amortized: self.amortized, ..shape };
        resized.check()?;
        Ok(resized)
    }

    /// The public facts of this geometry after `writes` writes.
    pub(crate) fn facts(&self, writes: u64) -> Facts {
        let on_disk = self.map == MapPlace::Disk;
        // In the paper's cadence `writes` is a number of slots.
        let slots = writes * self.slots_per_write();
        Facts {
            refresh: Some(format!("{:.3}", self.refresh())),
            map: Some(if on_disk { "disk" } else { "memory" }),
            map_bytes: self.map_memory(),
            buffer_bytes: self.buffer_memory(),
            settles_after: self.warm_up(),
            levels: Some(u64::from(self.levels) + 1),
            flushes: Some(slots / u64::from(self.bucket)),
            bucket: Some(u64::from(self.bucket)),
            fanout: Some(u64::from(self.fanout)),
            cadence: Some(match self.cadence {
                Cadence::Strict => "strict",
                Cadence::Paper => "paper",
            }),
            ..Facts::default()
        }
    }

    /// Bytes of memory that the buffers take while the volume is open, at most: contents of the log
    /// that are not merged yet, a stripe of each generation in a merge, chunks of addresses in the
    /// readers' cache, and the buffers of one batch.
    pub fn buffer_memory(&self) -> u64 {
        let (fanout, bucket) = (u64::from(self.fanout), u64::from(self.bucket));
        let slot = (self.block_len + log::ENTRY_LEN) as u64;
        let log = ((fanout + 2) * bucket).min(CACHED_MAX as u64) * self.block_len as u64;
        // The next merge also holds the first stripe of each of its sources.
        let runs = u64::from(self.levels) * fanout * CHUNK * slot;
        let between = u64::from(self.levels) - 1;
        let chunks = match self.map {
            MapPlace::Memory => 0,
            MapPlace::Disk => between * self.generations() * CHUNKS_PER_GENERATION * CHUNK * 16,
        };
        log + runs + chunks + 4 * SLOTS_PER_BATCH * slot
    }

    /// Number of writes after which every level has data.
    pub fn warm_up(&self) -> u64 {
        let schedule = self.schedule();
        let flushes = schedule.start(schedule.last()) + 1;
        flushes * u64::from(self.bucket) / self.slots_per_write()
    }

    /// Writes of a pass over the last level.
    pub fn cycle(&self) -> u64 {
        self.pass() * u64::from(self.bucket) / self.slots_per_write()
    }

    /// Number of writes after the [warm-up](Self::warm_up) until every slot was written.
    pub fn whole_cycle(&self) -> u64 {
        let bucket = u64::from(self.bucket);
        let rings = (0..usize::from(self.levels)).map(|i| self.ring(i).slots.div_ceil(bucket));
        let main = u128::from(self.main().slots) * u128::from(self.pass());
        let main = u64::try_from(main.div_ceil(u128::from(self.addresses())));
        let main = main.expect("the last level is a few passes long");
        let flushes = rings.chain([main]).max().unwrap_or(0) + 1;
        flushes * bucket / self.slots_per_write()
    }

    /// Approximate bytes of memory that the maps take while the volume is open.
    pub fn map_memory(&self) -> u64 {
        let slots = 2 * self.pass() * u64::from(self.bucket);
        let time_len = Times::bytes_each(self.schedule().oldest_time());
        match self.map {
            MapPlace::Memory => self.blocks * time_len + slots * 9 / 8,
            MapPlace::Disk => self.leaves() * time_len + slots.div_ceil(CHUNK) * 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forty_gibibytes_cost_what_they_should() {
        let g = SqGeometry::new(10 << 20, 4096, SqPreferences::default()).unwrap();
        let space = g.store_len() as f64 / (40u64 << 30) as f64;
        assert!(space <= 2.0, "{space} {g:?}");
        assert!(g.write_amplification() <= 5.7, "{} {g:?}", g.write_amplification());
        assert!(g.map_memory() < 56 << 20);
    }

    #[test]
    fn a_tebibyte_keeps_small_maps() {
        let preferences = SqPreferences { map_on_disk: true, ..SqPreferences::default() };
        let g = SqGeometry::new(1 << 28, 4096, preferences).unwrap();
        assert!(g.write_amplification() <= 12.0, "{} {g:?}", g.write_amplification());
        assert!(g.map_memory() < 30 << 20, "{}", g.map_memory());
        assert!((g.store_len() as f64 / (1u64 << 40) as f64) < 2.0);
    }

    #[test]
    fn the_papers_shape_is_there() {
        let preferences = SqPreferences {
            fanout: Some(2),
            bucket: Some(256),
            refresh: Some(1.0),
            ..SqPreferences::default()
        };
        let g = SqGeometry::new(10 << 20, 4096, preferences).unwrap();
        assert!((15..=16).contains(&g.levels), "{g:?}");
    }

    #[test]
    fn facts_of_huge_volumes_do_not_overflow() {
        for map in [MapPlace::Memory, MapPlace::Disk] {
            for amortized in [false, true] {
                let g = SqGeometry::with_shape(1 << 46, 64, 256, 1024, 3).unwrap();
                let g = SqGeometry { map, amortized, ..g };
                g.check().unwrap();
                assert!((g.cycle()..6 * g.cycle()).contains(&g.whole_cycle()), "{g:?}");
                assert_eq!(g.facts(1 << 40).map_bytes, g.map_memory());
                assert!(g.store_len() > g.blocks * 64);
            }
        }
    }

    #[test]
    fn a_level_too_large_for_its_map_is_refused() {
        // Each further slot of a bucket adds 2^20 addresses to a generation, or 2^30.
        let memory = |bucket| SqGeometry::with_shape(1 << 35, 64, bucket, 1024, 3);
        assert_eq!(memory(1364).unwrap().indexed(), 1364 << 20);
        let refused = memory(1366);
        assert!(matches!(refused, Err(Error::Geometry(why)) if why.contains("map")), "{refused:?}");
        let small = SqGeometry::with_shape(1 << 41, 64, 2, 1024, 3).unwrap();
        let disk = |bucket| SqGeometry { map: MapPlace::Disk, bucket, levels: 4, ..small }.check();
        disk(84).unwrap();
        assert!(disk(86).is_err());
        // The buckets of a single level need no map.
        SqGeometry::with_shape(1 << 35, 64, 16_384, 1024, 1).unwrap();
    }

    #[test]
    fn small_volumes_have_shapes_too() {
        for blocks in [16, 17, 64, 100, 1000, 4096, 65_536, 1 << 18] {
            let g = SqGeometry::new(blocks, 4096, SqPreferences::default()).unwrap();
            assert!(g.refresh() > 1.2 && g.refresh() < 6.0, "{blocks}: {} {g:?}", g.refresh());
        }
        assert!(SqGeometry::new(0, 4096, SqPreferences::default()).is_err());
        assert!(SqGeometry::new(1, 4096, SqPreferences::default()).is_err());
        assert!(SqGeometry::with_shape(64, 4096, 3, 2, 2).is_err());
        assert!(SqGeometry::with_shape(64, 4096, 4, 2, 60).is_err());
    }

    #[test]
    fn the_last_that_a_limit_allows_is_taken() {
        let refuses = |geometry: SqGeometry, limit: &str| {
            let checked = geometry.check();
            matches!(checked, Err(Error::Geometry(why)) if why.contains(limit))
        };
        let fine = SqGeometry::with_shape(1 << 46, 64, 256, 1024, 3).unwrap();
        let blocks = |blocks| SqGeometry { blocks, ..fine };
        blocks(1 << 50).check().unwrap();
        assert!(refuses(blocks((1 << 50) + 1), "2^50"));
        for block_len in [32, 96, 1 << 21] {
            assert!(refuses(SqGeometry { block_len, ..fine }, "power of two"));
        }
        let unsynced = |unsynced_max| SqGeometry { unsynced_max, ..fine };
        unsynced(UNSYNCED_MAX).check().unwrap();
        assert!(refuses(unsynced(0), "two syncs") && refuses(unsynced(UNSYNCED_MAX + 1), "syncs"));
        // 64 times as many slots as blocks, and 64.
        let high = |blocks| SqGeometry { blocks, ..SqGeometry::blank(blocks, 64) };
        let high = |blocks| SqGeometry { bucket: 2, levels: 10, ..high(blocks) };
        high(31).check().unwrap();
        assert!(refuses(high(30), "levels"));
        // Thrice the slots of a pass, twice the blocks, and each twice as long as with its entry.
        let room = (1 << 61) / ((1 << 20) + 128);
        let large = SqGeometry { block_len: 1 << 20, bucket: 2, fanout: 1024, levels: 1, ..fine };
        let large = |blocks| SqGeometry { blocks, unsynced_max: 2, ..large };
        let most = (room - 3 * 2048) / 2;
        large(most).check().unwrap();
        assert!(refuses(large(most + 1), "4 EiB"));
        let even = SqGeometry { block_len: 128, bucket: 2, fanout: 1024, levels: 5, ..fine };
        assert!(!refuses(SqGeometry { blocks: 1 << 50, ..even }, "4 EiB"), "just so large");
    }

    #[test]
    fn a_larger_shape_keeps_the_parameters_that_the_user_fixed() {
        let narrow =
            SqPreferences { fanout: Some(4), bucket: Some(32), ..SqPreferences::default() };
        let narrow = SqGeometry::new(5000, 4096, narrow).unwrap();
        let resized = narrow.resized(50_000).unwrap();
        assert_eq!((resized.fanout, resized.bucket), (4, 32));
        let wide = SqGeometry::new(5000, 4096, SqPreferences::default()).unwrap();
        let wide = SqGeometry { amortized: true, ..wide };
        assert_eq!(wide.resized(1 << 20).unwrap().map, MapPlace::Memory);
        assert!(wide.resized(1 << 20).unwrap().amortized);
        let on_disk = SqPreferences { map_on_disk: true, ..SqPreferences::default() };
        let on_disk = SqGeometry::new(5000, 4096, on_disk).unwrap();
        let paper = SqGeometry { cadence: Cadence::Paper, ..on_disk };
        let resized = paper.resized(1 << 20).unwrap();
        assert_eq!((resized.map, resized.cadence), (MapPlace::Disk, Cadence::Paper));
        assert!(!resized.amortized);
    }

    #[test]
    fn facts_of_a_shape_match_its_parameters() {
        for (blocks, map_on_disk) in [(100, false), (1 << 20, false), (70_000, true)] {
            let preferences = SqPreferences { map_on_disk, ..SqPreferences::default() };
            let g = SqGeometry::new(blocks, 4096, preferences).unwrap();
            let facts = g.facts(1000);
            let (bucket, fanout) = (u64::from(g.bucket), u64::from(g.fanout));
            assert_eq!((facts.bucket, facts.fanout), (Some(bucket), Some(fanout)));
            assert_eq!(facts.levels, Some(u64::from(g.levels) + 1));
            assert_eq!(facts.flushes, Some(1000 * g.slots_per_write() / bucket));
            assert_eq!((facts.map_bytes, facts.buffer_bytes), (g.map_memory(), g.buffer_memory()));
            assert_eq!((facts.settles_after, facts.cadence), (g.warm_up(), Some("strict")));
            assert_eq!(facts.map, Some(if map_on_disk { "disk" } else { "memory" }));
            assert_eq!(facts.refresh, Some(format!("{:.3}", g.refresh())));
        }
    }

    /// Shapes are parts of image formats, and other tests check the printed figures.
    #[test]
    fn shapes_and_their_figures_are_what_they_were() {
        let preferences = SqPreferences::default();
        let narrow = SqPreferences { fanout: Some(2), ..preferences };
        let on_disk = SqPreferences { map_on_disk: true, ..preferences };
        let lazy = SqPreferences { refresh: Some(0.8), bucket: Some(64), ..preferences };
        let shape =
            |g: &SqGeometry| [u64::from(g.bucket), u64::from(g.fanout), u64::from(g.levels)];
        let sizes = |g: &SqGeometry| [g.store_len(), g.map_memory(), g.buffer_memory()];
        let spans = |g: &SqGeometry| [g.unsynced_max, g.warm_up(), g.cycle(), g.whole_cycle()];
        let found = [(100, preferences), (5000, preferences), (5000, narrow), (1 << 20, lazy)]
            .into_iter()
            .chain([
                (10 << 20, preferences),
                (1 << 30, preferences),
                (70_000, on_disk),
                (1 << 32, on_disk),
            ])
            .map(|(blocks, preferences)| {
                let g = SqGeometry::new(blocks, 4096, preferences).unwrap();
                let ratios = [g.refresh(), g.write_amplification()];
                let ratios = ratios.map(|ratio| (ratio * 1000.0).round() as u64);
                (shape(&g), sizes(&g), spans(&g), ratios)
            });
        let expected = [
            ([8, 5, 1], [2_007_040, 290, 5_820_416], [8, 48, 40, 184], [2500, 3535]),
            ([256, 8, 1], [53_055_488, 14_608, 16_875_520], [256, 2304, 2048, 5632], [2441, 3476]),
            ([256, 2, 3], [81_276_928, 14_608, 10_051_584], [256, 4352, 2048, 6656], [2441, 5507]),
            (
                [64, 27, 3],
                [15_739_924_480, 4_931_504, 33_427_456],
                [16_384, 1_308_288, 1_259_712, 2_552_704],
                [832, 3886],
            ),
            (
                [256, 26, 3],
                [82_959_323_136, 31_095_296, 54_386_688],
                [16_384, 4_679_936, 4_499_456, 9_033_728],
                [2330, 5396],
            ),
            (
                [320, 113, 3],
                [8_309_016_748_032, 5_333_853_136, 228_732_928],
                [16_320, 465_850_240, 461_727_040, 923_489_280],
                [2325, 5391],
            ),
            (
                [256, 11, 2],
                [627_875_840, 2074, 23_846_912],
                [1280, 17_152, 15_488, 33_024],
                [2262, 8622],
            ),
            (
                [320, 22, 5],
                [32_122_427_691_008, 119_849_856, 65_757_184],
                [16_320, 863_847_520, 824_581_120, 1_649_180_480],
                [2607, 15_411],
            ),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_pass_is_longer_than_what_may_be_unsynced() {
        let shape = |blocks, levels| SqGeometry::with_shape(blocks, 128, 4, 2, levels);
        let refused = shape(64, 1);
        assert!(
            matches!(refused, Err(Error::Geometry(why)) if why.contains("too few blocks")),
            "{refused:?}"
        );
        // 16 refreshes with each flush, of three that may be unsynced.
        let fine = shape(64, 2).unwrap();
        assert_eq!(fine.unsynced_refreshes(), 3 * 16);
        assert!(SqGeometry { unsynced_max: 5, ..fine }.check().is_err(), "just so many");
    }

    #[test]
    fn after_a_whole_cycle_every_slot_was_written() {
        // With few refreshes the last level takes longer than the rings.
        for (bucket, fanout, levels) in [(4, 32, 1), (64, 3, 2), (256, 2, 3)] {
            for amortized in [false, true] {
                let g = SqGeometry::with_shape(100, 64, bucket, fanout, levels).unwrap();
                let g = SqGeometry { amortized, ..g };
                let flushes = g.whole_cycle() / u64::from(bucket);
                let refreshed = g.schedule().refreshes_before(flushes) - g.addresses();
                assert!(refreshed >= g.main().slots, "{refreshed} {g:?}");
                let slots = flushes * u64::from(bucket);
                assert!((0..usize::from(levels)).all(|i| slots >= g.ring(i).slots), "{g:?}");
            }
        }
    }

    #[test]
    fn rather_a_few_refreshes_too_many_than_too_few() {
        for (blocks, shape) in [(141, (8, 7, 1)), (428, (32, 5, 1))] {
            let g = SqGeometry::new(blocks, 4096, SqPreferences::default()).unwrap();
            assert_eq!((g.bucket, g.fanout, g.levels), shape);
            assert!(g.refresh() > REFRESH_DEFAULT);
            // This is nearer, but below.
            let below = SqGeometry { fanout: if blocks == 141 { 4 } else { 6 }, ..g };
            let below = SqGeometry { bucket: if blocks == 141 { 16 } else { 32 }, ..below };
            assert!(REFRESH_DEFAULT - below.refresh() < g.refresh() - REFRESH_DEFAULT);
        }
    }
}
