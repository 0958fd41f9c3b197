//! Shared test code of the schemes over trees: a tree of each kind, a comparison with an array, and
//! statistics of the observed leaves.

use crate::controller::{Controller, SteppedOram};
use crate::tree::{BareTree, BucketTree, Header, PathWitness, SealedTree, Shape, Treetop};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use std::sync::Mutex;
use traceless_core::error::Result;
use traceless_core::oram::Oram;
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::seal::{Aead, HashSeal, NoSeal, Sealer, Secret};
use traceless_core::store::{MemStore, Store};
#[cfg(feature = "suite")]
use traceless_core::suite::{FailingReads, continues_after_failed_read};
use traceless_core::trace::{Event, Op, Recorder};
use traceless_core::types::{Addr, Leaf};

pub type Boxed = Box<dyn BucketTree>;

impl BucketTree for Boxed {
    fn shape(&self) -> &Shape {
        (**self).shape()
    }
    fn body_len(&self) -> usize {
        (**self).body_len()
    }
    fn read_path(&mut self, leaf: Leaf, headers: &mut [Header]) -> Result {
        (**self).read_path(leaf, headers)
    }
    fn prefetch(&mut self, leaf: Leaf) {
        (**self).prefetch(leaf);
    }
    fn body(&self, slot: usize) -> &[u8] {
        (**self).body(slot)
    }
    fn body_mut(&mut self, slot: usize) -> &mut [u8] {
        (**self).body_mut(slot)
    }
    fn copy_body(&mut self, from: usize, to: usize) {
        (**self).copy_body(from, to);
    }
    fn admit(&mut self, slot: usize, header: Header) -> bool {
        (**self).admit(slot, header)
    }
    fn vacate(&mut self, slot: usize) {
        (**self).vacate(slot);
    }
    fn find(&mut self, addr: Addr) -> Option<&mut [u8]> {
        (**self).find(addr)
    }
    fn extract(&mut self, addr: Addr, body: &mut [u8]) -> Option<Header> {
        (**self).extract(addr, body)
    }
    fn write_path(&mut self, headers: &[Header]) -> Result {
        (**self).write_path(headers)
    }
    fn sync(&mut self) -> Result {
        (**self).sync()
    }
}

pub fn sealed(store: Arc<dyn Store>, shape: Shape, len: usize) -> SealedTree<Aead> {
    SealedTree::create(store, 0, "tree", shape, len, key(), salts()).unwrap()
}

pub fn store_for(shape: &Shape, len: usize) -> Arc<MemStore> {
    Arc::new(MemStore::new(SealedTree::store_len(shape, len, &key())))
}

fn salts() -> Box<dyn Rng> {
    Box::new(SeededRng::new(2))
}

fn key() -> Aead {
    Aead::new(&Secret::from_bytes([7; 32]))
}

/// A sealed tree with its own store.
fn sealed_by<C: Sealer>(cipher: C, shape: &Shape, len: usize) -> SealedTree<C> {
    let store = Arc::new(MemStore::new(SealedTree::store_len(shape, len, &cipher)));
    SealedTree::create(store, 0, "tree", shape.clone(), len, cipher, salts()).unwrap()
}

/// A tree of each kind that carries bodies.
pub fn trees(shape: &Shape, len: usize) -> Vec<Boxed> {
    let cached = shape.levels() / 2;
    let below = shape.only(|l| l >= cached);
    let inner = sealed_by(key(), &below, len);
    vec![
        Box::new(BareTree::new(shape.clone(), len)),
        Box::new(sealed_by(key(), shape, len)),
        Box::new(Treetop::new(shape.clone(), cached, inner).unwrap()),
        Box::new(sealed_by(HashSeal::new(&Secret::from_bytes([7; 32])), shape, len)),
        Box::new(sealed_by(NoSeal, shape, len)),
    ]
}

/// Number of operations in each long run.
pub fn operations() -> u64 {
    let operations = std::env::var("TRACELESS_MODEL_OPERATIONS").ok();
    operations.map_or(30_000, |number| number.parse().expect("a number of operations"))
}

/// Compares random reads, writes and updates with an array.
pub fn behaves_like_an_array<C: Controller>(controller: C, rounds: u64) {
    is_an_array(&mut SteppedOram::new(controller), rounds);
}

/// Compares an ORAM that is not a controller with an array.
pub fn is_an_array(oram: &mut dyn Oram, rounds: u64) {
    let (n, len) = (oram.blocks(), oram.block_len());
    let (mut model, mut rng) = (vec![0; n as usize * len], SeededRng::new(4));
    let mut block = vec![0; len];
    for round in 0..rounds {
        let addr = if rng.below(2) == 0 { rng.below(n) } else { round % n };
        let want = &mut model[addr as usize * len..][..len];
        match rng.below(3) {
            0 => {
                rng.fill(want);
                oram.write(Addr(addr), want).unwrap();
            }
            1 => {
                want[0] ^= 1;
                oram.update(Addr(addr), &mut |body| body[0] ^= 1).unwrap();
            }
            _ => {
                oram.read(Addr(addr), &mut block).unwrap();
                assert_eq!(block, want);
            }
        }
    }
}

