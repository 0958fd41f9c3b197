//! The schemes to crash: every scheme that a volume can use and that claims to survive crashes.
//!
//! A further scheme needs a row of [`FAMILIES`], with a table of small subjects and a function that
//! draws one.

use crate::disk::Fault;
use crate::effort::Effort;
use crate::fills::mix;
use crate::hidden::{self, HiddenUse};
use crate::steps::{Step, script};
use std::sync::Arc;
use traceless_block::datalair::DataLairScheme;
use traceless_block::deniable::{Deniable, DeniableGeometry, HiddenLane, LanePolicy};
use traceless_block::detwo::{DetWoGeometry, MapEntries, Refresh};
use traceless_block::hive::HiveScheme;
use traceless_block::ring::RingGeometry;
use traceless_block::{random, sq};
use traceless_core::oram::{BlockOram, Hides};
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::scheme::SchemeContext;
use traceless_core::scheme::contract::BlockScheme;

type Made = traceless_core::Result<Box<dyn BlockOram>>;

/// An open scheme, and its hidden volumes if it can have any.
pub type Opened = (Box<dyn BlockOram>, Option<HiddenLane>);

/// Opens a subject with a number of hidden volumes, from a state.
type Open = fn(&Subject, usize, SchemeContext, &[u8]) -> traceless_core::Result<Opened>;

/// The discard map of a subject, by docs/format.md, section 7.
#[derive(Clone, Copy)]
pub struct Discards {
    /// Map blocks.
    pub parts: u64,
    /// Blocks that each of them covers.
    pub covers: u64,
    /// Of each so many writes the last is to a map block.
    pub period: u64,
}

/// A scheme with a geometry, and facts that make crashes of it effective.
#[derive(Clone)]
pub struct Subject {
    pub scheme: Arc<dyn BlockScheme>,
    /// Most writes that the scheme leaves unsynced.
    pub unsynced_max: u64,
    /// Numbers of writes at which something begins: the volume, a ring, a stripe, a level.
    pub begins: Vec<u64>,
    /// Number of writes that overwrite every cyclic area at least once.
    pub around: u64,
    /// The discard map, if the scheme keeps one.
    pub discards: Option<Discards>,
    /// Whether the scheme draws the places that it writes. If so, two workloads are compared with
    /// equal draws; otherwise with different ones, which is a stronger test.
    pub draws_places: bool,
    /// Whether reads are accesses, which write and are counted. If so, an opening after a crash
    /// moves all blocks.
    pub hides_reads: bool,
    /// Most requests to the disk that an opening makes to move blocks.
    pub requests_of_opening: u64,
    /// Whether the disk takes discards of dead runs.
    pub gives_back: bool,
    /// The hidden volumes beside it, if it can have any.
    pub hidden: Option<HiddenUse>,
    /// Writes of a run before its record begins, so that its crashes are of an older opening.
    pub warm_up: u64,
    /// Functions that make and open the scheme: the factory's, or a mutant's.
    pub create: fn(&dyn BlockScheme, SchemeContext) -> Made,
    pub open: Open,
}

impl Subject {
    /// The scheme as it is.
    pub fn new(
        scheme: impl BlockScheme + 'static,
        unsynced_max: u64,
        begins: Vec<u64>,
        around: u64,
    ) -> Self {
        let (draws_places, scheme) = (scheme.draws_places(), Arc::new(scheme));
        let create = |scheme: &dyn BlockScheme, context| scheme.create_block(context);
        let (discards, hidden, warm_up, open) = (None, None, 0, open_sound as Open);
        let hides_reads = scheme.hides() == Hides::ReadsAndWrites;
        Self {
            scheme,
            unsynced_max,
            begins,
            around,
            discards,
            draws_places,
            hides_reads,
            requests_of_opening: 0,
            gives_back: false,
            hidden,
            warm_up,
            create,
            open,
        }
    }

    /// The same on a disk that takes discards.
    pub fn giving_back(self) -> Self {
        assert!(self.scheme.has_dead_runs(), "there is something to give back");
        Self { gives_back: true, ..self }
    }

    /// Dummy writes of a close.
    pub fn close_writes(&self) -> usize {
        if self.hidden.is_some() { hidden::CLOSE_WRITES } else { 0 }
    }

    /// Steps that can be crashed at every point: kills in place of closes that make many writes.
    pub fn short_steps(&self, mut steps: Vec<Step>) -> Vec<Step> {
        if self.close_writes() > 0 {
            for step in steps.iter_mut().filter(|step| **step == Step::Close) {
                *step = Step::Kill;
            }
        }
        steps
    }

