//! Tests of what the suite cannot observe from outside: places, the work of a flush, lost blocks,
//! reading only.

mod ahead;
mod chunks;
mod discards;
mod openings;
mod recovery;

use super::*;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::scheme::openings::{OPENINGS_MANY, OPENINGS_MAX};
use traceless_core::store::{MemStore, WatchedStore};
use traceless_core::suite::rig::{self, Unreadable, damage, wipe};
use traceless_core::trace::{Event, Op, Recorder};
use traceless_core::types::Extent;

traceless_core::local_rig!(Rig, SqGeometry);

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
        Sq::create(self.0.geometry, self.0.context(store, false)).unwrap()
    }

    fn open_on(&mut self, store: Arc<dyn Store>, read_only: bool) -> Result<Sq> {
        let state = self.0.vault.kept();
        Sq::open(self.0.geometry, self.0.context(store, read_only), &state, &mut |_, _| {})
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
    let facts = geometry.facts(2000);
    assert!(
        (facts.map_bytes / 2..=facts.map_bytes * 5 / 4).contains(&(maps as u64)),
        "{maps} {facts:?}"
    );
    assert!(buffers > 0 && buffers as u64 <= facts.buffer_bytes, "{buffers} {facts:?}");
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

#[test]
fn a_bucket_may_be_longer_than_a_batch() {
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
