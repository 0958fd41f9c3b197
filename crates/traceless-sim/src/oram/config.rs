//! The configuration of an oblivious memory, as a machine's file describes it.

use super::layout::LayoutKind;
use crate::error::{Error, Result, within};
use crate::workload::LINE_LEN;
use core::ops::RangeInclusive;
use serde::{Deserialize, Serialize};
use traceless::posmap::COUNTER_BITS;
use traceless::scheme::rho::{PATTERN, SMALL_LEVELS, SMALL_TAGS, SMALL_Z};
use traceless::scheme::ring::Params;
use traceless::tree::Shape;
use traceless::tree::ir_alloc::Preset;

/// Bytes of a block: a line.
pub const BLOCK_LEN: usize = 64;

const BLOCKS_MAX: u64 = 1 << 40;
const TIME_MAX: u64 = 1 << 32;
const TREES_MAX: u64 = 16;
const LEVELS_MAX: u64 = 33;
const MAP_LEVELS_MAX: u64 = 32;
const Z_MAX: u64 = 64;
const FANOUTS: RangeInclusive<u64> = 2..=1 << 20;
const RATE_MAX: u64 = 8000;
const MAP_BLOCK_MAX: u64 = 4096;
const PER_MAIN_MAX: u64 = 1000;
const BUFFER_MAX: u64 = 1 << 28;
const BUNDLE_MAX: u64 = 64;
const BITS_MAX: u64 = 1 << 16;

/// The configuration of the ORAM between the last cache and the memory. A field that is left out
/// follows from the scheme: see [`Config::resolved`].
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The scheme. Its name sets the fields below that are left out.
    pub scheme: Scheme,
    /// Blocks that programs can use. Addresses past them wrap around.
    pub blocks: Option<u64>,
    /// Neighbouring blocks that share a label: one path access brings all of them. Only for a
    /// unified ORAM; 1 if it is left out.
    pub bundle: Option<u64>,
    /// Levels of the tree.
    pub levels: usize,
    /// Slots of a bucket, where `allocation` is `base`.
    pub z: u8,
    /// Slots of a bucket: `base`, a preset of IR-Alloc, or a number for each level.
    pub allocation: Option<Allocation>,
    /// Levels that are in the processor.
    pub cached_levels: usize,
    /// How the cached levels are kept in the processor.
    pub top: Option<Top>,
    /// Blocks in a set of the sub-stash.
    pub top_ways: usize,
    /// Sets of the sub-stash; if left out, enough for as many blocks as the cached levels have
    /// slots.
    pub top_sets: Option<usize>,
    /// Blocks that the stash holds.
    pub stash_blocks: usize,
    /// With more blocks in the stash than this an access only empties it; if left out, the stash
    /// less a path of the whole tree.
    pub drain_above: Option<usize>,
    /// Whether a request first looks for its block in the processor, before a path is accessed.
    pub searches_first: Option<bool>,
    /// How blocks of the position map hold labels.
    pub labels: Option<LabelKind>,
    /// Levels of the position map in the tree.
    pub map_levels: Option<u8>,
    /// Labels in a block of the position map.
    pub map_fanout: Option<u64>,
    /// Bits of a counter of compressed labels.
    pub counter_bits: Option<u32>,
    /// Bytes of the PLB.
    pub plb_bytes: usize,
    /// Blocks of a set of the PLB.
    pub plb_ways: usize,
    /// What becomes of a block that the last cache reads, and of lines that the cache gives up.
    pub remap: Option<Remap>,
    /// What the scheme does in place of dummy accesses.
    pub early: Option<Early>,
    /// Pause in cycles after a search in vain, for [`Early::Scan`].
    pub early_pause: u64,
    /// Lines that the queue holds, for [`Early::Queue`].
    pub early_queue: usize,
    /// Number of trees of `recursive`, the tree of the user's blocks included.
    pub trees: usize,
    /// The trees of the position map. If left out, each is smaller than the one before by the
    /// fan-out.
    pub map_trees: Option<Vec<MapTree>>,
    /// The tree beside the main one, for `rho`.
    pub small: Small,
    /// Blocks that a bucket of `ring` holds: one of the sizes that the library has parameters for.
    pub ring_z: u8,
    /// When path accesses begin.
    pub pace: Pace,
    /// Whether `pace` spaces rounds, each an access to all trees of `recursive` one after the
    /// other, and not single path accesses.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub paced_rounds: bool,
    /// Instructions that a processor fetches in a cycle, for [`Pace::FetchSlots`].
    pub fetch_slots: u64,
    /// Cycles from the last line of a path to the block in the processor.
    pub decrypt: u64,
    /// With this many requests waiting for a path access, the ORAM takes no more write-backs.
    pub queue: usize,
    /// How trees lie in memory.
    pub layout: LayoutKind,
    /// Bytes of a subtree that lies together, so that a path touches few rows.
    pub row_len: usize,
    /// What buckets hold besides blocks, for a memory that only counts bytes.
    pub bucket: Bucket,
    /// What the trees hold at the beginning.
    pub start: Start,
    /// Whether trees forget what is written to them, so that no block is ever found there. Which
    /// paths are accessed, and when, is the same as with trees that begin empty, as long as no
    /// stash fills, but the simulation is much faster. For trees without cached levels.
    pub forgets: bool,
    /// Accesses to random blocks before the timing starts.
    pub warm_up: u64,
    /// Seed of all labels.
    pub seed: u64,
}