    /// Random steps with `writes` writes in all, some of them discards if the scheme marks these.
    pub fn script(&self, seed: u64, writes: u64) -> Vec<Step> {
        let mut steps = script(seed, writes, self.unsynced_max);
        let Some(Discards { parts, .. }) = self.discards else { return steps };
        let mut rng = SeededRng::new(mix(seed));
        for step in steps.iter_mut().filter(|step| **step == Step::Write(1)) {
            if rng.below(3) == 0 {
                *step = Step::Discard(1 + rng.below(parts));
            }
        }
        steps
    }
}

/// Opens the scheme as it is.
pub fn open_sound(
    subject: &Subject,
    hidden: usize,
    context: SchemeContext,
    state: &[u8],
) -> traceless_core::Result<Opened> {
    let Some(HiddenUse { geometry, .. }) = subject.hidden else {
        return Ok((subject.scheme.open_block(context, state, &mut |_, _| {})?, None));
    };
    let (keys, policy) = (hidden::keys(hidden), LanePolicy::Refuse);
    let open = Deniable::open(geometry, context, state, (&keys, policy), &mut |_, _| {})?;
    let lane = open.hidden().clone();
    Ok((Box::new(open), Some(lane)))
}

/// The subjects of one scheme.
pub struct Family {
    /// The scheme's name in `TRACELESS_CRASH_SCHEME`.
    pub name: &'static str,
    /// Small subjects to crash at every point, each with the number of writes of a run.
    pub table: fn() -> Vec<(Subject, u64)>,
    /// Draws a random small subject.
    pub any: fn(&mut SeededRng) -> Subject,
    /// Subjects for planted faults, each with the number of writes before the run. An area begins
    /// anew soon after these writes, so that overwriting data that is still needed has an effect.
    pub faulty: fn() -> Vec<(Subject, u64)>,
    /// The faults that must be found in each of these subjects.
    pub faults: &'static [Fault],
    /// How thoroughly to check this family, where all are checked with this effort.
    pub effort: fn(Effort) -> Effort,
}

pub const FAMILIES: [Family; 6] = [
    Family {
        name: "detwo",
        table: detwo_table,
        any: any_detwo,
        faulty: || {
            vec![
                (detwo(24, 512, "1", 0, 2), 80),
                (detwo(130, 512, "1", 1, 2), 80),
                (discards(24, 512, "1", 0, 2), 80),
            ]
        },
        faults: &Fault::ALL,
        effort: |of_all| of_all,
    },
    Family {
        name: "sq",
        table: sq_table,
        any: any_sq,
        faulty: || vec![(of_sq(sq_shape(24, 512, 2, (2, 2))), 100)],
        faults: &Fault::ALL,
        effort: |of_all| of_all,
    },
    Family {
        name: "hive",
        table: || random_table(hive),
        any: |rng| any_random(rng, hive),
        faulty: || vec![(of_random(hive, 24, 512, 0, 2), 60)],
        faults: &Fault::ALL,
        effort: |of_all| of_all,
    },
    Family {
        name: "datalair",
        table: || random_table(datalair),
        any: |rng| any_random(rng, datalair),
        faulty: || vec![(of_random(datalair, 24, 512, 0, 2), 60)],
        faults: &Fault::ALL,
        effort: |of_all| of_all,
    },
    Family {
        name: "ring",
        table: ring_table,
        any: any_ring,
        faulty: || vec![(ring(6, 64, 4, &[2]), 40)],
        faults: &Fault::ALL,
        // A recovery is long, and has many points.
        effort: |of_all| Effort {
            again_every: 4 * of_all.again_every,
            cuts: of_all.cuts.min(2),
            ..of_all
        },
    },
    Family {
        name: "deniable",
        table: deniable_table,
        any: any_deniable,
        faulty: || vec![(deniable((500, "1/3", 2), 1400, [0, 1]), 80)],
        faults: &Fault::HIDDEN,
        effort: |of_all| of_all,
    },
];

