//! When keys give way to a new opening, and how old openings are retired.

use super::*;

#[test]
fn a_key_that_has_sealed_enough_gives_way_to_a_new_opening() {
    let mut rig = Rig::small();
    let mut oram = rig.create();
    oram.key_bytes_max = 500 * 128;
    for i in 0..1500u64 {
        write(&mut oram, i % 200, (i / 200) as u8);
    }
    assert!(oram.keys.openings().last().number > 4);
    drop(oram);
    let oram = rig.open();
    for addr in 0..200 {
        assert_eq!(byte_at(&oram, addr).unwrap(), if addr < 100 { 7 } else { 6 });
    }
}

#[test]
fn openings_never_pile_up() {
    let mut rig = Rig::small();
    let mut oram = rig.create();
    let mut most = 0;
    for round in 0..OPENINGS_MAX as u64 + 300 {
        write(&mut oram, round % 200, 5);
        oram.sync().unwrap();
        drop(oram);
        oram = rig.open();
        most = most.max(oram.keys.openings().len());
    }
    assert!(most < OPENINGS_MAX, "{most}");
    assert!((0..200).all(|addr| byte_at(&oram, addr).unwrap() == 5));
}

#[test]
fn many_openings_are_retired_by_dummies() {
    let geometry = SqGeometry::with_shape(4000, 64, 16, 8, 2).unwrap();
    let geometry = SqGeometry { unsynced_max: 512, ..geometry };
    let mut rig = Rig::new(geometry);
    let mut oram = rig.create();
    let life = keys::lifetime(&oram.schedule) * 16 + geometry.unsynced_max;
    // Enough dummies that old openings expire within half of the remaining openings.
    let dummies = life.div_ceil((OPENINGS_MAX - OPENINGS_MANY) as u64 / 2);
    assert!((4..16).contains(&dummies), "more than a few, and less than a bucket: {dummies}");
    for addr in 0..1008 {
        write(&mut oram, addr, 1);
    }
    while oram.keys.openings().len() < OPENINGS_MANY {
        oram.retire_old_openings().unwrap();
        assert_eq!(oram.writes(), 1008, "there are few");
        // As if a further opening had begun after each write.
        let start = oram.keys.openings().len() as u64;
        let opening = oram.keys.openings().next([start as u8; 16], start);
        oram.keys.push(opening).unwrap();
    }
    oram.retire_old_openings().unwrap();
    assert_eq!(oram.writes(), 1008 + dummies);
}

/// Compares the requests of writes to neighbouring and to distant blocks, with keys that soon reach
/// their limit.
#[test]
fn when_keys_give_way_does_not_depend_on_addresses() {
    let starts = |stride: u64| {
        let geometry = SqGeometry::with_shape(4000, 64, 128, 4, 2).unwrap();
        let geometry = SqGeometry { map: MapPlace::Disk, unsynced_max: 256, ..geometry };
        let mut rig = Rig::new(geometry);
        let mut oram = rig.create();
        oram.key_bytes_max = 3300 * 64;
        let mut starts = vec![];
        for request in 0..100u64 {
            let addrs: Vec<_> = (0..64).map(|i| Addr((request * 64 + i) * stride % 4000)).collect();
            oram.write_many(&addrs, &[1; 64 * 64]).unwrap();
            starts.push(oram.keys.openings().last().start);
        }
        starts
    };
    let near = starts(1);
    assert!(near[99] > 0);
    assert_eq!(near, starts(61));
}

#[test]
fn a_key_gives_way_at_the_last_bucket_that_it_may_seal() {
    for (less, gives_way) in [(0, false), (1, true)] {
        let mut rig = Rig::small();
        let mut oram = rig.create();
        for addr in 0..20 {
            write(&mut oram, addr, 1);
        }
        oram.close().unwrap();
        drop(oram);
        let mut oram = rig.open();
        let number = oram.keys.openings().last().number;
        // Seven blocks are sealed for each write at most: in two levels, three times in the last
        // and a part, and in the log. Twelve writes were made, and four are to come.
        oram.key_bytes_max = (12 + 4) * 7 * 128 - less;
        for addr in 0..13 {
            assert_eq!(oram.keys.openings().last().number, number);
            write(&mut oram, addr, 2);
        }
        assert_eq!(oram.keys.openings().last().number > number, gives_way);
    }
}
