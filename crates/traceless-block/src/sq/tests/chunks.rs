//! Generations of several chunks.

use super::*;
use traceless_core::store::{Area, Run};

/// Generations of level 1 have two whole chunks, or two and a part.
fn shapes(map: MapPlace) -> [SqGeometry; 2] {
    [(32, 4), (30, 5)].map(|(bucket, fanout)| {
        let geometry = SqGeometry::with_shape(1500, 64, bucket, fanout, 2).unwrap();
        SqGeometry { map, ..geometry }
    })
}

/// Flips a bit of a salt.
fn damage_entry(store: &dyn Store, area: &Area, slot: Slot) {
    let mut run = Run::default();
    run.add(area, slot, 1);
    run.read(store).unwrap();
    run.slot_mut(0).0[20] ^= 1;
    run.write(store).unwrap();
}

/// Where a block, or a leaf, lies; none if it is not in a level between the log and the last.
fn slot_in_level(oram: &Sq, address: u64) -> Option<u64> {
    let mut leaf = vec![0; oram.block_len()];
    let mut read_leaf = |number: u64| {
        let time = oram.times.get(number as usize, oram.now());
        oram.read_leaf(number, time, &mut leaf).unwrap();
        leaf.clone()
    };
    let time = if let Some(leaf) = address.checked_sub(oram.geometry.blocks) {
        oram.times.get(leaf as usize, oram.now())
    } else {
        let (leaf, nth) = oram.leaf_of(address);
        leaves::time_at(&read_leaf(leaf), nth)
    };
    match oram.locate(address, time, &mut read::Chunks::new()).unwrap() {
        SqLocation::Level(1, slot) => Some(slot),
        _ => None,
    }
}

/// One with `writes` writes at random, and what each block holds.
fn written(rig: &mut Rig, writes: u64) -> (Sq, Vec<u8>) {
    let mut oram = rig.create();
    let (blocks, mut rng) = (rig.geometry.blocks, SeededRng::new(writes));
    let mut holds = vec![0; blocks as usize];
    for i in 0..writes {
        let addr = rng.below(blocks);
        holds[addr as usize] = i as u8;
        write(&mut oram, addr, i as u8);
    }
    (oram, holds)
}

fn assert_holds(oram: &Sq, holds: &[u8]) {
    for (addr, &byte) in (0..).zip(holds) {
        assert_eq!(byte_at(oram, addr).unwrap(), byte, "block {addr} of {:?}", oram.geometry);
    }
}

#[test]
fn blocks_are_found_in_every_chunk() {
    for geometry in shapes(MapPlace::Disk) {
        let mut rig = Rig::new(geometry);
        let (mut oram, mut holds) = written(&mut rig, 2000);
        assert_holds(&oram, &holds);
        // Each opening goes on with merges where they were.
        for nth in 0..40u64 {
            oram.sync().unwrap();
            drop(oram);
            oram = rig.open();
            for i in 0..37 {
                let addr = (nth * 37 + i) * 7 % 1500;
                holds[addr as usize] = nth as u8;
                write(&mut oram, addr, nth as u8);
            }
        }
        assert_holds(&oram, &holds);
    }
}

/// Each slot of a generation has a block: there is no dummy, which would be an end as well.
#[test]
fn a_generation_without_dummies_ends_with_its_last_slot() {
    let [geometry, _] = shapes(MapPlace::Disk);
    // Blocks of 80 leaves in turn: the 64 writes of a generation are of 64 leaves.
    let mut rig = Rig::new(SqGeometry { blocks: 1280, ..geometry });
    let mut oram = rig.create();
    let addr = |i: u64| (i * 16 + i / 80) % 1280;
    for i in 0..2560 {
        write(&mut oram, addr(i), (i / 1280) as u8 + 1);
    }
    let whole = oram.schedule.delivered(1, oram.flushes) / oram.schedule.width(1) - 1;
    let last = (whole + 1) * oram.levels[0].generation_len - 1;
    let context = (&oram.keys, &oram.schedule);
    let mut found = vec![];
    oram.levels[0].read_addresses(context, last, 1, &mut found).unwrap();
    assert!(found[0].is_some_and(|address| address < 1360), "{found:?}");
    assert_holds(&oram, &[2; 1280]);
}

#[test]
fn a_merge_reads_each_slot_of_its_sources_once() {
    for map in [MapPlace::Memory, MapPlace::Disk] {
        for geometry in shapes(map) {
            let witness = Arc::new(Recorder::default());
            let mut rig = Rig::new(geometry);
            rig.create();
            let store = Arc::new(WatchedStore::new(rig.store.clone(), witness.clone()));
            let mut oram = rig.open_on(store, false).unwrap();
            let (_, begin, len) = geometry.areas()[1];
            let pass = oram.schedule.width(2);
            let mut read = 0;
            for flush in 0..oram.schedule.start(2) + 2 * pass {
                witness.take();
                // Of 63 leaves, which stay at hand.
                while oram.flushes == flush {
                    let nth = oram.writes();
                    write(&mut oram, nth % 1000, 1);
                }
                let reads = witness.take().into_iter().filter(|event| event.op == Op::Read);
                let there = reads.filter(|event| (begin..begin + len).contains(&event.at));
                read += there.map(|event| u64::from(event.len)).sum::<u64>();
            }
            let layout = oram.levels[0].area.layout();
            let slot = (layout.body_len + layout.entry_len) as u64;
            let slots = 2 * pass * u64::from(geometry.bucket);
            // On the disk there are dummies, in place of what leaves were written twice.
            let most = slots * slot;
            assert!(read <= most, "{read} {most} {geometry:?}");
            assert!(read == most || map == MapPlace::Disk, "{read} {most} {geometry:?}");
        }
    }
}

