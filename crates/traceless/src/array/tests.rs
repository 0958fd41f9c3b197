use super::*;
use crate::scheme::tree_rig::{
    CHI_SQUARE_MAX, REPEATS_MAX, loudest_echo, older_tests_see_nothing, serial_chi_square,
};
use traceless_core::rng::SeededRng;
use traceless_core::store::{MemStore, WatchedStore};
use traceless_core::trace::{Op, Recorder};

fn builder(blocks: u64, block_len: usize) -> ArrayBuilder {
    let key = Secret::from_bytes([5; 32]);
    Array::builder().blocks(blocks).block_len(block_len).key(key).rng(SeededRng::new(1))
}

fn block(addr: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (addr as usize * 7 + at) as u8).collect()
}

#[test]
fn any_number_of_blocks_of_any_length_comes_back() {
    let sizes = [(0, 64), (1, 1), (2, 1), (3, 1), (37, 1), (1, 1 << 20), (5, 1 << 20), (1001, 64)];
    for (blocks, len) in sizes {
        let store = Arc::new(MemStore::new(builder(blocks, len).store_len().unwrap()));
        let mut array = builder(blocks, len).store(store.clone()).build().unwrap();
        for addr in 0..blocks {
            assert_eq!(array.read(addr).unwrap(), vec![0; len]);
            array.write(addr, &block(addr, len)).unwrap();
        }
        array.sync().unwrap();
        assert!(matches!(array.read(blocks), Err(Error::OutOfRange { .. })));
        drop(array);
        let mut array = builder(blocks, len).store(store.clone()).open().unwrap();
        for addr in 0..blocks {
            assert_eq!(array.read(addr).unwrap(), block(addr, len), "{addr} of {blocks}");
        }
        array.close().unwrap();
        let other = builder(blocks, len).key(Secret::from_bytes([6; 32])).store(store);
        assert!(matches!(other.open(), Err(Error::State(_))), "a wrong key");
    }
}

#[test]
fn an_array_that_may_be_watched_comes_back() {
    for (blocks, len) in [(0, 64), (3, 1), (5001, 64)] {
        let builder = || builder(blocks, len).oblivious(true);
        let store = Arc::new(MemStore::new(builder().store_len().unwrap()));
        let mut saved = builder().store(store.clone()).build().unwrap();
        let mut unsaved = builder().build().unwrap();
        for addr in 0..blocks {
            saved.write(addr, &block(addr, len)).unwrap();
            unsaved.write(addr, &block(addr, len)).unwrap();
        }
        drop(saved);
        let mut saved = builder().store(store).open().unwrap();
        for addr in 0..blocks {
            assert_eq!(saved.read(addr).unwrap(), block(addr, len));
            assert_eq!(unsaved.read(addr).unwrap(), block(addr, len));
        }
    }
}

#[test]
fn large_blocks_in_a_tree_come_back() {
    let mut geometry = path::PathGeometry::new(9, 1 << 20).unwrap();
    geometry.unsynced_max = 4;
    let builder = || builder(0, 0).scheme(geometry);
    let store = Arc::new(MemStore::new(builder().store_len().unwrap()));
    let mut array = builder().store(store.clone()).build().unwrap();
    (0..9).for_each(|addr| array.write(addr, &block(addr, 1 << 20)).unwrap());
    array.close().unwrap();
    let mut array = builder().store(store).open().unwrap();
    (0..9).for_each(|addr| assert_eq!(array.read(addr).unwrap(), block(addr, 1 << 20)));
}

#[test]
fn few_blocks_are_all_touched_and_many_are_not() {
    let linear = |blocks, len| builder(blocks, len).chosen_scheme().unwrap().name() == "linear";
    assert!(linear(1, 64) && linear(10, 64) && linear(3, 1 << 20));
    assert!(!linear(0, 64) && !linear(1000, 64));
}