fn detwo_table() -> Vec<(Subject, u64)> {
    // Two tiers need many blocks, and every crash reads all of them: so only the end of the holding
    // area is tested.
    let two_tiers = Subject { begins: vec![4265], ..detwo(4200, 64, "1", 2, 1) };
    vec![
        (detwo(24, 512, "1", 0, 2), 10),
        (detwo(24, 512, "3", 0, 4), 9),
        (detwo(32, 512, "3.5", 0, 3), 8),
        (detwo(48, 512, "1/3", 0, 5), 14),
        (detwo(24, 4096, "1", 0, 3), 9),
        (detwo(64, 4096, "3", 0, 2), 8),
        (detwo(130, 512, "1", 1, 2), 7),
        (detwo(100, 512, "1/3", 1, 3), 9),
        (detwo(500, 512, "3.5", 1, 2), 5),
        (detwo(40, 64, "1", 0, 6), 9),
        (two_tiers, 2),
        (pointers(24, 512, "3", 0, 4), 9),
        (pointers(100, 512, "1/3", 1, 3), 9),
        (discards(24, 512, "1", 0, 2), 10),
        (discards(600, 64, "3", 0, 3), 7),
        (discards(24, 512, "1/3", 0, 4), 12),
        (discards(130, 512, "1", 1, 2), 7),
    ]
}

fn any_detwo(rng: &mut SeededRng) -> Subject {
    loop {
        let ratio = ["1", "3", "3.5", "1/3", "2/3", "7", "15"][rng.below(7) as usize];
        let map_tiers = [0, 0, 0, 1, 1, 2][rng.below(6) as usize];
        // The smallest tier has more than a block, so two tiers need many blocks, which are small
        // here.
        let blocks = 2 + rng.below([80, 600, 6000][usize::from(map_tiers)]);
        let block_len = [64, 512, 512, 4096][rng.below(4) as usize];
        let geometry = DetWoGeometry {
            blocks,
            block_len: if map_tiers == 2 { 64 } else { block_len },
            refresh: Refresh::parse(ratio).expect("a ratio"),
            map_tiers,
            map_entries: [MapEntries::Counts, MapEntries::Pointers][rng.below(2) as usize],
            unsynced_max: 1 + rng.below(9),
            discards: rng.below(2) == 0,
        };
        if geometry.check().is_ok() {
            return of_detwo(geometry);
        }
    }
}

pub fn detwo(blocks: u64, block_len: usize, k: &str, map_tiers: u8, unsynced_max: u64) -> Subject {
    of_detwo(detwo_geometry(blocks, block_len, k, map_tiers, unsynced_max))
}

fn pointers(blocks: u64, block_len: usize, k: &str, map_tiers: u8, unsynced_max: u64) -> Subject {
    let geometry = detwo_geometry(blocks, block_len, k, map_tiers, unsynced_max);
    of_detwo(geometry.with_map_entries(MapEntries::Pointers).expect("pointers that fit"))
}

fn discards(blocks: u64, block_len: usize, k: &str, map_tiers: u8, unsynced_max: u64) -> Subject {
    let geometry = detwo_geometry(blocks, block_len, k, map_tiers, unsynced_max);
    of_detwo(geometry.with_discards().expect("a map of counts"))
}

fn detwo_geometry(
    blocks: u64,
    block_len: usize,
    k: &str,
    map_tiers: u8,
    unsynced_max: u64,
) -> DetWoGeometry {
    let (refresh, map_entries) = (Refresh::parse(k).expect("a ratio"), MapEntries::Counts);
    let discards = false;
    let geometry = DetWoGeometry {
        blocks,
        block_len,
        refresh,
        map_tiers,
        map_entries,
        unsynced_max,
        discards,
    };
    geometry.check().expect("a geometry that works");
    geometry
}

fn of_detwo(geometry: DetWoGeometry) -> Subject {
    let (k, s) = (geometry.refresh, geometry.unsynced_max);
    let covers = 8 * geometry.block_len as u64;
    let parts = if geometry.discards { geometry.blocks.div_ceil(covers) } else { 0 };
    let n = geometry.blocks + parts;
    // Number of slots of the two data areas, by docs/format.md, section 7.
    let (hold, main) = (k.writes_for(n) + s + 64, n + k.at_most(s + 1) + 256);
    // Number of writes after which the refreshes reach `slot` of the main area.
    let until = |slot: u64| k.writes_for(slot.saturating_sub(n));
    let begins = vec![0, 64, hold, until(256), until(main)];
    let around = hold.max(k.writes_for(main));
    let discards = (parts > 0).then(|| Discards { parts, covers, period: k.writes_for(n) / parts });
    Subject { discards, ..Subject::new(geometry, s, begins, around) }
}

