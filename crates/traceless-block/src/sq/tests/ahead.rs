//! What is read ahead: behind readers in order, and of merges to come.

use super::*;

/// A store that notes each read, and each hint of what will be read.
struct NotingStore {
    store: Arc<MemStore>,
    calls: Mutex<Vec<(Call, Vec<Extent>)>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Read,
    Hint,
}

impl NotingStore {
    fn of(rig: &Rig) -> Arc<Self> {
        Arc::new(Self { store: rig.store.clone(), calls: Mutex::default() })
    }

    fn take(&self) -> Vec<(Call, Vec<Extent>)> {
        core::mem::take(&mut *self.calls.lock().unwrap())
    }

    /// What the reads of `addrs` are followed by.
    fn hints(&self, oram: &Sq, addrs: &[u64]) -> Vec<Extent> {
        let addrs: Vec<_> = addrs.iter().copied().map(Addr).collect();
        self.take();
        oram.read_shared(&addrs, &mut vec![0; addrs.len() * oram.block_len()]).unwrap();
        let mut calls = self.take();
        let behind = calls.iter().rposition(|(call, _)| *call == Call::Read).map_or(0, |n| n + 1);
        calls.drain(behind..).flat_map(|(_, extents)| extents).collect()
    }

    /// The hints after the third of three consecutive requests, which end at `end`.
    fn third(&self, oram: &Sq, end: u64, len: u64) -> Vec<Extent> {
        let request = |nth: u64| -> Vec<u64> { (end - nth * len..end - nth * len + len).collect() };
        assert_eq!(self.hints(oram, &request(3)), []);
        assert_eq!(self.hints(oram, &request(2)), []);
        self.hints(oram, &request(1))
    }
}

impl Store for NotingStore {
    fn len(&self) -> u64 {
        self.store.len()
    }
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        self.calls.lock().unwrap().push((Call::Read, extents.to_vec()));
        self.store.read(extents, into)
    }
    fn prefetch(&self, extents: &[Extent]) {
        self.calls.lock().unwrap().push((Call::Hint, extents.to_vec()));
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        self.store.write(extents, from)
    }
    fn sync(&self) -> Result {
        self.store.sync()
    }
}

/// Where the slots of blocks `from..end` lie, which are neighbours.
fn stretch(oram: &Sq, from: u64, end: u64) -> Vec<Extent> {
    let locate = |addr| {
        let time = oram.times.get(addr as usize, oram.now());
        oram.locate(addr, time, &mut read::Chunks::new()).unwrap()
    };
    let (area, slot) = match locate(from) {
        SqLocation::Main(r) => (&oram.main, oram.main_slot(r)),
        SqLocation::Level(level, slot) => {
            let level = &oram.levels[level - 1];
            (&level.area, level.slot(slot))
        }
        elsewhere => panic!("{elsewhere:?}"),
    };
    let mut extents = vec![];
    area.add_stretch(slot, end - from, &mut extents);
    extents
}

/// An ORAM on a store that records reads, with the first `blocks` blocks written in order, then
/// `dummies`.
fn written(geometry: SqGeometry, blocks: u64, dummies: u64) -> (Arc<NotingStore>, Sq) {
    let mut rig = Rig::new(geometry);
    rig.create();
    let store = NotingStore::of(&rig);
    let mut oram = rig.open_on(store.clone(), false).unwrap();
    for addr in 0..blocks {
        write(&mut oram, addr, addr as u8);
    }
    for _ in 0..dummies {
        oram.write_dummy().unwrap();
    }
    (store, oram)
}

/// Two levels of four, with buckets of whole stripes: a pass takes 16 flushes.
fn shape() -> SqGeometry {
    SqGeometry::with_shape(2000, 64, 64, 4, 2).unwrap()
}

