//! What the suite cannot see from outside: openings, keys, dummies, reading only.

use super::*;
use crate::durable::MemVault;
use crate::rng::Seeded;
use crate::scheme::openings::{OPENINGS_MANY, OPENINGS_MAX};
use crate::seal::Secret;
use crate::store::{MemStore, Watched};
use crate::trace::{Event, Op, Recorder};

struct Rig {
    geometry: Geometry,
    store: Arc<MemStore>,
    vault: MemVault,
    seed: u64,
}

impl Rig {
    fn new(geometry: Geometry) -> Self {
        let store = Arc::new(MemStore::new(geometry.store_len()));
        Self { geometry, store, vault: MemVault::default(), seed: 0 }
    }

    fn small() -> Self {
        Self::new(Geometry::new(64, 128, Refresh::ONE, 0).unwrap())
    }

    fn parts(&mut self, store: Arc<dyn Store>, read_only: bool) -> Parts {
        self.seed += 1;
        Parts {
            store,
            first: 0,
            key: Secret::from_bytes([4; 32]),
            vault: Box::new(self.vault.clone()),
            rng: Box::new(Seeded::new(self.seed)),
            read_only,
            expect_writes: 0,
        }
    }

    fn create(&mut self) -> DetWo {
        let parts = self.parts(self.store.clone(), false);
        DetWo::create(self.geometry, parts).unwrap()
    }

    fn open_on(&mut self, store: Arc<dyn Store>, read_only: bool) -> Result<DetWo> {
        let (parts, state) = (self.parts(store, read_only), self.vault.kept());
        DetWo::open(self.geometry, parts, &state, &mut |_, _| {})
    }

    fn open(&mut self) -> DetWo {
        self.open_on(self.store.clone(), false).unwrap()
    }
}

fn fill(oram: &mut DetWo, byte: u8) {
    for addr in 0..oram.blocks() {
        oram.write(Addr(addr), &vec![byte; oram.block_len()]).unwrap();
    }
}

fn assert_filled(oram: &mut DetWo, byte: u8) {
    let mut block = vec![0; oram.block_len()];
    for addr in 0..oram.blocks() {
        oram.read(Addr(addr), &mut block).unwrap();
        assert!(block.iter().all(|&b| b == byte), "block {addr}");
    }
}

#[test]
fn dummies_change_nothing_and_look_like_writes() {
    let mut rig = Rig::small();
    let witness = Arc::new(Recorder::default());
    let mut traces: Vec<Vec<Event>> = vec![];
    for dummy in [false, true] {
        drop(rig.create());
        let watched = Arc::new(Watched::new(rig.store.clone(), witness.clone()));
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
    // Not less than one trip of blocks: the budget is checked before each.
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
    // A pass is 64 writes, so they die out by themselves here.
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
    // A pass is longer than the openings that a state can name.
    let mut rig = Rig::new(Geometry::new(4 * OPENINGS_MAX as u64, 64, Refresh::ONE, 0).unwrap());
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
    // The last refresh never arrived; the write that caused it did.
    let mut run = crate::store::Run::default();
    let main = {
        let oram = rig.open_on(rig.store.clone(), true).unwrap();
        oram.tiers[0].main.clone()
    };
    run.add_in_place(&main, torn, 1);
    run.write(&*rig.store).unwrap();
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
fn a_failed_sync_is_final() {
    struct NoSync(Arc<MemStore>);
    impl Store for NoSync {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn read(&self, extents: &[crate::Extent], into: &mut [u8]) -> Result {
            self.0.read(extents, into)
        }
        fn write(&self, extents: &[crate::Extent], from: &[u8]) -> Result {
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
fn a_flushed_write_that_is_gone_is_noticed_by_those_after_it() {
    let mut rig = Rig::new(Geometry::new(640, 128, Refresh::ONE, 0).unwrap());
    let mut oram = rig.create();
    for addr in 0..10 {
        oram.write(Addr(addr), &[1; 128]).unwrap();
    }
    let slot = oram.tiers[0].hold_slot(4);
    let hold = oram.tiers[0].hold.clone();
    let damage = |rig: &Rig| {
        let mut run = crate::store::Run::default();
        run.add_in_place(&hold, slot, 1);
        run.write(&*rig.store).unwrap();
    };
    // Nothing was flushed: a crash may leave exactly that.
    let unsynced = rig.store.snapshot();
    damage(&rig);
    let again = rig.open_on(rig.store.clone(), true).unwrap();
    assert_eq!(again.writes(), 4);
    rig.store = Arc::new(MemStore::from_bytes(unsynced));
    oram.store = rig.store.clone();
    oram.sync().unwrap();
    oram.write(Addr(0), &[1; 128]).unwrap();
    damage(&rig);
    let refused = rig.open_on(rig.store.clone(), true);
    assert!(matches!(refused, Err(Error::RolledBack { expected: 10, found: 4 })));
}

#[test]
fn a_lost_block_stays_an_error_and_stops_nothing() {
    let mut rig = Rig::small();
    let mut oram = rig.create();
    fill(&mut oram, 1);
    oram.sync().unwrap();
    let slot = oram.tiers[0].main_slot(64 + 20);
    let mut run = crate::store::Run::default();
    run.add_in_place(&oram.tiers[0].main, slot, 1);
    run.write(&*rig.store).unwrap();
    let lost = |oram: &mut DetWo| {
        let mut block = [0; 128];
        (0..64).filter(|&a| oram.read(Addr(a), &mut block).is_err()).collect::<Vec<_>>()
    };
    assert_eq!(lost(&mut oram), [20]);
    // Through refreshes, crashes and closes.
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
fn memory_is_eight_bytes_a_block() {
    let oram = Rig::small().create();
    assert_eq!(core::mem::size_of_val(&*oram.top) as u64, 8 * oram.blocks());
    assert_eq!(oram.geometry().map_memory(), 8 * oram.blocks());
}
