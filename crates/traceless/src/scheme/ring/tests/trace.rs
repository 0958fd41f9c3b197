//! Tests of the trace: templates, and slots that are read once, in an order that reveals nothing.

use super::*;
use crate::scheme::tree_rig::{CHI_SQUARE_MAX, REPEATS_MAX, chi_square, repeats};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use traceless_core::store::WatchedStore;
use traceless_core::trace::{Event, Op, Recorder};

/// A store that counts calls.
struct Counted(Arc<dyn Store>, Arc<[AtomicU64; 2]>);

#[deny(clippy::missing_trait_methods)]
impl Store for Counted {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    fn unit(&self) -> usize {
        self.0.unit()
    }
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        self.1[0].fetch_add(1, Ordering::Relaxed);
        self.0.read(extents, into)
    }
    fn prefetch(&self, extents: &[Extent]) {
        self.0.prefetch(extents);
    }
    fn takes_discards(&self) -> bool {
        self.0.takes_discards()
    }
    fn discard(&self, extents: &[Extent]) {
        self.0.discard(extents);
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        self.1[1].fetch_add(1, Ordering::Relaxed);
        self.0.write(extents, from)
    }
    fn sync(&self) -> Result {
        self.0.sync()
    }
}

/// Whether or not a request waits, a step follows one template, and A accesses are followed by one
/// eviction. An early reshuffle adds the rest of its bucket.
#[test]
fn a_step_has_one_template() {
    for params in [TINY, Params::Z4, Params::Z16] {
        let shape = params.shape_for(300).unwrap();
        let levels = shape.levels() as u64;
        let witness = Arc::new(Recorder::default());
        let calls: Arc<[AtomicU64; 2]> = Arc::default();
        let store = store_for(params, &shape, 24, &keys()[0]);
        let store = Arc::new(WatchedStore::new(store, witness.clone()));
        let tree = sealed(Arc::new(Counted(store, calls.clone())), params, shape, 24);
        let known = tree.path_bytes() as u64;
        let mut ring = Ring::new(300, tree, rng()).unwrap();
        for step in 0..1000 {
            if step % 3 > 0 {
                ring.submit(step, Addr(step * 7 % 300)).unwrap();
            }
            let before = ring.counts();
            ring.step(&mut |_, body| body[0] ^= 1).unwrap();
            let reshuffles = ring.counts().reshuffles - before.reshuffles;
            let evicts = step % u64::from(params.rate + 1) == u64::from(params.rate);
            assert_eq!(ring.counts().evictions - before.evictions, u64::from(evicts));
            assert!(!evicts || reshuffles == 0);

            let (z, slots) = (u64::from(params.z), params.slots() as u64);
            let (read, renewed) = if evicts {
                (levels * z, levels)
            } else {
                (levels + reshuffles * (z - 1), reshuffles)
            };
            let events = witness.take();
            let sum = |op| events.iter().filter(|e| e.op == op).map(|e| u64::from(e.len)).sum();
            let sums: [u64; 2] = [sum(Op::Read), sum(Op::Write)];
            assert_eq!(sums, [known + 40 * read, known + 40 * renewed * slots]);
            let calls = [0, 1].map(|op| calls[op].swap(0, Ordering::Relaxed));
            assert_eq!(calls, [2, 1], "round trips");
        }
        assert!(ring.counts().reshuffles > 0 || params != TINY);
    }
}

/// Slots of a simulated ring in a recorded trace.
pub struct Slots {
    /// Slots that were read twice between two writes.
    pub twice: u64,
    /// For each slot number, how often it was the first to be read after its bucket was written.
    first: Vec<u64>,
}

/// Analyses the slots in `events`.
pub fn read_slots(params: Params, events: &[Event]) -> Slots {
    let lines = GhostRing::<()>::metadata_lines(params);
    let all = (lines + params.slots()) as u64;
    let mut seen = Slots { twice: 0, first: vec![0; params.slots()] };
    let mut read: BTreeMap<u64, u128> = BTreeMap::new();
    for event in events {
        let (bucket, line) = (event.at / 64 / all, (event.at / 64 % all) as usize);
        let Some(slot) = line.checked_sub(lines) else { continue };
        let known = read.entry(bucket).or_insert(u128::MAX);
        if event.op == Op::Write {
            *known = 0;
        } else {
            // A bucket that was never written counts as completely read.
            seen.twice += u64::from(*known != u128::MAX && *known >> slot & 1 == 1);
            seen.first[slot] += u64::from(*known == 0);
            if *known != u128::MAX {
                *known |= 1 << slot;
            }
        }
    }
    seen
}