/// A scheme, in the configuration in which papers compare it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// No scheme: the addresses of accesses are visible to an adversary.
    Dram,
    /// Path ORAM with its whole position map in the processor.
    Path,
    /// A tree for each level of the position map.
    Recursive,
    /// Blocks and position map in one tree, with a PLB, as in the paper on unified ORAM: blocks
    /// carry their labels through the caches.
    Unified,
    /// `Unified` with compressed labels.
    Compressed,
    /// Blocks and position map in one tree, as in the IR-ORAM paper.
    Baseline,
    /// `Baseline` with a small tree beside its tree.
    Rho,
    /// `Baseline` with fewer slots on the middle levels.
    IrAlloc,
    /// `Baseline` with cached levels in which blocks are found by address.
    IrStash,
    /// `Baseline` that writes back dirty lines instead of dummies.
    IrDwb,
    /// `IrAlloc`, `IrStash` and `IrDwb` together.
    IrOram,
    /// This project's scheme: neighbouring lines on one path, under labels so short that one level
    /// of their map in the tree is enough. Every request accesses a path.
    Bundled,
    /// `Baseline` with blocks that leave the memory while they are in the last cache.
    LlcD,
    /// `LlcD`, `IrStash` and `IrAlloc` together.
    #[serde(rename = "llc-d+ir-stash+ir-alloc")]
    LlcDIrStashIrAlloc,
    /// Ring ORAM.
    Ring,
}

/// Slots per bucket.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Allocation {
    /// The same number on all levels, for `base`; or a preset.
    Named(String),
    /// A number for each level, from the root on.
    Levels(Vec<u8>),
}

/// How the cached levels are kept in the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Top {
    /// In a cache of their own, in which a block is found along its path.
    Apart,
    /// In a set-associative sub-stash, in which a block is found by its address.
    SubStash,
    /// In the stash itself: like `SubStash`, with one set for all blocks.
    Merged,
}

/// How blocks of the position map hold labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelKind {
    /// As plain labels.
    Plain,
    /// As counters, from which labels are derived.
    Compressed,
}

/// What becomes of a block that the last cache reads, and of lines that the cache gives up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remap {
    /// The block stays in the ORAM, on a new path. A line that is written back is a request.
    AtAccess,
    /// The block leaves the ORAM, and every line that the cache gives up comes back, clean or
    /// dirty: that takes accesses to the position map. In a scheme that cannot do this, the return
    /// is a plain request.
    Delayed,
    /// The block leaves with its label, so that it comes back without any access. The simulation
    /// leaves the block in the tree: the only difference is the room that it takes meanwhile. A
    /// line that the cache has without having read it has no label, so its return is a request.
    WithLine,
}

/// What the scheme does in place of dummy accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Early {
    /// It makes dummy accesses.
    Nothing,
    /// It writes back dirty lines that a pointer finds, which goes through the last cache.
    Scan,
    /// It writes back dirty lines from a queue: lines that were the least recently used of their
    /// set.
    Queue,
}

