//! What a crash, a damaged slot or a failing disk leaves: recovered, read around, or refused.

use super::*;

#[test]
fn opened_for_reading_a_flush_that_is_missing_is_read_around() {
    let mut rig = Rig::small();
    let mut oram = rig.create();
    for i in 0..400u64 {
        write(&mut oram, i % 200, (i / 200) as u8 + 1);
    }
    oram.sync().unwrap();
    // A whole bucket, so that there is a flush; the last level's part of it never arrives.
    for addr in [9, 10, 11, 12] {
        write(&mut oram, addr, 9);
    }
    let torn = oram.main_slot(oram.schedule.refreshed(oram.flushes) - 1);
    let main = oram.main.clone();
    drop(oram);
    wipe(&*rig.store, &main, torn);
    let before = rig.store.snapshot();
    let mut oram = rig.open_on(rig.store.clone(), true).unwrap();
    let holds = |oram: &Sq| {
        for addr in 0..200 {
            let want = if (9..13).contains(&addr) { 9 } else { 2 };
            assert_eq!(byte_at(oram, addr).unwrap(), want, "block {addr}");
        }
    };
    holds(&oram);
    assert!(matches!(oram.write(Addr(0), &[0; 128]), Err(Error::ReadOnly)));
    assert!(matches!(oram.write_dummy(), Err(Error::ReadOnly)));
    oram.close().unwrap();
    drop(oram);
    assert!(rig.store.snapshot() == before, "reading only wrote something");
    let oram = rig.open();
    holds(&oram);
    assert!(rig.store.snapshot() != before);
}

#[test]
fn a_lost_block_stays_an_error_and_stops_nothing() {
    for map in [MapPlace::Memory, MapPlace::Disk] {
        let mut rig = Rig::new(SqGeometry { map, ..small() });
        let mut oram = rig.create();
        for addr in 0..200 {
            write(&mut oram, addr, 1);
        }
        // The body is torn in any level that may hold it.
        let mut lost = vec![];
        oram.sync().unwrap();
        for area in [oram.levels[0].area.clone(), oram.main.clone()] {
            for slot in (0..area.slots()).step_by(23) {
                damage(&*rig.store, &area, Slot(slot));
            }
        }
        for addr in 0..200 {
            if byte_at(&oram, addr).is_err() {
                lost.push(addr);
            }
        }
        if map == MapPlace::Memory {
            assert!(lost.len() > 4 && lost.len() < 30, "{lost:?}");
        }
        for round in 0..6 {
            for _ in 0..150 {
                write(&mut oram, 3, 1);
            }
            if round % 2 == 0 {
                oram.close().unwrap();
            }
            drop(oram);
            oram = rig.open();
        }
        let still: Vec<u64> = (0..200).filter(|&a| byte_at(&oram, a).is_err()).collect();
        lost.retain(|&addr| addr != 3);
        assert_eq!(still, lost, "{map:?}");
        let mut damaged = vec![];
        oram.verify(&mut |_, _| {}, &mut |place| damaged.extend(place.block)).unwrap();
        assert_eq!(damaged, lost);
        if map == MapPlace::Memory {
            for &addr in &lost {
                write(&mut oram, addr, 1);
            }
            assert!((0..200).all(|addr| byte_at(&oram, addr).unwrap() == 1));
        }
    }
}

#[test]
fn a_lost_leaf_of_the_map_is_made_again() {
    for more in [20, 90, 400] {
        let mut rig = Rig::new(SqGeometry { map: MapPlace::Disk, ..small() });
        let mut oram = rig.create();
        for i in 0..400u64 {
            write(&mut oram, i * 7 % 200, (i / 200) as u8 + 1);
        }
        // Until the other leaves are in deeper levels.
        for i in 0..more {
            write(&mut oram, i % 8, 3);
        }
        oram.sync().unwrap();
        let mut torn = 0;
        for leaf in 1..oram.geometry.leaves() {
            let time = oram.times.get(leaf as usize, oram.now());
            let found = oram.locate(200 + leaf, time, &mut read::Chunks::new()).unwrap();
            let (area, slot) = match found {
                SqLocation::Level(level, slot) => {
                    let level = &oram.levels[level - 1];
                    (&level.area, level.slot(slot))
                }
                SqLocation::Main(r) => (&oram.main, oram.main_slot(r)),
                _ => continue,
            };
            damage(&*rig.store, area, slot);
            torn += 1;
        }
        assert!(torn > 3, "{torn}");
        drop(oram);
        let mut oram = rig.open();
        let value = |addr: u64| if addr < 8 && more > 8 { 3 } else { 2 };
        let mut damaged = vec![];
        oram.verify(&mut |_, _| {}, &mut |place| damaged.push(place)).unwrap();
        // Recovery repairs the buckets of the last flushes.
        assert!(damaged.len() <= torn && (more < 400 || damaged.len() == torn), "{damaged:?}");
        assert!((0..200).all(|addr| byte_at(&oram, addr).unwrap() == value(addr)));
        for addr in (0..200).step_by(16) {
            write(&mut oram, addr, value(addr));
        }
        oram.close().unwrap();
        drop(oram);
        let oram = rig.open();
        assert!((0..200).all(|addr| byte_at(&oram, addr).unwrap() == value(addr)));
        oram.verify(&mut |_, _| {}, &mut |place| panic!("{place} is not mended")).unwrap();
    }
}

