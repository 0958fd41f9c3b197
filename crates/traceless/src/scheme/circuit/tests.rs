use super::*;
use crate::controller::SteppedOram;
use crate::scheme::tree_rig::{
    CHI_SQUARE_MAX, LeafRecording, Leaves, REPEATS_MAX, behaves_like_an_array, chi_square, repeats,
    sealed, shows_one_template, store_for, trees,
};
use crate::tree::{BareTree, GhostTree, Header, Substash};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use traceless_core::oram::Oram;
use traceless_core::rng::SeededRng;
use traceless_core::store::{Store, WatchedStore};
use traceless_core::trace::Recorder;
use traceless_core::types::Extent;

fn rng() -> Box<dyn Rng> {
    Box::new(SeededRng::new(1))
}

fn ghost(blocks: u64, shape: Shape) -> Circuit<GhostTree<()>> {
    Circuit::new(blocks, GhostTree::new(shape, 4096, ()), STASH_BLOCKS, rng()).unwrap()
}

#[test]
fn every_tree_makes_an_array() {
    for (n, len) in [(1, 8), (2, 1), (3, 5), (61, 24), (64, 64), (500, 16)] {
        for tree in trees(&shape_for(n, Z).unwrap(), len) {
            behaves_like_an_array(Circuit::new(n, tree, STASH_BLOCKS, rng()).unwrap(), 4000);
        }
    }
}

/// If a set is full, the block waits in the stash.
#[test]
fn a_sub_stash_may_refuse_a_block() {
    let shape = shape_for(200, Z).unwrap();
    for ways in [(64, 4), (3, 2), (1, 1)] {
        let below = BareTree::new(shape.only(|level| level >= 3), 8);
        let tree = Substash::new(shape.clone(), 3, ways, below).unwrap();
        behaves_like_an_array(Circuit::new(200, tree, STASH_BLOCKS, rng()).unwrap(), 4000);
    }
}

#[test]
fn other_shapes_work_as_well() {
    let shapes =
        [Shape::new(vec![3; 4], 3), Shape::new(vec![4; 4], 4), Shape::per_level(vec![4, 2, 3, 1])];
    for shape in shapes.map(Result::unwrap) {
        for tree in trees(&shape, 8) {
            let blocks = shape.slots() / 2;
            behaves_like_an_array(Circuit::new(blocks, tree, 60, rng()).unwrap(), 3000);
        }
    }
}

#[test]
fn a_step_has_one_template() {
    let shape = Shape::per_level(vec![4, 2, 4, 3, 2]).unwrap();
    let witness = Arc::new(Recorder::default());
    let store = Arc::new(WatchedStore::new(store_for(&shape, 16), witness.clone()));
    let tree = sealed(store, shape, 16);
    shows_one_template(Circuit::new(20, tree, 50, rng()).unwrap(), &witness);
}

/// For any requests, an eviction and an access alternate.
#[test]
fn every_request_takes_two_steps() {
    let mut circuit = ghost(100, shape_for(100, Z).unwrap());
    for request in 0..2000 {
        let is_dummy = request % 3 == 0;
        if !is_dummy {
            circuit.submit(request, Addr(request * request % 100)).unwrap();
        }
        let kinds = [(); 2].map(|()| circuit.step(&mut |_, _| {}).unwrap());
        assert_eq!(kinds[0], StepOutcome { kind: StepKind::Eviction, finished: None });
        let kind = if is_dummy { StepKind::Dummy } else { StepKind::Data };
        assert_eq!(kinds[1], StepOutcome { kind, finished: (!is_dummy).then_some(request) });
    }
}

/// The paths of many accesses to few blocks; the paths of evictions come first.
fn paths(rng: Box<dyn Rng>, accesses: u64) -> (Vec<u64>, Vec<u64>) {
    let seen = Leaves::default();
    let tree = GhostTree::new(Shape::uniform(13, Z).unwrap(), 4096, ());
    let tree = LeafRecording::new(tree, seen.clone());
    let mut circuit = Circuit::new(4096, tree, STASH_BLOCKS, rng).unwrap();
    for id in 0..accesses {
        circuit.submit(id, Addr(id % 5)).unwrap();
        (0..2).for_each(|_| assert!(circuit.step(&mut |_, _| {}).is_ok()));
    }
    let seen = seen.lock().unwrap();
    seen.chunks_exact(2).map(|pair| (pair[0], pair[1])).unzip()
}

/// A generator that sometimes repeats its last output.
struct Repeating(SeededRng, u64, u64);

impl Rng for Repeating {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }

    fn next_u64(&mut self) -> u64 {
        self.2 += 1;
        if !self.2.is_multiple_of(20) {
            self.1 = self.0.next_u64();
        }
        self.1
    }
}

#[test]
fn paths_are_random_or_in_order_and_repetitions_are_noticed() {
    let (evicted, accessed) = paths(rng(), 100_000);
    let mut order = EvictionOrder::default();
    let shape = Shape::uniform(13, Z).unwrap();
    assert!(evicted.into_iter().all(|leaf| leaf == order.next(&shape).0));
    assert!(chi_square(&accessed, 4096) < CHI_SQUARE_MAX);
    assert!(repeats(&accessed, 4096).abs() < REPEATS_MAX);

    let (_, accessed) = paths(Box::new(Repeating(SeededRng::new(1), 0, 0)), 100_000);
    assert!(repeats(&accessed, 4096) > REPEATS_MAX, "a planted fault is not found");
}

