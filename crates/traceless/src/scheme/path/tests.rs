mod batches;
mod tampering;

use super::*;
use crate::controller::SteppedOram;
use crate::scheme::tree_rig::{
    behaves_like_an_array, sealed, shows_one_template, store_for, trees,
};
use crate::tree::{BareTree, DRAINS_IN_A_ROW, GhostTree, SealedTree, Shape};
use alloc::sync::Arc;
use alloc::vec;
use traceless_core::oram::Oram;
use traceless_core::rng::SeededRng;
use traceless_core::seal::{Aead, Salt, Sealer, Secret};
use traceless_core::store::WatchedStore;
use traceless_core::trace::Recorder;

#[test]
fn every_tree_makes_an_array() {
    for (n, len, levels, z) in
        [(1, 8, 1, 4), (2, 1, 1, 2), (3, 5, 2, 4), (64, 24, 5, 4), (100, 64, 6, 3), (61, 8, 5, 5)]
    {
        let shape = Shape::uniform(levels, z).unwrap();
        for tree in trees(&shape, len) {
            let path = PathOram::new(n, vec![tree], 100, Box::new(SeededRng::new(1))).unwrap();
            behaves_like_an_array(path, 4000);
        }
    }
}

#[test]
fn a_recursive_map_finds_everything() {
    let data = trees(&Shape::uniform(6, 4).unwrap(), 16);
    let maps = trees(&Shape::uniform(4, 4).unwrap(), 32);
    let tops = trees(&Shape::uniform(2, 4).unwrap(), 12);
    for ((data, map), top) in data.into_iter().zip(maps).zip(tops) {
        let path =
            PathOram::new(120, vec![data, map, top], 100, Box::new(SeededRng::new(1))).unwrap();
        behaves_like_an_array(path, 4000);
    }
}

/// Accesses go through the trees in order, with many, few or no requests, and also when stashes are
/// emptied.
#[test]
fn dummies_access_the_trees_in_turn_as_well() {
    let order = Arc::new(std::sync::Mutex::new(vec![]));
    let tree = |nth: usize, (levels, len)| {
        let order = order.clone();
        let witness_call = move |op, _| {
            if op == traceless_core::trace::Op::Read {
                order.lock().unwrap().push(nth);
            }
        };
        let bare = BareTree::new(Shape::uniform(levels, 2).unwrap(), len);
        let witness: Box<dyn crate::tree::PathWitness> = Box::new(witness_call);
        crate::tree::ObservedTree::new(bare, witness)
    };
    let trees = [(5, 16), (4, 32), (2, 12)].into_iter().enumerate();
    let trees = trees.map(|(nth, size)| tree(nth, size)).collect();
    let mut path = PathOram::new(60, trees, 60, Box::new(SeededRng::new(1))).unwrap();
    path.drain_above(4);
    let mut evictions = 0;
    for step in 0..6000 {
        if step % 7 == 0 {
            path.submit(step, Addr(step * 11 % 60)).unwrap();
        }
        let kind = path.step(&mut |_, _| {}).unwrap().kind;
        evictions += u32::from(kind == StepKind::Eviction);
    }
    assert!(evictions > 100, "{evictions} evictions");
    let order = order.lock().unwrap();
    assert!(order.iter().enumerate().all(|(step, &tree)| tree == 2 - step % 3));
}

#[test]
fn other_arities_work_as_well() {
    for arity in [3, 4] {
        for tree in trees(&Shape::new(vec![4; 4], arity).unwrap(), 8) {
            let path = PathOram::new(60, vec![tree], 100, Box::new(SeededRng::new(1))).unwrap();
            behaves_like_an_array(path, 3000);
        }
    }
}

/// Each access reads every bucket of one path, from the root down, and writes the same buckets.
#[test]
fn a_path_access_has_one_template() {
    let shape = Shape::per_level(vec![4, 2, 4, 3, 1]).unwrap();
    let witness = Arc::new(Recorder::default());
    let store = Arc::new(WatchedStore::new(store_for(&shape, 16), witness.clone()));
    let tree = sealed(store, shape, 16);
    let path = PathOram::new(20, vec![tree], 50, Box::new(SeededRng::new(1))).unwrap();
    shows_one_template(path, &witness);
}

