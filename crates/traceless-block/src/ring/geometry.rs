//! Sizes of a ring.

use super::entry::ENTRY_LEN;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::scheme::contract::{check_size, u32_at};
use traceless_core::scheme::{PlacedArea, place_areas};
use traceless_core::seal::{Salt, TAG_LEN};
use traceless_core::store::SlotLayout;

/// Levels of buckets, at most.
pub const LEVELS_MAX: usize = 4;

/// Accesses between two evictions, at most.
pub const RATE_MAX: u32 = 1 << 12;

/// Slots of a bucket, at most.
pub const BUCKET_SLOTS_MAX: u64 = 1 << 14;

/// Buckets of a level, at most.
const BUCKETS_MAX: u64 = 1 << 30;

/// Evictions that may be made between two syncs, where the first level has as many buckets.
const AHEAD: u64 = 8;

/// A block in the stash goes to the first level when its bucket there is rewritten: at one of this
/// many times, or the scheme ends.
pub(super) const TURNS: u64 = 3;

/// Slots of the log with a common header.
const LOG_STRIPE: u64 = 64;

/// Bytes of a slot of the marks.
pub(super) const MARKS_LEN: usize = 4096;

/// Names of the levels' areas.
const LEVEL_NAMES: [&str; LEVELS_MAX] = ["level-1", "level-2", "level-3", "level-4"];

/// Bytes of memory that a ring may take besides [`MEMORY_PER_BLOCK`].
pub const MEMORY: u64 = 64 << 20;

/// Bytes of memory that a ring may take for each block.
pub const MEMORY_PER_BLOCK: u64 = 16;

/// A level: buckets of equal size, each with room for blocks and dummies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingLevel {
    /// Buckets; a multiple of the number in the level before.
    pub buckets: u64,
    /// Blocks that a bucket holds at most.
    pub blocks: u64,
    /// Reads that a bucket answers before it is rewritten: further ones read all of it.
    pub dummies: u64,
}

impl RingLevel {
    /// Slots of a bucket.
    pub fn slots(&self) -> u64 {
        self.blocks + self.dummies
    }

    /// Words with a bit for each slot of a bucket.
    pub(super) fn mark_words(&self) -> u64 {
        self.slots().div_ceil(64)
    }
}

/// Sizes of a ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RingGeometry {
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_len: usize,
    /// Accesses between two evictions.
    pub rate: u32,
    /// Evictions that may be made between two syncs.
    pub ahead: u32,
    /// The levels below the stash, each with more buckets than the one before. The buckets of the
    /// last level are the leaves.
    pub levels: Vec<RingLevel>,
}

impl RingGeometry {
    /// The sizes with the fewest blocks read and written for each access, within bounds of memory
    /// and space.
    pub fn new(blocks: u64, block_len: usize) -> Result<Self> {
        check_size(blocks, block_len)?;
        let candidates = Candidates { blocks, block_len };
        let best = candidates.all().min_by(|(a, _), (b, _)| a.total_cmp(b));
        best.map(|(_, geometry)| geometry).ok_or(Error::Geometry("no ring has room for so many"))
    }

    /// A ring in which each level has `buckets` buckets, and evictions follow `rate` accesses.
    pub fn with_buckets(blocks: u64, block_len: usize, rate: u32, buckets: &[u64]) -> Result<Self> {
        let sized = |(nth, &own): (usize, &u64)| {
            let rate = f64::from(rate);
            let room = if let Some(&below) = buckets.get(nth + 1) {
                // A bucket holds what its buckets below did not fetch yet: one of them nothing,
                // the next what came since the eviction before, and so on.
                let mean = rate * (below / own.max(1)).saturating_sub(1) as f64 / 2.0;
                mean + 5.0 * (mean + 1.0).sqrt() + 8.0
            } else {
                let mean = blocks as f64 / own.max(1) as f64;
                mean + 4.0 * mean.sqrt() + 4.0
            };
            let dummies = (rate + 4.0 * rate.sqrt()) as u64 + 1;
            RingLevel { buckets: own, blocks: room as u64 + 1, dummies }
        };
        let levels = buckets.iter().enumerate().map(sized).collect();
        let ahead = buckets.first().map_or(1, |&first| first.clamp(1, AHEAD)) as u32;
        let geometry = Self { blocks, block_len, rate, ahead, levels };
        geometry.check()?;
        Ok(geometry)
    }

