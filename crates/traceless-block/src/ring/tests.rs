//! Tests of the whole scheme.

use super::*;
use std::sync::Arc;
use traceless_core::rng::Rng;
use traceless_core::suite::rig;

/// Blocks stay where they can be found for many turns of all buckets, with few in the stash.
#[test]
fn many_turns_lose_nothing_and_the_stash_stays_short() {
    let geometry = RingGeometry::with_buckets(600, 64, 8, &[4, 16]).unwrap();
    let mut rig = rig::Rig::with_room(geometry.clone(), geometry.store_len());
    let mut oram = Ring::create(&geometry, rig.context(rig.store.clone(), false)).unwrap();
    let (mut rng, mut model, mut most) = (SeededRng::new(5), vec![0u8; 600], 0);
    for nth in 0..20_000u64 {
        let block = rng.below(if nth % 3 == 0 { 600 } else { 60 });
        if nth % 2 == 0 {
            model[block as usize] = nth as u8;
            oram.write(Addr(block), &[nth as u8; 64]).unwrap();
        } else {
            let mut read = [0; 64];
            oram.read(Addr(block), &mut read).unwrap();
            assert_eq!(read, [model[block as usize]; 64], "access {nth}, block {block}");
        }
        most = most.max(oram.stashed());
    }
    assert!((10..40).contains(&most), "{most} in the stash");
    assert_eq!(oram.writes(), 20_000);
    oram.verify(&mut |_, _| {}, &mut |place| panic!("{place}")).unwrap();
}

/// For reading only all of it is read for each request, in one order, and nothing is written.
#[test]
fn reading_only_reads_everything() {
    let geometry = RingGeometry::with_buckets(100, 64, 4, &[3, 6]).unwrap();
    let mut rig = rig::Rig::with_room(geometry.clone(), geometry.store_len());
    let mut oram = Ring::create(&geometry, rig.context(rig.store.clone(), false)).unwrap();
    rig::fill(&mut oram, 7);
    oram.sync().unwrap();
    drop(oram);
    let before = rig.store.snapshot();
    let seen = Arc::new(traceless_core::trace::Recorder::default());
    let store = Arc::new(traceless_core::store::WatchedStore::new(rig.store.clone(), seen.clone()));
    let (context, state) = (rig.context(store, true), rig.vault.kept());
    let mut oram = Ring::open(&geometry, context, &state, &mut |_, _| {}).unwrap();
    seen.take();
    let mut traces = vec![];
    for block in [3, 99] {
        let mut read = [0; 64];
        oram.read(Addr(block), &mut read).unwrap();
        assert_eq!(read, [7; 64]);
        traces.push(seen.take());
    }
    assert!(traces[0].len() > 8 && traces[0] == traces[1]);
    assert!(matches!(oram.write(Addr(1), &[1; 64]), Err(traceless_core::Error::ReadOnly)));
    assert!(rig.store.snapshot() == before);
}

/// Blocks stay where they can be found while the openings that last moved them are retired.
#[test]
fn blocks_outlive_the_openings_that_moved_them() {
    let geometry = RingGeometry::with_buckets(60, 64, 4, &[2, 4]).unwrap();
    let mut rig = rig::Rig::with_room(geometry.clone(), geometry.store_len());
    let mut oram = Ring::create(&geometry, rig.context(rig.store.clone(), false)).unwrap();
    rig::fill(&mut oram, 9);
    let accesses = 12;
    for round in 0..2 * geometry.records_to_renew() / accesses {
        for _ in 0..accesses {
            oram.write(Addr(round % 3), &[9; 64]).unwrap();
        }
        oram.close().unwrap();
        let (context, state) = (rig.context(rig.store.clone(), false), rig.vault.kept());
        oram = Ring::open(&geometry, context, &state, &mut |_, _| {}).unwrap();
    }
    rig::assert_filled(&mut oram, 9);
}

fn leaves_of(oram: &Ring) -> Vec<u32> {
    let core = oram.core();
    (0..core.geometry.blocks).map(|block| core.map.get(block).leaf).collect()
}

fn same(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a == b).count()
}

