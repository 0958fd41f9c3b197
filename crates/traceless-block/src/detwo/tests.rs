//! Tests of what the suite cannot observe from outside: openings, keys, dummies, reading only.

use super::pointer::Pointer;
use super::*;
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::scheme::openings::{OPENINGS_MANY, OPENINGS_MAX};
use traceless_core::store::{MemStore, WatchedStore};
use traceless_core::suite::rig::{self, Unreadable, assert_filled, damage, fill, put_back, wipe};
use traceless_core::trace::{Event, Op, Recorder};
use traceless_core::types::Extent;

traceless_core::local_rig!(Rig, DetWoGeometry);

impl Rig {
    fn new(geometry: DetWoGeometry) -> Self {
        Self(rig::Rig::with_room(geometry, geometry.store_len()))
    }

    fn small() -> Self {
        Self::new(DetWoGeometry::new(64, 128, Refresh::ONE, 0).unwrap())
    }

    fn with_pointers() -> Self {
        let geometry = DetWoGeometry::new(64, 128, Refresh::ONE, 0).unwrap();
        Self::new(geometry.with_map_entries(MapEntries::Pointers).unwrap())
    }

    fn with_map_on_store() -> Self {
        Self::new(DetWoGeometry::new(640, 128, Refresh::ONE, 1).unwrap())
    }

    fn create(&mut self) -> DetWo {
        let context = self.0.context(self.0.store.clone(), false);
        DetWo::create(self.0.geometry, context).unwrap()
    }

    fn open_on(&mut self, store: Arc<dyn Store>, read_only: bool) -> Result<DetWo> {
        let (context, state) = (self.0.context(store, read_only), self.0.vault.kept());
        DetWo::open(self.0.geometry, context, &state, &mut |_, _| {})
    }

    fn open(&mut self) -> DetWo {
        self.open_on(self.0.store.clone(), false).unwrap()
    }
}

#[test]
fn dummies_change_nothing_and_look_like_writes() {
    dummies_look_like_writes(Rig::small());
    dummies_look_like_writes(Rig::with_map_on_store());
}

fn dummies_look_like_writes(mut rig: Rig) {
    let witness = Arc::new(Recorder::default());
    let mut traces: Vec<Vec<Event>> = vec![];
    for dummy in [false, true] {
        drop(rig.create());
        let watched = Arc::new(WatchedStore::new(rig.store.clone(), witness.clone()));
        let mut oram = rig.open_on(watched, false).unwrap();
        fill(&mut oram, 3);
        witness.take();
        for _ in 0..200 {
            if dummy {
                oram.write_dummy().unwrap();
            } else {
                oram.write(Addr(5), &[3; 128]).unwrap();
            }
        }
        assert_filled(&mut oram, 3);
        traces.push(witness.take().into_iter().filter(|e| e.op != Op::Read).collect());
        oram.close().unwrap();
        drop(oram);
        assert_filled(&mut rig.open(), 3);
    }
    assert_eq!(traces[0], traces[1]);
}

#[test]
fn a_key_that_has_sealed_enough_gives_way_to_a_new_opening() {
    let mut rig = Rig::small();
    let mut oram = rig.create();
    // At least one batch of blocks: the budget is checked before each batch.
    oram.key_bytes_max = 400 * 128;
    for round in 0..10 {
        fill(&mut oram, round);
    }
    assert!(oram.keys.openings().list().len() > 1);
    assert!(oram.keys.openings().last().number > 4, "{:?}", oram.keys.openings().last());
    assert_filled(&mut oram, 9);
    drop(oram);
    assert_filled(&mut rig.open(), 9);
}

