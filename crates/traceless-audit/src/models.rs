//! Models of other schemes, sound and with faults, as far as they are observable: for tests.

use crate::accesses::Accesses;
use crate::mixer::Mixer;
use core::convert::Infallible;
use traceless_core::trace::{Event, Op, Request, Surface};

const BLOCKS: u64 = 256;
const LEVELS: u32 = 9;
const LEAVES: u64 = 1 << (LEVELS - 1);
const LEN: u64 = 64;

/// A fault of a scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    None,
    /// Ring: one access of fifty reads the path of the access forty before.
    OldLeaf,
    /// Ring: slots of the fourth level are not drawn: the first one is always a dummy.
    FixedSlot,
    /// Ring: a bucket of the sixth level is reshuffled after each access to one of eight blocks.
    Eager,
    /// Ring: one eviction of a hundred goes along any path.
    Strays,
    /// Any: one of twenty requests for a block at hand makes no access.
    SkipsHits,
    /// Square root: one of ten requests for a block in the shelter reads its old place again.
    Rereads,
    /// Two trees: in one access of twenty both trees use the same leaf.
    SameLeaf,
}

/// A leak of a Path ORAM: how its leaf depends on the block, or on earlier leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leak {
    /// The leaf's lowest bit is that of the leaf so many accesses before, exclusive or the block's.
    XorBefore(usize),
    /// A high bit of the difference from the last leaf is the block's lowest bit.
    Difference,
    /// The leaf's lowest bit is that of the last leaf of the same block, exclusive or the block's.
    XorOfSameBlock,
    /// In one access of twenty the leaf is next to the last leaf of the same block.
    NextToSameBlock,
    /// A middle bit of the leaf, which no class of a coarse test shows, is a middle bit of the
    /// block.
    DeepBit,
    /// In one access of fifty the leaf is that of the access so many before.
    EqualTo(usize),
    /// 513 of 1000 leaves are in the left half.
    LeftHalf,
    /// The parity of half of the leaf's bits is that of two bits of the block.
    Parity,
    /// One bit is that of a public number of the access, mixed, exclusive or the block's lowest
    /// bit.
    Counter,
    /// In one access of twenty the leaf is the sum of the last two leaves, modulo their number.
    SumOfTwo,
    /// The leaf's lowest bit is 1 if the block and the one before have different parities.
    Changed,
    /// One bit is another bit of the last leaf, exclusive or the block's lowest bit.
    OtherBit,
    /// One bit is the exclusive or of a bit of each of three leaves before, and the block's lowest
    /// bit.
    SumOfFour,
    /// Two buckets of the path are written in swapped order: if they were swapped in the last
    /// access, exclusive or the block's lowest bit.
    Order,
}

/// A user: returns the requested block of each access, by the access's number.
pub type User = fn(&mut Mixer, u64) -> u64;

pub const HOT: User = |rng, _| rng.below(4);
pub const SCAN: User = |_, nth| nth % BLOCKS;
pub const ANY: User = |rng, _| rng.below(BLOCKS);

/// The observable events of a scheme.
struct ModelEvents {
    rng: Mixer,
    fault: Fault,
    events: Vec<Event>,
}

impl ModelEvents {
    fn add(&mut self, op: Op, at: u64) {
        let len = LEN as u32;
        self.events.push(Event { time: 0, surface: Surface::Storage, op, at: at * LEN, len });
    }

    fn fails(&mut self, fault: Fault, one_of: u64) -> bool {
        self.fault == fault && self.rng.below(one_of) == 0
    }
}

