//! Tests of what the suite cannot observe from outside: crashes that lose, keep and tear unsynced
//! writes, the stash, freshness after a crash, openings, reading only.

use super::*;
use crate::datalair::{DataLair, FreeRecord};
use crate::hive::{Hive, ReverseMap};
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::scheme::openings::OPENINGS_MAX;
use traceless_core::store::WatchedStore;
use traceless_core::suite::rig::{
    self, Forgetful, Unreadable, assert_filled, damage, fill, put_back, wipe,
};
use traceless_core::trace::{Event, Op, Recorder};
use traceless_core::types::{Extent, Slot};

traceless_core::local_rig!(Rig, RandomGeometry);

impl Rig {
    fn new(geometry: RandomGeometry) -> Self {
        Self(rig::Rig::with_room(geometry, geometry.store_len()))
    }

    fn small() -> Self {
        Self::new(RandomGeometry::new(64, 64, 0).unwrap())
    }

    fn create<V: Vacancy>(&mut self) -> RandomSlots<V> {
        let context = self.0.context(self.0.store.clone(), false);
        RandomSlots::create(self.0.geometry, context).unwrap()
    }

    fn open_on<V: Vacancy>(
        &mut self,
        store: Arc<dyn Store>,
        read_only: bool,
    ) -> Result<RandomSlots<V>> {
        let (context, state) = (self.0.context(store, read_only), self.0.vault.kept());
        RandomSlots::open(self.0.geometry, context, &state, &mut |_, _| {})
    }

    fn open<V: Vacancy>(&mut self) -> RandomSlots<V> {
        self.open_on(self.0.store.clone(), false).unwrap()
    }
}

/// Writes with syncs until the power fails, many times. Each opening must find a prefix of the
/// writes, at least up to the last sync.
fn lives_through_crashes<V: Vacancy>(geometry: RandomGeometry, seed: u64) {
    let mut rig = Rig::new(geometry);
    let (n, len) = (geometry.blocks, geometry.block_len);
    drop(rig.create::<V>());
    let mut bytes = rig.store.snapshot();
    let mut rng = SeededRng::new(seed);
    let mut history: Vec<(u64, u8)> = vec![];
    let mut promised = 0;
    for _ in 0..60 {
        let disk = Arc::new(Forgetful::new(&bytes, rng.below(60)));
        let opened = match rig.open_on::<V>(disk.clone(), false) {
            Err(Error::Store(_)) => None,
            other => Some(other.expect("a crash is not damage")),
        };
        if let Some(mut oram) = opened {
            let found = oram.writes() as usize;
            assert!((promised..=history.len()).contains(&found), "{found} of {promised}");
            history.truncate(found);
            promised = found;
            let mut model = vec![0; n as usize];
            for &(addr, byte) in &history {
                model[addr as usize] = byte;
            }
            for (addr, &byte) in model.iter().enumerate() {
                let mut block = vec![0; len];
                oram.read(Addr(addr as u64), &mut block).unwrap();
                assert_eq!(block, vec![byte; len], "block {addr} after {found} writes");
            }
            loop {
                let count = 1 + rng.below(5);
                let writes: Vec<_> =
                    (0..count).map(|_| (rng.below(n), rng.below(255) as u8)).collect();
                let addrs: Vec<_> = writes.iter().map(|w| Addr(w.0)).collect();
                let data: Vec<_> = writes.iter().flat_map(|w| vec![w.1; len]).collect();
                history.extend(writes);
                if oram.write_many(&addrs, &data).is_err() {
                    break;
                }
                if rng.below(3) == 0 {
                    if oram.sync().is_err() {
                        break;
                    }
                    promised = history.len();
                }
            }
        }
        bytes = disk.crash(&mut rng);
    }
    assert!(promised > 100, "only {promised} writes lived");
}