/// Each step reads every bucket of one path, from the root down, and writes the same buckets,
/// whether or not a request waits. `witness` must not have recorded anything before.
pub fn shows_one_template<C: Controller>(mut controller: C, witness: &Recorder) {
    assert!(witness.take().is_empty(), "nothing need be initialised");
    let mut bytes = None;
    for step in 0..500 {
        if step % 3 > 0 {
            controller.submit(step, Addr(step * 7 % controller.blocks())).unwrap();
        }
        controller.step(&mut |_, body| body[0] ^= 1).unwrap();
        let events = witness.take();
        let (reads, writes): (Vec<Event>, Vec<Event>) =
            events.iter().partition(|e| e.op == Op::Read);
        let shown = |events: &[Event]| events.iter().map(|e| (e.at, e.len)).collect::<Vec<_>>();
        assert_eq!(shown(&reads), shown(&writes));
        assert!(events[..reads.len()] == reads, "all is read before anything is written");
        let total: u32 = reads.iter().map(|e| e.len).sum();
        assert_eq!(*bytes.get_or_insert(total), total);
    }
}

/// The leaves of the paths that were read.
pub type Leaves = Arc<Mutex<Vec<u64>>>;

/// A tree that records the paths that are read.
pub type LeafRecording<T> = crate::tree::ObservedTree<T, Leaves>;

impl PathWitness for Leaves {
    fn see_path(&mut self, op: Op, leaf: Leaf) {
        if op == Op::Read {
            self.lock().unwrap().push(leaf.0);
        }
    }
}

/// Pearson's statistic of `leaves` over 256 equal parts of `0..leaves_max`: 255 degrees of freedom.
pub fn chi_square(leaves: &[u64], leaves_max: u64) -> f64 {
    let mut parts = [0u64; 256];
    for leaf in leaves {
        parts[(leaf * 256 / leaves_max) as usize] += 1;
    }
    let mean = leaves.len() as f64 / 256.0;
    parts.iter().map(|&n| (n as f64 - mean).powi(2) / mean).sum()
}

/// Pearson's statistic for pairs of a leaf and the one `lag` later, over 16 by 16 equal parts.
pub fn serial_chi_square(leaves: &[u64], leaves_max: u64, lag: usize) -> f64 {
    let part = |leaf: u64| leaf * 16 / leaves_max;
    let pairs = leaves.iter().zip(&leaves[lag..]);
    let pairs: Vec<u64> = pairs.map(|(&a, &b)| part(a) * 16 + part(b)).collect();
    chi_square(&pairs, 256)
}

/// Uniform leaves exceed this limit once in a million times.
pub const CHI_SQUARE_MAX: f64 = 377.2;

/// Excess of leaves that recur within the next 64 accesses, in standard deviations, for
/// `leaves_max` leaves.
pub fn repeats(leaves: &[u64], leaves_max: u64) -> f64 {
    const WINDOW: usize = 64;
    let again = leaves.windows(WINDOW + 1).filter(|w| w[..WINDOW].contains(&w[WINDOW])).count();
    let share = 1.0 - (1.0 - 1.0 / leaves_max as f64).powf(WINDOW as f64);
    let all = (leaves.len() - WINDOW) as f64;
    (again as f64 - all * share) / (all * share * (1.0 - share)).sqrt()
}

/// Uniform leaves practically never exceed this limit.
pub const REPEATS_MAX: f64 = 5.0;

/// Excess of consecutive paths that cross the same of `2^depth` equal subtrees, in standard
/// deviations, for `leaves_max` leaves.
pub fn echoes(leaves: &[u64], leaves_max: u64, depth: u32) -> f64 {
    let subtree = |leaf: u64| (leaf << depth) / leaves_max;
    let same = leaves.windows(2).filter(|w| subtree(w[0]) == subtree(w[1])).count() as f64;
    let (all, share) = (leaves.len() as f64 - 1.0, (-f64::from(depth)).exp2());
    (same - all * share) / (all * share * (1.0 - share)).sqrt()
}

/// The largest deviation of [`echoes`] over all depths for which chance alone gives a hundred.
/// Tests over parts of the leaves detect only coarser dependence, tests of whole leaves only exact
/// repeats; the effect of a cached treetop lies in between.
pub fn loudest_echo(leaves: &[u64], leaves_max: u64) -> f64 {
    let depths = (1..)
        .take_while(|&depth| leaves_max >> depth > 0 && leaves.len() as u64 >> depth >= ECHOES_MIN);
    let all = depths.map(|depth| echoes(leaves, leaves_max, depth));
    all.fold(0.0, |most, echo| if echo.abs() > f64::abs(most) { echo } else { most })
}

/// Smaller counts are not approximately normal.
const ECHOES_MIN: u64 = 100;

/// Fails if a test of parts of the leaves, or of whole leaves, exceeds its limit.
pub fn older_tests_see_nothing(leaves: &[u64], leaves_max: u64) {
    assert!(chi_square(leaves, leaves_max) < CHI_SQUARE_MAX);
    assert!(repeats(leaves, leaves_max).abs() < REPEATS_MAX);
    for lag in 1..=16 {
        assert!(serial_chi_square(leaves, leaves_max, lag) < CHI_SQUARE_MAX, "lag {lag}");
    }
}

/// As [`continues_after_failed_read`] for a controller, with failures at many points. `make` makes
/// the controller over a store of `len` bytes.
#[cfg(feature = "suite")]
pub fn continues_after_failed_reads<C: Controller>(len: u64, make: impl Fn(Arc<dyn Store>) -> C) {
    let (mut fired, mut tried) = (0, 0);
    for reads in (0..60).chain((60..400).step_by(17)) {
        let store = Arc::new(FailingReads::new(Arc::new(MemStore::new(len))));
        let mut oram = SteppedOram::new(make(store.clone()));
        let mut model = vec![0; oram.blocks() as usize * oram.block_len()];
        fired += u32::from(continues_after_failed_read(&mut oram, &store, reads, &mut model));
        tried += 1;
    }
    assert!(fired > tried / 2, "only {fired} reads of {tried} failed");
}
