//! Tests of what the suite cannot observe from outside: places, the work of a flush, lost blocks,
//! reading only.

mod ahead;
mod chunks;

use super::*;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::scheme::openings::{OPENINGS_MANY, OPENINGS_MAX};
use traceless_core::store::{MemStore, WatchedStore};
use traceless_core::suite::rig::{self, Unreadable, damage, wipe};
use traceless_core::trace::{Event, Op, Recorder};
use traceless_core::types::Extent;

/// A store with all that it takes to open the scheme again.
struct Rig(rig::Rig<SqGeometry>);

impl Deref for Rig {
    type Target = rig::Rig<SqGeometry>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Rig {
    fn new(geometry: SqGeometry) -> Self {
        Self(rig::Rig::with_room(geometry, geometry.store_len()))
    }

    /// A rig with 200 blocks, two levels of four, buckets of four.
    fn small() -> Self {
        Self::new(small())
    }

    fn create(&mut self) -> Sq {
        let store = self.0.store.clone();
        Sq::create(self.0.geometry, self.0.parts(store, false)).unwrap()
    }

    fn open_on(&mut self, store: Arc<dyn Store>, read_only: bool) -> Result<Sq> {
        let state = self.0.vault.kept();
        Sq::open(self.0.geometry, self.0.parts(store, read_only), &state, &mut |_, _| {})
    }

    fn open(&mut self) -> Sq {
        self.open_on(self.0.store.clone(), false).unwrap()
    }
}

fn small() -> SqGeometry {
    let geometry = SqGeometry::with_shape(200, 128, 4, 4, 2).unwrap();
    SqGeometry { unsynced_max: 16, ..geometry }
}

fn write(oram: &mut Sq, addr: u64, byte: u8) {
    let block = vec![byte; oram.block_len()];
    oram.write(Addr(addr), &block).unwrap();
}

fn byte_at(oram: &Sq, addr: u64) -> Result<u8> {
    let mut block = vec![0; oram.block_len()];
    oram.read_shared(&[Addr(addr)], &mut block)?;
    assert!(block.iter().all(|&b| b == block[0]), "block {addr} is mixed");
    Ok(block[0])
}

#[test]
fn a_read_touches_one_slot() {
    let witness = Arc::new(Recorder::default());
    let mut rig = Rig::small();
    rig.create();
    let mut oram =
        rig.open_on(Arc::new(WatchedStore::new(rig.store.clone(), witness.clone())), false);
    let oram = oram.as_mut().unwrap();
    let mut rng = SeededRng::new(4);
    let mut fetched = 0;
    for i in 0..3000u64 {
        write(oram, rng.below(200), i as u8);
        witness.take();
        byte_at(oram, rng.below(200)).unwrap();
        let reads: Vec<Event> = witness.take();
        // The entry and the body, or no read at all: recent writes are in memory.
        assert!(reads.is_empty() || reads.len() == 2, "{reads:?}");
        fetched += reads.len();
    }
    assert!(fetched > 3000);
}

/// Bytes written by each flush: by the writes of one bucket.
fn work(geometry: SqGeometry) -> Vec<usize> {
    let witness = Arc::new(Recorder::default());
    let mut rig = Rig::new(geometry);
    rig.create();
    let store = Arc::new(WatchedStore::new(rig.store.clone(), witness.clone()));
    let mut oram = rig.open_on(store, false).unwrap();
    let per_flush = oram.bucket() / geometry.slots_per_write();
    let mut work = vec![];
    for flush in 0..330 {
        witness.take();
        for i in 0..per_flush {
            write(&mut oram, (flush * 7 + i * 13) % geometry.blocks, 1);
        }
        let writes = witness.take().into_iter().filter(|e| e.op == Op::Write);
        work.push(writes.map(|e| e.len as usize).sum());
    }
    work.split_off(90)
}

#[test]
fn every_flush_does_the_same_work_unless_it_is_amortized() {
    // Buckets of whole stripes, so that headers make no difference.
    let geometry = SqGeometry::with_shape(3000, 128, 64, 4, 2).unwrap();
    let amortized = SqGeometry { amortized: true, ..geometry };
    let worst_to_median = |geometry| {
        let mut work = work(geometry);
        work.sort_unstable();
        work[work.len() - 1] as f64 / work[work.len() / 2] as f64
    };
    let steady = worst_to_median(geometry);
    assert!(steady < 1.1, "{steady}");
    let stalls = worst_to_median(amortized);
    assert!(stalls > 5.0, "{stalls}");
    // The total work is the same.
    let sum = |geometry| work(geometry).iter().sum::<usize>() as f64;
    let ratio = sum(amortized) / sum(geometry);
    assert!((0.8..1.25).contains(&ratio), "{ratio}");
}

#[test]
fn writes_are_amplified_as_promised() {
    // Buckets of whole stripes, so that no header is written twice.
    let geometry = SqGeometry::with_shape(12_000, 4096, 128, 6, 2).unwrap();
    let witness = Arc::new(Recorder::default());
    let mut rig = Rig::new(geometry);
    rig.create();
    let store = Arc::new(WatchedStore::new(rig.store.clone(), witness.clone()));
    let mut oram = rig.open_on(store, false).unwrap();
    let blocks = vec![7; 128 * 4096];
    let mut written = 0;
    for flush in 0..150u64 {
        let addrs: Vec<_> = (0..128).map(|i| Addr((flush * 128 + i) * 31 % 12_000)).collect();
        witness.take();
        oram.write_many(&addrs, &blocks).unwrap();
        let writes = witness.take().into_iter().filter(|e| e.op == Op::Write);
        if flush >= 60 {
            written += writes.map(|e| e.len as usize).sum::<usize>();
        }
    }
    let measured = written as f64 / (90 * blocks.len()) as f64;
    let promised = geometry.write_amplification();
    assert!((measured / promised - 1.0).abs() < 0.02, "{measured} {promised}");
}

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

#[test]
fn what_it_keeps_in_memory_is_counted() {
    let geometry = SqGeometry::with_shape(2000, 128, 8, 4, 2).unwrap();
    let mut rig = Rig::new(geometry);
    let mut oram = rig.create();
    let empty = oram.memory();
    for addr in 0..2000 {
        write(&mut oram, addr, 1);
    }
    let (maps, buffers) = oram.memory();
    assert_eq!(empty.1, 0);
    assert!(maps > empty.0 && empty.0 >= 2 * 2000, "{maps} {empty:?}");
    // The figures before creation are an upper limit, and close to the actual size.
    let told = geometry.facts(2000);
    assert!(
        (told.map_bytes / 2..=told.map_bytes * 5 / 4).contains(&(maps as u64)),
        "{maps} {told:?}"
    );
    assert!(buffers > 0 && buffers as u64 <= told.buffer_bytes, "{buffers} {told:?}");
}

#[test]
fn the_papers_cadence_reveals_how_near_addresses_are() {
    let geometry = SqGeometry { map: MapPlace::Disk, ..small() };
    let geometry = SqGeometry { bucket: 16, unsynced_max: 32, blocks: 900, ..geometry };
    let slots = |cadence, stride: u64| {
        let mut rig = Rig::new(SqGeometry { cadence, ..geometry });
        let mut oram = rig.create();
        for i in 0..300u64 {
            write(&mut oram, i * stride % 900, 1);
        }
        oram.count
    };
    assert_eq!(slots(Cadence::Strict, 1), 600);
    assert_eq!(slots(Cadence::Strict, 97), 600);
    let (near, far) = (slots(Cadence::Paper, 1), slots(Cadence::Paper, 97));
    assert!(near < 360 && far > 560, "{near} {far}");
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
                let parts = rig.0.parts(rig.0.store.clone(), read_only);
                let opened = Sq::open(geometry, parts, &state, &mut |_, _| {});
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
fn an_amortized_level_is_not_overwritten_before_it_is_forgotten() {
    // Generations much larger than the slack.
    let geometry = SqGeometry::with_shape(2000, 64, 16, 4, 3).unwrap();
    let geometry = SqGeometry { unsynced_max: 16, amortized: true, ..geometry };
    let mut rig = Rig::new(geometry);
    let mut oram = rig.create();
    for i in 0..5000u64 {
        write(&mut oram, i * 7 % 2000, (i / 2000) as u8);
        if i % 16 == 15 {
            oram.close().unwrap();
            drop(oram);
            let opened = rig.open_on(rig.store.clone(), false);
            oram = opened.unwrap_or_else(|e| panic!("after {i} writes: {e}"));
        }
    }
    assert!((3000..5000).all(|i| byte_at(&oram, i * 7 % 2000).unwrap() == (i / 2000) as u8));
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
fn what_is_held_back_is_read_even_if_the_cache_is_full() {
    // A merge with more buckets than the contents kept in memory.
    let geometry = SqGeometry::with_shape(40_000, 64, 64, 1024, 1).unwrap();
    let mut rig = Rig::new(geometry);
    let mut oram = rig.create();
    for i in 0..40_000u64 {
        write(&mut oram, i, i as u8);
        if i % 100 == 0 || i > 39_900 {
            assert_eq!(byte_at(&oram, i).unwrap(), i as u8, "write {i}");
        }
    }
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
fn large_blocks_take_no_more_memory_than_small_ones() {
    let geometry = SqGeometry::with_shape(600, 1 << 20, 16, 32, 1).unwrap();
    let mut rig = Rig::new(geometry);
    let mut oram = rig.create();
    for i in 0..500 {
        write(&mut oram, i, 1);
    }
    let (_, buffers) = oram.memory();
    assert!(buffers <= 256 << 20, "{buffers}");
    assert!((0..500).all(|i| byte_at(&oram, i).unwrap() == 1));
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

/// A store that counts read requests, and prefetch hints that the next read does not use.
struct Counted {
    store: Arc<MemStore>,
    reads: AtomicU64,
    hints: Mutex<Vec<Extent>>,
    ahead: AtomicU64,
}

impl Store for Counted {
    fn len(&self) -> u64 {
        self.store.len()
    }
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let next = |hint: &Extent| extents.iter().any(|e| e.at <= hint.at && hint.end() <= e.end());
        let hints = core::mem::take(&mut *self.hints.lock().unwrap());
        let ahead = hints.iter().filter(|hint| !next(hint)).count();
        self.ahead.fetch_add(ahead as u64, Ordering::Relaxed);
        self.store.read(extents, into)
    }
    fn prefetch(&self, extents: &[Extent]) {
        assert!(extents.iter().all(|extent| extent.end() <= self.len()));
        self.hints.lock().unwrap().extend_from_slice(extents);
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        self.store.write(extents, from)
    }
    fn sync(&self) -> Result {
        self.store.sync()
    }
}

#[test]
fn sequential_reads_are_few_and_fetched_ahead() {
    let shape = SqGeometry::with_shape(20_000, 4096, 64, 4, 3).unwrap();
    for map in [MapPlace::Memory, MapPlace::Disk] {
        let mut rig = Rig::new(SqGeometry { map, ..shape });
        let mut oram = rig.create();
        for i in 0..25_000u64 {
            oram.write(Addr(i * 7919 % 20_000), &[(i / 20_000) as u8; 4096]).unwrap();
        }
        oram.close().unwrap();
        drop(oram);
        let store = Arc::new(Counted {
            store: rig.store.clone(),
            reads: AtomicU64::new(0),
            hints: Mutex::default(),
            ahead: AtomicU64::new(0),
        });
        let oram = rig.open_on(store.clone(), true).unwrap();
        store.reads.store(0, Ordering::Relaxed);
        store.ahead.store(0, Ordering::Relaxed);
        let mut found = vec![0; 100 * 4096];
        for first in (0..20_000).step_by(100) {
            let addrs: Vec<_> = (first..first + 100).map(Addr).collect();
            oram.read_shared(&addrs, &mut found).unwrap();
        }
        // One request for the blocks, one for their chunks; sometimes one for a leaf and one for
        // its chunk.
        let most = if map == MapPlace::Memory { 200 } else { 450 };
        assert!(store.reads.load(Ordering::Relaxed) <= most, "{:?}", store.reads);
        assert!(store.ahead.load(Ordering::Relaxed) > 100, "{:?}", store.ahead);
    }
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

/// With a fan-out that is a multiple of the sources that a flush begins to read, the last source of
/// a merge would be read just before the merge, and gets its last bucket in the same flush.
#[test]
fn a_merge_reads_no_source_ahead_of_its_last_bucket() {
    for map in [MapPlace::Memory, MapPlace::Disk] {
        for (bucket, fanout) in [(4, 8), (2, 16)] {
            let geometry = SqGeometry::with_shape(500, 128, bucket, fanout, 2).unwrap();
            let geometry = SqGeometry { map, ..geometry };
            let mut rig = Rig::new(geometry);
            let mut oram = rig.create();
            let mut rng = SeededRng::new(5);
            let mut holds = vec![0; 500];
            for i in 0..4000u64 {
                let addr = rng.below(500);
                holds[addr as usize] = i as u8;
                write(&mut oram, addr, i as u8);
            }
            for addr in 0..500 {
                assert_eq!(byte_at(&oram, addr).unwrap(), holds[addr as usize], "{geometry:?}");
            }
        }
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
        let mut expecting = |expect_writes, read_only| Parts {
            expect_writes,
            ..rig.0.parts(rig.0.store.clone(), read_only)
        };
        let mut open = |n| Sq::open(geometry, expecting(n, true), &state, &mut |_, _| {});
        assert_eq!(open(20).unwrap().writes(), 20);
        match open(21).map(|oram| oram.writes()) {
            Err(Error::RolledBack { expected, found }) => {
                assert_eq!((expected, found), (21 * slots, 20 * slots));
            }
            other => panic!("{other:?}"),
        }
        let parts = expecting(23, false);
        let (_, lost) = Sq::salvage(geometry, parts, &state, &mut |_, _| {}).unwrap();
        assert_eq!(lost.len() as u64, 3 * slots, "{lost:?}");
    }
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

#[test]
fn a_bucket_may_be_longer_than_a_trip() {
    let mut rig = Rig::new(SqGeometry::with_shape(4000, 64, 640, 2, 2).unwrap());
    let mut oram = rig.create();
    for addr in 0..3000 {
        write(&mut oram, addr, addr as u8);
    }
    oram.close().unwrap();
    drop(oram);
    let oram = rig.open();
    assert!((0..3000).all(|addr| byte_at(&oram, addr).unwrap() == addr as u8));
}

#[test]
fn what_has_reached_the_last_level_has_no_time() {
    let mut rig = Rig::small();
    let mut oram = rig.create();
    let mut rng = SeededRng::new(3);
    for _ in 0..1000 {
        write(&mut oram, rng.below(200), 1);
        let refreshed = oram.schedule.refreshed(oram.flushes);
        for addr in 0..200 {
            let time = oram.times.get(addr as usize, oram.now());
            let is_due = |time| oram.schedule.refresh_of(time, addr) < refreshed;
            assert!(!time.is_some_and(is_due), "block {addr}, {time:?}");
        }
    }
}

/// The first refresh of all that carries a block is that of block 0.
#[test]
fn the_first_block_is_there_after_each_write() {
    let mut rig = Rig::small();
    let mut oram = rig.create();
    write(&mut oram, 0, 7);
    for i in 0..300 {
        write(&mut oram, 1 + i % 199, 1);
        assert_eq!(byte_at(&oram, 0).unwrap(), 7, "after {i} more");
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

/// Opened for reading only, nothing of the log is in memory.
#[test]
fn neighbours_share_a_read_of_their_leaf() {
    let mut rig = Rig::new(SqGeometry { map: MapPlace::Disk, bucket: 64, fanout: 2, ..small() });
    let mut oram = rig.create();
    for addr in 0..8 {
        write(&mut oram, addr, addr as u8);
    }
    oram.sync().unwrap();
    drop(oram);
    let witness = Arc::new(Recorder::default());
    let store = Arc::new(WatchedStore::new(rig.store.clone(), witness.clone()));
    let oram = rig.open_on(store, true).unwrap();
    witness.take();
    let addrs: Vec<_> = (0..8).map(Addr).collect();
    let mut found = vec![0; 8 * 128];
    oram.read_shared(&addrs, &mut found).unwrap();
    assert!(found.chunks(128).zip(0..).all(|(block, addr)| block[0] == addr));
    // The leaf, in two pieces, and the blocks with what is between them, in two.
    assert_eq!(witness.take().len(), 4);
}

/// Within one flush all states of a leaf have the same time.
#[test]
fn a_leaf_of_the_flush_under_way_is_read_anew() {
    // 128 leaves, of which the writer keeps half; one bucket.
    let geometry = SqGeometry::with_shape(2048, 64, 1024, 2, 2).unwrap();
    let mut rig = Rig::new(SqGeometry { map: MapPlace::Disk, ..geometry });
    let mut oram = rig.create();
    for addr in 0..16 {
        write(&mut oram, addr, 1);
        for leaf in 1..70 {
            if addr < 3 {
                write(&mut oram, leaf * 16, 1);
            }
        }
        assert_eq!(byte_at(&oram, addr).unwrap(), 1);
        assert!((addr + 1..16).all(|next| byte_at(&oram, next).unwrap() == 0));
    }
    assert_eq!(oram.flushes, 0);
}