impl Slots {
    /// Pearson's statistic of the first slots.
    fn chi_square(&self) -> f64 {
        let mean = self.first.iter().sum::<u64>() as f64 / self.first.len() as f64;
        self.first.iter().map(|&n| (n as f64 - mean).powi(2) / mean).sum()
    }
}

/// The trace of a ring of 500 blocks with many requests for few of them.
fn hot(params: Params, draws: Box<dyn Rng>) -> Vec<Event> {
    let witness = Arc::new(Recorder::default());
    let tree = GhostRing::new(params, params.shape_for(500).unwrap(), witness.clone()).unwrap();
    let mut ring = Ring::new(500, tree, draws).unwrap();
    for id in 0..10_000 {
        ring.submit(id, Addr(if id % 2 == 0 { 7 } else { id % 500 })).unwrap();
        ring.step(&mut |_, _| {}).unwrap();
    }
    witness.take()
}

#[test]
fn each_slot_is_read_once() {
    for params in [TINY, Params::Z4, Params::Z16] {
        assert_eq!(read_slots(params, &hot(params, rng())).twice, 0);
    }
}

/// A generator that always draws the first of a few candidates.
struct Biased(SeededRng);

impl Rng for Biased {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }

    fn below(&mut self, bound: u64) -> u64 {
        if bound <= 43 { 0 } else { self.0.below(bound) }
    }
}

/// The first slot read of a bucket is uniform, even for hot blocks. The limit is exceeded once in a
/// million times: 9 and 42 degrees of freedom.
#[test]
fn slots_are_read_in_random_order_and_any_other_is_noticed() {
    for (params, limit) in [(Params::Z4, 44.8), (Params::Z16, 98.0)] {
        let honest = read_slots(params, &hot(params, rng())).chi_square();
        assert!(honest < limit, "{honest}");
        let biased = read_slots(params, &hot(params, Box::new(Biased(SeededRng::new(1)))));
        assert!(biased.chi_square() > limit);
    }
}

/// The leaves of accesses, from the reads of the last level's metadata, and of evictions.
pub fn leaves(params: Params, shape: &Shape, events: &[Event]) -> (Vec<u64>, Vec<u64>) {
    let all = (GhostRing::<()>::metadata_lines(params) + params.slots()) as u64;
    let first = shape.slots() - shape.leaves();
    let leaves = events.iter().filter(|e| e.op == Op::Read && e.at / 64 % all == 0);
    let leaves = leaves.filter_map(|e| (e.at / 64 / all).checked_sub(first));
    let (mut accessed, mut evicted) = (vec![], vec![]);
    for (nth, leaf) in leaves.enumerate() {
        let evicts = nth % usize::from(params.rate + 1) == usize::from(params.rate);
        if evicts { evicted.push(leaf) } else { accessed.push(leaf) }
    }
    (accessed, evicted)
}

#[test]
fn paths_are_random_or_in_order() {
    let (params, shape) = (Params::Z4, Shape::uniform(11, 1).unwrap());
    let witness = Arc::new(Recorder::default());
    let tree = GhostRing::new(params, shape.clone(), witness.clone()).unwrap();
    let mut ring = Ring::new(1000, tree, rng()).unwrap();
    let (mut accessed, mut order) = (vec![], EvictionOrder::default());
    for id in 0..40_000 {
        ring.submit(id, Addr(id % 5)).unwrap();
        ring.step(&mut |_, _| {}).unwrap();
        if id % 4 == 3 {
            let seen = leaves(params, &shape, &witness.take());
            accessed.extend(seen.0);
            assert_eq!(seen.1, [order.next(&shape).0]);
        }
    }
    assert_eq!(accessed.len(), 30_000);
    assert!(chi_square(&accessed, 1024) < CHI_SQUARE_MAX);
    assert!(repeats(&accessed, 1024).abs() < REPEATS_MAX);
}