    /// Refuses sizes that cannot work.
    pub fn check(&self) -> Result {
        check_size(self.blocks, self.block_len)?;
        if !(1..=RATE_MAX).contains(&self.rate) || !(1..=1 << 10).contains(&self.ahead) {
            return Err(Error::Geometry("evictions of a ring are too seldom or too often"));
        }
        if !(1..=LEVELS_MAX).contains(&self.levels.len()) {
            return Err(Error::Geometry("a ring has one to four levels"));
        }
        for level in &self.levels {
            let is_small = level.blocks <= BUCKET_SLOTS_MAX && level.dummies <= BUCKET_SLOTS_MAX;
            if level.blocks == 0 || level.dummies == 0 || !is_small {
                return Err(Error::Geometry("a bucket has blocks and dummies"));
            }
            if level.slots() > BUCKET_SLOTS_MAX || !(1..=BUCKETS_MAX).contains(&level.buckets) {
                return Err(Error::Geometry("a ring's buckets are too large or too many"));
            }
        }
        // Else one of the last evictions, which recovery looks at, may have been overwritten.
        if u64::from(self.ahead) > self.levels[0].buckets {
            return Err(Error::Geometry("a ring syncs before its first level has a turn"));
        }
        let grows = |pair: &[RingLevel]| {
            pair[1].buckets > pair[0].buckets && pair[1].buckets.is_multiple_of(pair[0].buckets)
        };
        if !self.levels.windows(2).all(grows) {
            return Err(Error::Geometry("each level has a multiple of the buckets before it"));
        }
        let last = self.levels.last().expect("there is a level");
        if last.buckets.saturating_mul(last.blocks) < self.blocks {
            return Err(Error::Geometry("the leaves of a ring have room for all blocks"));
        }
        Ok(())
    }

    /// Number of leaves.
    pub fn leaves(&self) -> u64 {
        self.levels.last().expect("there is a level").buckets
    }

    /// The bucket of level `level` on the path to `leaf`.
    pub(super) fn bucket(&self, level: usize, leaf: u64) -> u64 {
        leaf / (self.leaves() / self.levels[level].buckets)
    }

    /// The leaf of the path that eviction number `nth` rewrites. Every bucket has its turn once in
    /// as many evictions as its level has buckets.
    pub(super) fn evicted_leaf(&self, nth: u64) -> u64 {
        let (mut bucket, mut rest, mut above) = (0, nth, 1);
        for level in &self.levels {
            let fan = level.buckets / above;
            bucket = bucket * fan + rest % fan;
            rest /= fan;
            above = level.buckets;
        }
        bucket
    }

    /// The first eviction that rewrites a bucket.
    fn first_eviction(&self, level: usize, bucket: u64) -> u64 {
        let (mut nth, mut rest) = (0, bucket);
        for of in (0..=level).rev() {
            let above = if of == 0 { 1 } else { self.levels[of - 1].buckets };
            let fan = self.levels[of].buckets / above;
            nth = nth * fan + rest % fan;
            rest /= fan;
        }
        nth
    }

    /// The last of the first `evictions` evictions that rewrote a bucket, if there is one.
    pub(super) fn last_eviction(&self, level: usize, bucket: u64, evictions: u64) -> Option<u64> {
        let (first, period) = (self.first_eviction(level, bucket), self.levels[level].buckets);
        let since = evictions.checked_sub(first + 1)?;
        Some(evictions - 1 - since % period)
    }

