//! Tests of requests that are announced to the store together.

use crate::array::Array;
use crate::controller::SteppedOram;
use crate::scheme::path::PathOram;
use crate::scheme::tree_rig::{
    CHI_SQUARE_MAX, REPEATS_MAX, chi_square, repeats, sealed, store_for,
};
use crate::tree::{STASH_BLOCKS, SealedTree, Shape};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use std::collections::HashMap;
use std::sync::Mutex;
use traceless_core::clock::{Clock as _, SimulatedClock};
use traceless_core::error::Result;
use traceless_core::oram::Oram as _;
use traceless_core::rng::{Rng as _, SeededRng};
use traceless_core::store::{MemStore, Store};
use traceless_core::types::{Addr, Extent};

const BLOCKS: u64 = 500;
const LEN: usize = 16;
const LEVELS: usize = 9;
const LATENCY: u64 = 1000;

/// A distant store that answers announced requests concurrently.
struct Far {
    inner: Arc<MemStore>,
    clock: SimulatedClock,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// The time at which the prefetched data arrives, or arrived: a cache keeps the data.
    ready: HashMap<u64, u64>,
    /// The places of the leaves' buckets that were announced, and that were read.
    prefetched: Vec<u64>,
    read: Vec<u64>,
}

impl Store for Far {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn prefetch(&self, extents: &[Extent]) {
        let mut seen = self.seen.lock().unwrap();
        let ready = self.clock.now() + LATENCY;
        for extent in extents {
            seen.ready.entry(extent.at).or_insert(ready);
        }
        seen.prefetched.extend(extents.last().map(|extent| extent.end()));
    }
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        let mut seen = self.seen.lock().unwrap();
        let ready = extents.iter().map(|extent| seen.ready[&extent.at]).max();
        self.clock.advance(ready.unwrap().saturating_sub(self.clock.now()));
        seen.read.extend(extents.last().map(|extent| extent.end()));
        self.inner.read(extents, into)
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        self.inner.write(extents, from)
    }
    fn sync(&self) -> Result {
        self.inner.sync()
    }
}

type FarOram = SteppedOram<PathOram<SealedTree<traceless_core::seal::Aead>>>;

fn far(seed: u64) -> (FarOram, Arc<Far>) {
    let shape = Shape::uniform(LEVELS, 4).unwrap();
    let (inner, clock) = (store_for(&shape, LEN), SimulatedClock::default());
    let store = Arc::new(Far { inner, clock, seen: Mutex::default() });
    let trees = vec![sealed(store.clone(), shape, LEN)];
    let path = PathOram::new(BLOCKS, trees, STASH_BLOCKS, Box::new(SeededRng::new(seed))).unwrap();
    (SteppedOram::new(path), store)
}

/// Batches of `len` requests: for one block, for a few, for any, for all in order.
fn batches(len: usize, rng: &mut SeededRng) -> Vec<Vec<Addr>> {
    let mut batch = |of: u64| (0..len).map(|_| Addr(rng.below(of))).collect::<Vec<_>>();
    let in_order = (0..len as u64).map(|addr| Addr(addr % BLOCKS)).collect();
    vec![batch(1), batch(3), batch(BLOCKS), in_order]
}

#[test]
fn a_batch_is_what_its_requests_are_one_by_one() {
    let (mut oram, _) = far(1);
    let mut rng = SeededRng::new(2);
    let mut model = vec![0; BLOCKS as usize * LEN];
    for len in [0, 1, 2, 7, 300, 64] {
        for addrs in batches(len, &mut rng) {
            let mut bytes = vec![0; len * LEN];
            rng.fill(&mut bytes);
            oram.write_many(&addrs, &bytes).unwrap();
            let each = addrs.iter().zip(bytes.chunks(LEN));
            each.for_each(|(a, new)| model[a.0 as usize * LEN..][..LEN].copy_from_slice(new));
            oram.update_many(&addrs, &mut |nth, block| block[0] ^= nth as u8).unwrap();
            let each = addrs.iter().enumerate();
            each.for_each(|(nth, addr)| model[addr.0 as usize * LEN] ^= nth as u8);
            oram.read_many(&addrs, &mut bytes).unwrap();
            for (addr, read) in addrs.iter().zip(bytes.chunks(LEN)) {
                assert_eq!(read, &model[addr.0 as usize * LEN..][..LEN]);
            }
        }
    }
}

/// Every announced path is read, in the same order, and no other path; for any addresses the paths
/// have the same number, and are uniform and fresh.
#[test]
fn what_a_batch_shows_depends_on_its_length_alone() {
    let leaves_max = 1_u64 << (LEVELS - 1);
    for kind in 0..4 {
        let (mut oram, store) = far(10 + kind as u64);
        let mut rng = SeededRng::new(3);
        let mut leaves = vec![];
        for _ in 0..200 {
            let addrs = &batches(100, &mut rng)[kind];
            oram.update_many(addrs, &mut |_, block| block[0] ^= 1).unwrap();
            let seen = core::mem::take(&mut *store.seen.lock().unwrap());
            assert_eq!(seen.read.len(), addrs.len());
            // Each path is announced again when it is read, unless it was the last one announced.
            let known = usize::from(seen.read.first() == seen.read.last());
            assert_eq!(seen.prefetched, [&seen.read[..], &seen.read[known..]].concat());
            leaves.extend(seen.read);
        }
        let mut places = leaves.clone();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len() as u64, leaves_max);
        for leaf in &mut leaves {
            *leaf = places.partition_point(|place| place < leaf) as u64;
        }
        let (uniform, window) = (chi_square(&leaves, leaves_max), repeats(&leaves, leaves_max));
        assert!(uniform < CHI_SQUARE_MAX, "kind {kind}: {uniform}");
        assert!(window.abs() < REPEATS_MAX, "kind {kind}: {window}");
    }
}

#[test]
fn a_batch_waits_for_a_far_store_once() {
    let addrs: Vec<Addr> = (0..64).map(Addr).collect();
    let (mut together, store) = far(1);
    together.update_many(&addrs, &mut |_, _| {}).unwrap();
    let trips = store.clock.now() / LATENCY;
    let (mut alone, store) = far(1);
    for &addr in &addrs {
        alone.update(addr, &mut |_| {}).unwrap();
    }
    println!("64 blocks take {trips} trips, and {} alone", store.clock.now() / LATENCY);
    assert_eq!(trips, 1);
    assert!(store.clock.now() / LATENCY > 40, "{}", store.clock.now() / LATENCY);
}

/// A state saved in the middle of a batch can be opened.
#[test]
fn a_batch_is_saved_between_its_requests() {
    let mut geometry = crate::scheme::path::PathGeometry::new(BLOCKS, LEN).unwrap();
    geometry.unsynced_max = 3;
    let key = || traceless_core::seal::Secret::from_bytes([1; 32]);
    let builder = || Array::builder().scheme(geometry).key(key()).rng(SeededRng::new(1));
    let store = Arc::new(MemStore::new(builder().store_len().unwrap()));
    let mut array = builder().store(store.clone()).build().unwrap();
    let addrs: Vec<u64> = (0..100).collect();
    array.access_many(&addrs, |nth, block| block[0] = nth as u8 + 1).unwrap();
    // A crash: the saved state is the one after 99 accesses.
    core::mem::forget(array);
    let mut array = builder().store(store).open().unwrap();
    array
        .access_many(&addrs, |nth, block| {
            assert_eq!(block[0], if nth < 99 { nth as u8 + 1 } else { 0 });
        })
        .unwrap();
}