#[test]
fn openings_never_pile_up() {
    let mut rig = Rig::small();
    let mut oram = rig.create();
    fill(&mut oram, 1);
    let mut most = 0;
    for round in 0..3 * OPENINGS_MAX {
        oram.write(Addr(round as u64 % 64), &[1; 128]).unwrap();
        drop(oram);
        oram = rig.open();
        most = most.max(oram.keys.openings().list().len());
    }
    // A pass is 64 writes, so old openings retire without dummies here.
    assert!(most < 200, "{most}");
    // Openings that write nothing leave no trace.
    let before = oram.keys.openings().list().len();
    for _ in 0..50 {
        drop(oram);
        oram = rig.open();
    }
    assert_eq!(oram.keys.openings().list().len(), before);
    assert_filled(&mut oram, 1);
}

#[test]
fn many_openings_are_retired_by_dummies() {
    // A pass is longer than the number of openings that a state can list.
    let mut rig =
        Rig::new(DetWoGeometry::new(4 * OPENINGS_MAX as u64, 64, Refresh::ONE, 0).unwrap());
    let mut oram = rig.create();
    let mut most = 0;
    let mut writes = 0;
    for round in 0..OPENINGS_MAX as u64 + 200 {
        oram.write(Addr(round), &[2; 64]).unwrap();
        writes += 1;
        drop(oram);
        oram = rig.open();
        most = most.max(oram.keys.openings().list().len());
    }
    assert!((OPENINGS_MANY..OPENINGS_MAX).contains(&most), "{most}");
    assert!(oram.writes() > writes, "there were dummies");
    let mut block = [0; 64];
    oram.read(Addr(7), &mut block).unwrap();
    assert_eq!(block, [2; 64]);
}

#[test]
fn opened_for_reading_a_torn_refresh_is_read_around() {
    let mut rig = Rig::small();
    let mut oram = rig.create();
    fill(&mut oram, 1);
    oram.sync().unwrap();
    oram.write(Addr(9), &[2; 128]).unwrap();
    let torn = oram.tiers[0].main_slot(oram.tiers[0].refreshed - 1);
    drop(oram);
    // The write that caused the last refresh arrived, but the refresh did not.
    let main = {
        let oram = rig.open_on(rig.store.clone(), true).unwrap();
        oram.tiers[0].main.clone()
    };
    wipe(&*rig.store, &main, torn);
    let before = rig.store.snapshot();
    let mut oram = rig.open_on(rig.store.clone(), true).unwrap();
    let mut block = [0; 128];
    for addr in 0..64 {
        oram.read(Addr(addr), &mut block).unwrap();
        assert_eq!(block, [if addr == 9 { 2 } else { 1 }; 128], "block {addr}");
    }
    assert!(matches!(oram.write(Addr(0), &block), Err(Error::ReadOnly)));
    assert!(matches!(oram.write_dummy(), Err(Error::ReadOnly)));
    oram.close().unwrap();
    drop(oram);
    assert!(rig.store.snapshot() == before, "reading only wrote something");
    // Opened for writing, the refresh is redone.
    let mut oram = rig.open();
    oram.read(Addr(9), &mut block).unwrap();
    assert_eq!(block, [2; 128]);
    assert!(rig.store.snapshot() != before);
}

#[test]
fn a_lost_refresh_of_what_its_write_wrote_is_read_around_and_redone() {
    for (map_tiers, map_entries) in [
        (0, MapEntries::Counts),
        (0, MapEntries::Pointers),
        (1, MapEntries::Counts),
        (1, MapEntries::Pointers),
    ] {
        let geometry = DetWoGeometry::new(640, 128, Refresh::ONE, map_tiers).unwrap();
        let mut rig = Rig::new(geometry.with_map_entries(map_entries).unwrap());
        let mut oram = rig.create();
        fill(&mut oram, 1);
        oram.sync().unwrap();
        let addr = Addr(oram.tiers[0].passes.block_of(oram.tiers[0].refreshed));
        oram.write(addr, &[2; 128]).unwrap();
        let lost = oram.tiers[0].main_slot(oram.tiers[0].refreshed - 1);
        wipe(&*rig.store, &oram.tiers[0].main, lost);
        let (hold, slot) = (oram.tiers[0].hold.clone(), oram.tiers[0].hold_slot(oram.count - 1));
        drop(oram);
        let mut oram = rig.open_on(rig.store.clone(), true).unwrap();
        let mut block = [0; 128];
        oram.read(addr, &mut block).unwrap();
        assert_eq!(block, [2; 128], "{map_tiers}, {map_entries:?}, opened for reading");
        oram = rig.open();
        // The main copy is restored, so the holding slot may be used for another write.
        wipe(&*rig.store, &hold, slot);
        oram.read(addr, &mut block).unwrap();
        assert_eq!(block, [2; 128], "{map_tiers}, {map_entries:?}, redone");
    }
}

