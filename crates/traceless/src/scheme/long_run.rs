//! Long runs of every scheme over a tree: an array under random operations, and leaves that reveal
//! nothing. `TRACELESS_MODEL_OPERATIONS` sets the length; a release takes ten million operations of
//! each.

use super::circuit::{self, Circuit};
use super::path::PathOram;
use super::rho::Rho;
use super::ring::{GhostRing, Params, Ring, SealedRing};
use super::tree_rig::{
    CHI_SQUARE_MAX, LeafRecording, Leaves, REPEATS_MAX, behaves_like_an_array, chi_square,
    loudest_echo, older_tests_see_nothing, operations, repeats, sealed, serial_chi_square,
    store_for,
};
use super::unified::{Sizes, Unified};
use crate::controller::{Controller, StepKind};
use crate::posmap::{CompressedLabels, Labels, LeafDraw, Plb};
use crate::tree::{GhostTree, Shape};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::Result;
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::seal::{Aead, Secret};
use traceless_core::store::MemStore;
use traceless_core::trace::{Op, Recorder};
use traceless_core::types::{Addr, Leaf};

const BLOCKS: u64 = 3000;
const LEN: usize = 24;

fn rng() -> Box<dyn Rng> {
    Box::new(SeededRng::new(11))
}

fn secret(byte: u8) -> Secret {
    Secret::from_bytes([byte; 32])
}

fn path_shape() -> Shape {
    Shape::for_blocks(BLOCKS, 4, 2.0).unwrap()
}

/// Small counters, so that group remaps are frequent.
fn labels() -> CompressedLabels {
    CompressedLabels::new(&secret(9), 5, 3).unwrap()
}

const UNIFIED: Sizes =
    Sizes { blocks: BLOCKS, map_levels: 3, parts: 1, bundled: false, stash_blocks: 200 };

/// A shape with room for the blocks of the map, too.
fn unified_shape() -> Shape {
    Shape::for_blocks(BLOCKS * 5 / 4 + 10, 4, 2.0).unwrap()
}

#[test]
fn path_is_an_array() {
    let tree = sealed(store_for(&path_shape(), LEN), path_shape(), LEN);
    let path = PathOram::new(BLOCKS, vec![tree], 200, rng()).unwrap();
    behaves_like_an_array(path, operations());
}

#[test]
fn unified_is_an_array() {
    let tree = sealed(store_for(&unified_shape(), LEN), unified_shape(), LEN);
    let plb = Plb::new(16, 4, LEN).unwrap();
    let unified = Unified::new(UNIFIED, tree, labels(), labels(), plb, rng()).unwrap();
    behaves_like_an_array(unified, operations());
}

#[test]
fn rho_is_an_array() {
    let tree = sealed(store_for(&unified_shape(), LEN), unified_shape(), LEN);
    let plb = Plb::new(16, 4, LEN).unwrap();
    let main = Unified::new(UNIFIED, tree, labels(), labels(), plb, rng()).unwrap();
    // The small tree has room for a tenth of the blocks.
    let shape = Shape::uniform(8, 2).unwrap();
    let small = sealed(store_for(&shape, LEN), shape, LEN);
    behaves_like_an_array(Rho::new(main, small, (30, 10), 100, rng()).unwrap(), operations());
}

#[test]
fn circuit_is_an_array() {
    let shape = circuit::shape_for(BLOCKS, circuit::Z).unwrap();
    let tree = sealed(store_for(&shape, LEN), shape, LEN);
    let circuit = Circuit::new(BLOCKS, tree, circuit::STASH_BLOCKS, rng()).unwrap();
    behaves_like_an_array(circuit, operations());
}

#[test]
fn ring_is_an_array() {
    for params in [Params::Z4, Params::Z16] {
        let shape = params.shape_for(BLOCKS).unwrap();
        let keys = [7, 8].map(|byte| Aead::new(&secret(byte)));
        let store = MemStore::new(SealedRing::store_len(params, &shape, LEN, &keys[0]));
        let tree = SealedRing::create(Arc::new(store), 0, params, shape, LEN, keys, rng()).unwrap();
        behaves_like_an_array(Ring::new(BLOCKS, tree, rng()).unwrap(), operations());
    }
}

