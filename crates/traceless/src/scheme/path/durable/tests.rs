//! Tests of what the suite cannot observe from outside: crashes at every call, freshness of each
//! level and of the state, openings and their keys, reading only.

use super::*;
use alloc::sync::Arc;
use alloc::vec;
use traceless_core::durable::Vault;
use traceless_core::error::Place;
use traceless_core::oram::Oram;
use traceless_core::scheme::openings::OPENINGS_MAX;
use traceless_core::seal::Secret;
use traceless_core::store::{MemStore, Store, WatchedStore};
use traceless_core::suite::rig::{self, assert_filled, fill};
use traceless_core::trace::{Op, Recorder};

traceless_core::local_rig!(Rig, PathGeometry);

impl Rig {
    fn new(geometry: PathGeometry) -> Self {
        Self(rig::Rig::with_room(geometry, geometry.store_len()))
    }

    fn create(&mut self) -> SteppedOram<DurablePath> {
        let context = self.0.context(self.0.store.clone(), false);
        DurablePath::create(self.0.geometry, context).unwrap()
    }

    fn open_on(
        &mut self,
        store: Arc<dyn Store>,
        read_only: bool,
    ) -> Result<SteppedOram<DurablePath>> {
        let (context, state) = (self.0.context(store, read_only), self.0.vault.kept());
        DurablePath::open(self.0.geometry, context, &state)
    }

    fn open(&mut self) -> SteppedOram<DurablePath> {
        self.open_on(self.0.store.clone(), false).unwrap()
    }
}

/// Flat, recursive, and with cached levels.
fn geometries() -> [PathGeometry; 3] {
    let flat = PathGeometry { unsynced_max: 9, ..PathGeometry::new(37, 16).unwrap() };
    let recursive = PathGeometry { map_trees: 2, map_block_len: 16, unsynced_max: 7, ..flat };
    [flat, recursive, PathGeometry { cached_levels: 2, ..recursive }]
}

#[test]
fn no_crash_loses_what_was_synced() {
    for (nth, geometry) in geometries().into_iter().enumerate() {
        // Crashes at every call of some openings, then longer runs, since an opening after a crash
        // is long.
        rig::lives_through_crashes(
            geometry,
            nth as u64,
            (0..60).chain((0..40).map(|n| n * 977 % 9000)),
        );
    }
}

/// No nonce covers two contents, in spite of crashes, copies that live on, and new openings.
#[cfg(feature = "suite")]
#[test]
fn no_nonce_covers_two_contents() {
    use std::collections::HashMap;
    use traceless_core::seal::record;

    record::start();
    for (nth, geometry) in geometries().into_iter().enumerate() {
        rig::lives_through_crashes(geometry, nth as u64 + 9, (0..60).map(|n| 20 + n * 977 % 4000));
        let mut used = HashMap::new();
        for sealed in record::take() {
            let first = *used.entry((sealed.key, sealed.nonce.version)).or_insert(sealed.tag);
            assert_eq!(first, sealed.tag, "version {} is used twice", sealed.nonce.version);
        }
        assert!(used.len() > 10_000);
    }
}

/// A closed scheme, and its store as it was some accesses earlier.
fn aged(geometry: PathGeometry) -> (Rig, Vec<u8>) {
    let mut rig = Rig::new(geometry);
    let mut oram = rig.create();
    fill(&mut oram, 1);
    oram.sync().unwrap();
    let old = rig.store.snapshot();
    (0..20).for_each(|_| fill(&mut oram, 2));
    oram.close().unwrap();
    (rig, old)
}