#[test]
fn no_crash_loses_what_was_synced() {
    let geometry = |blocks, block_len, map_tiers, unsynced_max| {
        let geometry = RandomGeometry { blocks, block_len, map_tiers, unsynced_max };
        geometry.check().unwrap();
        geometry
    };
    for seed in 0..6 {
        lives_through_crashes::<ReverseMap>(geometry(40, 512, 0, 8), seed);
        lives_through_crashes::<FreeRecord>(geometry(70, 64, 0, 20), seed);
    }
    for seed in 10..13 {
        lives_through_crashes::<ReverseMap>(geometry(400, 64, 1, 8), seed);
        lives_through_crashes::<FreeRecord>(geometry(200, 64, 1, 3), seed);
    }
}

#[test]
fn dummies_change_nothing_and_look_like_writes() {
    let mut traces: Vec<Vec<Event>> = vec![];
    for dummy in [false, true] {
        let mut rig = Rig::new(RandomGeometry::new(64, 64, 1).unwrap());
        let witness = Arc::new(Recorder::default());
        drop(rig.create::<ReverseMap>());
        let watched = Arc::new(WatchedStore::new(rig.store.clone(), witness.clone()));
        let mut oram = rig.open_on::<ReverseMap>(watched, false).unwrap();
        fill(&mut oram, 3);
        witness.take();
        for _ in 0..200 {
            if dummy {
                oram.write_dummy().unwrap();
            } else {
                oram.write(Addr(5), &[3; 64]).unwrap();
            }
        }
        assert_filled(&mut oram, 3);
        traces.push(witness.take().into_iter().filter(|e| e.op != Op::Read).collect());
        oram.close().unwrap();
        drop(oram);
        assert_filled(&mut rig.open::<ReverseMap>(), 3);
    }
    assert_eq!(traces[0], traces[1]);
}

#[test]
fn a_record_of_free_slots_saves_reads() {
    fn reads<V: Vacancy>() -> usize {
        let mut rig = Rig::small();
        let witness = Arc::new(Recorder::default());
        drop(rig.create::<V>());
        let watched = Arc::new(WatchedStore::new(rig.store.clone(), witness.clone()));
        let mut oram = rig.open_on::<V>(watched, false).unwrap();
        fill(&mut oram, 1);
        oram.sync().unwrap();
        witness.take();
        for i in 0..300 {
            oram.write(Addr(i % 64), &[2; 64]).unwrap();
        }
        witness.take().iter().filter(|e| e.op == Op::Read).count()
    }
    let (hive, datalair) = (reads::<ReverseMap>(), reads::<FreeRecord>());
    assert!(datalair * 3 < hive * 2, "{datalair} reads with a record, {hive} without");
}

#[test]
fn the_stash_stays_small_and_is_never_forgotten() {
    let mut rig = Rig::new(RandomGeometry::new(256, 64, 1).unwrap());
    let mut oram = rig.create::<FreeRecord>();
    fill(&mut oram, 1);
    let mut most = 0;
    for i in 0..20_000u64 {
        oram.write(Addr(i * 7 % 256), &[1; 64]).unwrap();
        most = oram.stashed().into_iter().max().unwrap().max(most);
        if i % 1999 == 0 {
            oram.sync().unwrap();
            drop(oram);
            oram = rig.open();
            assert_filled(&mut oram, 1);
        }
    }
    // The probability of each further block is smaller by the factor 2 + sqrt(5).
    assert!((2..30).contains(&most), "{most}");
}

/// A broken generator that always draws the same slots.
struct Stuck(u64);

impl Rng for Stuck {
    fn fill(&mut self, out: &mut [u8]) {
        self.0 = (self.0 + 1) % 3;
        out.fill(0);
        out[0] = self.0 as u8;
    }
}

#[test]
fn a_stash_that_overflows_is_an_error_and_can_be_opened_again() {
    let mut rig = Rig::new(RandomGeometry::new(256, 64, 0).unwrap());
    let mut oram = rig.create::<ReverseMap>();
    oram.life.rng = Box::new(Stuck(0));
    let full = (0..256).find_map(|a| oram.write(Addr(a), &[1; 64]).err());
    // Three slots take three blocks, and all later blocks wait.
    assert!(matches!(full, Some(Error::StashOverflow { blocks: 70, limit: 69 })), "{full:?}");
    assert!(matches!(oram.write(Addr(0), &[1; 64]), Err(Error::Poisoned)));
    drop(oram);
    let mut oram = rig.open::<ReverseMap>();
    assert_eq!((oram.writes(), oram.stashed()), (72, vec![69]));
    fill(&mut oram, 1);
    assert!(oram.stashed()[0] < 20);
    assert_filled(&mut oram, 1);
}