    /// The first slot of the bucket that eviction number `nth` writes in a level.
    pub(super) fn written_slot(&self, level: usize, nth: u64) -> u64 {
        let of = &self.levels[level];
        nth % (of.buckets + u64::from(self.ahead)) * of.slots()
    }

    /// The first slot to read of a bucket after so many evictions.
    pub(super) fn bucket_slot(&self, level: usize, bucket: u64, evictions: u64) -> u64 {
        let last = self.last_eviction(level, bucket, evictions);
        self.written_slot(level, last.unwrap_or_else(|| self.first_eviction(level, bucket)))
    }

    /// Accesses that may be made between two syncs.
    pub fn unsynced_max(&self) -> u64 {
        u64::from(self.ahead) * u64::from(self.rate)
    }

    /// The last records of the log that may be needed.
    pub(super) fn live_records(&self) -> u64 {
        TURNS * self.levels[0].buckets * u64::from(self.rate)
    }

    /// Records after which nothing that was written before them is in use.
    pub(super) fn records_to_renew(&self) -> u64 {
        let pass = (self.leaves() + 1) * u64::from(self.rate);
        pass + self.live_records() + self.unsynced_max()
    }

    /// Evictions made before record number `count`.
    pub(super) fn evictions(&self, count: u64) -> u64 {
        count / u64::from(self.rate)
    }

    /// The last record before eviction number `nth`. One opening made both.
    pub(super) fn record_before(&self, nth: u64) -> u64 {
        (nth + 1) * u64::from(self.rate) - 1
    }

    /// The version of a slot of the bucket that eviction number `nth` wrote.
    pub(super) fn version(&self, level: usize, nth: u64, slot: u64) -> u64 {
        nth * self.levels[level].slots() + slot
    }

    /// The layout of the log.
    pub(super) fn log(&self) -> SlotLayout {
        let slots = self.live_records() + self.unsynced_max() + u64::from(self.rate) + LOG_STRIPE;
        SlotLayout {
            slots: slots.next_multiple_of(LOG_STRIPE),
            body_len: self.block_len,
            entry_len: ENTRY_LEN,
            stripe_slots: LOG_STRIPE,
        }
    }

    /// The layout of a level: each stripe is a bucket.
    pub(super) fn level(&self, level: usize) -> SlotLayout {
        let of = &self.levels[level];
        SlotLayout {
            slots: (of.buckets + u64::from(self.ahead)) * of.slots(),
            body_len: self.block_len,
            entry_len: ENTRY_LEN,
            stripe_slots: of.slots(),
        }
    }

    /// Bytes of memory that the marks of slots take.
    pub(super) fn marks_memory(&self) -> u64 {
        self.levels.iter().map(|level| level.buckets * (8 * level.mark_words() + 2)).sum()
    }

    /// The layout of the area of the marks.
    pub(super) fn marks(&self) -> SlotLayout {
        SlotLayout {
            slots: self.marks_memory().div_ceil(MARKS_LEN as u64),
            body_len: MARKS_LEN,
            entry_len: Salt::LEN + TAG_LEN,
            stripe_slots: 128,
        }
    }

    /// The areas: the log, the levels, and the marks.
    pub fn areas(&self) -> Vec<PlacedArea> {
        let mut areas = Vec::from([("log", self.log())]);
        areas.extend((0..self.levels.len()).map(|nth| (LEVEL_NAMES[nth], self.level(nth))));
        areas.push(("marks", self.marks()));
        place_areas(areas.into_iter())
    }

    /// Bytes that all areas take.
    pub fn store_len(&self) -> u64 {
        let areas = self.areas();
        areas.last().map_or(0, |(_, at, len)| at + len)
    }

    /// Blocks read and written for each access, on average.
    pub fn blocks_per_access(&self) -> f64 {
        let moved: u64 = self.levels.iter().map(|level| 2 * level.slots()).sum();
        self.levels.len() as f64 + 1.0 + moved as f64 / f64::from(self.rate)
    }

