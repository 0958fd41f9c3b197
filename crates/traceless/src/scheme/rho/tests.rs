use super::*;
use crate::controller::SteppedOram;
use crate::posmap::{CompressedLabels, PlainLabels};
use crate::scheme::tree_rig::{
    Boxed, CHI_SQUARE_MAX, LeafRecording, Leaves, REPEATS_MAX, behaves_like_an_array, chi_square,
    repeats, sealed, store_for, trees,
};
use crate::scheme::unified::Sizes;
use crate::tree::{BareTree, GhostTree, Shape, Substash, Treetop};
use alloc::sync::Arc;
use traceless_core::oram::Oram;
use traceless_core::rng::SeededRng;
use traceless_core::seal::Secret;
use traceless_core::store::{Store, WatchedStore};
use traceless_core::trace::{Event, Recorder};
use traceless_core::types::Extent;

const LEN: usize = 24;

fn rng() -> Box<dyn Rng> {
    Box::new(SeededRng::new(1))
}

fn main_tree<T: BucketTree, L: Labels>(
    blocks: u64,
    tree: T,
    labels: impl Fn() -> L,
) -> Unified<T, L> {
    let sizes = Sizes { blocks, map_levels: 2, parts: 1, bundled: false, stash_blocks: 100 };
    let plb = Plb::new(4, 2, tree.body_len()).unwrap();
    Unified::new(sizes, tree, labels(), labels(), plb, rng()).unwrap()
}

fn rho<T: BucketTree, S: BucketTree>(
    blocks: u64,
    main: T,
    small: S,
    tags: (usize, usize),
) -> Rho<T, S, CompressedLabels> {
    let key = Secret::from_bytes([9; 32]);
    let labels = || CompressedLabels::new(&key, 5, 3).unwrap();
    Rho::new(main_tree(blocks, main, labels), small, tags, 60, rng()).unwrap()
}

fn main_shape() -> Shape {
    Shape::uniform(6, 4).unwrap()
}

fn small_shape() -> Shape {
    Shape::uniform(4, 2).unwrap()
}

/// A small tree that is rarely used, and one that holds everything after a while.
#[test]
fn every_pair_of_trees_makes_an_array() {
    for (blocks, tags) in [(80, (5, 2)), (80, (1, 1)), (20, (15, 2)), (1, (1, 1))] {
        for (main, small) in trees(&main_shape(), LEN).into_iter().zip(trees(&small_shape(), LEN)) {
            behaves_like_an_array(rho(blocks, main, small, tags), 3000);
        }
    }
}

/// The main tree may serve a block without a path, and the small one may always be crowded.
#[test]
fn a_main_tree_that_searches_first_and_a_crowded_small_one_make_an_array() {
    let labels = || PlainLabels::new(5).unwrap();
    let (shape, small) = (main_shape(), BareTree::new(small_shape(), LEN));
    let below = BareTree::new(shape.only(|level| level >= 4), LEN);
    let mut main = main_tree(80, Substash::new(shape, 4, (20, 4), below).unwrap(), labels);
    main.search_first();
    let mut rho = Rho::new(main, small, (15, 2), 60, rng()).unwrap();
    rho.drain_above(0);
    behaves_like_an_array(rho, 3000);
}

/// Requests wait together: the ones for a block are served in order, and all are served.
#[test]
fn requests_of_a_block_are_served_in_order() {
    let small = Treetop::new(small_shape(), 1, BareTree::new(small_shape().only(|l| l > 0), LEN));
    let mut rho = rho(80, BareTree::new(main_shape(), LEN), small.unwrap(), (5, 2));
    let mut rng = SeededRng::new(2);
    let addrs: Vec<u64> = (0..3000).map(|_| rng.below(80) * rng.below(2)).collect();
    let (mut waiting, mut served) = (0, vec![0; 80]);
    let mut overtaken = 0;
    for (id, &addr) in addrs.iter().enumerate() {
        rho.submit(id as u64, Addr(addr)).unwrap();
        waiting += 1;
        while waiting > 5 {
            let issued = rho.step(&mut |id, body| {
                let served: &mut u64 = &mut served[addrs[id as usize] as usize];
                assert!(*served <= id, "in order");
                assert_eq!(body[..8], served.to_le_bytes(), "with what the one before wrote");
                body[..8].copy_from_slice(&(id + 1).to_le_bytes());
                *served = id + 1;
            });
            if let Some(finished) = issued.unwrap().finished {
                waiting -= 1;
                overtaken += u32::from(finished + 5 > id as u64);
            }
        }
    }
    assert!(overtaken > 100, "small accesses overtake: {overtaken}");
}