#[test]
fn a_failed_sync_is_final() {
    struct NoSync(Arc<MemStore>);
    impl Store for NoSync {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
            self.0.read(extents, into)
        }
        fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
            self.0.write(extents, from)
        }
        fn sync(&self) -> Result {
            Err(Error::Store("planted fault"))
        }
    }
    let mut rig = Rig::small();
    drop(rig.create());
    // Recovery syncs, so it fails too.
    assert!(rig.open_on(Arc::new(NoSync(rig.store.clone())), false).is_err());
    let mut oram = rig.open();
    oram.store = Arc::new(NoSync(rig.store.clone()));
    oram.write(Addr(0), &[1; 128]).unwrap();
    assert!(matches!(oram.sync(), Err(Error::Store(_))));
    assert!(matches!(oram.write(Addr(0), &[1; 128]), Err(Error::Poisoned)));
    assert!(matches!(oram.sync(), Err(Error::Poisoned)), "it is never tried again");
    let mut block = [0; 128];
    oram.read(Addr(0), &mut block).expect("reading goes on");
}

#[test]
fn later_writes_reveal_a_lost_flushed_write() {
    let mut rig = Rig::new(DetWoGeometry::new(640, 128, Refresh::ONE, 0).unwrap());
    let mut oram = rig.create();
    for addr in 0..10 {
        oram.write(Addr(addr), &[1; 128]).unwrap();
    }
    let slot = oram.tiers[0].hold_slot(4);
    let hold = oram.tiers[0].hold.clone();
    let lose = |rig: &Rig| wipe(&*rig.store, &hold, slot);
    // Nothing was flushed, so a crash may leave exactly this state.
    let unsynced = rig.store.snapshot();
    lose(&rig);
    let again = rig.open_on(rig.store.clone(), true).unwrap();
    assert_eq!(again.writes(), 4);
    rig.store = Arc::new(MemStore::from_bytes(&unsynced));
    oram.store = rig.store.clone();
    oram.sync().unwrap();
    oram.write(Addr(0), &[1; 128]).unwrap();
    lose(&rig);
    let refused = rig.open_on(rig.store.clone(), true);
    assert!(matches!(refused, Err(Error::RolledBack { expected: 10, found: 4 })));
}

#[test]
fn a_disk_that_cannot_be_read_for_now_loses_no_synced_write() {
    for map_tiers in [0, 1] {
        let mut rig = Rig::new(DetWoGeometry::new(640, 128, Refresh::ONE, map_tiers).unwrap());
        let mut oram = rig.create();
        for addr in 0..7 {
            oram.write(Addr(addr), &[1; 128]).unwrap();
        }
        oram.sync().unwrap();
        drop(oram);
        // In each holding area, the body of a write that was synced and is not the last.
        for (nth, tier) in rig.geometry.tiers().into_iter().enumerate() {
            let (_, at, _) = rig.geometry.areas()[2 * nth];
            let len = tier.hold.body_len;
            let body = at + tier.hold.header_len() as u64 + 3 * len as u64;
            let hole = Extent::new(body, len);
            for read_only in [true, false] {
                let store = Arc::new(Unreadable { store: rig.store.clone(), hole });
                let opened = rig.open_on(store, read_only);
                assert!(matches!(opened, Err(Error::Store(_))), "tier {nth}");
            }
        }
        let mut oram = rig.open();
        assert_eq!(oram.writes(), 7);
        let mut block = [0; 128];
        for addr in 0..7 {
            oram.read(Addr(addr), &mut block).unwrap();
            assert_eq!(block, [1; 128]);
        }
    }
}