/// An adversary that saw an access before a crash, of which the store has no record, does not see
/// the same leaf again: all blocks get new ones, which do not depend on the old ones.
#[test]
fn a_crash_links_no_accesses() {
    let geometry = RingGeometry::with_buckets(2000, 64, 16, &[8, 32]).unwrap();
    let mut rig = rig::Rig::with_room(geometry.clone(), geometry.store_len());
    let mut oram = Ring::create(&geometry, rig.context(rig.store.clone(), false)).unwrap();
    rig::fill(&mut oram, 3);
    oram.close().unwrap();
    let open = |rig: &mut rig::Rig<RingGeometry>| {
        let (context, state) = (rig.context(rig.store.clone(), false), rig.vault.kept());
        Ring::open(&geometry, context, &state, &mut |_, _| {}).unwrap()
    };
    // A close changes nothing: this is what the test would find without the pass.
    let before = leaves_of(&oram);
    let mut oram = open(&mut rig);
    assert_eq!(same(&before, &leaves_of(&oram)), 2000);
    oram.write(Addr(5), &[4; 64]).unwrap();
    oram.sync().unwrap();
    drop(oram);
    let oram = open(&mut rig);
    let after = leaves_of(&oram);
    // About a 32nd by chance, 62 of 2000.
    assert!((30..100).contains(&same(&before, &after)), "{}", same(&before, &after));
    let mut from_one = [0; 32];
    for (_, leaf) in before.iter().zip(&after).filter(|(before, _)| **before == 7) {
        from_one[*leaf as usize] += 1;
    }
    assert!(from_one.iter().all(|&blocks| blocks < 14), "{from_one:?}");
    let mut read = [0; 64];
    oram.read_shared(&[Addr(5)], &mut read).unwrap();
    assert_eq!(read, [4; 64]);
}

/// A pass that is interrupted anywhere loses nothing, and the next opening makes a whole one.
#[test]
fn a_pass_may_be_cut_short_anywhere() {
    let geometry = RingGeometry::with_buckets(60, 64, 4, &[2, 4]).unwrap();
    let mut rig = rig::Rig::with_room(geometry.clone(), geometry.store_len());
    let mut oram = Ring::create(&geometry, rig.context(rig.store.clone(), false)).unwrap();
    rig::fill(&mut oram, 9);
    oram.sync().unwrap();
    drop(oram);
    let mut cuts = 0;
    for fuse in (1..).step_by(3) {
        let disk = Arc::new(rig::Forgetful::new(&rig.store.snapshot(), fuse));
        let (context, state) = (rig.context(disk.clone(), false), rig.vault.kept());
        match Ring::open(&geometry, context, &state, &mut |_, _| {}) {
            Ok(_) => break,
            Err(error) => assert!(matches!(error, traceless_core::Error::Store(_)), "{error:?}"),
        }
        let left = disk.crash(&mut SeededRng::new(fuse));
        rig.store = Arc::new(traceless_core::store::MemStore::from_bytes(&left));
        cuts += 1;
    }
    assert!(cuts > 5, "{cuts} cuts");
    let (context, state) = (rig.context(rig.store.clone(), false), rig.vault.kept());
    let mut oram = Ring::open(&geometry, context, &state, &mut |_, _| {}).unwrap();
    assert!(oram.core().map.spots().all(|spot| !spot.is_stale));
    rig::assert_filled(&mut oram, 9);
}

/// Damage to a slot of one block costs that block, and the next writes bring it back.
#[test]
fn damage_costs_one_block_until_it_is_written() {
    let geometry = RingGeometry::with_buckets(300, 64, 8, &[4, 16]).unwrap();
    let mut rig = rig::Rig::with_room(geometry.clone(), geometry.store_len());
    let mut oram = Ring::create(&geometry, rig.context(rig.store.clone(), false)).unwrap();
    rig::fill(&mut oram, 1);
    let is_in_leaf =
        |spot: &map::RingSpot| matches!(spot.place, map::RingPlace::Level { level: 1, .. });
    let block = oram.core().map.spots().position(|spot| is_in_leaf(&spot)).unwrap() as u64;
    let (area, slot) = {
        let core = oram.core();
        let spot = core.map.get(block);
        let map::RingPlace::Level { level, slot } = spot.place else { unreachable!() };
        let bucket = core.geometry.bucket(level, spot.leaf.into());
        let evictions = core.geometry.evictions(core.count);
        let first = core.geometry.bucket_slot(level, bucket, evictions);
        (core.levels[level].clone(), traceless_core::types::Slot(first + slot))
    };
    rig::damage(&*rig.store, &area, slot);
    let mut damaged = vec![];
    oram.verify(&mut |_, _| {}, &mut |place| damaged.push(place)).unwrap();
    assert!(damaged.len() == 1 && damaged[0].block == Some(block), "{damaged:?}");
    let mut read = [0; 64];
    for _ in 0..2 {
        let refused = oram.read(Addr(block), &mut read);
        assert!(matches!(refused, Err(traceless_core::Error::Tampered { .. })), "{refused:?}");
    }
    // It stays lost through evictions and openings.
    for addr in (0..300).filter(|addr| *addr != block) {
        oram.write(Addr(addr), &[1; 64]).unwrap();
    }
    oram.close().unwrap();
    let (context, state) = (rig.context(rig.store.clone(), false), rig.vault.kept());
    let mut oram = Ring::open(&geometry, context, &state, &mut |_, _| {}).unwrap();
    let refused = oram.read(Addr(block), &mut read);
    assert!(matches!(refused, Err(traceless_core::Error::Tampered { .. })), "{refused:?}");
    oram.write(Addr(block), &[1; 64]).unwrap();
    rig::assert_filled(&mut oram, 1);
    oram.verify(&mut |_, _| {}, &mut |place| panic!("{place}")).unwrap();
}