#[test]
fn a_block_that_waits_too_long_is_an_error() {
    let mut rig = Rig::small();
    let mut oram = rig.create::<ReverseMap>();
    oram.life.rng = Box::new(Stuck(0));
    // Block 5 waits while other blocks arrive again and again, so it is never recorded again.
    (0..6).for_each(|a| oram.write(Addr(a), &[1; 64]).unwrap());
    let (waits, turns) = (oram.tiers[0].stash.iter().next().unwrap().address, [8, 9]);
    let late = (0..1000).find_map(|i| oram.write(Addr(turns[i % 2]), &[1; 64]).err());
    assert!(matches!(late, Some(Error::StashOverflow { limit: 67, .. })), "{late:?}");
    drop(oram);
    let mut block = [0; 64];
    rig.open::<ReverseMap>().read(Addr(waits), &mut block).unwrap();
    assert_eq!(block, [1; 64], "it was not forgotten");
}

#[test]
fn after_a_crash_an_older_copy_is_refused() {
    // Large enough that the journal covers only few of the slots.
    let mut rig = Rig::new(RandomGeometry::new(4096, 64, 0).unwrap());
    let mut oram = rig.create::<ReverseMap>();
    fill(&mut oram, 1);
    oram.settle().unwrap();
    let old = rig.store.snapshot();
    let spot = oram.top[9];
    // Until the block has moved, and its slot and the whole journal hold other data.
    while oram.top[9].slot().is_none_or(|slot| Some(slot) == spot.slot()) {
        oram.write(Addr(9), &[2; 64]).unwrap();
    }
    for i in 0..oram.tiers[0].geometry.journal_writes + 40 {
        oram.write(Addr(10 + i), &[1; 64]).unwrap();
    }
    oram.settle().unwrap();
    let (slots, now) = (oram.tiers[0].slots.clone(), oram.top[9].slot().unwrap());
    drop(oram);
    // The old copy is put back in its place, and the newest is destroyed: by versions alone the old
    // copy would now be the newest.
    put_back(&*rig.store, &old, &slots, Slot(spot.slot().unwrap()));
    wipe(&*rig.store, &slots, Slot(now));
    let refused = rig.open_on::<ReverseMap>(rig.store.clone(), false);
    assert!(matches!(refused, Err(Error::WrongMap { area: "slots" })));
}

#[test]
fn a_disk_that_cannot_be_read_for_now_loses_no_synced_write() {
    let mut rig = Rig::new(RandomGeometry::new(64, 64, 1).unwrap());
    let mut oram = rig.create::<ReverseMap>();
    fill(&mut oram, 1);
    oram.sync().unwrap();
    drop(oram);
    // The data that recovery reads: all journals, and the entries of the last tier's slots.
    let areas = rig.geometry.areas();
    for (name, at, len) in [areas[1], areas[2], areas[3]] {
        let hole = Extent::new(at + if name == "map 1 slots" { 0 } else { len / 2 }, 64);
        for read_only in [true, false] {
            let store = Arc::new(Unreadable { store: rig.store.clone(), hole });
            let opened = rig.open_on::<ReverseMap>(store, read_only);
            assert!(matches!(opened, Err(Error::Store(_))), "{name}");
        }
    }
    let mut oram = rig.open::<ReverseMap>();
    assert_eq!(oram.writes(), 64);
    assert_filled(&mut oram, 1);
}