/// A tree that holds a level of the position map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MapTree {
    /// Levels of the tree.
    pub levels: usize,
    /// Labels in a block.
    pub fanout: u64,
    /// Bytes of a block.
    #[serde(default = "block_len")]
    pub block_bytes: usize,
    /// How often the tree is accessed for each access to a user's block, in thousandths. With a
    /// rate, the map has a PLB of `plb_bytes`; without, its tree is accessed each time.
    pub rate: Option<u32>,
}

fn block_len() -> usize {
    BLOCK_LEN
}

/// The small tree of `rho`, beside the main one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Small {
    /// Levels of the tree.
    pub levels: usize,
    /// Slots of a bucket.
    pub z: u8,
    /// Levels of the tree in the processor.
    pub cached_levels: usize,
    /// Sets of the small tree's tags.
    pub sets: usize,
    /// Ways of the small tree's tags.
    pub ways: usize,
    /// Blocks that the small tree's stash holds.
    pub stash_blocks: usize,
    /// With more blocks in its stash than this, the small tree is only emptied.
    pub drain_above: usize,
    /// Accesses to the small tree for each to the main tree.
    pub per_main: u32,
}

/// The small tree of the IR-ORAM paper; where the paper gives no value, of its authors' runs.
impl Default for Small {
    fn default() -> Self {
        Self {
            levels: SMALL_LEVELS,
            z: SMALL_Z,
            cached_levels: 6,
            sets: SMALL_TAGS.0,
            ways: SMALL_TAGS.1,
            stash_blocks: 200,
            drain_above: 160,
            per_main: PATTERN - 1,
        }
    }
}

/// What a bucket holds besides blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bucket {
    /// Bits of each slot for address and label.
    pub slot_bits: u64,
    /// Bits of the bucket for its encryption.
    pub counter_bits: u64,
    /// Bytes of the bucket for its integrity.
    pub hash_bytes: u64,
    /// The length of a bucket is a multiple of this many bytes.
    pub align: u64,
}

/// The bucket of the paper on unified ORAM. With this alignment its latencies come out.
impl Default for Bucket {
    fn default() -> Self {
        Self { slot_bits: 64, counter_bits: 8, hash_bytes: 0, align: 8 }
    }
}

impl MapTree {
    fn check(&self) -> Result {
        within("oram.map_trees.levels", self.levels as u64, 1..=LEVELS_MAX)?;
        within("oram.map_trees.fanout", self.fanout, FANOUTS)?;
        within("oram.map_trees.block_bytes", self.block_bytes as u64, 1..=MAP_BLOCK_MAX)?;
        self.rate.map_or(Ok(()), |rate| within("oram.map_trees.rate", rate.into(), 1..=RATE_MAX))
    }
}

impl Small {
    fn check(&self) -> Result {
        let Self { levels, z, cached_levels, sets, ways, .. } = *self;
        within("oram.small.levels", levels as u64, 1..=LEVELS_MAX)?;
        within("oram.small.z", z.into(), 1..=Z_MAX)?;
        within("oram.small.cached_levels", cached_levels as u64, 0..=levels as u64 - 1)?;
        within("oram.small.sets", sets as u64, 1..=BUFFER_MAX)?;
        within("oram.small.ways", ways as u64, 1..=BUFFER_MAX / sets as u64)?;
        within("oram.small.stash_blocks", self.stash_blocks as u64, 1..=BUFFER_MAX)?;
        let stash = self.stash_blocks as u64;
        within("oram.small.drain_above", self.drain_above as u64, 0..=stash)?;
        within("oram.small.per_main", self.per_main.into(), 1..=PER_MAIN_MAX)
    }
}

impl Bucket {
    fn check(&self) -> Result {
        within("oram.bucket.slot_bits", self.slot_bits, 0..=BITS_MAX)?;
        within("oram.bucket.counter_bits", self.counter_bits, 0..=BITS_MAX)?;
        within("oram.bucket.hash_bytes", self.hash_bytes, 0..=BITS_MAX)?;
        within("oram.bucket.align", self.align, 1..=BITS_MAX)
    }

    /// Bytes of a bucket of `z` blocks.
    pub fn len(&self, z: u64, block_bytes: u64) -> u64 {
        let bits = z * (8 * block_bytes + self.slot_bits) + self.counter_bits;
        if z == 0 {
            return 0;
        }
        (bits.div_ceil(8) + self.hash_bytes).next_multiple_of(self.align)
    }
}

