//! Bundles: parts of a block that share a label, so that one path access brings all of them.

use super::tests::{ARRAYS, Lcg, key, paths, rng, shape_for, sizes};
use super::*;
use crate::posmap::{CompressedLabels, PlainLabels};
use crate::scheme::tree_rig::{
    behaves_like_an_array, sealed, shows_one_template, store_for, trees,
};
use crate::tree::{BareTree, Shape, Substash};
use alloc::sync::Arc;
use traceless_core::store::WatchedStore;
use traceless_core::trace::Recorder;

const LEN: usize = 24;

fn bundles(blocks: u64, map_levels: u8, parts: u64) -> Sizes {
    Sizes { bundled: true, ..sizes(blocks, map_levels, parts) }
}

fn small<L: Labels>(sizes: Sizes, labels: impl Fn() -> L) -> Unified<BareTree, L> {
    let tree = BareTree::new(shape_for(&sizes, labels().fanout()), LEN);
    let plb = Plb::new(4, 2, LEN).unwrap();
    Unified::new(sizes, tree, labels(), labels(), plb, rng()).unwrap()
}

fn compressed() -> CompressedLabels {
    CompressedLabels::new(&key(), 5, 2).unwrap()
}

fn plain() -> PlainLabels {
    PlainLabels::in_block(LEN).unwrap()
}

/// Bundles with group remaps, and with frequent changes of the label key.
#[test]
fn bundles_make_an_array_of_every_tree() {
    for (n, map_levels, (blocks, ways)) in ARRAYS {
        for (parts, remaps_max) in [(2, 40), (3, u64::MAX)] {
            let sizes = bundles(n, map_levels, parts);
            for tree in trees(&shape_for(&sizes, 5), LEN) {
                let plb = Plb::new(blocks, ways, LEN).unwrap();
                let labels = || compressed().with_remaps_max(remaps_max);
                let oram = Unified::new(sizes, tree, labels(), labels(), plb, rng()).unwrap();
                assert_eq!(oram.block_len(), LEN * parts as usize);
                behaves_like_an_array(oram, 600);
            }
        }
    }
}

/// Plain labels have no counters: a bundle can use one of them, but parts on separate paths cannot.
#[test]
fn bundles_have_plain_labels_too() {
    for parts in [2, 4] {
        behaves_like_an_array(small(bundles(60, 2, parts), plain), 3000);
    }
    let apart = Sizes { bundled: false, ..bundles(60, 2, 2) };
    let tree = BareTree::new(shape_for(&apart, 6), LEN);
    let plb = Plb::new(4, 2, LEN).unwrap();
    assert!(Unified::new(apart, tree, plain(), plain(), plb, rng()).is_err());
}

/// A bundle takes as many paths as a block of one part, also in a group remap.
#[test]
fn a_bundle_takes_one_path() {
    let paths_of = |sizes| {
        let mut lcg = Lcg(2);
        paths(&mut small(sizes, compressed), (0..2000).map(|_| lcg.mixed(64, 8))).0
    };
    let single = paths_of(sizes(64, 2, 1));
    for parts in [2, 4] {
        assert_eq!(paths_of(bundles(64, 2, parts)), single);
        assert!(paths_of(sizes(64, 2, parts)) > single * 3 / 2, "parts apart take one each");
    }
}

#[test]
fn every_step_is_one_path() {
    let shape = Shape::per_level(vec![4, 2, 4, 3, 4, 4]).unwrap();
    let witness = Arc::new(Recorder::default());
    let store = Arc::new(WatchedStore::new(store_for(&shape, LEN), witness.clone()));
    let tree = sealed(store, shape, LEN);
    let plb = Plb::new(2, 1, LEN).unwrap();
    let oram = Unified::new(bundles(40, 2, 2), tree, compressed(), compressed(), plb, rng());
    shows_one_template(oram.unwrap(), &witness);
}

fn finds_what_is_filled<L: Labels>(mut oram: Unified<BareTree, L>) {
    oram.fill(&mut |addr, body| body.fill(addr.0 as u8 + 1)).unwrap();
    for addr in (0..oram.blocks()).rev() {
        let mut found = [0; 3 * LEN];
        oram.submit(0, Addr(addr)).unwrap();
        let mut is_done = false;
        while !is_done {
            let issued = oram.step(&mut |_, body| found.copy_from_slice(body)).unwrap();
            is_done = issued.finished.is_some();
        }
        let wants = (0..3).map(|part| (addr * 3 + part) as u8 + 1);
        assert!(found.chunks(LEN).zip(wants).all(|(part, want)| part == [want; LEN]), "{addr}");
    }
}

#[test]
fn what_is_filled_is_found() {
    finds_what_is_filled(small(bundles(50, 2, 3), plain));
    finds_what_is_filled(small(bundles(50, 2, 3), compressed));
}

/// A bundle is found by address, taken out whole, and returned under the label that it has.
#[test]
fn bundles_leave_and_come_back() {
    for searches in [false, true] {
        let (shape, sizes) = (Shape::uniform(8, 4).unwrap(), bundles(60, 2, 2));
        let tree = BareTree::new(shape.only(|level| level >= 3), LEN);
        let tree = Substash::new(shape, 3, (7, 4), tree).unwrap();
        let plb = Plb::new(4, 2, LEN).unwrap();
        let mut oram = Unified::new(sizes, tree, plain(), plain(), plb, rng()).unwrap();
        if searches {
            oram.search_first();
        }
        let mut model = vec![[0; 2 * LEN]; 60];
        let finish = |oram: &mut Unified<_, _>, serve: &mut dyn FnMut(&mut [u8])| {
            while oram.finish_without_path(&mut |_, body| serve(body)).unwrap().is_none()
                && oram.step(&mut |_, body| serve(body)).unwrap().finished.is_none()
            {}
        };
        let mut lcg = Lcg(3);
        for round in 0..2000u64 {
            let addr = lcg.mixed(60, 6);
            let mut taken = [0; 2 * LEN];
            oram.submit_fetch(0, Addr(addr)).unwrap();
            finish(&mut oram, &mut |body| taken.copy_from_slice(body));
            assert_eq!(taken, model[addr as usize], "{addr} in round {round}");
            taken[round as usize % (2 * LEN)] = round as u8;
            oram.submit_return(0, Addr(addr)).unwrap();
            finish(&mut oram, &mut |body| body.copy_from_slice(&taken));
            model[addr as usize] = taken;
        }
    }
}

/// Two lines per label and 64 labels per block: one level of the map is in the tree, and the next
/// one fits where the paper's processor keeps its own.
#[test]
fn the_map_is_two_levels_at_the_papers_size() {
    let labels = CompressedLabels::new(&key(), 64, 7).unwrap();
    assert_eq!(labels.entries_len(), 64);
    let places = LevelPlaces::new(&bundles(1 << 25, 1, 2), 64).unwrap();
    assert_eq!(places.count, [1 << 25, 1 << 19]);
    let top = places.count[1].div_ceil(labels.fanout()) as usize * labels.entries_len();
    assert_eq!(top, 512 << 10);
}