fn sq_table() -> Vec<(Subject, u64)> {
    let disk = |shape| sq::SqGeometry { map: sq::MapPlace::Disk, ..shape };
    vec![
        (of_sq(sq_shape(24, 512, 2, (2, 2))), 9),
        (of_sq(sq_shape(40, 64, 4, (2, 3))), 12),
        (of_sq(sq_shape(40, 512, 2, (4, 1))), 8),
        (of_sq(sq_shape(24, 4096, 2, (2, 2))), 6),
        (of_sq(disk(sq_shape(60, 64, 4, (2, 2)))), 6),
        (of_sq(sq::SqGeometry { amortized: true, ..sq_shape(40, 64, 2, (2, 3)) }), 8),
        (of_sq(sq_shape(24, 512, 2, (2, 2))).giving_back(), 9),
        (of_sq(sq_shape(40, 64, 8, (4, 1))).giving_back(), 12),
        (of_sq(disk(sq_shape(60, 64, 4, (2, 2)))).giving_back(), 6),
        (of_sq(sq::SqGeometry { amortized: true, ..sq_shape(40, 64, 2, (2, 3)) }).giving_back(), 8),
    ]
}

/// The sq subject for discards that reach too far, and the number of writes before the run.
pub fn sq_giving_back() -> (Subject, u64) {
    (of_sq(sq_shape(24, 512, 2, (2, 2))).giving_back(), 100)
}

fn any_sq(rng: &mut SeededRng) -> Subject {
    loop {
        let bucket = [2, 2, 4, 6, 16][rng.below(5) as usize];
        let (fanout, levels) =
            [(2, 1), (2, 2), (2, 4), (3, 2), (4, 2), (5, 1), (4, 3)][rng.below(7) as usize];
        let blocks = 4 + rng.below(200);
        let block_len = [64, 512, 512, 4096][rng.below(4) as usize];
        let shape = sq::SqGeometry::with_shape(blocks, block_len, bucket, fanout, levels);
        let Ok(shape) = shape else { continue };
        let map = if rng.below(3) == 0 { sq::MapPlace::Disk } else { sq::MapPlace::Memory };
        // Sometimes more than the stripe that each ring has beside its slack. Larger buckets would
        // make too few requests for a life.
        let much = bucket == 2 && rng.below(2) == 0;
        let unsynced_max = 2 + rng.below(if much { 160 } else { 12 });
        let amortized = rng.below(4) == 0;
        let geometry = sq::SqGeometry { map, amortized, unsynced_max, ..shape };
        if geometry.check().is_ok() {
            let subject = of_sq(geometry);
            return if rng.below(2) == 0 { subject.giving_back() } else { subject };
        }
    }
}

/// `tree` has the fan-out and the number of levels. Up to a bucket may be unsynced.
fn sq_shape(blocks: u64, block_len: usize, bucket: u32, tree: (u32, u8)) -> sq::SqGeometry {
    let (fanout, levels) = tree;
    let shape = sq::SqGeometry::with_shape(blocks, block_len, bucket, fanout, levels);
    let shape = shape.expect("a geometry that works");
    sq::SqGeometry { unsynced_max: u64::from(bucket), ..shape }
}

fn of_sq(geometry: sq::SqGeometry) -> Subject {
    geometry.check().expect("a geometry that works");
    let slots_per_write = if geometry.map == sq::MapPlace::Disk { 2 } else { 1 };
    let (bucket, fanout) = (u64::from(geometry.bucket), u64::from(geometry.fanout));
    // Number of writes after which the log wraps around; docs/format.md gives its slots.
    let slack = 2 * geometry.unsynced_max.div_ceil(bucket) + 2;
    let log = ((2 * fanout + slack) * bucket + 64) / slots_per_write;
    let (first, pass) = (geometry.warm_up(), geometry.cycle());
    let begins = vec![0, first, first + pass, log];
    let around = first + geometry.whole_cycle();
    let unsynced = geometry.unsynced_max / slots_per_write;
    Subject::new(geometry, unsynced, begins, around)
}

/// Without hidden volumes, and with one and three of them.
fn deniable_table() -> Vec<(Subject, u64)> {
    let late = |subject| Subject { warm_up: 80, ..subject };
    vec![
        (deniable((500, "1/3", 2), 1400, [0, 1]), 4),
        (late(deniable((480, "1/3", 3), 1400, [0, 3])), 4),
        (late(deniable((1400, "1", 2), 1400, [1, 3])), 3),
    ]
}

fn any_deniable(rng: &mut SeededRng) -> Subject {
    loop {
        let (blocks, unsynced_max) = (470 + rng.below(200), 1 + rng.below(6));
        let used = [[0, 1], [0, 3], [1, 3], [0, 15]][rng.below(4) as usize];
        let subject = deniable((blocks, "1/3", unsynced_max), 1380 + rng.below(400), used);
        if subject.scheme.check().is_ok() {
            return Subject { warm_up: [0, 40, 80][rng.below(3) as usize], ..subject };
        }
    }
}