/// What the trees hold at the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// No block: blocks come into being when they are accessed.
    Empty,
    /// Every block.
    Full,
}

/// When path accesses begin. Intervals are in cycles, but for [`FetchSlots`](Self::FetchSlots).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// When a request arrives: the times of accesses show when programs miss their caches.
    Asked,
    /// This long after the access before began, or when that one ends, if that is later; dummies,
    /// too.
    StartToStart(u64),
    /// This long after the access before ended; dummies, too.
    AfterCompletion(u64),
    /// This many instructions after the access before ended, if a processor fetches as many as it
    /// can in each cycle, memory operations left out; dummies, too. The IR-ORAM paper's authors
    /// count like this: the T = 1000 of the paper is a quarter of [`AfterCompletion`](Self) 1000.
    FetchSlots(u64),
}

/// The baseline of the IR-ORAM paper's Table I, with a PLB of four ways.
impl Default for Config {
    fn default() -> Self {
        Self {
            scheme: Scheme::Baseline,
            blocks: None,
            bundle: None,
            levels: 25,
            z: 4,
            allocation: None,
            cached_levels: 10,
            top: None,
            top_ways: 4,
            top_sets: None,
            stash_blocks: 200,
            drain_above: None,
            searches_first: None,
            labels: None,
            map_levels: None,
            map_fanout: None,
            counter_bits: None,
            plb_bytes: 64 << 10,
            plb_ways: 4,
            remap: None,
            early: None,
            early_pause: 1000,
            early_queue: 64,
            trees: 4,
            map_trees: None,
            small: Small::default(),
            ring_z: 16,
            pace: Pace::AfterCompletion(1000),
            fetch_slots: 4,
            decrypt: 0,
            queue: 2000,
            layout: LayoutKind::Spread,
            row_len: 32 << 10,
            bucket: Bucket::default(),
            start: Start::Full,
            forgets: false,
            paced_rounds: false,
            warm_up: 20_000,
            seed: 1,
        }
    }
}

impl Scheme {
    /// All schemes, with their names.
    pub const NAMED: [(&'static str, Self); 15] = [
        ("dram", Self::Dram),
        ("path", Self::Path),
        ("recursive", Self::Recursive),
        ("unified", Self::Unified),
        ("compressed", Self::Compressed),
        ("baseline", Self::Baseline),
        ("rho", Self::Rho),
        ("ir-alloc", Self::IrAlloc),
        ("ir-stash", Self::IrStash),
        ("ir-dwb", Self::IrDwb),
        ("ir-oram", Self::IrOram),
        ("bundled", Self::Bundled),
        ("llc-d", Self::LlcD),
        ("llc-d+ir-stash+ir-alloc", Self::LlcDIrStashIrAlloc),
        ("ring", Self::Ring),
    ];

    /// The scheme with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|(its, _)| *its == name).map(|(_, scheme)| scheme)
    }

    fn allocation(self) -> &'static str {
        match self {
            Self::IrAlloc | Self::LlcDIrStashIrAlloc => "ir-alloc4",
            Self::IrOram => "ir-oram",
            Self::Bundled => "bundled",
            _ => "base",
        }
    }

    fn top(self) -> Top {
        match self {
            Self::IrStash | Self::IrOram | Self::LlcDIrStashIrAlloc => Top::SubStash,
            _ => Top::Apart,
        }
    }

    /// In the IR-ORAM paper (section II-B) a request searches the stash first of all. In the paper
    /// on unified ORAM every request accesses a path.
    fn searches_first(self) -> bool {
        !matches!(self, Self::Unified | Self::Compressed | Self::Rho | Self::Bundled)
    }

    fn remap(self) -> Remap {
        match self {
            Self::Unified | Self::Compressed | Self::Recursive => Remap::WithLine,
            Self::LlcD | Self::LlcDIrStashIrAlloc => Remap::Delayed,
            _ => Remap::AtAccess,
        }
    }

    fn early(self) -> Early {
        match self {
            Self::IrDwb | Self::IrOram | Self::Bundled => Early::Scan,
            _ => Early::Nothing,
        }
    }

    fn labels(self) -> LabelKind {
        match self {
            Self::Compressed | Self::Bundled => LabelKind::Compressed,
            _ => LabelKind::Plain,
        }
    }

    /// 64 counters of 7 bits fill a block just as 32 of 14 bits do. A counter that overflows costs
    /// a path for each bundle of its group, so half a path an access at most.
    fn counter_bits(self) -> u32 {
        if self == Self::Bundled { 7 } else { COUNTER_BITS }
    }

    fn map_fanout(self, labels: LabelKind) -> u64 {
        match labels {
            _ if self == Self::Bundled => 64,
            LabelKind::Compressed => 32,
            LabelKind::Plain => 16,
        }
    }

    /// The labels of the last level's blocks fit the 512 KB of the paper: 2^18 of 16 bits, or 2^19
    /// of 7 bits and a group's counter for each 64.
    fn map_levels(self) -> u8 {
        if self == Self::Bundled { 1 } else { 2 }
    }

    /// Whether one tree holds the user's blocks and their map, and there is no other tree.
    pub(super) fn is_unified(self) -> bool {
        !matches!(self, Self::Dram | Self::Path | Self::Recursive | Self::Ring | Self::Rho)
    }

    /// With four blocks in a bundle, each access would need several more to empty the stash.
    fn bundle(self) -> u64 {
        if self == Self::Bundled { 2 } else { 1 }
    }

    /// Ring ORAM takes so much memory that 2^26 blocks have no room.
    fn blocks(self) -> u64 {
        if self == Self::Ring { 1 << 24 } else { 1 << 26 }
    }
}

