//! Maps in stores: reopened, killed, and interrupted at every call of their store.

use super::*;
use traceless_core::store::{MemStore, Store};
use traceless_core::suite::rig::Forgetful;

/// The map has so few buckets that entries wait in the stash.
fn saved(store: Arc<dyn Store>, seed: u64) -> MapBuilder {
    let map = Map::builder().capacity(4).key_len(2).value_len(8).rng(SeededRng::new(seed));
    map.key(Secret::from_bytes([3; 32])).store(store)
}

fn room() -> u64 {
    saved(Arc::new(MemStore::new(0)), 0).store_len().unwrap()
}

type Model = BTreeMap<u8, u64>;

fn contents(map: &mut Map) -> Model {
    let value = |bytes: Vec<u8>| u64::from_le_bytes(bytes.try_into().unwrap());
    (0..30).filter_map(|key| Some((key, map.get(&[key]).unwrap().map(value)?))).collect()
}

/// One random operation on a map and on its model.
fn step(map: &mut Map, model: &mut Model, rng: &mut SeededRng) -> Result {
    let (key, value) = (rng.below(30) as u8, rng.below(1 << 40));
    if rng.below(4) == 0 {
        map.remove(&[key])?;
        model.remove(&key);
    } else {
        map.insert(&[key], &value.to_le_bytes())?;
        model.insert(key, value);
    }
    Ok(())
}

#[test]
fn a_map_comes_back_with_its_stash() {
    let store = Arc::new(MemStore::new(room()));
    let mut map = saved(store.clone(), 1).build().unwrap();
    let (mut model, mut rng, mut waited) = (Model::new(), SeededRng::new(2), 0);
    for round in 0..12 {
        (0..100).for_each(|_| step(&mut map, &mut model, &mut rng).unwrap());
        waited += map.stash_entries();
        match round % 3 {
            0 => map.close().unwrap(),
            1 => drop(map),
            _ => {
                map.sync().unwrap();
                core::mem::forget(map);
            }
        }
        map = saved(store.clone(), round + 9).open().unwrap();
        assert_eq!(contents(&mut map), model);
        assert_eq!(map.count().unwrap(), model.len() as u64);
    }
    assert!(waited > 0, "no entry waited in the stash");
    drop(map);
    let other = saved(store, 1).key(Secret::from_bytes([4; 32]));
    assert!(matches!(other.open().err(), Some(Error::State(_))), "a wrong key");
}

/// Even where entries have the same number of words.
#[test]
fn other_lengths_open_nothing() {
    let builder = |key_len, value_len| {
        let key = Secret::from_bytes([3; 32]);
        Map::builder().capacity(9).key_len(key_len).value_len(value_len).key(key)
    };
    let store = Arc::new(MemStore::new(builder(8, 70).store_len().unwrap()));
    builder(8, 70).store(store.clone()).build().unwrap().insert(b"key", &[1; 70]).unwrap();
    for (key_len, value_len) in [(8, 65), (7, 70), (9, 70), (8, 71), (8, 73)] {
        let opened = builder(key_len, value_len).store(store.clone()).open();
        assert!(opened.is_err(), "{key_len}, {value_len}");
    }
    let mut map = builder(8, 70).store(store).open().unwrap();
    assert_eq!(map.get(b"key").unwrap(), Some(vec![1; 70]));
}

/// Each opening finds the map as it was after some operation, at least the last synced one.
#[test]
fn no_crash_loses_what_was_synced() {
    let empty = Arc::new(MemStore::new(room()));
    saved(empty.clone(), 1).build().unwrap().close().unwrap();
    let (mut bytes, mut rng) = (empty.snapshot(), SeededRng::new(5));
    let (mut history, mut lived) = (vec![Model::new()], 0);
    for fuse in (0..50).chain((0..30).map(|n| 5 + n * 7)) {
        let disk = Arc::new(Forgetful::new(&bytes, fuse));
        let mut promised = 0;
        if let Ok(mut map) = saved(disk.clone(), fuse + 7).open() {
            loop {
                let mut model = history.last().unwrap().clone();
                let synced = rng.below(20) == 0;
                let done = if synced { map.sync() } else { step(&mut map, &mut model, &mut rng) };
                history.push(model);
                match done {
                    Ok(()) if synced => promised = history.len() - 1,
                    Ok(()) => {}
                    Err(_) => break,
                }
            }
            assert!(matches!(map.sync(), Err(Error::Poisoned)), "nothing is tried again");
        }
        bytes = disk.crash(&mut rng);
        let copy = Arc::new(MemStore::from_bytes(&bytes));
        let found = contents(&mut saved(copy, fuse).open().expect("a crash is not damage"));
        let at = (promised..history.len()).rev().find(|&n| history[n] == found);
        let at = at.expect("the map is not that of any moment since the last sync");
        lived += at;
        history = vec![history.swap_remove(at)];
    }
    assert!(lived > 100, "only {lived} operations lived");
}

/// Pages of the array cannot be read, once, at many points: no entry is lost, not even by the syncs
/// that the map makes by itself.
#[cfg(feature = "suite")]
#[test]
fn a_failed_read_loses_no_entry() {
    use traceless_core::suite::FailingReads;

    let new = |store: Arc<dyn Store>, seed| {
        let map = Map::builder().capacity(4000).key_len(2).value_len(8).rng(SeededRng::new(seed));
        map.key(Secret::from_bytes([3; 32])).store(store)
    };
    let room = new(Arc::new(MemStore::new(0)), 0).store_len().unwrap();
    let inner = Arc::new(MemStore::new(room));
    let store = Arc::new(FailingReads::new(inner.clone()));
    let mut map = new(store.clone(), 1).build().unwrap();
    let (mut model, mut failed) = (Model::new(), 0);
    for turn in 0..2500 {
        store.fail_after(turn % 9);
        if step(&mut map, &mut model, &mut SeededRng::new(turn)).is_err() {
            failed += 1;
            store.fail_after(u64::MAX);
            // Repeat the operation, whether it was done or not.
            step(&mut map, &mut model, &mut SeededRng::new(turn)).unwrap();
        }
        if turn % 100 == 0 {
            store.fail_after(u64::MAX);
            assert_eq!(contents(&mut map), model, "turn {turn}");
        }
    }
    assert!(failed > 500, "{failed}");
    store.fail_after(u64::MAX);
    map.close().unwrap();
    assert_eq!(contents(&mut new(inner, 5).open().unwrap()), model);
}