/// The first unsynced write is lost and all later ones are present: the count goes back as far as
/// it can, while the rings have gone on as far as they can.
#[test]
fn a_crash_that_loses_the_oldest_unsynced_write_is_recovered_from() {
    for amortized in [false, true] {
        let geometry = SqGeometry::with_shape(2000, 64, 4, 4, 3).unwrap();
        let geometry = SqGeometry { unsynced_max: 200, amortized, ..geometry };
        geometry.check().unwrap();
        let mut rig = Rig::new(geometry);
        let mut oram = rig.create();
        let mut written = 0;
        for round in 0..40 {
            for _ in 0..geometry.unsynced_max + 7 {
                write(&mut oram, written * 7 % 2000, (written / 2000) as u8);
                written += 1;
            }
            oram.sync().unwrap();
            let before = written;
            for i in 0..geometry.unsynced_max {
                write(&mut oram, i * 11 % 2000, 200);
            }
            oram.write_out().unwrap();
            assert_eq!(oram.life.synced(), before);
            wipe(&*rig.store, &oram.log, oram.log_slot(before));
            drop(oram);
            let state = rig.vault.kept();
            for read_only in [true, false] {
                let context = rig.0.context(rig.0.store.clone(), read_only);
                let opened = Sq::open(geometry, context, &state, &mut |_, _| {});
                oram = opened.unwrap_or_else(|e| panic!("{amortized} {round} {read_only}: {e}"));
                assert_eq!(oram.writes(), before);
                for i in written.saturating_sub(2000)..written {
                    let byte = byte_at(&oram, i * 7 % 2000);
                    assert_eq!(byte.unwrap(), (i / 2000) as u8, "{amortized} {round} {read_only}");
                }
            }
            oram = rig.open();
        }
    }
}

#[test]
fn opened_for_reading_an_amortized_pass_that_was_cut_short_is_read_around() {
    let geometry = SqGeometry::with_shape(2000, 64, 16, 4, 3).unwrap();
    let geometry = SqGeometry { unsynced_max: 16, amortized: true, ..geometry };
    let mut rig = Rig::new(geometry);
    let mut oram = rig.create();
    let mut written = 0;
    let mut passes = 0;
    while passes < 3 {
        let before = oram.schedule.refreshed(oram.flushes);
        write(&mut oram, written * 7 % 2000, (written / 2000) as u8);
        written += 1;
        passes += u32::from(oram.schedule.refreshed(oram.flushes) > before);
    }
    let torn = oram.main_slot(oram.schedule.refreshed(oram.flushes) - 1);
    wipe(&*rig.store, &oram.main, torn);
    drop(oram);
    let oram = rig.open_on(rig.store.clone(), true).unwrap();
    for i in written - 2000..written {
        assert_eq!(byte_at(&oram, i * 7 % 2000).unwrap(), (i / 2000) as u8);
    }
}

#[test]
fn a_disk_that_cannot_be_read_for_now_loses_no_synced_write() {
    let mut rig = Rig::small();
    let mut oram = rig.create();
    oram.sync().unwrap();
    let before = rig.store.snapshot();
    for addr in 0..7 {
        write(&mut oram, addr, 1);
    }
    oram.sync().unwrap();
    drop(oram);
    // The body of a synced write, in the middle of the log's first stripe.
    let log = rig.geometry.areas()[0];
    let at = log.1 + 4096 + 3 * 128;
    assert!(rig.store.snapshot()[at as usize..][..128] != before[at as usize..][..128]);
    let store = Arc::new(Unreadable { store: rig.store.clone(), hole: Extent::new(at, 128) });
    assert!(matches!(rig.open_on(store, false), Err(Error::Store(_))));
    let oram = rig.open();
    assert_eq!(oram.writes(), 7);
    assert!((0..7).all(|addr| byte_at(&oram, addr).unwrap() == 1));
}