impl Config {
    /// A copy in which every field that was left out has the scheme's value.
    #[must_use]
    pub fn resolved(&self) -> Self {
        let Self { scheme, .. } = *self;
        let labels = self.labels.unwrap_or(scheme.labels());
        let fanout = self.map_fanout.unwrap_or(scheme.map_fanout(labels));
        let path = usize::from(self.z) * self.levels;
        let named = || Allocation::Named(scheme.allocation().to_owned());
        let bits = fanout.max(2).ilog2() as usize;
        let map_tree = |nth: usize| MapTree {
            levels: self.levels.saturating_sub(nth * bits).max(1),
            fanout,
            block_bytes: BLOCK_LEN,
            rate: None,
        };
        let map_trees = || (1..self.trees).map(map_tree).collect();
        Self {
            blocks: Some(self.blocks.unwrap_or(scheme.blocks())),
            bundle: Some(self.bundle.unwrap_or(scheme.bundle())),
            allocation: Some(self.allocation.clone().unwrap_or_else(named)),
            top: Some(self.top.unwrap_or(scheme.top())),
            drain_above: Some(self.drain_above.unwrap_or(self.stash_blocks.saturating_sub(path))),
            searches_first: Some(self.searches_first.unwrap_or(scheme.searches_first())),
            labels: Some(labels),
            map_levels: Some(self.map_levels.unwrap_or(scheme.map_levels())),
            map_fanout: Some(fanout),
            counter_bits: Some(self.counter_bits.unwrap_or(scheme.counter_bits())),
            remap: Some(self.remap.unwrap_or(scheme.remap())),
            early: Some(self.early.unwrap_or(scheme.early())),
            map_trees: Some(self.map_trees.clone().unwrap_or_else(map_trees)),
            ..self.clone()
        }
    }

    /// Refuses values that no scheme can have.
    pub fn check(&self) -> Result {
        self.check_tree()?;
        self.check_map()?;
        self.small.check()?;
        self.check_times()?;
        self.bucket.check()?;
        if self.forgets
            && (self.start == Start::Full || self.cached_levels > 0 || self.scheme == Scheme::Ring)
        {
            return Err(Error::Oram("trees that forget begin empty, and none is in the processor"));
        }
        let Self { blocks, bundle, remap, early, .. } = self.resolved();
        let (blocks, bundle) = (blocks.unwrap_or(0), bundle.unwrap_or(0));
        within("oram.blocks", blocks, 1..=BLOCKS_MAX)?;
        within("oram.bundle", bundle, 1..=BUNDLE_MAX)?;
        if !blocks.is_multiple_of(bundle) {
            return Err(Error::Oram("`oram.blocks` are whole bundles"));
        }
        if bundle > 1 && !(self.scheme.is_unified() && remap == Some(Remap::AtAccess)) {
            return Err(Error::Oram("only a unified ORAM whose blocks stay has bundles"));
        }
        if early != Some(Early::Nothing) && remap != Some(Remap::AtAccess) {
            return Err(Error::Oram("lines are written back early where they would be later"));
        }
        Ok(())
    }

