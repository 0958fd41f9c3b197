mod exchange;
mod faults;
mod trace;

use super::*;
use crate::controller::SteppedOram;
use crate::scheme::tree_rig::behaves_like_an_array;
use crate::tree::Shape;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use traceless_core::oram::Oram;
use traceless_core::rng::SeededRng;
use traceless_core::seal::{Aead, NoSeal, Sealer, Secret};
use traceless_core::store::{MemStore, Store};
use traceless_core::trace::{Event, Witness};
use traceless_core::types::Extent;

/// Small buckets, so that early reshuffles, evictions and full stashes are frequent.
const TINY: Params = Params { z: 2, dummies: 1, rate: 2, stash_blocks: 40 };

fn rng() -> Box<dyn Rng> {
    Box::new(SeededRng::new(1))
}

fn keys() -> [Aead; 2] {
    [7, 8].map(|byte| Aead::new(&Secret::from_bytes([byte; 32])))
}

fn store_for<C: Sealer>(params: Params, shape: &Shape, len: usize, sealer: &C) -> Arc<MemStore> {
    Arc::new(MemStore::new(100 + SealedRing::store_len(params, shape, len, sealer)))
}

fn sealed(store: Arc<dyn Store>, params: Params, shape: Shape, len: usize) -> SealedRing<Aead> {
    SealedRing::create(store, 100, params, shape, len, keys(), rng()).unwrap()
}

/// A ring with `blocks` blocks of 24 bytes, and its store.
fn small(blocks: u64, params: Params) -> (Ring<SealedRing<Aead>>, Arc<MemStore>) {
    let shape = params.shape_for(blocks).unwrap();
    let store = store_for(params, &shape, 24, &keys()[0]);
    let tree = sealed(store.clone(), params, shape, 24);
    (Ring::new(blocks, tree, rng()).unwrap(), store)
}

#[test]
fn every_size_makes_an_array() {
    for params in [TINY, Params::Z4, Params::Z8, Params::Z16, Params::Z32] {
        for (n, len) in [(1, 8), (2, 1), (3, 5), (61, 24), (500, 16)] {
            let shape = params.shape_for(n).unwrap();
            let store = store_for(params, &shape, len, &keys()[0]);
            let tree = sealed(store, params, shape.clone(), len);
            behaves_like_an_array(Ring::new(n, tree, rng()).unwrap(), 1500);

            let store = store_for(params, &shape, len, &NoSeal);
            let tree =
                SealedRing::create(store, 0, params, shape, len, [NoSeal; 2], rng()).unwrap();
            behaves_like_an_array(Ring::new(n, tree, rng()).unwrap(), 1500);
        }
    }
}

/// The tree of `shape` with some levels cached, over a tree that `below` makes of the other levels.
fn cached<T: RingTree>(shape: &Shape, levels: usize, below: impl Fn(Shape) -> T) -> RingTop<T> {
    RingTop::new(shape.clone(), levels, below(shape.only(|level| level >= levels))).unwrap()
}

#[test]
fn cached_levels_make_an_array() {
    for params in [TINY, Params::Z4, Params::Z16] {
        let shape = params.shape_for(500).unwrap();
        for levels in [0, 1, 3, shape.levels() - 1] {
            let tree = cached(&shape, levels, |below| {
                sealed(store_for(params, &below, 16, &keys()[0]), params, below, 16)
            });
            assert_eq!(tree.memory() == 0, levels == 0);
            behaves_like_an_array(Ring::new(500, tree, rng()).unwrap(), 3000);
        }
    }
}

/// Only the levels below the cached ones cause reads: one slot of each bucket, and its metadata.
#[test]
fn cached_levels_have_no_events() {
    let params = Params::Z8;
    let shape = params.shape_for(2000).unwrap();
    for levels in [0, 4] {
        let witness = Arc::new(traceless_core::trace::Recorder::default());
        let tree =
            cached(&shape, levels, |below| GhostRing::new(params, below, witness.clone()).unwrap());
        let mut ring = Ring::new(2000, tree, rng()).unwrap();
        let of_bucket = GhostRing::<()>::metadata_lines(params);
        let mut looked_at = 0;
        for id in 0..3000 {
            ring.submit(id, Addr(id * 7 % 2000)).unwrap();
            let before = ring.counts();
            let issued = ring.step(&mut |_, _| {}).unwrap();
            let events = witness.take();
            if issued.kind == StepKind::Data && ring.counts().reshuffles == before.reshuffles {
                assert_eq!(events.len(), (shape.levels() - levels) * (2 * of_bucket + 1));
                looked_at += 1;
            }
        }
        assert!(looked_at > 1000);
    }
}

/// Counts the accessed lines of memory.
#[derive(Default)]
struct Lines(AtomicU64);