/// Reads every block, which must be correct or refused; returns the first refused place.
fn first_refusal(rig: &mut Rig, bytes: &[u8]) -> Option<Place> {
    let kept = rig.vault.kept();
    let opened = rig.open_on(Arc::new(MemStore::from_bytes(bytes)), false);
    let mut refused = None;
    match opened {
        Err(Error::Tampered { place }) => refused = Some(place),
        Err(other) => panic!("{other}"),
        Ok(mut oram) => {
            let mut block = vec![0; oram.block_len()];
            for addr in (0..37).cycle().take(400) {
                match oram.read(Addr(addr), &mut block) {
                    Ok(()) => assert_eq!(block, vec![2; oram.block_len()]),
                    Err(Error::Tampered { place }) => refused = refused.or(Some(place)),
                    Err(Error::EarlierDamage) => assert!(refused.is_some()),
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
    rig.vault.keep(&kept).unwrap();
    refused
}

/// The places of all buckets, by tree and level.
fn levels(geometry: &PathGeometry) -> Vec<(&'static str, Vec<Extent>)> {
    let mut levels = vec![];
    for tree in geometry.trees() {
        for level in tree.cached..tree.shape.levels() {
            let buckets = 0..tree.shape.buckets(level);
            let at = |bucket| tree.at + tree.layout.bucket_at(level, bucket);
            let extent = |bucket| Extent::new(at(bucket), tree.layout.bucket_len(level));
            levels.push((tree.name, buckets.map(extent).collect()));
        }
    }
    levels
}

#[test]
fn old_buckets_are_refused_on_every_level() {
    for geometry in geometries() {
        // A closed scheme is not redone from its log, which would repair it.
        let (mut rig, old) = aged(geometry);
        let sound = rig.store.snapshot();
        assert_eq!(first_refusal(&mut rig, &sound), None);
        for (name, buckets) in levels(&geometry) {
            let mut bytes = sound.clone();
            for bucket in buckets {
                let range = bucket.at as usize..bucket.end() as usize;
                bytes[range.clone()].copy_from_slice(&old[range]);
            }
            let refused = first_refusal(&mut rig, &bytes).expect("an old level is noticed");
            assert_eq!(refused.area, name);
        }
    }
}

#[test]
fn an_old_state_is_refused() {
    for geometry in geometries() {
        let (mut rig, old) = aged(geometry);
        let sound = rig.store.snapshot();
        let copies = geometry.copies(&geometry.trees());
        let mut refused = vec![];
        for nth in 0..2 {
            let range = copies.at + nth * copies.len..copies.at + (nth + 1) * copies.len;
            let range = range.start as usize..range.end as usize;
            let mut bytes = sound.clone();
            bytes[range.clone()].copy_from_slice(&old[range]);
            refused.extend(first_refusal(&mut rig, &bytes).map(|place| place.area));
            // A whole old store under a newer vault.
            let whole = first_refusal(&mut rig, &old).expect("the vault is newer");
            assert!(whole.area.starts_with("state"));
        }
        assert_eq!(refused.len(), 1, "the copy in use is refused, the other not missed");
    }
}

#[test]
fn another_key_or_geometry_opens_nothing() {
    let (mut rig, _) = aged(geometries()[0]);
    let mut context = rig.0.context(rig.0.store.clone(), false);
    context.key = Secret::from_bytes([5; 32]);
    let opened = DurablePath::open(rig.geometry, context, &rig.vault.kept());
    assert!(matches!(opened.err(), Some(Error::Tampered { .. })));
    rig.geometry.unsynced_max -= 1;
    let opened = rig.open_on(rig.store.clone(), false);
    assert!(matches!(opened.err(), Some(Error::Tampered { .. })));
}

#[test]
fn reading_only_writes_nothing() {
    let mut rig = Rig::new(geometries()[1]);
    let mut oram = rig.create();
    fill(&mut oram, 1);
    drop(oram);
    let (bytes, kept) = (rig.store.snapshot(), rig.vault.kept());
    let mut oram = rig.open_on(rig.store.clone(), true).unwrap();
    assert!(matches!(oram.read(Addr(0), &mut [0; 16]), Err(Error::ReadOnly)));
    oram.close().unwrap();
    assert_eq!((rig.store.snapshot(), rig.vault.kept()), (bytes, kept));
}

#[test]
fn openings_die_out_before_there_are_too_many() {
    let mut rig = Rig::new(geometries()[2]);
    fill(&mut rig.create(), 1);
    let mut most = 0;
    for _ in 0..2 * OPENINGS_MANY {
        let mut oram = rig.open();
        oram.read(Addr(3), &mut [0; 16]).unwrap();
        oram.close().unwrap();
        most = most.max(oram.controller().saves.openings().len());
    }
    assert!((OPENINGS_MANY - 1..OPENINGS_MAX).contains(&most), "{most}");
    assert!(rig.open().controller().saves.openings().len() < OPENINGS_MANY / 2 + 10);
    let mut oram = rig.open();
    let mut block = [0; 16];
    oram.read(Addr(30), &mut block).unwrap();
    assert_eq!(block, [1; 16]);
}

#[test]
fn a_key_that_sealed_enough_is_replaced() {
    let mut rig = Rig::new(geometries()[1]);
    let context = rig.0.context(rig.0.store.clone(), false);
    let mut path = DurablePath::new(rig.geometry, context).unwrap();
    path.key_bytes_max = 50_000;
    let mut oram = SteppedOram::new(path);
    (0..20).for_each(|byte| fill(&mut oram, byte));
    assert!(oram.controller().saves.openings().len() > 5);
    oram.close().unwrap();
    assert_filled(&mut rig.open(), 19);
}

/// The pass that retires openings may seal enough bytes to begin another opening.
#[test]
fn what_was_written_anew_under_a_key_since_replaced_is_not_forgotten() {
    let mut rig = Rig::new(geometries()[1]);
    let context = rig.0.context(rig.0.store.clone(), false);
    let mut path = DurablePath::new(rig.geometry, context).unwrap();
    path.key_bytes_max = 1;
    let mut oram = SteppedOram::new(path);
    let (mut before, mut now) = (0, 1);
    while now > before {
        fill(&mut oram, 1);
        (before, now) = (now, oram.controller().saves.openings().len());
    }
    assert!(before > OPENINGS_MANY - 50, "{before}");
    assert_filled(&mut oram, 1);
    oram.close().unwrap();
    assert_filled(&mut rig.open(), 1);
}

/// The bytes that a sync writes, and its number of requests to the store.
#[test]
fn a_sync_costs_the_state_and_each_bucket_twice() {
    let geometry = PathGeometry { unsynced_max: 100, ..PathGeometry::new(1000, 64).unwrap() };
    let mut rig = Rig::new(geometry);
    rig.create().close().unwrap();
    let witness = Arc::new(Recorder::default());
    let watched = Arc::new(WatchedStore::new(rig.store.clone(), witness.clone()));
    let mut oram = rig.open_on(watched, false).unwrap();
    (0..50).for_each(|addr| oram.write(Addr(addr), &[1; 64]).unwrap());
    let reads = witness.take();
    assert!(reads.iter().all(|e| e.op == Op::Read), "all writes wait");
    let layout = &geometry.trees()[0].layout;
    let mut buckets = std::collections::BTreeMap::new();
    for e in reads.iter().filter(|e| e.at < layout.len()) {
        let mut at = e.at;
        while at < e.at + u64::from(e.len) {
            let len = layout.bucket_len_at(at).unwrap() as u64;
            buckets.insert(at, 2 * len + 8);
            at += len;
        }
    }
    oram.sync().unwrap();
    let written: u64 = witness.take().iter().map(|e| u64::from(e.len)).sum();
    assert_eq!(written, geometry.state_len() + buckets.values().sum::<u64>());
    oram.sync().unwrap();
    assert!(witness.take().is_empty(), "nothing was done since");
}

/// The leaves of the paths read in the first tree, from the buckets of its last level.
fn leaves_read(geometry: &PathGeometry, events: &[traceless_core::trace::Event]) -> Vec<u64> {
    let trees = geometry.trees();
    let (layout, level) = (&trees[0].layout, trees[0].shape.levels() - 1);
    let buckets = 0..trees[0].shape.buckets(level);
    let places: std::collections::HashMap<u64, u64> =
        buckets.map(|bucket| (layout.bucket_at(level, bucket), bucket)).collect();
    let reads = events.iter().filter(|e| e.op == Op::Read);
    // The last level may follow upper levels in one read.
    let leaf = |e: &traceless_core::trace::Event| {
        (e.at..e.at + u64::from(e.len)).find_map(|at| places.get(&at))
    };
    reads.filter_map(leaf).copied().collect()
}

type Opened = Result<SteppedOram<DurablePath>>;

/// Makes accesses after the last sync, a crash, and the same accesses again. Returns how many of
/// the later ones read the path of an earlier one, and the number expected by chance.
fn links_across_a_crash(
    geometry: PathGeometry,
    open: impl Fn(PathGeometry, SchemeContext, &[u8]) -> Opened,
) -> (usize, f64) {
    const BLOCKS: u64 = 30;
    let mut rig = Rig::new(geometry);
    fill(&mut rig.create(), 1);
    let (mut linked, mut by_chance) = (0, 0.0);
    for round in 0..20 {
        let seen = |rig: &mut Rig| {
            let witness = Arc::new(Recorder::default());
            let watched = Arc::new(WatchedStore::new(rig.store.clone(), witness.clone()));
            let (context, state) = (rig.context(watched, false), rig.vault.kept());
            let mut oram = open(geometry, context, &state).unwrap();
            witness.take();
            for nth in 0..BLOCKS {
                oram.read(Addr((nth * 7 + round) % geometry.blocks), &mut [0; 16]).unwrap();
            }
            leaves_read(&geometry, &witness.take())
        };
        // Also right after a close. Nothing is synced, so each run ends in a crash.
        if round % 2 == 0 {
            rig.open().close().unwrap();
        }
        let (before, after) = (seen(&mut rig), seen(&mut rig));
        assert_eq!((before.len(), after.len()), (BLOCKS as usize, BLOCKS as usize));
        linked += before.iter().zip(&after).filter(|(before, after)| before == after).count();
        by_chance += BLOCKS as f64 / geometry.trees()[0].shape.leaves() as f64;
    }
    (linked, by_chance)
}

#[test]
fn a_crash_links_no_accesses() {
    for geometry in larger_geometries() {
        let (linked, by_chance) = links_across_a_crash(geometry, DurablePath::open);
        let limit = by_chance + 6.0 * by_chance.sqrt() + 3.0;
        assert!((linked as f64) < limit, "{linked} are linked, {by_chance} by chance");
        // The planted fault: labels stay as saved.
        let (linked, _) = links_across_a_crash(geometry, unrelabelled);
        assert!(linked as f64 > 10.0 * limit, "{linked} of 600 are found");
    }
}

/// Flat and recursive, with buckets of three slots and of four.
fn larger_geometries() -> Vec<PathGeometry> {
    let flat = PathGeometry { unsynced_max: 100, ..PathGeometry::new(600, 16).unwrap() };
    let recursive = PathGeometry { map_trees: 2, map_block_len: 16, ..flat };
    let both = [flat, recursive, PathGeometry { cached_levels: 2, ..recursive }];
    both.into_iter().flat_map(|geometry| [geometry, PathGeometry { z: 3, ..geometry }]).collect()
}

/// An opening after a crash reads the leaves of the first tree in order, with drawn leaves between
/// them, some for each block; its writes to the maps are always the same.
#[test]
fn relabelling_reveals_nothing() {
    for geometry in larger_geometries() {
        let trees = geometry.trees();
        let maps = geometry.store_len() - geometry.copies(&trees).len * 2;
        let shown = |hot: bool| {
            let mut rig = Rig::new(geometry);
            let mut oram = rig.create();
            fill(&mut oram, 1);
            (0..333).for_each(|i| {
                let addr = if hot { 3 } else { i };
                oram.read(Addr(addr), &mut [0; 16]).unwrap();
            });
            drop(oram);
            let witness = Arc::new(Recorder::default());
            let watched = Arc::new(WatchedStore::new(rig.store.clone(), witness.clone()));
            let mut oram = rig.open_on(watched, false).unwrap();
            let events = witness.take();
            assert_filled(&mut oram, 1);
            let of_maps =
                |e: &&traceless_core::trace::Event| (trees[0].layout.len()..maps).contains(&e.at);
            // The part after the writes that the last sync held back, which the opening repeats
            // first.
            let passed = events.iter().position(|e| e.op == Op::Read && e.at < maps).unwrap();
            let of_maps = events[passed..].iter().filter(of_maps).map(|e| (e.op, e.at, e.len));
            (leaves_read(&geometry, &events), of_maps.collect::<Vec<_>>())
        };
        let ((hot, hot_maps), (cold, cold_maps)) = (shown(true), shown(false));
        assert_eq!(hot.len(), cold.len());
        assert!(hot.len() as u64 <= 3 * geometry.blocks, "{} accesses", hot.len());
        assert_eq!(hot_maps, cold_maps);
        let buckets = trees[1..].iter().map(PlacedTree::below);
        let buckets: u64 = buckets.map(|s| (0..s.levels()).map(|l| full(&s, l)).sum::<u64>()).sum();
        assert_eq!(hot_maps.len() as u64, buckets, "each bucket of a map is written once");
        let in_order = |leaves: &[u64]| {
            let visits = leaves.len() as u64 / trees[0].shape.leaves();
            let firsts = leaves.chunks(visits as usize).map(|of_leaf| of_leaf[0]);
            assert!(firsts.eq(0..trees[0].shape.leaves()));
        };
        in_order(&hot);
        in_order(&cold);
    }
}

/// Number of buckets in a level, if it has slots.
fn full(shape: &crate::tree::Shape, level: usize) -> u64 {
    if shape.z(level) > 0 { shape.buckets(level) } else { 0 }
}

/// The label of each block of each tree, from the headers in buckets and stashes.
fn labels(oram: &mut SteppedOram<DurablePath>) -> Vec<std::collections::BTreeMap<Addr, Leaf>> {
    let mut labels = vec![];
    for engine in &mut oram.controller_mut().oram.engines {
        let mut of_tree = std::collections::BTreeMap::new();
        for leaf in (0..engine.shape().leaves()).map(Leaf) {
            engine.fetch(leaf).unwrap();
            of_tree.extend(engine.labelled().map(|addr| (addr, leaf)));
            engine.write_back().unwrap();
        }
        labels.push(of_tree);
    }
    labels
}

/// Dependence between labels before and after a crash: for each tree, chi squared over sixteen
/// classes, and the number of unchanged labels minus the number expected.
fn dependence(
    geometry: PathGeometry,
    open: impl Fn(PathGeometry, SchemeContext, &[u8]) -> Opened,
) -> Vec<(f64, f64)> {
    let mut rig = Rig::new(geometry);
    fill(&mut rig.create(), 1);
    let reopened = |rig: &mut Rig, open: &dyn Fn(PathGeometry, SchemeContext, &[u8]) -> Opened| {
        let (context, state) = (rig.0.context(rig.0.store.clone(), false), rig.vault.kept());
        labels(&mut open(geometry, context, &state).unwrap())
    };
    let planted =
        |geometry, context: SchemeContext, state: &[u8]| unrelabelled(geometry, context, state);
    let trees = geometry.trees().len();
    let (mut classes, mut pairs) = (vec![[0.0; 16]; trees], vec![(0.0, 0.0); trees]);
    for _ in 0..12 {
        let before = reopened(&mut rig, &planted);
        let after = reopened(&mut rig, &open);
        // Its labels are the ones that the next round finds.
        drop(rig.open_on(rig.store.clone(), false).unwrap());
        for (nth, (before, after)) in before.iter().zip(&after).enumerate() {
            let leaves = geometry.trees()[nth].shape.leaves();
            for (addr, old) in before {
                let Some(new) = after.get(addr) else { continue };
                let class = |leaf: &Leaf| (leaf.0 * 4 / leaves.max(4)) as usize;
                classes[nth][class(old) * 4 + class(new)] += 1.0;
                pairs[nth].0 += f64::from(u8::from(old == new));
                pairs[nth].1 += 1.0 / leaves as f64;
            }
        }
    }
    let chi = |seen: &[f64; 16]| {
        let all: f64 = seen.iter().sum();
        let line = |nth: usize| seen[nth / 4 * 4..][..4].iter().sum::<f64>();
        let row = |nth: usize| (0..4).map(|i| seen[i * 4 + nth % 4]).sum::<f64>();
        let want = |nth| line(nth) * row(nth) / all;
        (0..16).filter(|&n| want(n) > 0.0).map(|n| (seen[n] - want(n)).powi(2) / want(n)).sum()
    };
    let stayed = pairs.iter().map(|(same, chance)| (same - chance) / chance.sqrt().max(1.0));
    classes.iter().map(chi).zip(stayed).collect()
}

/// An opening with the planted fault: labels stay as saved.
fn unrelabelled(geometry: PathGeometry, context: SchemeContext, state: &[u8]) -> Opened {
    DurablePath::reopen(geometry, context, &SchemeState::decode(state)?).map(SteppedOram::new)
}

/// Labels are independent in every tree, with all blocks present: 9 degrees of freedom at most.
#[test]
fn labels_before_and_after_a_crash_are_independent() {
    for geometry in larger_geometries() {
        for (tree, (chi, stayed)) in dependence(geometry, DurablePath::open).into_iter().enumerate()
        {
            assert!(chi < 40.0 && stayed < 6.0, "tree {tree}: {chi}, {stayed}");
        }
        for (tree, (chi, stayed)) in dependence(geometry, unrelabelled).into_iter().enumerate() {
            assert!(chi > 100.0 && stayed > 20.0, "tree {tree}: {chi}, {stayed}");
        }
    }
}

/// A request's callback may panic, and its caller may catch that: incomplete work is never saved.
#[test]
fn what_panics_is_not_saved() {
    let mut rig = Rig::new(geometries()[1]);
    let mut oram = rig.create();
    fill(&mut oram, 1);
    oram.sync().unwrap();
    let panics = std::panic::AssertUnwindSafe(|| oram.update(Addr(3), &mut |_| panic!("mine")));
    assert!(std::panic::catch_unwind(panics).is_err());
    assert!(matches!(oram.read(Addr(4), &mut [0; 16]), Err(Error::EarlierAbort)));
    assert!(matches!(oram.sync(), Err(Error::EarlierAbort)));
    assert!(matches!(oram.close(), Err(Error::EarlierAbort)));
    assert_filled(&mut rig.open(), 1);
}

#[test]
fn a_stash_that_a_leaf_could_fill_is_refused() {
    let geometry = PathGeometry::new(1000, 64).unwrap();
    for (z, stash_blocks) in [(4, 31), (8, 63), (16, 127)] {
        let small = PathGeometry { z, stash_blocks, ..geometry };
        assert!(matches!(small.check(), Err(Error::Geometry(_))), "{z} {stash_blocks}");
        PathGeometry { stash_blocks: stash_blocks + 1, ..small }.check().unwrap();
    }
    PathGeometry { stash_blocks: 3, ..PathGeometry::new(3, 64).unwrap() }.check().unwrap();
}

/// Dummies and evictions wait for a sync like other accesses, and must not exceed the limit.
#[test]
fn dummies_are_saved_in_their_turn() {
    for geometry in geometries() {
        let mut rig = Rig::new(geometry);
        let mut stepped = rig.create();
        let oram = stepped.controller_mut();
        let before = oram.saves.life.synced();
        for _ in 0..5 * geometry.unsynced_max {
            assert_eq!(oram.step(&mut |_, _| {}).unwrap().finished, None);
            assert!(oram.unsynced < geometry.unsynced_max);
        }
        assert_eq!(oram.saves.life.synced(), before + 5);
    }
}