#[test]
fn a_lost_block_stays_an_error_and_stops_nothing() {
    lose_a_block(Rig::small());
    lose_a_block(Rig::with_pointers());
}

fn lose_a_block(mut rig: Rig) {
    let mut oram = rig.create();
    fill(&mut oram, 1);
    // With pointers, a copy in the holding area serves reads until it is overwritten.
    for _ in 0..oram.tiers[0].hold.slots() {
        oram.write(Addr(3), &[1; 128]).unwrap();
    }
    oram.sync().unwrap();
    let slot = match oram.tiers[0].main_location(20, oram.tiers[0].refreshed) {
        DetWoLocation::Main(r) => oram.tiers[0].main_slot(r),
        other => unreachable!("it was refreshed, not {other:?}"),
    };
    wipe(&*rig.store, &oram.tiers[0].main, slot);
    let lost = |oram: &mut DetWo| {
        let mut block = [0; 128];
        (0..64).filter(|&a| oram.read(Addr(a), &mut block).is_err()).collect::<Vec<_>>()
    };
    assert_eq!(lost(&mut oram), [20]);
    // The loss persists through refreshes, crashes and closes.
    for round in 0..5 {
        for _ in 0..50 {
            oram.write(Addr(3), &[1; 128]).unwrap();
        }
        assert_eq!(lost(&mut oram), [20]);
        if round % 2 == 0 {
            oram.close().unwrap();
        }
        drop(oram);
        oram = rig.open();
    }
    let mut damaged = vec![];
    oram.verify(&mut |_, _| {}, &mut |place| damaged.push(place.block)).unwrap();
    assert_eq!(damaged, [Some(20)]);
    oram.write(Addr(20), &[1; 128]).unwrap();
    assert_filled(&mut oram, 1);
}

#[test]
fn salvage_fills_refreshes_of_unknown_contents_and_outlives_lost_entries() {
    let mut rig = Rig::new(DetWoGeometry::new(640, 128, Refresh::ONE, 0).unwrap());
    let mut oram = rig.create();
    fill(&mut oram, 1);
    oram.sync().unwrap();
    for (addr, byte) in [(0, 2), (300, 3)] {
        oram.write(Addr(addr), &[byte; 128]).unwrap();
    }
    oram.sync().unwrap();
    oram.write(Addr(301), &[4; 128]).unwrap();
    // The entry of the write of block 0, and the refresh that carried this write.
    let t = &oram.tiers[0];
    wipe(&*rig.store, &t.hold, t.hold_slot(640));
    wipe(&*rig.store, &t.main, t.main_slot(640 + 640));
    drop(oram);
    let refused = rig.open_on(rig.store.clone(), false);
    assert!(matches!(refused, Err(Error::RolledBack { expected: 642, found: 640 })));
    let (context, state) = (rig.0.context(rig.0.store.clone(), false), rig.vault.kept());
    let mut reported = vec![];
    let (mut oram, lost) = DetWo::salvage(rig.geometry, context, &state, &mut |done, all| {
        reported.push((done, all));
    })
    .unwrap();
    assert_eq!(lost, [Place { area: "holding", slot: 640, block: None }]);
    // The dummies cover a pass of entries, and the writes that may be lost after it.
    let dummies = 640 + rig.geometry.unsynced_max;
    assert_eq!(oram.writes(), 643 + dummies);
    assert_eq!(reported.last(), Some(&(dummies, dummies)));
    // Block 0 does not revert to an older copy under the number of the lost refresh.
    let values = |oram: &mut DetWo| {
        let mut block = [0; 128];
        assert!(matches!(oram.read(Addr(0), &mut block), Err(Error::Tampered { .. })));
        for addr in 1..640 {
            oram.read(Addr(addr), &mut block).unwrap();
            let byte = match addr {
                300 => 3,
                301 => 4,
                _ => 1,
            };
            assert_eq!(block, [byte; 128], "block {addr}");
        }
    };
    values(&mut oram);
    drop(oram);
    let mut oram = rig.open();
    values(&mut oram);
    oram.write(Addr(0), &[5; 128]).unwrap();
    let mut block = [0; 128];
    oram.read(Addr(0), &mut block).unwrap();
    assert_eq!(block, [5; 128]);
}