/// Runs a scheme for a user.
fn run(
    [seed, accesses]: [u64; 2],
    user: User,
    fault: Fault,
    mut access: impl FnMut(&mut ModelEvents, u64),
) -> Accesses {
    let mut trace = ModelEvents { rng: Mixer(seed << 32), fault, events: vec![] };
    let mut user_rng = Mixer(!seed << 32);
    let mut requests = vec![];
    for nth in 0..accesses {
        let block = user(&mut user_rng, nth);
        let before = trace.events.len() as u64;
        requests.push(Request {
            events_before: before,
            op: Op::Read,
            at: block * LEN,
            len: LEN as u32,
        });
        access(&mut trace, block);
    }
    let events = || Ok::<_, Infallible>(trace.events.iter().copied().map(Ok));
    let accesses = Accesses::segment(events).expect("nothing fails");
    accesses.with_secrets(requests.into_iter().map(Ok::<_, Infallible>)).expect("nothing fails")
}

/// Two trees of equal depth, accessed in turn; each access draws its leaf.
pub fn two_trees(seeds: [u64; 2], user: User, fault: Fault) -> Accesses {
    run(seeds, user, fault, |trace, _| {
        let leaf = trace.rng.below(LEAVES);
        let other = trace.rng.below(LEAVES);
        let other = if trace.fails(Fault::SameLeaf, 20) { leaf } else { other };
        for (base, leaf) in [(0, leaf), (2 * LEAVES, other)] {
            for op in [Op::Read, Op::Write] {
                (0..LEVELS).for_each(|level| trace.add(op, base + bucket(leaf, level)));
            }
        }
    })
}

fn bucket(leaf: u64, level: u32) -> u64 {
    (1 << level) - 1 + (leaf >> (LEVELS - 1 - level))
}

/// Path ORAM, reduced to its observable events; with a leak.
pub fn path(seeds: [u64; 2], user: User, leak: Option<Leak>) -> Accesses {
    let mut leaves: Vec<u64> = vec![];
    let mut last_of = [None; BLOCKS as usize];
    let (mut block_before, mut is_swapped) = (0, false);
    run(seeds, user, Fault::None, move |trace, block| {
        let next = leaf_with(leak, &mut trace.rng, &leaves, [block, block_before], &last_of);
        leaves.push(next);
        last_of[block as usize] = Some(next);
        block_before = block;
        is_swapped = match leak {
            Some(Leak::Order) => is_swapped ^ (block & 1 == 1),
            _ => trace.rng.below(2) == 0,
        };
        (0..LEVELS).for_each(|level| trace.add(Op::Read, bucket(next, level)));
        let mut levels: Vec<u32> = (0..LEVELS).collect();
        if is_swapped {
            levels.swap(3, 4);
        }
        for level in levels {
            trace.add(Op::Write, bucket(next, level));
        }
    })
}

fn leaf_with(
    leak: Option<Leak>,
    rng: &mut Mixer,
    leaves: &[u64],
    [block, block_before]: [u64; 2],
    last_of: &[Option<u64>],
) -> u64 {
    let any = rng.below(LEAVES);
    let before = |ago: usize| leaves.iter().nth_back(ago - 1).copied();
    let with_bit = |bit: u32, to: u64| any & !(1 << bit) | (to & 1) << bit;
    let one_of = |rng: &mut Mixer, share: u64| rng.below(share) == 0;
    let last = last_of[block as usize];
    match leak {
        Some(Leak::XorBefore(ago)) => before(ago).map_or(any, |leaf| with_bit(0, leaf ^ block)),
        Some(Leak::Difference) => {
            before(1).map_or(any, |leaf| (leaf + with_bit(6, block)) % LEAVES)
        }
        Some(Leak::XorOfSameBlock) => last.map_or(any, |leaf| with_bit(0, leaf ^ block)),
        Some(Leak::NextToSameBlock) if one_of(rng, 20) => last.map_or(any, |leaf| leaf ^ 1),
        Some(Leak::DeepBit) => with_bit(4, block >> 4),
        Some(Leak::EqualTo(ago)) if one_of(rng, 50) => before(ago).unwrap_or(any),
        Some(Leak::LeftHalf) => with_bit(LEVELS - 2, u64::from(rng.below(1000) >= 513)),
        Some(Leak::Parity) => {
            let parity = u64::from((any & 0b1010_1010).count_ones()) ^ block ^ block >> 3;
            any ^ (parity & 1) << 1
        }
        Some(Leak::Counter) => {
            let mixed = u64::from((leaves.len() as u64 & 0b1_0110_1101).count_ones());
            with_bit(2, mixed ^ block)
        }
        Some(Leak::SumOfTwo) if one_of(rng, 20) => {
            before(2).map_or(any, |leaf| (leaf + leaves[leaves.len() - 1]) % LEAVES)
        }
        Some(Leak::Changed) => with_bit(0, block ^ block_before),
        Some(Leak::OtherBit) => before(1).map_or(any, |leaf| with_bit(2, leaf >> 6 ^ block)),
        Some(Leak::SumOfFour) => before(9).map_or(any, |leaf| {
            let [second, third] = [1, 5].map(|ago| leaves[leaves.len() - ago]);
            with_bit(1, leaf ^ second >> 3 ^ third >> 7 ^ block)
        }),
        _ => any,
    }
}