#[test]
fn batches_and_lengths() {
    let mut array = builder(50, 4).build().unwrap();
    array.write_many(&[3, 4], &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let mut both = [0; 8];
    array.read_many(&[4, 3], &mut both).unwrap();
    assert_eq!(both, [5, 6, 7, 8, 1, 2, 3, 4]);
    assert!(matches!(array.write(1, &[0; 3]), Err(Error::WrongLength { want: 4, got: 3 })));
    assert!(matches!(array.access(50, |_| ()), Err(Error::OutOfRange { .. })));
    assert!(array.fixed::<5>().is_err());
    assert!(builder(50, 4).open().is_err(), "nowhere");
    let store = Arc::new(MemStore::new(1 << 20));
    assert!(Array::builder().blocks(9).store(store).build().is_err(), "under no key");
}

#[test]
fn what_was_loaded_is_there() {
    for (blocks, len, loaded) in [(0, 64, 0), (1, 5, 1), (1001, 64, 1001), (3000, 8, 2000)] {
        let store = Arc::new(MemStore::new(builder(blocks, len).store_len().unwrap()));
        let all = || (0..loaded).map(|addr| block(addr, len));
        let want = |addr| if addr < loaded { block(addr, len) } else { vec![0; len] };
        let mut saved = builder(blocks, len).store(store.clone()).load(all()).unwrap();
        let mut unsaved = builder(blocks, len).load(all()).unwrap();
        for addr in 0..blocks {
            assert_eq!(unsaved.read(addr).unwrap(), want(addr), "{addr} of {blocks}");
            assert_eq!(saved.read(addr).unwrap(), want(addr), "{addr} of {blocks}");
        }
        // Changes since the load are lost, loaded blocks are not.
        drop(saved);
        let mut saved = builder(blocks, len).store(store).open().unwrap();
        (0..blocks).for_each(|addr| assert_eq!(saved.read(addr).unwrap(), want(addr)));
        saved.close().unwrap();
    }
}

/// A drop saves; a kill does not, and an opening after it gives every block another path.
#[test]
fn a_dropped_array_is_closed() {
    let store = Arc::new(MemStore::new(builder(500, 64).store_len().unwrap()));
    builder(500, 64).store(store.clone()).build().unwrap();
    let opened = |kills: bool| {
        let witness = Arc::new(Recorder::default());
        let watched = Arc::new(WatchedStore::new(store.clone(), witness.clone()));
        let mut array = builder(500, 64).store(watched).open().unwrap();
        let events = witness.take().len();
        let before = array.access(7, |block| {
            block[0] += 1;
            block[0] - 1
        });
        if kills {
            core::mem::forget(array);
        } else {
            drop(array);
        }
        (before.unwrap(), events)
    };
    let (first, short) = opened(false);
    let (second, same) = opened(true);
    let (third, long) = opened(false);
    assert_eq!((first, second, third), (0, 1, 1), "a kill loses what was not synced");
    assert!(short == same && long > 100 * short, "{short}, {same}, {long}");
}

/// The events of a load do not depend on its contents, even with maps in trees.
#[test]
fn loading_has_the_same_trace_for_all_data() {
    let shown = |byte: u8| {
        let geometry = path::PathGeometry::new(2000, 16).unwrap().with_map_memory(100).unwrap();
        assert!(geometry.map_trees > 1);
        let builder = || builder(0, 0).scheme(geometry);
        let witness = Arc::new(Recorder::default());
        let store = MemStore::new(builder().store_len().unwrap());
        let store = Arc::new(WatchedStore::new(store, witness.clone()));
        let rng = SeededRng::new(byte.into());
        let mut array = builder().rng(rng).store(store).load(vec![[byte; 16]; 2000]).unwrap();
        let shown: Vec<_> = witness.take().into_iter().map(|e| (e.op, e.at, e.len)).collect();
        (0..2000).for_each(|addr| assert_eq!(array.read(addr).unwrap(), [byte; 16]));
        shown
    };
    assert_eq!(shown(1), shown(2));
}

/// Loads an array and reads its blocks in order, `reads` times in all. Returns the deepest bucket
/// of each read: first the buckets that the load put the blocks into.
fn leaves_read(blocks: u64, reads: u64) -> Vec<u64> {
    let builder = builder(blocks, 16);
    let witness = Arc::new(Recorder::default());
    let store = MemStore::new(builder.store_len().unwrap());
    let store = Arc::new(WatchedStore::new(store, witness.clone()));
    let mut array = builder.store(store).load(vec![[1; 16]; blocks as usize]).unwrap();
    witness.take();
    // Lower buckets lie behind all upper ones.
    let deepest = |nth: u64| {
        array.read(nth % blocks).unwrap();
        let events = witness.take();
        events.iter().filter(|e| e.op == Op::Read).map(|e| e.at).max().expect("a path is read")
    };
    (0..reads).map(deepest).collect()
}

#[test]
fn labels_after_a_load_are_independent_of_the_data() {
    const BLOCKS: u64 = 8000;
    let read = leaves_read(BLOCKS, 11 * BLOCKS);
    let mut leaves = read.clone();
    leaves.sort_unstable();
    leaves.dedup();
    // After so many reads every leaf has been read.
    let leaves_max = leaves.len() as u64;
    assert!(leaves_max.is_power_of_two());
    let leaf = |at| leaves.binary_search(at).expect("it was seen") as u64;
    let mut labels: Vec<u64> = read[..BLOCKS as usize].iter().map(leaf).collect();
    older_tests_see_nothing(&labels, leaves_max);
    assert!(loudest_echo(&labels, leaves_max).abs() < REPEATS_MAX);
    // The planted fault: the same labels, assigned in the order of the addresses.
    labels.sort_unstable();
    assert!(serial_chi_square(&labels, leaves_max, 1) > CHI_SQUARE_MAX);
}

#[test]
fn impossible_loads_are_refused() {
    let load = |blocks: Vec<Vec<u8>>| builder(1000, 4).load(blocks).map(|_| ());
    assert!(matches!(load(vec![vec![0; 4]; 1001]), Err(Error::OutOfRange { .. })));
    assert!(matches!(load(vec![vec![0; 3]]), Err(Error::WrongLength { want: 4, got: 3 })));
}

/// An array may be opened and closed without an access any number of times.
#[test]
fn an_array_opened_for_nothing_opens_again() {
    for (blocks, oblivious) in [(3, false), (500, false), (500, true), (5000, true)] {
        let builder = || builder(blocks, 64).oblivious(oblivious);
        let store = Arc::new(MemStore::new(builder().store_len().unwrap()));
        let mut array = builder().store(store.clone()).build().unwrap();
        (0..blocks).for_each(|addr| array.write(addr, &block(addr, 64)).unwrap());
        array.close().unwrap();
        for seed in 0..4 {
            let array =
                builder().rng(SeededRng::new(seed + 10)).store(store.clone()).open().unwrap();
            array.close().unwrap();
        }
        let mut array = builder().store(store).open().unwrap();
        (0..blocks).for_each(|addr| assert_eq!(array.read(addr).unwrap(), block(addr, 64)));
    }
}

/// Impossible sizes are errors, however large the numbers are.
#[test]
fn impossible_sizes_are_refused() {
    for (blocks, len) in [
        (1 << 31, 1 << 20),
        (1 << 40, 64),
        (u64::MAX, 1),
        (u64::MAX, usize::MAX),
        (1, usize::MAX),
        (5, 0),
    ] {
        for oblivious in [false, true] {
            let builder = || builder(blocks, len).oblivious(oblivious);
            assert!(builder().build().is_err(), "{blocks} x {len}");
            let store = Arc::new(MemStore::new(1 << 20));
            assert!(builder().store(store.clone()).build().is_err(), "{blocks} x {len}");
            assert!(builder().store(store).open().is_err(), "{blocks} x {len}");
            let _ = builder().store_len();
        }
        let path = path::PathGeometry { blocks, ..path::PathGeometry::new(9, 64).unwrap() };
        let path = path::PathGeometry { block_len: len, ..path };
        let _ = builder(0, 0).scheme(path).store_len();
        assert!(builder(0, 0).scheme(path).build().is_err(), "{path:?}");
        if blocks > 5 {
            let linear = LinearScheme { blocks, block_len: len.max(1) };
            let _ = builder(0, 0).scheme(linear).store_len();
            assert!(builder(0, 0).scheme(linear).build().is_err(), "{linear:?}");
        }
    }
}

/// Any damage to a store leads to an error, or reads return what was written.
#[test]
fn damage_never_panics_and_is_never_read() {
    for (blocks, oblivious) in [(0, false), (3, false), (300, false), (300, true), (3000, true)] {
        let builder = || builder(blocks, 16).oblivious(oblivious);
        let store = Arc::new(MemStore::new(builder().store_len().unwrap()));
        let mut array = builder().store(store.clone()).build().unwrap();
        (0..blocks).for_each(|addr| array.write(addr, &block(addr, 16)).unwrap());
        array.sync().unwrap();
        let killed = store.snapshot();
        array.close().unwrap();
        let closed = store.snapshot();
        let mut rng = SeededRng::new(blocks);
        for nth in 0..60 {
            let mut bytes = if nth % 10 == 0 { killed.clone() } else { closed.clone() };
            let at = rng.below(bytes.len() as u64) as usize;
            match nth % 3 {
                0 => bytes.truncate(at),
                1 => bytes[at] ^= 1,
                _ => bytes[at..].fill(nth as u8),
            }
            let store = Arc::new(MemStore::from_bytes(&bytes));
            let Ok(mut array) = builder().store(store).open() else { continue };
            for addr in (0..blocks).take(200) {
                match array.read(addr) {
                    Ok(read) => assert_eq!(read, block(addr, 16)),
                    Err(_) => break,
                }
            }
        }
    }
}

/// The block that was visited may be lost.
#[test]
fn a_visit_that_panics_ends_it() {
    for (blocks, oblivious) in [(3, false), (500, false), (3, true), (600, true)] {
        let mut array = builder(blocks, 64).oblivious(oblivious).build().unwrap();
        (0..blocks).for_each(|addr| array.write(addr, &block(addr, 64)).unwrap());
        let access = std::panic::AssertUnwindSafe(|| array.access(1, |_| panic!("mine")));
        assert!(std::panic::catch_unwind(access).is_err());
        match array.read(1) {
            Ok(read) => assert_eq!(read, block(1, 64), "{blocks}, {oblivious}"),
            Err(error) => assert!(matches!(error, Error::EarlierAbort), "{error}"),
        }
    }
}