#[test]
fn neighbours_are_read_as_one() {
    let mut rig = Rig::small();
    drop(rig.create());
    let witness = Arc::new(Recorder::default());
    let watched = Arc::new(WatchedStore::new(rig.store.clone(), witness.clone()));
    let mut oram = rig.open_on(watched, false).unwrap();
    let pieces_of = |oram: &mut DetWo, addrs: core::ops::Range<u64>| {
        let addrs: Vec<Addr> = addrs.map(Addr).collect();
        witness.take();
        oram.read_many(&addrs, &mut vec![0; addrs.len() * 128]).unwrap();
        witness.take().len()
    };
    assert_eq!(pieces_of(&mut oram, 0..64), 0, "nothing was written");
    // Entries are contiguous with entries, and bodies with bodies.
    fill(&mut oram, 1);
    assert_eq!(pieces_of(&mut oram, 0..64), 2, "all in the main area");
    for addr in 30..40 {
        oram.write(Addr(addr), &[2; 128]).unwrap();
    }
    assert_eq!(pieces_of(&mut oram, 30..40), 2, "all in the holding area");
    assert_eq!(pieces_of(&mut oram, 20..50), 3 * 2, "in one, the other, and the one");
}

#[test]
fn verify_reports_progress_in_all_tiers() {
    let mut rig = Rig::with_map_on_store();
    let oram = rig.create();
    let mut reported = vec![];
    oram.verify(&mut |done, all| reported.push((done, all)), &mut |place| panic!("{place:?}"))
        .unwrap();
    // Ten map blocks, then the data by round batches.
    assert_eq!(reported, [(10, 650), (266, 650), (522, 650), (650, 650)]);
}

#[test]
fn memory_is_eight_bytes_a_block() {
    let oram = Rig::small().create();
    assert_eq!(core::mem::size_of_val(&*oram.top) as u64, 8 * oram.blocks());
    assert_eq!(oram.geometry().map_memory(), 8 * oram.blocks());
}

/// Small geometries with either kind of map, in memory and on the store.
fn geometries() -> Vec<DetWoGeometry> {
    let shapes = [(5, "1", 0, 3), (64, "1", 0, 2), (33, "7/2", 0, 7), (24, "1/3", 0, 9)];
    let deeper = [(130, "1", 1, 2), (300, "3", 1, 1), (500, "1/3", 1, 5), (4200, "3/7", 2, 2)];
    let mut list = vec![];
    for (blocks, refresh, map_tiers, unsynced_max) in shapes.into_iter().chain(deeper) {
        for map_entries in [MapEntries::Counts, MapEntries::Pointers] {
            let refresh = Refresh::parse(refresh).unwrap();
            let block_len = 64;
            let discards = map_entries == MapEntries::Counts && map_tiers == 1;
            let geometry = DetWoGeometry {
                blocks,
                block_len,
                refresh,
                map_tiers,
                map_entries,
                unsynced_max,
                discards,
            };
            geometry.check().unwrap();
            list.push(geometry);
        }
    }
    list
}

/// Contents with few values, so that they are often equal to the replaced contents or to earlier
/// ones.
fn block_of(value: u8) -> [u8; 64] {
    let mut block = [0; 64];
    block[63] = value;
    block
}

fn assert_values(oram: &mut DetWo, values: &[u8], when: &str) {
    let mut block = [0; 64];
    for (addr, &value) in values.iter().enumerate() {
        oram.read(Addr(addr as u64), &mut block).unwrap();
        assert_eq!(block, block_of(value), "block {addr} {when}: {:?}", oram.geometry());
    }
}