/// Steps until all operations are served; every second one is for one block. `step` gets the kind
/// of each step.
fn serve_hot<C: Controller>(controller: &mut C, mut step: impl FnMut(StepKind)) {
    let mut draws = SeededRng::new(3);
    for id in 0..operations() {
        let addr = if id % 2 == 0 { 7 } else { draws.below(BLOCKS) };
        controller.submit(id, Addr(addr)).unwrap();
        loop {
            let issued = controller.step(&mut |_, _| {}).unwrap();
            step(issued.kind);
            if issued.finished.is_some() {
                break;
            }
        }
    }
}

/// Fails if any statistic of the design's catalogue exceeds its limit.
fn assert_uniform(leaves: &[u64], leaves_max: u64) {
    assert!(leaves.len() as u64 >= operations());
    older_tests_see_nothing(leaves, leaves_max);
    let echo = loudest_echo(leaves, leaves_max);
    assert!(echo.abs() < REPEATS_MAX, "{echo}");
}

/// One leaf in a hundred lies below the same bucket of level 8 as the leaf before, as with a cache
/// of that many levels with hits that cost no path: only a comparison of consecutive paths at that
/// depth detects this.
#[test]
fn leaves_near_earlier_leaves_are_found() {
    let (mut draws, mut leaf) = (SeededRng::new(1), 0);
    let near = |_| {
        let any = draws.below(1 << 16);
        leaf = if draws.below(100) == 0 { leaf & !0xff | any & 0xff } else { any };
        leaf
    };
    let leaves: Vec<u64> = (0..30_000).map(near).collect();
    older_tests_see_nothing(&leaves, 1 << 16);
    assert!(loudest_echo(&leaves, 1 << 16) > 2.0 * REPEATS_MAX);
}

/// Leaves that alternate between two halves are uniform, but depend on each other.
#[test]
fn leaves_that_depend_on_each_other_are_noticed() {
    let mut draws = SeededRng::new(1);
    let leaves: Vec<u64> = (0..30_000).map(|nth| 1024 * (nth % 2) + draws.below(1024)).collect();
    assert!(chi_square(&leaves, 2048) < CHI_SQUARE_MAX);
    assert!(serial_chi_square(&leaves, 2048, 3) > CHI_SQUARE_MAX);
}

fn noted(shape: Shape) -> (LeafRecording<GhostTree<()>>, Leaves) {
    let leaves = Leaves::default();
    (LeafRecording::new(GhostTree::new(shape, 4096, ()), leaves.clone()), leaves)
}

/// The labels of 20,000 blocks that were all filled in one pass, in the order of their addresses.
/// The first access to a block shows its label.
fn filled_labels(rng: Box<dyn Rng>) -> (Vec<u64>, u64) {
    const FILLED: u64 = 20_000;
    let shape = Shape::for_blocks(FILLED, 4, 2.0).unwrap();
    let (tree, leaves) = noted(shape.clone());
    let mut path = PathOram::new(FILLED, vec![tree], 200, rng).unwrap();
    path.fill(&mut |_, _| {}).unwrap();
    for addr in (0..FILLED).map(Addr) {
        path.submit(0, addr).unwrap();
        path.step(&mut |_, _| {}).unwrap();
    }
    (core::mem::take(&mut *leaves.lock().unwrap()), shape.leaves())
}

/// A generator with one bit of each byte stuck.
struct Stuck(SeededRng);

impl Rng for Stuck {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
        for byte in out {
            *byte &= 0x7f;
        }
    }
}

#[test]
fn labels_of_a_filled_tree_are_uniform() {
    let (labels, leaves_max) = filled_labels(rng());
    older_tests_see_nothing(&labels, leaves_max);
    assert!(loudest_echo(&labels, leaves_max).abs() < REPEATS_MAX);
    let (labels, leaves_max) = filled_labels(Box::new(Stuck(SeededRng::new(1))));
    assert!(chi_square(&labels, leaves_max) > CHI_SQUARE_MAX, "labels of half of the leaves");
}

#[test]
fn leaves_of_path_are_uniform() {
    let (tree, leaves) = noted(path_shape());
    let mut path = PathOram::new(BLOCKS, vec![tree], 200, rng()).unwrap();
    serve_hot(&mut path, |_| {});
    assert_uniform(&leaves.lock().unwrap(), path_shape().leaves());
}

#[test]
fn leaves_of_unified_are_uniform() {
    let (tree, leaves) = noted(unified_shape());
    let plb = Plb::new(16, 4, 0).unwrap();
    let mut unified = Unified::new(UNIFIED, tree, labels(), labels(), plb, rng()).unwrap();
    serve_hot(&mut unified, |_| {});
    assert_uniform(&leaves.lock().unwrap(), unified_shape().leaves());
}