impl Witness for Lines {
    fn record(&self, _: Event) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Blocks moved, early reshuffles and blocks in the stash match the model (`ring_occupancy.c` of
/// the design, with a bucket reshuffled at the first read that it cannot answer), for 2^13 leaves.
#[test]
fn traffic_and_stash_are_the_models() {
    for (params, reshuffles, moved) in [
        (Params::Z4, 0.1212, 80.9),
        (Params::Z8, 0.0912, 65.5),
        (Params::Z16, 0.0297, 57.0),
        (Params::Z32, 0.0088, 52.2),
    ] {
        const ACCESSES: u64 = 100_000;
        let shape = Shape::uniform(14, 1).unwrap();
        let blocks = u64::from(params.rate) << 12;
        assert_eq!(params.shape_for(blocks).unwrap(), shape);
        let levels = shape.levels() as u64;
        let lines_seen = Arc::new(Lines::default());
        let tree = GhostRing::new(params, shape, lines_seen.clone()).unwrap();
        let mut ring = Ring::new(blocks, tree, rng()).unwrap();
        let mut draws = SeededRng::new(2);
        let mut longest = 0;
        let mut before = (Counts::default(), 0);
        // The first accesses fill the tree until it reaches its steady state.
        for nth in 0..3 * blocks + ACCESSES {
            if nth == 3 * blocks {
                before = (ring.counts(), lines_seen.0.load(Relaxed));
            }
            let addr = if nth < blocks { nth } else { draws.below(blocks) };
            ring.submit(nth, Addr(addr)).unwrap();
            while ring.step(&mut |_, _| {}).unwrap().finished.is_none() {
                longest = longest.max(ring.stash().len());
            }
        }
        let counts = ring.counts();
        let steps = counts.accesses + counts.evictions - before.0.accesses - before.0.evictions;
        let lines = lines_seen.0.load(Relaxed) - before.1;
        // The metadata of a path is read and written in each step.
        let known = 2 * levels * GhostRing::<()>::metadata_lines(params) as u64 * steps;
        let blocks_moved = (lines - known) as f64 / ACCESSES as f64;
        let early = (counts.reshuffles - before.0.reshuffles) as f64 / ACCESSES as f64;
        assert!((blocks_moved / moved - 1.0).abs() < 0.01, "{params:?}: {blocks_moved}");
        assert!((early / reshuffles - 1.0).abs() < 0.15, "{params:?}: {early}");
        assert!(longest <= 10, "{params:?}: {longest} after an eviction");
    }
}

/// Evictions along a single path do not empty the stash.
#[test]
fn a_stash_that_overflows_is_an_error() {
    let (mut ring, _) = small(500, Params::Z4);
    let overflow = (0..2000).find_map(|id| {
        ring.order = EvictionOrder::default();
        ring.submit(id, Addr(id % 500)).unwrap();
        ring.step(&mut |_, _| {}).err()
    });
    assert!(matches!(overflow, Some(Error::StashOverflow { limit: 32, .. })), "{overflow:?}");
    assert!(matches!(ring.step(&mut |_, _| {}), Err(Error::EarlierAbort)));
    assert!(matches!(ring.sync(), Err(Error::EarlierAbort)));
}

/// The extent of a bucket's slots on the store of a small ring.
fn slots_of(ring: &Ring<SealedRing<Aead>>, store: &MemStore, level: usize) -> Extent {
    let slots = ring.tree.params().slots() as u64 * (16 + 24);
    let shape = ring.tree.shape();
    let first = store.len() - shape.slots() * slots;
    let above: u64 = (0..level).map(|l| shape.buckets(l)).sum();
    Extent::new(first + above * slots, (shape.buckets(level) * slots) as usize)
}

/// A slot that was changed, exchanged with its neighbour, or replaced by an older copy is an error
/// on every level; the same holds for metadata.
#[test]
fn tampering_is_noticed_on_every_level() {
    for level in 0..4 {
        for fault in ["flipped", "exchanged", "old", "old metadata", "flipped metadata"] {
            let (ring, store) = small(20, Params { rate: 5, ..Params::Z4 });
            assert_eq!(ring.tree.shape().levels(), 4);
            let slots = slots_of(&ring, &store, level);
            let metadata = Extent::new(100, (slots_of(&ring, &store, 0).at - 100) as usize);
            let mut oram = SteppedOram::new(ring);
            (0..200).for_each(|i| oram.write(Addr(i % 20), &[1; 24]).unwrap());
            let old = store.snapshot();
            (0..200).for_each(|i| oram.write(Addr(i % 20), &[2; 24]).unwrap());
            let extent = if fault.ends_with("metadata") { metadata } else { slots };
            let mut bytes = vec![0; extent.len];
            store.read(&[extent], &mut bytes).unwrap();
            match fault {
                "flipped" => bytes.chunks_exact_mut(40).for_each(|slot| slot[30] ^= 1),
                "exchanged" => bytes.chunks_exact_mut(80).for_each(|two| two.rotate_left(40)),
                "flipped metadata" => bytes.iter_mut().for_each(|byte| *byte ^= 1),
                _ => bytes.copy_from_slice(&old[extent.at as usize..][..extent.len]),
            }
            store.write(&[extent], &bytes).unwrap();
            let refused = (0..20).find_map(|i| oram.read(Addr(i), &mut [0; 24]).err());
            let Some(Error::Tampered { place }) = refused else {
                panic!("{fault} on level {level}: {refused:?}")
            };
            let area = if extent == metadata { "ring-metadata" } else { "ring-slots" };
            assert_eq!(place.area, area);
            if extent == slots {
                let first = (1 << level) - 1;
                let bucket = place.slot / 10;
                assert!((first..=2 * first).contains(&bucket), "{place} on level {level}");
            }
            assert!(matches!(oram.read(Addr(3), &mut [0; 24]), Err(Error::EarlierDamage)));
        }
    }
}

/// Without a tag the metadata may have any contents. An access then fails or goes on, but does not
/// panic; and damage to the metadata of the root, which each access reads, is noticed.
#[test]
fn unauthenticated_metadata_never_panics() {
    let mut draws = SeededRng::new(5);
    let (mut refused, mut passed) = (0, 0);
    for round in 0..2000 {
        let (params, blocks) = (Params::Z4, 20);
        let shape = params.shape_for(blocks).unwrap();
        let store = store_for(params, &shape, 8, &NoSeal);
        let tree =
            SealedRing::create(store.clone(), 0, params, shape, 8, [NoSeal; 2], rng()).unwrap();
        let mut oram = SteppedOram::new(Ring::new(blocks, tree, rng()).unwrap());
        (0..40).for_each(|nth| oram.write(Addr(nth % blocks), &[1; 8]).unwrap());
        let metadata = SealedRing::store_len(params, oram.controller().tree.shape(), 0, &NoSeal);
        for _ in 0..=round % 3 {
            let mut bytes = [0; 9];
            draws.fill(&mut bytes);
            // Small numbers look like plausible slots, addresses and leaves.
            let bytes = if round % 2 == 0 { bytes } else { bytes.map(|byte| byte % 8) };
            store.write(&[Extent::new(draws.below(metadata - 9), 9)], &bytes).unwrap();
        }
        let outcome = (0..200).try_for_each(|nth| oram.read(Addr(nth % blocks), &mut [0; 8]));
        match outcome {
            Ok(()) => passed += 1,
            Err(Error::Tampered { place }) if place.area == METADATA => refused += 1,
            Err(Error::StashOverflow { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 500 && passed > 0, "{refused} refused, {passed} passed");
}

/// Slots that were read already or never written may have any contents.
#[test]
fn dead_slots_do_not_matter() {
    let (ring, store) = small(20, Params::Z4);
    store.write(&[Extent::new(0, store.len() as usize)], &vec![9; store.len() as usize]).unwrap();
    behaves_like_an_array(ring, 2000);
}

#[test]
fn impossible_sizes_and_requests_are_refused() {
    for params in [
        Params { z: 0, ..Params::Z4 },
        Params { dummies: 0, ..Params::Z4 },
        Params { rate: 0, ..Params::Z4 },
        Params { dummies: 97, ..Params::Z32 },
        Params { stash_blocks: 2, ..Params::Z4 },
    ] {
        assert!(params.check().is_err() && params.shape_for(9).is_err(), "{params:?}");
    }
    let shape = Shape::uniform(3, 1).unwrap();
    let ring = |blocks| {
        let tree = GhostRing::new(Params::Z4, shape.clone(), ()).unwrap();
        Ring::new(blocks, tree, rng())
    };
    let wide = Shape::uniform(3, 2).unwrap();
    assert!(GhostRing::new(Params::Z4, wide, ()).is_err(), "a slot for each bucket");
    let below = shape.only(|level| level > 0);
    let ghost = |shape: &Shape| GhostRing::new(Params::Z4, shape.clone(), ()).unwrap();
    assert!(Ring::new(6, ghost(&below), rng()).is_err(), "somebody must hold the root");
    assert!(RingTop::new(shape.clone(), 2, ghost(&below)).is_err());
    assert!(RingTop::new(shape.clone(), 3, ghost(&shape)).is_err());
    assert!(ring(7).is_err() && Params::Z4.shape_for(u64::MAX).is_err());
    assert!(matches!(ring(6).unwrap().submit(0, Addr(6)), Err(Error::OutOfRange { .. })));
    let store = Arc::new(MemStore::new(1000));
    assert!(SealedRing::create(store, 0, Params::Z4, shape, 64, keys(), rng()).is_err());
}

/// A repeated read uses the same slots of the same path: other slots would reveal which of the
/// first ones holds the block.
#[cfg(feature = "suite")]
#[test]
fn a_failed_read_is_made_again() {
    use crate::scheme::tree_rig::continues_after_failed_reads;

    let params = Params::Z4;
    let shape = params.shape_for(60).unwrap();
    let len = store_for(params, &shape, 24, &keys()[0]).len();
    continues_after_failed_reads(len, |store| {
        let tree = SealedRing::create(store, 0, params, shape.clone(), 24, keys(), rng());
        Ring::new(60, tree.unwrap(), rng()).unwrap()
    });
}