#[test]
fn refreshes_lost_anywhere_are_read_around_and_redone() {
    for (seed, geometry) in geometries().into_iter().enumerate() {
        let mut rng = SeededRng::new(seed as u64);
        let mut rig = Rig::new(geometry);
        let mut oram = rig.create();
        let mut values = vec![0; geometry.blocks as usize];
        for _ in 0..60 {
            let hot = 1 + rng.below(geometry.blocks);
            for _ in 0..rng.below(3 + geometry.blocks / 8) {
                let n = 1 + rng.below(12);
                let addrs: Vec<Addr> = (0..n).map(|_| Addr(rng.below(hot))).collect();
                let data: Vec<u8> = addrs.iter().map(|_| rng.below(4) as u8).collect();
                let blocks: Vec<u8> = data.iter().flat_map(|&v| block_of(v)).collect();
                oram.write_many(&addrs, &blocks).unwrap();
                for (addr, value) in addrs.iter().zip(data) {
                    values[addr.0 as usize] = value;
                }
            }
            assert_values(&mut oram, &values, "as written");
            // Any of the refreshes since the last sync may be gone.
            let synced = oram.life.synced();
            for (t, tier) in oram.tiers.iter().enumerate() {
                for r in oram.refreshed_after(t, synced)..tier.refreshed {
                    if rng.below(2) == 0 {
                        wipe(&*rig.store, &tier.main, tier.main_slot(r));
                    }
                }
            }
            drop(oram);
            let before = rig.store.snapshot();
            let mut reading = rig.open_on(rig.store.clone(), true).unwrap();
            assert_values(&mut reading, &values, "opened for reading");
            assert!(rig.store.snapshot() == before, "reading only wrote something");
            oram = rig.open();
            assert_values(&mut oram, &values, "redone");
        }
    }
}

#[test]
fn a_live_pointer_is_not_given_up_for_an_older_main_copy() {
    let mut rig = Rig::with_pointers();
    let mut oram = rig.create();
    fill(&mut oram, 1);
    fill(&mut oram, 2);
    oram.write(Addr(20), &[3; 128]).unwrap();
    let (hold, main) = (oram.tiers[0].hold.clone(), oram.tiers[0].main.clone());
    let (newest, old) = (oram.tiers[0].hold_slot(128), oram.tiers[0].main_slot(128 + 20));
    let sound = rig.store.snapshot();
    let mut block = [0; 128];
    // The main copy is not needed.
    wipe(&*rig.store, &main, old);
    oram.read(Addr(20), &mut block).unwrap();
    assert_eq!(block, [3; 128]);
    // The newest copy is needed. The older one must not replace it, neither now nor after an
    // opening.
    oram.store = Arc::new(MemStore::from_bytes(&sound));
    rig.store = Arc::new(MemStore::from_bytes(&sound));
    for oram in [&mut oram, &mut rig.open_on(rig.store.clone(), true).unwrap()] {
        damage(&*oram.store, &hold, newest);
        assert!(matches!(oram.read(Addr(20), &mut block), Err(Error::Tampered { .. })));
        assert!(oram.read(Addr(21), &mut block).is_ok());
    }
}

/// A blind pointer never looks stale: until its slot is dead, every read must open that slot, too.
#[test]
fn a_pointer_is_blind_only_where_there_is_no_main_copy() {
    let mut rig = Rig::with_pointers();
    let mut oram = rig.create();
    fill(&mut oram, 1);
    let (main, copy) = (oram.tiers[0].main.clone(), oram.tiers[0].main_slot(64 + 40));
    wipe(&*rig.store, &main, copy);
    oram.write_many(&[30, 40, 50].map(Addr), &[2; 3 * 128]).unwrap();
    let blind = |oram: &DetWo| {
        [30, 40, 50].map(|addr| Pointer::decode(oram.top[addr], 128).unwrap().is_blind())
    };
    assert_eq!(blind(&oram), [false, true, false]);
    drop(oram);
    // The pointers are rebuilt from the entries.
    assert_eq!(blind(&rig.open()), [false, true, false]);
}