/// The tree that each step accessed. Fails if a step does not access exactly one whole path.
fn pattern<T: BucketTree, S: BucketTree>(
    steps: u64,
    before_step: impl Fn(u64, &mut Rho<T, S, CompressedLabels>),
    rho: &mut Rho<T, S, CompressedLabels>,
    witnesses: [&Recorder; 2],
) -> Vec<bool> {
    let mut lens = [None; 2];
    let step = |step| {
        before_step(step, rho);
        rho.step(&mut |_, body| body[0] ^= 1).unwrap();
        let events = witnesses.map(Recorder::take);
        assert!(events[0].is_empty() != events[1].is_empty(), "one tree a step");
        for (events, len) in events.iter().zip(&mut lens).filter(|(events, _)| !events.is_empty()) {
            let sum: u64 = events.iter().map(|e: &Event| u64::from(e.len)).sum();
            assert_eq!(*len.get_or_insert(sum), sum, "one path a step");
        }
        !events[0].is_empty()
    };
    (0..steps).map(step).collect()
}

fn watched() -> (Rho<Boxed, Boxed, CompressedLabels>, [Arc<Recorder>; 2]) {
    let witnesses = [Arc::new(Recorder::default()), Arc::new(Recorder::default())];
    let tree = |shape: Shape, witness: &Arc<Recorder>| -> Boxed {
        let store = WatchedStore::new(store_for(&shape, LEN), witness.clone());
        Box::new(sealed(Arc::new(store), shape, LEN))
    };
    let (main, small) = (tree(main_shape(), &witnesses[0]), tree(small_shape(), &witnesses[1]));
    (rho(80, main, small, (5, 2)), witnesses)
}

fn is_fixed(pattern: &[bool]) -> bool {
    pattern.iter().enumerate().all(|(step, &is_main)| is_main == (step % 3 == 0))
}

/// One main path, then two small ones, for any requests and without requests.
#[test]
fn steps_follow_a_fixed_pattern() {
    for wanted in [0, 1, 5] {
        let (mut rho, [main, small]) = watched();
        let ask = |step: u64, rho: &mut Rho<Boxed, Boxed, CompressedLabels>| {
            if wanted > 0 && step.is_multiple_of(wanted) {
                rho.submit(step, Addr(step * 7 % 80)).unwrap();
            }
        };
        assert!(is_fixed(&pattern(600, ask, &mut rho, [&main, &small])));
    }
}

/// The planted fault: a needed tree goes first.
#[test]
fn a_pattern_that_follows_the_requests_is_caught() {
    let (mut rho, [main, small]) = watched();
    let ask = |step: u64, rho: &mut Rho<Boxed, Boxed, CompressedLabels>| {
        let addr = Addr(step * 7 % 80);
        rho.submit(step, addr).unwrap();
        rho.turn = u32::from(rho.tags.find(addr).is_some());
    };
    assert!(!is_fixed(&pattern(600, ask, &mut rho, [&main, &small])));
}

/// A block of the small tree costs one path there; once all are there the main tree only gets
/// dummies.
#[test]
fn the_small_tree_serves_what_it_holds() {
    let (main, small) = (GhostTree::new(main_shape(), 4096, ()), small_shape());
    let small = GhostTree::new(Shape::uniform(small.levels() + 1, 4).unwrap(), 4096, ());
    let labels = || PlainLabels::new(8).unwrap();
    let mut rho = Rho::new(main_tree(60, main, labels), small, (30, 4), 60, rng()).unwrap();
    let mut serve = |addr: u64| {
        rho.submit(addr, Addr(addr)).unwrap();
        let mut kinds = [vec![], vec![]];
        loop {
            let is_main = rho.main_is_next();
            let issued = rho.step(&mut |_, _| {}).unwrap();
            kinds[usize::from(is_main)].push(issued.kind);
            if issued.finished == Some(addr) {
                return kinds;
            }
        }
    };
    for addr in 0..60 {
        assert!(serve(addr)[1].contains(&StepKind::Data));
    }
    for addr in 0..60 {
        let [small, main] = serve(addr);
        assert!(main.iter().all(|kind| *kind == StepKind::Dummy), "{main:?}");
        let served = small.iter().filter(|kind| **kind == StepKind::Data).count();
        assert_eq!(served, 1, "{small:?}");
    }
}