/// Bundles of two, as many as the blocks allow.
const BUNDLED: Sizes = Sizes { parts: 2, bundled: true, ..UNIFIED };

fn bundled_shape() -> Shape {
    Shape::for_blocks(BLOCKS * 9 / 4 + 10, 4, 2.0).unwrap()
}

#[test]
fn bundles_are_an_array() {
    let tree = sealed(store_for(&bundled_shape(), LEN), bundled_shape(), LEN);
    let plb = Plb::new(16, 4, LEN).unwrap();
    let bundled = Unified::new(BUNDLED, tree, labels(), labels(), plb, rng()).unwrap();
    behaves_like_an_array(bundled, operations());
}

/// The labels of bundles, but each part is on its own path.
struct BundleLabels(CompressedLabels);

impl Labels for BundleLabels {
    fn fanout(&self) -> u64 {
        self.0.fanout()
    }
    fn entries_len(&self) -> usize {
        self.0.entries_len()
    }
    fn check(&self, leaves: u64, parts: u64) -> Result {
        self.0.check(leaves, parts)
    }
    fn leaf(&self, entries: &[u8], nth: usize, addr: Addr, draw: &mut LeafDraw) -> Leaf {
        let is_of_user = addr.0 < BLOCKS * BUNDLED.parts;
        let first = if is_of_user { addr.0 - addr.0 % BUNDLED.parts } else { addr.0 };
        self.0.leaf(entries, nth, Addr(first), draw)
    }
    fn is_spent(&self, entries: &[u8], nth: usize) -> bool {
        self.0.is_spent(entries, nth)
    }
    fn renew(&self, entries: &mut [u8], nth: usize, draw: &mut LeafDraw) {
        self.0.renew(entries, nth, draw);
    }
    fn renew_group(&self, entries: &mut [u8]) -> Result {
        self.0.renew_group(entries)
    }
}

fn leaves_of_bundles<L: Labels>(sizes: Sizes, labels: impl Fn() -> L) -> Vec<u64> {
    let (tree, leaves) = noted(bundled_shape());
    let plb = Plb::new(16, 4, 0).unwrap();
    let mut bundled = Unified::new(sizes, tree, labels(), labels(), plb, rng()).unwrap();
    serve_hot(&mut bundled, |_| {});
    core::mem::take(&mut *leaves.lock().unwrap())
}

#[test]
fn leaves_of_bundles_are_uniform() {
    let leaves_max = bundled_shape().leaves();
    assert_uniform(&leaves_of_bundles(BUNDLED, labels), leaves_max);
    let apart = Sizes { bundled: false, ..BUNDLED };
    let leaves = leaves_of_bundles(apart, || BundleLabels(labels()));
    assert!(repeats(&leaves, leaves_max) > REPEATS_MAX, "the path of one label, for each part");
    assert!(loudest_echo(&leaves, leaves_max) > REPEATS_MAX, "they come one after the other");
}

#[test]
fn leaves_of_circuit_are_uniform() {
    let shape = circuit::shape_for(BLOCKS, circuit::Z).unwrap();
    let (tree, leaves) = noted(shape.clone());
    let mut circuit = Circuit::new(BLOCKS, tree, circuit::STASH_BLOCKS, rng()).unwrap();
    serve_hot(&mut circuit, |_| {});
    // Every second path belongs to an eviction.
    let accessed: Vec<u64> = leaves.lock().unwrap().iter().copied().skip(1).step_by(2).collect();
    assert_uniform(&accessed, shape.leaves());
}

#[test]
fn leaves_of_ring_are_uniform() {
    let params = Params::Z4;
    let shape = params.shape_for(BLOCKS).unwrap();
    let witness = Arc::new(Recorder::default());
    let tree = GhostRing::new(params, shape.clone(), witness.clone()).unwrap();
    let lines = (GhostRing::<()>::metadata_lines(params) + params.slots()) as u64;
    let mut ring = Ring::new(BLOCKS, tree, rng()).unwrap();
    let mut leaves = vec![];
    serve_hot(&mut ring, |kind| {
        let events = witness.take();
        // Metadata lies before the slots, buckets level by level.
        let mut metadata = events.iter().filter(|e| e.op == Op::Read && e.at / 64 % lines == 0);
        let last = metadata.next_back().expect("a path was read").at / 64 / lines;
        if kind == StepKind::Data {
            leaves.push(last - (shape.slots() - shape.leaves()));
        }
    });
    assert_uniform(&leaves, shape.leaves());
}