#[test]
fn a_lost_block_stays_an_error_and_stops_nothing() {
    let mut rig = Rig::small();
    let mut oram = rig.create::<FreeRecord>();
    fill(&mut oram, 1);
    oram.settle().unwrap();
    let block = (0..64).find(|&a| oram.top[a].slot().is_some()).unwrap() as u64;
    let slot = oram.top[block as usize].slot().unwrap();
    damage(&*rig.store, &oram.tiers[0].slots, Slot(slot));
    let lost = |oram: &mut DataLair| {
        let mut bytes = [0; 64];
        (0..64).filter(|&a| oram.read(Addr(a), &mut bytes).is_err()).collect::<Vec<_>>()
    };
    assert_eq!(lost(&mut oram), [block]);
    for round in 0..6 {
        for i in 0..100 {
            oram.write(Addr((block + 1 + i % 60) % 64), &[1; 64]).unwrap();
        }
        assert_eq!(lost(&mut oram), [block], "round {round}");
        if round % 2 == 0 {
            oram.close().unwrap();
        }
        drop(oram);
        oram = rig.open();
    }
    let mut damaged = vec![];
    oram.verify(&mut |_, _| {}, &mut |place| damaged.push(place.block)).unwrap();
    assert_eq!(damaged, [Some(block)]);
    oram.write(Addr(block), &[1; 64]).unwrap();
    assert_filled(&mut oram, 1);
}

#[test]
fn opened_for_reading_nothing_is_written_and_everything_is_there() {
    let mut rig = Rig::small();
    let mut oram = rig.create::<ReverseMap>();
    fill(&mut oram, 1);
    oram.sync().unwrap();
    oram.write(Addr(9), &[2; 64]).unwrap();
    drop(oram);
    let before = rig.store.snapshot();
    let mut oram: Hive = rig.open_on(rig.store.clone(), true).unwrap();
    let mut block = [0; 64];
    for addr in 0..64 {
        oram.read(Addr(addr), &mut block).unwrap();
        assert_eq!(block, [if addr == 9 { 2 } else { 1 }; 64], "block {addr}");
    }
    assert!(matches!(oram.write(Addr(0), &block), Err(Error::ReadOnly)));
    assert!(matches!(oram.write_dummy(), Err(Error::ReadOnly)));
    oram.sync().unwrap();
    oram.close().unwrap();
    drop(oram);
    assert!(rig.store.snapshot() == before, "reading only wrote something");
}

#[test]
fn a_key_that_has_sealed_enough_gives_way_to_a_new_opening() {
    let mut rig = Rig::small();
    let mut oram = rig.create::<FreeRecord>();
    oram.key_bytes_max = 200 * 4 * 64;
    for round in 0..10 {
        fill(&mut oram, round);
    }
    assert!(oram.keys.openings().len() > 2, "{}", oram.keys.openings().len());
    assert_filled(&mut oram, 9);
    drop(oram);
    assert_filled(&mut rig.open::<FreeRecord>(), 9);
}

#[test]
fn many_openings_are_retired_by_a_pass_over_all_slots() {
    let mut rig = Rig::new(RandomGeometry::new(32, 64, 0).unwrap());
    let mut oram = rig.create::<ReverseMap>();
    fill(&mut oram, 1);
    oram.close().unwrap();
    let mut most = 0;
    for round in 0..OPENINGS_MANY as u64 + 30 {
        drop(oram);
        oram = rig.open();
        oram.write(Addr(round % 32), &[1; 64]).unwrap();
        most = most.max(oram.keys.openings().len());
    }
    assert!((OPENINGS_MANY - 1..OPENINGS_MAX).contains(&most), "{most}");
    assert!(oram.keys.openings().len() < 100, "{}", oram.keys.openings().len());
    drop(oram);
    assert_filled(&mut rig.open::<ReverseMap>(), 1);
}

#[test]
fn a_failed_sync_is_final() {
    let mut rig = Rig::small();
    drop(rig.create::<ReverseMap>());
    let disk = Arc::new(Forgetful::new(&rig.store.snapshot(), 100));
    let mut oram = rig.open_on::<ReverseMap>(disk.clone(), false).unwrap();
    oram.write(Addr(0), &[1; 64]).unwrap();
    *disk.fuse.lock().unwrap() = 0;
    assert!(matches!(oram.sync(), Err(Error::Store(_))));
    assert!(matches!(oram.write(Addr(0), &[1; 64]), Err(Error::Poisoned)));
    assert!(matches!(oram.sync(), Err(Error::Poisoned)), "it is never tried again");
    assert!(matches!(oram.close(), Err(Error::Poisoned)));
    let mut block = [0; 64];
    oram.read(Addr(0), &mut block).expect("reading goes on");
}