#[test]
fn leaves_of_both_trees_are_uniform_and_fresh() {
    let (main, small) = (Shape::uniform(9, 4).unwrap(), Shape::uniform(9, 2).unwrap());
    for hot in [500, 100, 5] {
        let leaves = [Leaves::default(), Leaves::default()];
        let main = LeafRecording::new(BareTree::new(main.clone(), LEN), leaves[0].clone());
        let small = LeafRecording::new(BareTree::new(small.clone(), LEN), leaves[1].clone());
        let mut rho = SteppedOram::new(rho(500, main, small, (16, 4)));
        let mut rng = SeededRng::new(3);
        for _ in 0..12_000 {
            rho.access(Addr(rng.below(hot)), |body| body[0] ^= 1).unwrap();
        }
        for leaves in leaves {
            let leaves = leaves.lock().unwrap();
            assert!(chi_square(&leaves, 256) < CHI_SQUARE_MAX, "{hot} blocks");
            assert!(repeats(&leaves, 256) < REPEATS_MAX, "{hot} blocks");
        }
    }
}

/// Blocks wait in all stashes, since the trees are crowded.
#[test]
fn stashes_stay_within_their_limits() {
    let main = GhostTree::new(Shape::uniform(9, 4).unwrap(), 4096, ());
    let small = GhostTree::new(Shape::uniform(8, 2).unwrap(), 4096, ());
    let labels = || PlainLabels::new(16).unwrap();
    let mut rho = Rho::new(main_tree(900, main, labels), small, (50, 10), 40, rng()).unwrap();
    rho.drain_above(10);
    let (mut rng, mut most) = (SeededRng::new(4), 0);
    for step in 0..60_000u64 {
        if rho.requests.len() < 4 {
            rho.submit(step, Addr(rng.below(900))).unwrap();
        }
        rho.step(&mut |_, _| {}).unwrap();
        most = most.max(rho.leaving.len() + rho.returning.len());
    }
    assert!((1..=LEAVING_MAX).contains(&most), "{most}");
}

#[test]
fn damage_is_an_error_and_nothing_follows_it() {
    for (in_main, shape) in [(true, main_shape()), (false, small_shape())] {
        let store = store_for(&shape, LEN);
        let tree: Boxed = Box::new(sealed(store.clone(), shape, LEN));
        let other = if in_main { small_shape() } else { main_shape() };
        let other: Boxed = Box::new(BareTree::new(other, LEN));
        let (main, small) = if in_main { (tree, other) } else { (other, tree) };
        let mut oram = SteppedOram::new(rho(40, main, small, (5, 2)));
        (0..40).for_each(|addr| oram.write(Addr(addr), &[1; LEN]).unwrap());
        let bytes: Vec<u8> = store.snapshot().iter().map(|byte| byte ^ 1).collect();
        store.write(&[Extent::new(0, bytes.len())], &bytes).unwrap();
        let refused = (0..40).find_map(|addr| oram.read(Addr(addr), &mut [0; LEN]).err());
        assert!(matches!(refused, Some(Error::Tampered { .. })), "{refused:?}");
        assert!(matches!(oram.read(Addr(3), &mut [0; LEN]), Err(Error::EarlierDamage)));
        assert!(matches!(oram.sync(), Err(Error::EarlierDamage)));
    }
}

#[test]
fn impossible_sizes_are_refused() {
    let labels = || PlainLabels::new(5).unwrap();
    let new = |small_len, tags| {
        let main = main_tree(9, BareTree::new(main_shape(), LEN), labels);
        Rho::new(main, BareTree::new(small_shape(), small_len), tags, 20, rng())
    };
    assert!(new(LEN, (15, 2)).is_ok());
    assert!(new(LEN, (31, 1)).is_err(), "the small tree has 30 slots");
    assert!(new(LEN, (0, 2)).is_err() && new(LEN, (usize::MAX, 2)).is_err());
    assert!(new(LEN - 1, (5, 2)).is_err());
    let mut rho = new(LEN, (5, 2)).unwrap();
    assert!(matches!(rho.submit(0, Addr(9)), Err(Error::OutOfRange { .. })));
}

/// A step may have moved blocks before it reads, so a failed read ends the scheme. Later errors
/// must not claim that a write failed.
#[cfg(feature = "suite")]
#[test]
fn a_failed_read_ends_it_and_says_so() {
    use traceless_core::suite::FailingReads;

    for reads in 0..40 {
        let shape = main_shape();
        let store = Arc::new(FailingReads::new(store_for(&shape, LEN)));
        let tree: Boxed = Box::new(sealed(store.clone(), shape, LEN));
        let small: Boxed = Box::new(BareTree::new(small_shape(), LEN));
        let mut oram = SteppedOram::new(rho(40, tree, small, (5, 2)));
        store.fail_after(reads);
        let failed = (0..400).find_map(|i| oram.write(Addr(i % 40), &[1; LEN]).err());
        assert!(matches!(failed, Some(Error::Store(_))), "{failed:?}");
        assert!(matches!(oram.read(Addr(3), &mut [0; LEN]), Err(Error::EarlierAbort)));
        assert!(matches!(oram.sync(), Err(Error::EarlierAbort)));
    }
}