/// `used` are the hidden volumes of the two workloads. Blocks are small, as each crash reads all.
fn deniable(
    (blocks, k, unsynced_max): (u64, &str, u64),
    lane_slots: u64,
    used: [usize; 2],
) -> Subject {
    let public = detwo_geometry(blocks, 64, k, 0, unsynced_max);
    let geometry = DeniableGeometry { public, lane_slots };
    let Subject { begins, around, .. } = of_detwo(public);
    // The first hidden blocks move when the writer comes near to them, by docs/format.md.
    let moves = lane_slots - (lane_slots / 16 + unsynced_max + 256) + hidden::FIRST_WRITES;
    let begins = [0, moves, lane_slots, begins[2]];
    let begins = begins.map(|writes| writes.saturating_sub(hidden::FIRST_WRITES)).to_vec();
    let subject = Subject::new(geometry, unsynced_max, begins, around.max(lane_slots));
    Subject { hidden: Some(HiddenUse { geometry, used }), ..subject }
}

/// Makes a subject of a scheme of random slots.
type OfRandom = fn(random::RandomGeometry, Vec<u64>, u64) -> Subject;

fn hive(geometry: random::RandomGeometry, begins: Vec<u64>, around: u64) -> Subject {
    Subject::new(HiveScheme::new(geometry), geometry.unsynced_max, begins, around)
}

fn datalair(geometry: random::RandomGeometry, begins: Vec<u64>, around: u64) -> Subject {
    Subject::new(DataLairScheme::new(geometry), geometry.unsynced_max, begins, around)
}

fn random_table(of: OfRandom) -> Vec<(Subject, u64)> {
    vec![
        (of_random(of, 24, 512, 0, 2), 7),
        (of_random(of, 9, 64, 0, 3), 6),
        (of_random(of, 70, 64, 1, 2), 3),
    ]
}

fn any_random(rng: &mut SeededRng, of: OfRandom) -> Subject {
    // Every opening reads a journal of a thousand blocks, so blocks are small.
    let block_len = [64, 64, 128, 512][rng.below(4) as usize];
    let map_tiers = u8::from(rng.below(4) == 0);
    of_random(of, 1 + rng.below(60), block_len, map_tiers, 1 + rng.below(8))
}

fn of_random(
    of: OfRandom,
    blocks: u64,
    block_len: usize,
    map_tiers: u8,
    unsynced_max: u64,
) -> Subject {
    let geometry = random::RandomGeometry { blocks, block_len, map_tiers, unsynced_max };
    geometry.check().expect("a geometry that works");
    // Number of writes after which the journal wraps around; docs/format.md gives its slots.
    let stash = 61 + u64::from(blocks.ilog2());
    let journal = ((2 * unsynced_max + 4 * stash) * 4 + 32) / 4;
    of(geometry, vec![0, journal], journal)
}

fn ring_table() -> Vec<(Subject, u64)> {
    vec![(ring(5, 64, 3, &[1]), 7), (ring(7, 512, 4, &[2]), 8), (ring(8, 64, 4, &[1, 2]), 8)]
}

/// Each opening moves all blocks several times, so there are few of them.
fn any_ring(rng: &mut SeededRng) -> Subject {
    let shapes: [&[u64]; 6] = [&[1], &[3], &[1, 2], &[2, 4], &[2, 6], &[1, 2, 4]];
    let shape = shapes[rng.below(6) as usize];
    let block_len = [64, 64, 128, 512][rng.below(4) as usize];
    ring(1 + rng.below(30), block_len, 2 + rng.below(5) as u32, shape)
}

fn ring(blocks: u64, block_len: usize, rate: u32, buckets: &[u64]) -> Subject {
    let geometry = RingGeometry::with_buckets(blocks, block_len, rate, buckets);
    of_ring(geometry.expect("a geometry that works"))
}

fn of_ring(geometry: RingGeometry) -> Subject {
    let (rate, leaves) = (u64::from(geometry.rate), geometry.leaves());
    let room = geometry.levels.last().expect("there is a level").blocks;
    let evictions = leaves * (room.div_ceil(rate) + 1);
    let (cycle, unsynced) = (rate * leaves, geometry.unsynced_max());
    // Number of accesses after which the log wraps around.
    let log = geometry.areas()[0].2 / (geometry.block_len as u64 + 64);
    Subject {
        // Traces of writes are equal for all draws.
        draws_places: false,
        // A write for each eviction, and syncs between them.
        requests_of_opening: 2 * evictions,
        ..Subject::new(geometry, unsynced, vec![0, cycle, log], log.max(cycle + rate))
    }
}