/// Square-root ORAM.
pub fn square_root(seeds: [u64; 2], user: User, fault: Fault) -> Accesses {
    const SHELTER: u64 = 16;
    const ALL: u64 = BLOCKS + SHELTER;
    let (mut places, mut shelter) = (vec![], vec![]);
    run(seeds, user, fault, move |trace, block| {
        if places.is_empty() {
            places = (0..ALL).collect();
            trace.rng.shuffle(&mut places);
        }
        let hit = shelter.contains(&block);
        if hit && trace.fails(Fault::SkipsHits, 20) {
            return;
        }
        (0..SHELTER).for_each(|cell| trace.add(Op::Read, ALL + cell));
        let reads_dummy = hit && !trace.fails(Fault::Rereads, 10);
        let nth = if reads_dummy { BLOCKS + shelter.len() as u64 } else { block };
        trace.add(Op::Read, places[nth as usize]);
        trace.add(Op::Write, ALL + shelter.len() as u64);
        shelter.push(block);
        if shelter.len() as u64 == SHELTER {
            for op in [Op::Read, Op::Write] {
                (0..ALL + SHELTER).for_each(|place| trace.add(op, place));
            }
            (places, shelter) = (vec![], vec![]);
        }
    })
}

/// Ring ORAM with early reshuffles.
pub fn ring(seeds: [u64; 2], user: User, fault: Fault) -> Accesses {
    let mut ring = Ring {
        position: vec![],
        stash: vec![],
        buckets: vec![Bucket::default(); 2 * LEAVES as usize],
        leaves: vec![],
        evictions: 0,
    };
    run(seeds, user, fault, move |trace, block| ring.access(trace, block))
}

const REAL: usize = 4;
const DUMMIES: usize = 6;
const EVICT_AFTER: usize = 3;

#[derive(Clone)]
struct Bucket {
    /// The block in each slot; none in a dummy.
    slots: [Option<u64>; REAL + DUMMIES],
    unread: [bool; REAL + DUMMIES],
    reads: usize,
}

impl Default for Bucket {
    fn default() -> Self {
        Self { slots: Default::default(), unread: [true; REAL + DUMMIES], reads: 0 }
    }
}

impl Bucket {
    /// A random unread slot without a block.
    fn dummy(&self, rng: &mut Mixer) -> usize {
        let is_dummy = |slot: &usize| self.unread[*slot] && self.slots[*slot].is_none();
        let dummies: Vec<usize> = (0..self.slots.len()).filter(is_dummy).collect();
        dummies[rng.below(dummies.len() as u64) as usize]
    }
}

struct Ring {
    position: Vec<u64>,
    stash: Vec<u64>,
    buckets: Vec<Bucket>,
    leaves: Vec<u64>,
    evictions: u64,
}