    /// Blocks written for each access, on average, with the entries of their slots.
    pub fn write_amplification(&self) -> f64 {
        let of_level = |level| self.level(level).stripe_len() as f64 / self.block_len as f64;
        let written: f64 = (0..self.levels.len()).map(of_level).sum();
        1.0 + written / f64::from(self.rate)
    }

    /// Bytes of memory that the map and the marks of slots take.
    pub fn map_memory(&self) -> u64 {
        8 * self.blocks + self.marks_memory()
    }

    /// Bytes of memory that the stash and the buffers take, about.
    pub fn buffer_memory(&self) -> u64 {
        let stash = self.levels[0].buckets * u64::from(self.rate) * 11 / 20;
        let path: u64 = self.levels.iter().map(RingLevel::slots).sum();
        (stash + 2 * path + 4 * u64::from(self.rate)) * (self.block_len as u64 + 128)
    }

    /// The parameters as they lie in a volume's header.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.rate.to_le_bytes());
        out.extend((self.ahead as u16).to_le_bytes());
        out.extend((self.levels.len() as u16).to_le_bytes());
        for level in &self.levels {
            out.extend((level.buckets as u32).to_le_bytes());
            out.extend((level.blocks as u16).to_le_bytes());
            out.extend((level.dummies as u16).to_le_bytes());
        }
        out
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    pub(super) fn from_bytes(blocks: u64, block_len: usize, bytes: &[u8]) -> Result<Self> {
        let halves = |at| (u32_at(bytes, at) & 0xffff, u32_at(bytes, at) >> 16);
        let (ahead, levels) = halves(4);
        if levels as usize > LEVELS_MAX {
            return Err(Error::Geometry("a ring has one to four levels"));
        }
        let level = |nth: usize| {
            let (blocks, dummies) = halves(12 + 8 * nth);
            RingLevel {
                buckets: u32_at(bytes, 8 + 8 * nth).into(),
                blocks: blocks.into(),
                dummies: dummies.into(),
            }
        };
        let levels = (0..levels as usize).map(level).collect();
        let geometry = Self { blocks, block_len, rate: u32_at(bytes, 0), ahead, levels };
        geometry.check()?;
        Ok(geometry)
    }
}

/// The rings among which the best is chosen.
struct Candidates {
    blocks: u64,
    block_len: usize,
}

/// Space that a ring may take, of what it holds. There is little to gain from more.
const SPACE_MAX: f64 = 2.8;

/// Bytes of a path, at most: an eviction reads and writes a path, and requests wait for it.
const PATH_BYTES_MAX: u64 = 10 << 20;

impl Candidates {
    /// Each candidate within the bounds, and the blocks that it moves for each access.
    fn all(&self) -> impl Iterator<Item = (f64, RingGeometry)> {
        let small = self.blocks <= 1 << 12;
        let rates = [4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256];
        rates.into_iter().flat_map(move |rate| {
            self.shapes().into_iter().filter_map(move |buckets| {
                let ring =
                    RingGeometry::with_buckets(self.blocks, self.block_len, rate, &buckets).ok()?;
                (small || self.fits(&ring)).then(|| (self.cost(&ring), ring))
            })
        })
    }

    /// What is to be small: blocks moved for each access, and space where there is much of it.
    fn cost(&self, ring: &RingGeometry) -> f64 {
        let space = ring.store_len() as f64 / (self.blocks as f64 * self.block_len as f64);
        ring.blocks_per_access() + (space - SPACE_MAX).max(0.0) * 4.0
    }

    fn fits(&self, ring: &RingGeometry) -> bool {
        let held = self.blocks * self.block_len as u64;
        let path: u64 = ring.levels.iter().map(RingLevel::slots).sum();
        let memory = ring.map_memory() + ring.buffer_memory();
        // A part of the memory is for the rest of the program.
        memory <= MEMORY * 3 / 4 + MEMORY_PER_BLOCK * self.blocks
            && ring.store_len() as f64 <= held as f64 * SPACE_MAX
            && path * self.block_len as u64 <= PATH_BYTES_MAX
    }