    fn check_tree(&self) -> Result {
        within("oram.levels", self.levels as u64, 1..=LEVELS_MAX)?;
        within("oram.z", self.z.into(), 1..=Z_MAX)?;
        within("oram.cached_levels", self.cached_levels as u64, 0..=self.levels as u64 - 1)?;
        within("oram.top_ways", self.top_ways as u64, 1..=BUFFER_MAX)?;
        if let Some(sets) = self.top_sets {
            within("oram.top_sets", sets as u64, 1..=BUFFER_MAX / self.top_ways as u64)?;
        }
        within("oram.stash_blocks", self.stash_blocks as u64, 1..=BUFFER_MAX)?;
        if let Some(drain_above) = self.drain_above {
            within("oram.drain_above", drain_above as u64, 0..=self.stash_blocks as u64)?;
        }
        within("oram.row_len", self.row_len as u64, LINE_LEN..=BUFFER_MAX)?;
        if !self.row_len.is_multiple_of(BLOCK_LEN) {
            return Err(Error::Oram("`oram.row_len` is a multiple of 64"));
        }
        Ok(())
    }

    fn check_map(&self) -> Result {
        within("oram.map_levels", self.map_levels.unwrap_or(0).into(), 0..=MAP_LEVELS_MAX)?;
        if let Some(fanout) = self.map_fanout {
            within("oram.map_fanout", fanout, FANOUTS)?;
        }
        if let Some(bits) = self.counter_bits {
            within("oram.counter_bits", bits.into(), 1..=u32::BITS.into())?;
        }
        within("oram.plb_bytes", self.plb_bytes as u64, LINE_LEN..=BUFFER_MAX)?;
        within("oram.plb_ways", self.plb_ways as u64, 1..=self.plb_bytes as u64 / LINE_LEN)?;
        if !self.plb_bytes.is_multiple_of(self.plb_ways * BLOCK_LEN) {
            return Err(Error::Oram("`oram.plb_bytes` is a multiple of 64 times `plb_ways`"));
        }
        within("oram.early_queue", self.early_queue as u64, 0..=BUFFER_MAX)?;
        within("oram.trees", self.trees as u64, 1..=TREES_MAX)?;
        self.map_trees.iter().flatten().try_for_each(MapTree::check)
    }

    fn check_times(&self) -> Result {
        let (field, interval) = match self.pace {
            Pace::Asked => ("oram.pace", 0),
            Pace::StartToStart(n) => ("oram.pace.start-to-start", n),
            Pace::AfterCompletion(n) => ("oram.pace.after-completion", n),
            Pace::FetchSlots(n) => ("oram.pace.fetch-slots", n),
        };
        within(field, interval, 0..=TIME_MAX)?;
        within("oram.fetch_slots", self.fetch_slots, 1..=TIME_MAX)?;
        within("oram.decrypt", self.decrypt, 0..=TIME_MAX)?;
        within("oram.early_pause", self.early_pause, 0..=TIME_MAX)?;
        within("oram.warm_up", self.warm_up, 0..=TIME_MAX)?;
        within("oram.queue", self.queue as u64, 1..=BUFFER_MAX)
    }

    /// The shape of the tree of the user's blocks, from the root on.
    pub(crate) fn shape(&self) -> Result<Shape> {
        Ok(match self.allocation.as_ref() {
            Some(Allocation::Levels(z)) => {
                if z.len() != self.levels {
                    return Err(Error::Oram("there is a number of slots for each level"));
                }
                Shape::per_level(z.clone())?
            }
            Some(Allocation::Named(name)) if name == "base" => Shape::uniform(self.levels, self.z)?,
            Some(Allocation::Named(name)) => {
                let preset = Preset::named(name);
                preset.ok_or(Error::Oram("there is no such allocation"))?.shape(self.levels)?
            }
            None => return self.resolved().shape(),
        })
    }

    pub(super) fn ring_params(&self) -> Result<Params> {
        let all = [Params::Z4, Params::Z8, Params::Z16, Params::Z32];
        let found = all.into_iter().find(|params| params.z == self.ring_z);
        found.ok_or(Error::Oram("a bucket of Ring ORAM holds 4, 8, 16 or 32 blocks"))
    }
}