impl Ring {
    fn access(&mut self, trace: &mut ModelEvents, block: u64) {
        if self.position.is_empty() {
            self.position = (0..BLOCKS).map(|_| trace.rng.below(LEAVES)).collect();
        }
        if self.stash.contains(&block) && trace.fails(Fault::SkipsHits, 20) {
            return;
        }
        let mut leaf = self.position[block as usize];
        if trace.fails(Fault::OldLeaf, 50) {
            leaf = self.leaves.iter().rev().nth(39).copied().unwrap_or(leaf);
        }
        self.leaves.push(leaf);
        self.position[block as usize] = trace.rng.below(LEAVES);
        for level in 0..LEVELS {
            self.read_slot(trace, bucket(leaf, level), level, block);
        }
        self.stash.retain(|other| *other != block);
        self.stash.push(block);
        if self.leaves.len().is_multiple_of(EVICT_AFTER) {
            self.evict(trace);
        }
        for level in 0..LEVELS {
            let bucket = bucket(leaf, level);
            let eager = trace.fault == Fault::Eager && level == 5 && block.is_multiple_of(8);
            if self.buckets[bucket as usize].reads >= DUMMIES || eager {
                self.take(trace, bucket);
                self.refill(trace, bucket, level);
            }
        }
    }

    fn read_slot(&mut self, trace: &mut ModelEvents, at: u64, level: u32, block: u64) {
        let bucket = &mut self.buckets[at as usize];
        let held = bucket.slots.iter().position(|slot| *slot == Some(block));
        let slot = match held {
            Some(slot) => slot,
            None if level == 3 && trace.fault == Fault::FixedSlot => 0,
            None => bucket.dummy(&mut trace.rng),
        };
        bucket.slots[slot] = None;
        bucket.unread[slot] = false;
        bucket.reads += 1;
        trace.add(Op::Read, place(at, slot));
    }

    /// Reads all blocks of a bucket, and dummies up to a fixed number, so that the number reveals
    /// nothing.
    fn take(&mut self, trace: &mut ModelEvents, at: u64) {
        let bucket = &mut self.buckets[at as usize];
        let mut read: Vec<usize> =
            (0..bucket.slots.len()).filter(|&slot| bucket.slots[slot].is_some()).collect();
        self.stash.extend(read.iter().filter_map(|&slot| bucket.slots[slot].take()));
        for &slot in &read {
            bucket.unread[slot] = false;
        }
        while read.len() < REAL && (bucket.unread.contains(&true)) {
            let slot = bucket.dummy(&mut trace.rng);
            bucket.unread[slot] = false;
            read.push(slot);
        }
        read.sort_unstable();
        for slot in read {
            trace.add(Op::Read, place(at, slot));
        }
    }

    fn refill(&mut self, trace: &mut ModelEvents, at: u64, level: u32) {
        let mut slots = [None; REAL + DUMMIES];
        let mut used = 0;
        let position = &self.position;
        self.stash.retain(|&block| {
            let fits = used < REAL && bucket(position[block as usize], level) == at;
            if fits {
                slots[used] = Some(block);
                used += 1;
            }
            !fits
        });
        trace.rng.shuffle(&mut slots);
        if level == 3 && trace.fault == Fault::FixedSlot {
            let empty = slots.iter().position(Option::is_none).expect("dummies");
            slots.swap(0, empty);
        }
        self.buckets[at as usize] = Bucket { slots, ..Bucket::default() };
        (0..slots.len()).for_each(|slot| trace.add(Op::Write, place(at, slot)));
    }

    fn evict(&mut self, trace: &mut ModelEvents) {
        let next = self.evictions % LEAVES;
        self.evictions += 1;
        let mut leaf = next.reverse_bits() >> (64 - (LEVELS - 1));
        if trace.fails(Fault::Strays, 100) {
            leaf = trace.rng.below(LEAVES);
        }
        (0..LEVELS).for_each(|level| self.take(trace, bucket(leaf, level)));
        (0..LEVELS).rev().for_each(|level| self.refill(trace, bucket(leaf, level), level));
    }
}

fn place(bucket: u64, slot: usize) -> u64 {
    bucket * (REAL + DUMMIES) as u64 + slot as u64
}