#[test]
fn leaves_are_fresh_and_a_stash_that_overflows_is_an_error() {
    // Twelve blocks for twelve slots: soon the stash is full.
    let tree = GhostTree::new(Shape::uniform(2, 4).unwrap(), 64, ());
    let mut path = PathOram::new(12, vec![tree], 1, Box::new(SeededRng::new(1))).unwrap();
    let overflow = (0..1000).find_map(|i| {
        path.submit(i, Addr(i % 12)).unwrap();
        path.step(&mut |_, _| {}).err()
    });
    assert!(matches!(overflow, Some(Error::StashOverflow { blocks: 2, limit: 1 })));
    assert!(matches!(path.step(&mut |_, _| {}), Err(Error::EarlierAbort)));
}

/// Even if the labels leave no room: then a request goes first, and changes a label.
#[test]
fn a_crowded_stash_is_emptied_first() {
    let tree = GhostTree::new(Shape::uniform(4, 2).unwrap(), 64, ());
    let mut path = PathOram::new(15, vec![tree], 12, Box::new(SeededRng::new(1))).unwrap();
    path.drain_above(0);
    let (mut drained, mut in_vain) = (0, 0);
    for i in 0..2000 {
        path.submit(i, Addr(i % 15)).unwrap();
        for nth in 0.. {
            let crowded = !path.engines()[0].stash().is_empty();
            let issued = path.step(&mut |_, _| {}).unwrap();
            let drains = crowded && nth < DRAINS_IN_A_ROW;
            assert_eq!(issued.kind, if drains { StepKind::Eviction } else { StepKind::Data });
            if issued.finished.is_some() {
                in_vain += u32::from(nth == DRAINS_IN_A_ROW);
                break;
            }
            drained += 1;
        }
    }
    assert!(drained > 100 && in_vain > 0, "{drained}, {in_vain} times in vain");
}

#[test]
fn impossible_requests_are_refused() {
    let tree = || BareTree::new(Shape::uniform(3, 4).unwrap(), 8);
    let new = |blocks, trees| PathOram::new(blocks, trees, 9, Box::new(SeededRng::new(1)));
    assert!(new(29, vec![tree()]).is_err());
    assert!(new(1, vec![]).is_err());
    let tiny = BareTree::new(Shape::uniform(3, 4).unwrap(), 7);
    assert!(new(2, vec![tree(), tiny]).is_err());
    let mut path = new(28, vec![tree()]).unwrap();
    assert!(matches!(path.submit(0, Addr(28)), Err(Error::OutOfRange { .. })));
}

/// A bucket of four blocks of 64 bytes fills five lines; a leaf bucket needs no versions.
#[test]
fn sealing_takes_little_room() {
    let shape = Shape::uniform(19, 4).unwrap();
    let key = Aead::new(&Secret::from_bytes([7; 32]));
    let leaf = (Salt::LEN + key.tag_len()) as u64 + 4 * (8 + 64);
    let len = SealedTree::store_len(&shape, 64, &key);
    assert_eq!(len, ((1 << 18) - 1) * 328 + (1 << 18) * leaf);
}

/// Flat, recursive, and with evictions of a full stash in between.
#[cfg(feature = "suite")]
#[test]
fn a_failed_read_is_made_again() {
    use crate::scheme::tree_rig::continues_after_failed_reads;
    use traceless_core::store::Store;

    let (shape, maps) = (Shape::uniform(5, 4).unwrap(), Shape::uniform(3, 4).unwrap());
    let lens = [&shape, &maps].map(|shape| store_for(shape, 16).len());
    for trees in 1..=2 {
        for above in [40, 1] {
            continues_after_failed_reads(lens[0] + lens[1], |store| {
                let data = sealed(store.clone(), shape.clone(), 16);
                let key = Aead::new(&Secret::from_bytes([8; 32]));
                let (maps, salts) = (maps.clone(), Box::new(SeededRng::new(2)));
                let map = SealedTree::create(store, lens[0], "map", maps, 16, key, salts).unwrap();
                let trees = [data, map].into_iter().take(trees).collect();
                let mut path = PathOram::new(40, trees, 60, Box::new(SeededRng::new(1))).unwrap();
                path.drain_above(above);
                path
            });
        }
    }
}