#[test]
fn what_follows_in_the_last_level_is_read_ahead() {
    let (store, mut oram) = written(shape(), 2000, 3 * 1024);
    // Up to this block a pass has come; behind it lies what the pass before it left.
    let here = |oram: &Sq| oram.schedule.refreshed(oram.flushes) % 2000;
    while !(1500..1900).contains(&here(&oram)) {
        oram.write_dummy().unwrap();
    }
    assert_eq!(store.third(&oram, 24, 8), stretch(&oram, 24, 24 + 1024));
    // Not beyond the pass, nor beyond the end of the level, where other blocks follow.
    let (passed, end) = (here(&oram) - 100, 2000 - 40);
    assert_eq!(store.third(&oram, passed, 8), stretch(&oram, passed, passed + 100));
    assert_eq!(store.third(&oram, end, 8), stretch(&oram, end, 2000));
    assert_eq!(store.third(&oram, 2000, 8), []);
}

#[test]
fn what_follows_in_a_generation_is_read_ahead() {
    let (store, mut oram) = written(shape(), 256, 256);
    assert_eq!(oram.flushes, 8);
    // A generation of level 1 has 256 slots.
    assert_eq!(store.third(&oram, 64, 8), stretch(&oram, 64, 256));
    // One block of a stretch for each request to come: the other seven are in memory.
    let expected = stretch(&oram, 89, 89 + 128);
    for addr in 89..96 {
        write(&mut oram, addr, 1);
    }
    assert_eq!(store.third(&oram, 96, 8), expected);
}

#[test]
fn what_follows_in_the_log_is_not_read_ahead() {
    let (store, oram) = written(shape(), 200, 0);
    assert_eq!(store.third(&oram, 96, 8), []);
}

#[test]
fn only_requests_of_eight_blocks_in_order_are_read_ahead_of() {
    let (store, oram) = written(shape(), 2000, 3 * 1024);
    assert_eq!(store.third(&oram, 400, 7), []);
    assert!(!store.third(&oram, 600, 8).is_empty());
    for nth in 0..5u64 {
        assert_eq!(store.hints(&oram, &[800 + nth; 8]), [], "one block over and over");
        let backwards: Vec<u64> = (0..8).rev().map(|i| 1000 - nth * 8 + i).collect();
        assert_eq!(store.hints(&oram, &backwards), []);
    }
}

/// Reads of level 1 in each flush of a part of a life.
fn reads_of_level_1(geometry: SqGeometry, flushes: core::ops::Range<u64>) -> Vec<usize> {
    let (store, mut oram) = written(geometry, 0, 0);
    let (_, begin, len) = geometry.areas()[1];
    let is_there = |extents: &[Extent]| (begin..begin + len).contains(&extents[0].at);
    let mut rng = SeededRng::new(9);
    let mut reads = vec![];
    while oram.flushes < flushes.end {
        let flush = oram.flushes;
        store.take();
        while oram.flushes == flush {
            write(&mut oram, rng.below(geometry.blocks), 1);
        }
        let calls = store.take().into_iter();
        let there = calls.filter(|(call, extents)| *call == Call::Read && is_there(extents));
        reads.push(there.count());
    }
    reads.split_off(flushes.start as usize)
}

#[test]
fn the_sources_of_a_merge_are_read_in_the_flushes_before_it() {
    // 16 sources, of one chunk each. The last of them is whole only when the merge begins.
    let geometry = SqGeometry::with_shape(1000, 128, 2, 16, 2).unwrap();
    let begins = geometry.schedule().start(2) + geometry.schedule().width(2);
    let reads = reads_of_level_1(geometry, begins - 20..begins + 200);
    assert_eq!(reads[..17], [0; 17]);
    assert_eq!(reads[17..20], [8, 7, 0]);
    assert_eq!(reads[20..].iter().sum::<usize>(), 1, "{reads:?}");
    // No source is read ahead if one flush cannot be filled with them.
    let geometry = SqGeometry::with_shape(1000, 128, 8, 7, 2).unwrap();
    let begins = geometry.schedule().start(2) + geometry.schedule().width(2);
    let reads = reads_of_level_1(geometry, begins - 20..begins + 30);
    assert_eq!(reads[..20], [0; 20]);
    assert_eq!(reads[20..].iter().sum::<usize>(), 7, "{reads:?}");
}