#[test]
fn leaves_are_made_again_from_every_chunk() {
    for geometry in shapes(MapPlace::Disk) {
        for writes in (1200..1500).step_by(23) {
            let mut rig = Rig::new(geometry);
            let (mut oram, holds) = written(&mut rig, writes);
            oram.sync().unwrap();
            let slots = (0..geometry.leaves()).filter_map(|leaf| slot_in_level(&oram, 1500 + leaf));
            let slots: Vec<u64> = slots.collect();
            assert!(slots.len() > 3, "{slots:?}");
            let level = &oram.levels[0];
            for &slot in &slots {
                damage(&*rig.store, &level.area, level.slot(slot));
            }

            drop(oram);
            let oram = rig.open_on(rig.store.clone(), true).unwrap();
            assert_holds(&oram, &holds);
        }
    }
}

/// Behind its last chunk, here with blocks in it, lies what the level had there before.
#[test]
fn leaves_are_made_again_from_no_more_than_a_generation() {
    let [_, geometry] = shapes(MapPlace::Disk);
    let geometry = SqGeometry { cadence: Cadence::Paper, ..geometry };
    for writes in (2200..2500).step_by(29) {
        let mut rig = Rig::new(geometry);
        let mut oram = rig.create();
        for i in 0..writes {
            write(&mut oram, i % 1500, (i / 1500) as u8 + 1);
        }
        oram.close().unwrap();
        let slots = (0..geometry.leaves()).filter_map(|leaf| slot_in_level(&oram, 1500 + leaf));
        let slots: Vec<u64> = slots.collect();
        assert!(slots.len() > 3, "{slots:?}");
        let level = &oram.levels[0];
        for &slot in &slots {
            damage(&*rig.store, &level.area, level.slot(slot));
        }

        drop(oram);
        let oram = rig.open_on(rig.store.clone(), true).unwrap();
        let byte = |addr| if addr < writes - 1500 { 2 } else { 1 };
        assert!((0..1500).all(|addr| byte_at(&oram, addr).unwrap() == byte(addr)), "{writes}");
    }
}

/// Which block the entry was of is unknown, so a leaf might miss the newest write of a block.
#[test]
fn no_leaf_is_made_again_from_damaged_entries() {
    let [geometry, _] = shapes(MapPlace::Disk);
    let mut rig = Rig::new(geometry);
    let (mut oram, _) = written(&mut rig, 1300);
    oram.sync().unwrap();
    let both = |leaf: &u64| {
        let leaf_slot = slot_in_level(&oram, 1500 + leaf)?;
        let slot = (leaf * 16..leaf * 16 + 16).find_map(|addr| slot_in_level(&oram, addr))?;
        Some((leaf * 16, leaf_slot, slot))
    };
    let (addr, leaf, slot) = (0..90).find_map(|leaf| both(&leaf)).unwrap();
    let level = &oram.levels[0];
    damage(&*rig.store, &level.area, level.slot(leaf));
    let place = (level.area.clone(), level.slot(slot));
    drop(oram);
    let oram = rig.open_on(rig.store.clone(), true).unwrap();
    damage_entry(&*rig.store, &place.0, place.1);
    let expected = Place { area: "level 1", slot: place.1.0, block: None };
    for addr in addr..addr + 16 {
        match byte_at(&oram, addr) {
            Err(Error::Tampered { place }) => assert_eq!(place, expected),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_merge_stops_at_a_damaged_entry() {
    for geometry in shapes(MapPlace::Disk) {
        let mut rig = Rig::new(geometry);
        let (mut oram, _) = written(&mut rig, 1300);
        let level = &oram.levels[0];
        // The first slot of the youngest generation that is whole.
        let whole = oram.schedule.delivered(1, oram.flushes) / oram.schedule.width(1) - 1;
        let slot = level.slot(whole * level.generation_len);
        damage_entry(&*rig.store, &level.area, slot);
        let expected = Place { area: "level 1", slot: slot.0, block: None };
        let mut rng = SeededRng::new(1);
        let failed = (0..2000).find_map(|_| oram.write(Addr(rng.below(1500)), &[1; 64]).err());
        match failed {
            Some(Error::Tampered { place }) => assert_eq!(place, expected),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_damaged_entry_costs_no_other_block_of_its_chunk() {
    let [geometry, _] = shapes(MapPlace::Disk);
    let mut rig = Rig::new(geometry);
    let (mut oram, holds) = written(&mut rig, 1300);
    oram.close().unwrap();
    drop(oram);
    let oram = rig.open_on(rig.store.clone(), true).unwrap();
    let in_level = |&addr: &u64| slot_in_level(&oram, addr).is_some();
    let there: Vec<u64> = (0..1500).filter(in_level).collect();
    let lost = there[there.len() / 2];
    let level = &oram.levels[0];
    let slot = level.slot(slot_in_level(&oram, lost).unwrap());
    damage_entry(&*rig.store, &level.area, slot);
    oram.verify(&mut |_, _| {}, &mut |place| assert_eq!(place.block, Some(lost))).unwrap();
    for addr in there {
        match byte_at(&oram, addr) {
            Ok(byte) => assert_eq!(byte, holds[addr as usize]),
            Err(_) => assert_eq!(addr, lost),
        }
    }
    assert!(byte_at(&oram, lost).is_err());
}