/// Blocks in the stash after each access to a full array, one block after the other: entry i is the
/// number of accesses that left i blocks.
fn stash_tail(circuit: &mut Circuit<GhostTree<()>>, accesses: u64) -> Result<Vec<u64>> {
    let mut counts = vec![0; STASH_BLOCKS + 1];
    for id in 0..accesses {
        circuit.submit(id, Addr(id % circuit.blocks()))?;
        circuit.step(&mut |_, _| {})?;
        circuit.step(&mut |_, _| {})?;
        counts[circuit.engine().stash().len()] += 1;
    }
    Ok(counts)
}

/// The stash stays far below its limit: each further block is at least twice less likely, in trees
/// with twice as many slots as blocks, and with three times as many.
#[test]
fn the_stash_stays_short() {
    for (blocks, z) in [(1 << 12, Z), (1 << 15, Z), (1 << 15, 3)] {
        let mut circuit = ghost(blocks, shape_for(blocks, z).unwrap());
        let counts = stash_tail(&mut circuit, 400_000).unwrap();
        let above: Vec<u64> = (0..counts.len()).map(|n| counts[n..].iter().sum()).collect();
        let is_shorter = above.windows(2).all(|two| two[0] < 50 || two[1] <= two[0] / 2);
        assert!(is_shorter && above[12] == 0, "{counts:?}");
    }
}

/// Evictions along a single path do not empty the stash.
#[test]
fn a_wrong_order_of_evictions_is_noticed() {
    let mut circuit = ghost(1 << 12, shape_for(1 << 12, Z).unwrap());
    let overflow = (0..20_000).find_map(|id| {
        circuit.order = EvictionOrder::default();
        circuit.submit(id, Addr(id % 4096)).unwrap();
        let steps = [(); 2].map(|()| circuit.step(&mut |_, _| {}));
        steps.into_iter().find_map(Result::err)
    });
    assert!(matches!(overflow, Some(Error::StashOverflow { .. })));
    assert!(matches!(circuit.step(&mut |_, _| {}), Err(Error::EarlierAbort)));
}

/// A tree that sometimes loses a block.
struct Losing(BareTree, u64);

impl BucketTree for Losing {
    fn shape(&self) -> &Shape {
        self.0.shape()
    }
    fn body_len(&self) -> usize {
        self.0.body_len()
    }
    fn read_path(&mut self, leaf: Leaf, headers: &mut [Header]) -> Result {
        self.0.read_path(leaf, headers)
    }
    fn body(&self, slot: usize) -> &[u8] {
        self.0.body(slot)
    }
    fn body_mut(&mut self, slot: usize) -> &mut [u8] {
        self.0.body_mut(slot)
    }
    fn copy_body(&mut self, from: usize, to: usize) {
        self.0.copy_body(from, to);
    }
    fn write_path(&mut self, headers: &[Header]) -> Result {
        let mut kept = headers.to_vec();
        self.1 += 1;
        if self.1.is_multiple_of(100)
            && let Some(header) = kept.iter_mut().find(|h| !h.is_empty())
        {
            *header = Header::EMPTY;
        }
        self.0.write_path(&kept)
    }
    fn sync(&mut self) -> Result {
        self.0.sync()
    }
}

#[test]
fn a_lost_block_is_noticed() {
    let tree = Losing(BareTree::new(shape_for(64, Z).unwrap(), 8), 0);
    let circuit = Circuit::new(64, tree, STASH_BLOCKS, rng()).unwrap();
    let outcome = catch_unwind(AssertUnwindSafe(|| behaves_like_an_array(circuit, 4000)));
    assert!(outcome.is_err());
}

#[test]
fn damage_is_an_error_and_nothing_follows_it() {
    let shape = shape_for(64, Z).unwrap();
    let store = store_for(&shape, 24);
    let tree = sealed(store.clone(), shape, 24);
    let mut oram = SteppedOram::new(Circuit::new(64, tree, STASH_BLOCKS, rng()).unwrap());
    (0..200).for_each(|i| oram.write(Addr(i % 64), &[1; 24]).unwrap());
    let old = store.snapshot();
    (0..200).for_each(|i| oram.write(Addr(i % 64), &[2; 24]).unwrap());
    store.write(&[Extent::new(0, old.len())], &old).unwrap();
    assert!(matches!(oram.read(Addr(3), &mut [0; 24]), Err(Error::Tampered { .. })));
    assert!(matches!(oram.read(Addr(3), &mut [0; 24]), Err(Error::EarlierDamage)));
    assert!(matches!(oram.sync(), Err(Error::EarlierDamage)));
}

#[test]
fn impossible_requests_are_refused() {
    let new =
        |blocks| Circuit::new(blocks, BareTree::new(Shape::uniform(3, 2).unwrap(), 8), 9, rng());
    assert!(new(15).is_err());
    assert!(shape_for(u64::MAX, Z).is_err());
    let mut circuit = new(14).unwrap();
    assert!(matches!(circuit.submit(0, Addr(14)), Err(Error::OutOfRange { .. })));
}

#[cfg(feature = "suite")]
#[test]
fn a_failed_read_is_made_again() {
    use crate::scheme::tree_rig::continues_after_failed_reads;

    let shape = shape_for(64, Z).unwrap();
    continues_after_failed_reads(store_for(&shape, 24).len(), |store| {
        Circuit::new(64, sealed(store, shape.clone(), 24), STASH_BLOCKS, rng()).unwrap()
    });
}