    /// Numbers of buckets of the levels.
    fn shapes(&self) -> Vec<Vec<u64>> {
        let mut shapes = Vec::new();
        for first in (0..40).map(|nth| [2, 3][nth % 2] << (nth / 2)) {
            let mut grown = Vec::from([Vec::from([first])]);
            for _ in 0..LEVELS_MAX {
                shapes.extend(grown.iter().filter(|shape| self.is_near(shape)).cloned());
                let wider = |shape: &Vec<u64>| {
                    let last = *shape.last().expect("it has a level");
                    let fans = [2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32];
                    let fits = fans.into_iter().filter(move |fan| last * fan <= self.blocks / 32);
                    // Fans that differ much between levels gain nothing.
                    let before = shape.len().checked_sub(2).map(|nth| last / shape[nth]);
                    let fits = fits.filter(move |&fan| {
                        before.is_none_or(|before| fan <= 2 * before && before <= 2 * fan)
                    });
                    fits.map(|fan| [&shape[..], &[last * fan]].concat()).collect::<Vec<_>>()
                };
                grown = grown.iter().flat_map(wider).collect();
            }
        }
        shapes
    }

    /// Whether the leaves have a usual size.
    fn is_near(&self, shape: &[u64]) -> bool {
        let mean = self.blocks / shape.last().expect("it has a level");
        (64..=1024).contains(&mean) || self.blocks < 256
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(blocks: u64) -> RingGeometry {
        RingGeometry::new(blocks, 4096).unwrap()
    }

    #[test]
    fn every_bucket_has_its_turn_once_in_a_pass() {
        let ring = RingGeometry::with_buckets(500, 64, 4, &[3, 6, 30]).unwrap();
        for level in 0..3 {
            let buckets = ring.levels[level].buckets;
            let turn = |nth| ring.bucket(level, ring.evicted_leaf(nth));
            for start in [0, 7, 100] {
                let mut seen: Vec<_> = (start..start + buckets).map(turn).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..buckets).collect::<Vec<_>>());
            }
            for evictions in [0, 1, 5, 29, 30, 31, 100, 1000] {
                for bucket in 0..buckets {
                    let last = (0..evictions).rev().find(|&nth| turn(nth) == bucket);
                    assert_eq!(ring.last_eviction(level, bucket, evictions), last);
                }
            }
        }
    }

    #[test]
    fn parameters_come_back() {
        for blocks in [1, 70, 5000, 1 << 20] {
            let ring = ring(blocks);
            let mut bytes = ring.to_bytes();
            bytes.resize(traceless_core::scheme::contract::PARAMETERS_LEN, 0);
            assert_eq!(RingGeometry::from_bytes(blocks, 4096, &bytes).unwrap(), ring);
        }
        let mut bytes = ring(5000).to_bytes();
        bytes.resize(traceless_core::scheme::contract::PARAMETERS_LEN, 0);
        bytes[6] = 5;
        assert!(RingGeometry::from_bytes(5000, 4096, &bytes).is_err());
    }

    #[test]
    fn sizes_are_within_their_bounds() {
        for (bits, moved) in [(14, 15.0), (16, 15.0), (18, 24.0), (20, 30.0), (22, 40.0)] {
            let ring = ring(1 << bits);
            let space = ring.store_len() as f64 / (4096u64 << bits) as f64;
            let memory = ring.map_memory() + ring.buffer_memory();
            let per_access = ring.blocks_per_access();
            println!("2^{bits}: {per_access:.1} {space:.2} {} {ring:?}", memory >> 20);
            assert!(space <= 3.0 && per_access <= moved, "2^{bits}: {space} {per_access}");
            assert!(memory <= MEMORY + (MEMORY_PER_BLOCK << bits), "2^{bits}: {memory}");
        }
    }
}