/// After an unclean end the last `unsynced_max` slots, and the buckets in which they lie, may look
/// as if they had never arrived. The loss of more slots must not go unnoticed, however many entries
/// of the log are gone: buckets that later flushes delivered to the levels show it.
#[test]
fn the_end_of_the_log_does_not_get_lost_in_silence() {
    let shape = |refresh, map_on_disk| {
        let preferences =
            SqPreferences { refresh: Some(refresh), map_on_disk, ..SqPreferences::default() };
        let geometry =
            SqGeometry::new(300, 128, SqPreferences { bucket: Some(4), ..preferences }).unwrap();
        SqGeometry { unsynced_max: geometry.unsynced_max.min(32), ..geometry }
    };
    // Of these the last level alone shows it.
    let low = SqGeometry { fanout: 16, levels: 1, ..small() };
    for geometry in [small(), low, shape(0.25, false), shape(7.0 / 3.0, false), shape(4.0, true)] {
        let mut rig = Rig::new(geometry);
        rig.create();
        let mut oram = rig.open();
        let mut rng = SeededRng::new(12);
        for nth in 0..900u64 {
            write(&mut oram, rng.below(geometry.blocks), nth as u8);
        }
        oram.sync().unwrap();
        let (made, log, slots) = (oram.count, oram.log.clone(), oram.log.layout().slots);
        let ends: Vec<Slot> = (1..=slots).map(|n| oram.log_slot(made - n)).collect();
        drop(oram);
        let most = (geometry.slack_buckets() + 1) * u64::from(geometry.bucket);
        let mut noticed = 0;
        for (lost, slot) in (1..).zip(ends) {
            wipe(&*rig.store, &log, slot);
            match rig.open_on(rig.store.clone(), true) {
                Ok(oram) => {
                    let gone = made - oram.count;
                    assert!(gone <= most, "{lost} wiped: {gone} of {geometry:?}");
                }
                Err(Error::RolledBack { expected, found }) => {
                    assert!(found < expected && expected <= made, "{expected} {found} {made}");
                    let furthest = found / u64::from(geometry.bucket) + geometry.slack_buckets();
                    // Else what was synced is missing.
                    let is_of_flush = expected == (furthest + 1) * u64::from(geometry.bucket);
                    noticed += u32::from(is_of_flush);
                }
                Err(Error::Tampered { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        assert!(noticed > 0, "{geometry:?}");
    }
}

/// Each write is one slot, or two with the map on the disk.
#[test]
fn writes_that_are_expected_must_be_there() {
    for (map, slots) in [(MapPlace::Memory, 1), (MapPlace::Disk, 2)] {
        let geometry = SqGeometry { map, ..small() };
        let mut rig = Rig::new(geometry);
        let mut oram = rig.create();
        for addr in 0..20 {
            write(&mut oram, addr, 1);
        }
        oram.sync().unwrap();
        drop(oram);
        let state = rig.vault.kept();
        let mut expecting = |expect_writes, read_only| SchemeContext {
            expect_writes,
            ..rig.0.context(rig.0.store.clone(), read_only)
        };
        let mut open = |n| Sq::open(geometry, expecting(n, true), &state, &mut |_, _| {});
        assert_eq!(open(20).unwrap().writes(), 20);
        match open(21).map(|oram| oram.writes()) {
            Err(Error::RolledBack { expected, found }) => {
                assert_eq!((expected, found), (21 * slots, 20 * slots));
            }
            other => panic!("{other:?}"),
        }
        let context = expecting(23, false);
        let (_, lost) = Sq::salvage(geometry, context, &state, &mut |_, _| {}).unwrap();
        assert_eq!(lost.len() as u64, 3 * slots, "{lost:?}");
    }
}

/// What a damaged map might lead to.
#[test]
fn a_block_that_is_not_where_its_time_leads_to_is_damage() {
    for map in [MapPlace::Memory, MapPlace::Disk] {
        let geometry = SqGeometry { map, ..small() };
        let mut rig = Rig::new(geometry);
        let mut oram = rig.create();
        for _ in 0..10 * oram.bucket() {
            write(&mut oram, 50, 1);
        }
        let damage = |address, time| {
            let found = oram.locate(address, Some(time), &mut read::Chunks::new());
            match found {
                Err(Error::Tampered { place }) => place,
                other => panic!("{other:?}"),
            }
        };
        let now = oram.flushes;
        let in_log = oram.log_slot((now - 1) * oram.bucket()).0;
        let (level, generation) = oram.schedule.locate(now - 9, now).unwrap();
        assert_eq!(level, 1);
        let in_level = oram.levels[0].slot(generation * oram.levels[0].generation_len).0;
        for (address, block) in [(7, Some(7)), (199, Some(199)), (200, None), (206, None)] {
            let place = Place { area: "level 0", slot: in_log, block };
            assert_eq!(damage(address, now - 1), place);
            let place = Place { area: "level 1", slot: in_level, block };
            assert_eq!(damage(address, now - 9), place);
        }
    }
}

/// A flush that failed is not made again, and a sync does not promise what it would have written.
#[test]
fn nothing_is_written_after_a_flush_that_failed() {
    let mut rig = Rig::small();
    rig.create();
    let disk = Arc::new(rig::Forgetful::new(&rig.store.snapshot(), u64::MAX));
    let mut oram = rig.open_on(disk.clone(), false).unwrap();
    for addr in 0..43 {
        write(&mut oram, addr, 1);
    }
    // The bucket arrives in the log, and nothing of its flush in the levels.
    *disk.fuse.lock().unwrap() = 1;
    assert!(oram.write(Addr(43), &[1; 128]).is_err());
    *disk.fuse.lock().unwrap() = u64::MAX;
    assert!(matches!(oram.write(Addr(44), &[1; 128]), Err(Error::Poisoned)));
    assert!(matches!(oram.sync(), Err(Error::Poisoned)));
    drop(oram);
    let oram = rig.open_on(disk, false).unwrap();
    assert!((0..43).all(|addr| byte_at(&oram, addr).unwrap() == 1));
}

/// In the paper's cadence the leaves of a bucket are written at its end, here but two of them.
#[test]
fn leaves_that_a_crash_kept_from_the_log_are_changed_again() {
    let geometry = SqGeometry { map: MapPlace::Disk, cadence: Cadence::Paper, ..small() };
    let geometry = SqGeometry { bucket: 16, unsynced_max: 32, blocks: 900, ..geometry };
    let mut rig = Rig::new(geometry);
    let mut oram = rig.create();
    // Of eight leaves, in another order than that of the leaves.
    let addrs: Vec<u64> = (0..8).map(|i| (4 + i * 5 % 8) * 32).collect();
    for &addr in &addrs {
        write(&mut oram, addr, 3);
    }
    assert_eq!((oram.count, oram.flushes), (16, 1));
    (10..16).for_each(|lost| wipe(&*rig.store, &oram.log, Slot(lost)));
    drop(oram);
    for read_only in [true, false] {
        let oram = rig.open_on(rig.store.clone(), read_only).unwrap();
        assert_eq!((oram.count, oram.flushes), (10, 0));
        assert!(oram.leaves.dirty().eq(6..12), "{read_only}");
        assert!(addrs.iter().all(|&addr| byte_at(&oram, addr).unwrap() == 3), "{read_only}");
    }
}

/// It must not show that a block was lost.
#[test]
fn the_slot_of_a_lost_block_looks_like_any_other() {
    let geometry = SqGeometry::with_shape(300, 128, 4, 3, 3).unwrap();
    let mut rig = Rig::new(geometry);
    let mut oram = rig.create();
    let mut rng = SeededRng::new(8);
    for _ in 0..200 {
        write(&mut oram, rng.below(300), 1);
    }
    oram.sync().unwrap();
    let level = &oram.levels[0];
    (0..level.area.slots()).for_each(|slot| damage(&*rig.store, &level.area, Slot(slot)));
    for _ in 0..100 {
        write(&mut oram, rng.below(300), 1);
    }
    oram.sync().unwrap();
    let (level, delivered) = (&oram.levels[1], oram.schedule.delivered(2, oram.flushes));
    let mut run = traceless_core::store::Run::default();
    let newest = delivered * 4 - 100..delivered * 4;
    run.add(&level.area, level.slot(newest.start), 100);
    run.read(&*rig.store).unwrap();
    let (mut lost, mut plain) = (0, [0; 128]);
    for (i, slot) in newest.enumerate() {
        let (entry, body) = run.slot(i);
        let address = level.open_entry((&oram.keys, &oram.schedule), slot, entry).unwrap();
        lost += u32::from(!oram.open_level_slot(2, slot, address, entry, body, &mut plain));
        for bytes in [&entry[48..], body] {
            assert!(bytes.chunks(16).all(|part| part.iter().any(|&b| b != part[0])), "{slot}");
        }
    }
    assert!(lost > 4, "{lost}");
}