#[test]
fn a_main_copy_that_comes_back_is_not_taken_for_the_newest() {
    for value in 0..4 {
        let mut rig = Rig::with_pointers();
        let mut oram = rig.create();
        // The next write goes to the end of a stripe; the old header there is overwritten long
        // before the slot.
        for _ in 0..3 {
            fill(&mut oram, 1);
        }
        let sound = rig.store.snapshot();
        let (main, old) = (oram.tiers[0].main.clone(), oram.tiers[0].main_slot(192 + 20));
        wipe(&*rig.store, &main, old);
        // There is no main copy to compare with.
        oram.write(Addr(20), &[value; 128]).unwrap();
        put_back(&*rig.store, &sound, &main, old);
        let held = oram.tiers[0].hold_slot(192);
        let mut block = [0; 128];
        // The loop goes on through the refresh, until another block has taken over the slot.
        for i in 0..3 * oram.tiers[0].hold.slots() {
            oram.read(Addr(20), &mut block).unwrap();
            assert_eq!(block, [value; 128], "{i} writes later");
            oram.write(Addr(i % 20), &[1; 128]).unwrap();
        }
        assert_eq!(oram.top[20] >> (2 + 10), held.0 + 1, "the pointer is the old one");
    }
}

#[test]
fn a_lost_tail_is_refused_with_the_writes_that_there_were_at_least() {
    let mut rig = Rig::new(DetWoGeometry::new(640, 128, Refresh::ONE, 0).unwrap());
    let mut oram = rig.create();
    for addr in 0..100 {
        oram.write(Addr(addr), &[1; 128]).unwrap();
    }
    for count in 70..100 {
        wipe(&*rig.store, &oram.tiers[0].hold, oram.tiers[0].hold_slot(count));
    }
    drop(oram);
    // The entry of write 69 records no later write. No crash explains the refresh by write 90.
    assert_eq!(rig.geometry.unsynced_max, 20);
    let refused = rig.open_on(rig.store.clone(), true);
    assert!(matches!(refused, Err(Error::RolledBack { expected: 91, found: 70 })));
}

/// After an unclean end the last `unsynced_max` writes may look as if they had never arrived. The
/// loss of more writes must not go unnoticed, however many entries of the holding area are gone:
/// refreshes by later writes show it, even after the ring of the main area has wrapped around.
#[test]
fn the_end_of_the_holding_area_does_not_get_lost_in_silence() {
    for (map_tiers, writes) in [(0, 200), (0, 1000), (0, 3000), (1, 1000)] {
        let mut rig = Rig::new(DetWoGeometry::new(300, 128, Refresh::ONE, map_tiers).unwrap());
        rig.create();
        let mut oram = rig.open();
        let mut rng = SeededRng::new(12);
        for nth in 0..writes {
            oram.write(Addr(rng.below(300)), &[nth as u8; 128]).unwrap();
        }
        oram.sync().unwrap();
        let (made, most) = (oram.count, rig.geometry.unsynced_max);
        let last = oram.tiers.last().unwrap();
        let hold = last.hold.clone();
        let ends: Vec<Slot> =
            (1..=hold.slots().min(made)).map(|n| last.hold_slot(made - n)).collect();
        drop(oram);
        let mut noticed = 0;
        for (lost, slot) in (1..).zip(ends) {
            wipe(&*rig.store, &hold, slot);
            match rig.open_on(rig.store.clone(), true) {
                Ok(oram) => {
                    let gone = made - oram.count;
                    assert!(gone <= most, "{lost} of {writes} wiped, {map_tiers}: {gone} gone");
                }
                Err(Error::RolledBack { expected, found }) => {
                    assert!(found < expected && expected <= made, "{expected} {found} {made}");
                    noticed += 1;
                }
                Err(Error::Tampered { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        assert!(noticed > 0, "{map_tiers}, {writes}");
    }
}