/// After a crash damage to the contents of a record that was synced costs its block alone.
#[test]
fn damage_to_what_was_synced_moves_no_end() {
    let geometry = RingGeometry::with_buckets(60, 64, 4, &[2, 4]).unwrap();
    let mut rig = rig::Rig::with_room(geometry.clone(), geometry.store_len());
    let mut oram = Ring::create(&geometry, rig.context(rig.store.clone(), false)).unwrap();
    rig::fill(&mut oram, 9);
    oram.write(Addr(7), &[9; 64]).unwrap();
    oram.sync().unwrap();
    oram.write(Addr(8), &[9; 64]).unwrap();
    let (log, slot) = {
        let core = oram.core();
        (core.log.clone(), traceless_core::types::Slot((core.count - 2) % core.log.slots()))
    };
    drop(oram);
    rig::damage(&*rig.store, &log, slot);
    let (context, state) = (rig.context(rig.store.clone(), false), rig.vault.kept());
    let mut oram = Ring::open(&geometry, context, &state, &mut |_, _| {}).unwrap();
    let mut read = [0; 64];
    let refused = oram.read(Addr(7), &mut read);
    assert!(matches!(refused, Err(traceless_core::Error::Tampered { .. })), "{refused:?}");
    oram.write(Addr(7), &[9; 64]).unwrap();
    rig::assert_filled(&mut oram, 9);
}

/// Damaged marks are made anew, as after a crash.
#[test]
fn a_ring_opens_without_its_marks() {
    let geometry = RingGeometry::with_buckets(60, 64, 4, &[2, 4]).unwrap();
    let mut rig = rig::Rig::with_room(geometry.clone(), geometry.store_len());
    let mut oram = Ring::create(&geometry, rig.context(rig.store.clone(), false)).unwrap();
    rig::fill(&mut oram, 9);
    oram.close().unwrap();
    let marks = oram.core().marks_area.clone();
    drop(oram);
    rig::damage(&*rig.store, &marks, traceless_core::types::Slot(0));
    let (context, state) = (rig.context(rig.store.clone(), false), rig.vault.kept());
    let mut oram = Ring::open(&geometry, context, &state, &mut |_, _| {}).unwrap();
    rig::assert_filled(&mut oram, 9);
}

/// The chance that a bucket of the first level or a leaf has no room falls fast enough: the blocks
/// that miss a turn are counted, and none may miss two.
#[test]
fn blocks_seldom_miss_their_turn() {
    let geometry = RingGeometry::with_buckets(4000, 64, 32, &[8, 24]).unwrap();
    let context =
        SchemeContext::in_memory(geometry.store_len(), Box::new(SeededRng::new(3))).unwrap();
    let mut oram = Ring::create(&geometry, context).unwrap();
    rig::fill(&mut oram, 1);
    let (mut most, turn) = (0, 8 * 32);
    for nth in 0..30_000u64 {
        oram.write(Addr(nth * 1597 % 4000), &[1; 64]).unwrap();
        let core = oram.core();
        let oldest = core.stash.iter().map(|(_, held)| held.birth).min();
        most = most.max(core.count - oldest.unwrap_or(core.count));
    }
    assert!(most <= turn, "a block waited for {most} accesses, {turn} is a turn");
}
