#[cfg(feature = "std")]
mod saved;

use super::*;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use traceless_core::oram::{Hides, check_request};
use traceless_core::rng::SeededRng;

type Reads = Arc<Mutex<Vec<u64>>>;

/// An array that hides nothing and records the accessed blocks.
struct Open {
    block_len: usize,
    blocks: Vec<u8>,
    seen: Reads,
    /// Number of accesses until one fails, once.
    good: u64,
    /// Whether the failing access first passes its block to the caller.
    is_late: bool,
}

impl Oram for Open {
    fn blocks(&self) -> u64 {
        (self.blocks.len() / self.block_len) as u64
    }
    fn block_len(&self) -> usize {
        self.block_len
    }
    fn read_many(&mut self, _: &[Addr], _: &mut [u8]) -> Result {
        unreachable!("a map only updates")
    }
    fn write_many(&mut self, _: &[Addr], _: &[u8]) -> Result {
        unreachable!("a map only updates")
    }
    fn update(&mut self, addr: Addr, change: &mut dyn FnMut(&mut [u8])) -> Result {
        check_request(self.blocks(), 0, &[addr], 0)?;
        let fails = self.good == 0;
        self.good = if fails { u64::MAX } else { self.good - 1 };
        if !fails || self.is_late {
            self.seen.lock().unwrap().push(addr.0);
            change(&mut self.blocks[addr.0 as usize * self.block_len..][..self.block_len]);
        }
        if fails { Err(Error::Store("planted")) } else { Ok(()) }
    }
    fn sync(&mut self) -> Result {
        Ok(())
    }
    fn hides(&self) -> Hides {
        Hides::Nothing
    }
    fn close(&mut self) -> Result {
        Ok(())
    }
}

fn open_map(builder: MapBuilder, good: u64) -> (Map, Reads) {
    open_map_failing(builder, good, false)
}

fn open_map_failing(builder: MapBuilder, good: u64, is_late: bool) -> (Map, Reads) {
    let (block_len, blocks) = (builder.block_len().unwrap(), builder.blocks().unwrap());
    let (seen, blocks) = (Reads::default(), vec![0; block_len * blocks as usize]);
    let oram = Box::new(Open { block_len, blocks, seen: seen.clone(), good, is_late });
    (builder.over(oram).unwrap(), seen)
}

fn builder(capacity: u64, key_len: usize, value_len: usize) -> MapBuilder {
    let seeded = SeededRng::new(capacity ^ key_len as u64);
    Map::builder().capacity(capacity).key_len(key_len).value_len(value_len).rng(seeded)
}

/// A key of any length up to `len`, derived from `number`.
fn key_of(number: u64, len: usize) -> Vec<u8> {
    let mut key = vec![0; (number % (len as u64 + 1)) as usize];
    SeededRng::new(number).fill(&mut key);
    key
}

/// Compares with a map of the standard library, which is kept at up to `capacity` entries.
fn behaves_like_a_map(map: &mut Map, operations: u64) {
    let MapShape { capacity, key_len, value_len, .. } = map.shape;
    let mut model = BTreeMap::<Vec<u8>, Vec<u8>>::new();
    let mut rng = SeededRng::new(capacity);
    for i in 0..operations {
        let key = key_of(rng.below(capacity * 3 / 2 + 1), key_len);
        let (found, expected) = match rng.below(4) {
            0 => (map.get(&key).unwrap(), model.get(&key).cloned()),
            1 => (map.remove(&key).unwrap(), model.remove(&key)),
            _ if model.len() as u64 >= capacity && !model.contains_key(&key) => continue,
            _ => {
                let mut value = vec![0; rng.below(value_len as u64 + 1) as usize];
                rng.fill(&mut value);
                (map.insert(&key, &value).unwrap(), model.insert(key.clone(), value))
            }
        };
        assert_eq!(found, expected, "operation {i} on {key:?}");
    }
    for (key, value) in &model {
        assert_eq!(map.get(key).unwrap().as_ref(), Some(value));
    }
    assert_eq!(map.count().unwrap(), model.len() as u64);
}

#[test]
fn is_a_map_over_the_oblivious_client() {
    for (capacity, key_len, value_len, operations) in [
        (0, 3, 3, 20),
        (1, 8, 8, 300),
        (3, 1, 0, 500),
        (100, 16, 5, 5000),
        (5000, 9, 64, 60_000),
        (40, 4, 3000, 1000),
    ] {
        let mut map = builder(capacity, key_len, value_len).build().unwrap();
        behaves_like_a_map(&mut map, operations);
    }
}

#[test]
fn is_a_map_over_another_array() {
    let builder = builder(1000, 8, 24);
    let array = crate::Array::builder()
        .blocks(builder.blocks().unwrap())
        .block_len(builder.block_len().unwrap() + 3);
    let array = array.rng(SeededRng::new(2)).build().unwrap();
    behaves_like_a_map(&mut builder.over(array.into_oram()).unwrap(), 20_000);
}

/// Two accesses to different blocks, for every operation and result.
#[test]
fn each_operation_is_two_accesses() {
    let (mut map, seen) = open_map(builder(50, 8, 8), u64::MAX);
    let operations = [Operation::GET, Operation::INSERT, Operation::REMOVE];
    let mut rng = SeededRng::new(1);
    for _ in 0..3000 {
        let key = rng.below(40).to_le_bytes();
        seen.lock().unwrap().clear();
        map.operate(operations[rng.below(3) as usize], &key, &[7; 8]).unwrap();
        let seen = seen.lock().unwrap();
        assert!(seen.len() == 2 && seen[0] != seen[1], "{seen:?}");
    }
}

#[test]
fn counting_is_one_access_for_each_bucket() {
    let (mut map, seen) = open_map(builder(50, 8, 8), u64::MAX);
    for entries in 0..30 {
        seen.lock().unwrap().clear();
        assert_eq!(map.count().unwrap(), entries);
        assert!(seen.lock().unwrap().iter().copied().eq(0..map.shape.buckets));
        map.insert(&entries.to_le_bytes(), &[]).unwrap();
    }
    let (mut failing, _) = open_map(builder(50, 8, 8), 3);
    assert!(matches!(failing.count(), Err(Error::Store(_))));
    assert_eq!(failing.count().unwrap(), 0);
}

#[test]
fn an_operation_may_be_put_together() {
    let mut map = builder(50, 8, 8).build().unwrap();
    let chosen = |insert| {
        Operation::conditional_select(&Operation::GET, &Operation::INSERT, Choice::from(insert))
    };
    let found = |answer: Answer<'_>| (answer.found.unwrap_u8(), answer.value.to_vec(), answer.len);
    let nothing = (0, vec![0; 8], 0);
    assert_eq!(found(map.operate(chosen(0), b"a", b"value").unwrap()), nothing);
    assert_eq!(found(map.operate(chosen(1), b"a", b"value").unwrap()), nothing);
    let value = (1, b"value\0\0\0".to_vec(), 5);
    assert_eq!(found(map.operate(chosen(0), b"a", &[]).unwrap()), value);
    assert_eq!(found(map.operate(Operation::REMOVE, b"a", &[]).unwrap()), value);
    assert_eq!(found(map.operate(chosen(0), b"a", &[]).unwrap()), nothing);
    // Padding is no part of a key.
    map.insert(b"a", b"1").unwrap();
    assert_eq!(map.get(b"a\0").unwrap(), None);
}

/// The share of new entries that find no room, by the rates at which entries come and go.
fn overflow(slots: usize, load: f64) -> f64 {
    let mut beyond = 0.1;
    let mut full = 0.0;
    for _ in 0..1000 {
        let mut weights = vec![1.0_f64];
        for entries in 0..slots {
            let first = if entries < FIRST_ENTRIES { load } else { 0.0 };
            weights.push(weights[entries] * (first + load * beyond) / (entries + 1) as f64);
        }
        let sum: f64 = weights.iter().sum();
        beyond = f64::midpoint(beyond, weights[FIRST_ENTRIES..].iter().sum::<f64>() / sum);
        full = beyond * weights[slots] / sum;
    }
    full
}

#[test]
fn overflow_is_as_seldom_as_is_said() {
    let load = LOAD as f64;
    assert!(overflow(10, load).log2() < -21.7, "{}", overflow(10, load).log2());
    assert!(overflow(12, load).log2() < -34.4, "{}", overflow(12, load).log2());
    // `mean` entries wait in the stash on average; that 16 of them do is then less likely.
    for (slots, capacity) in [(10, 1 << 20), (12, CAPACITY_MAX)] {
        let mean = capacity as f64 * overflow(slots, load);
        let orders: f64 = (1..=STASH_ENTRIES).map(|i| (mean / i as f64).log2()).sum();
        assert!(mean < 0.3 && orders < -70.0, "{mean} {orders}");
        assert_eq!(MapShape::new(capacity, 8, 8).unwrap().slots, slots);
    }
}

/// The rates are right: the stash has as many entries as they say, in a map with more entries than
/// it was made for, after a long time of insertions and removals.
#[test]
fn the_stash_holds_what_the_rates_say() {
    const CAPACITY: u64 = 1 << 12;
    for load in [4.0, 5.5] {
        let (mut map, seen) = open_map(builder(CAPACITY, 8, 0), u64::MAX);
        let entries = (CAPACITY as f64 / LOAD as f64 * load) as u64;
        let (mut waiting, mut looks, mut most) = (0, 0, 0);
        for i in 0..150 * entries {
            map.insert(&i.to_le_bytes(), &[]).unwrap();
            if i >= entries {
                // All entries leave at the same age, so their places do not matter.
                map.remove(&(i - entries).to_le_bytes()).unwrap();
            }
            if i >= 3 * entries && i % 64 == 0 {
                (waiting, looks) = (waiting + map.stash_entries(), looks + 1);
                most = most.max(map.stash_entries());
            }
            seen.lock().unwrap().clear();
        }
        let mean = waiting as f64 / f64::from(looks);
        let expected = entries as f64 * overflow(map.shape.slots, load);
        println!("load {load}: {mean} wait, {expected} were expected, {most} at most");
        if expected < 0.1 {
            assert!(most <= 2, "{most}");
        } else {
            assert!((0.7..1.4).contains(&(mean / expected)), "{mean} {expected}");
        }
    }
}

#[test]
fn a_full_map_refuses_and_loses_nothing() {
    let (mut map, _) = open_map(builder(8, 8, 8), u64::MAX);
    let key = |i: u64| i.to_le_bytes();
    let refused = (0..100).find(|&i| map.insert(&key(i), &key(i)).is_err()).unwrap();
    assert!(refused > 20, "{refused}");
    let again = map.insert(&key(refused), &key(refused));
    assert!(matches!(again, Err(Error::MapFull { capacity: 8 })));
    assert_eq!(map.get(&key(refused)).unwrap(), None);
    for i in 0..refused {
        assert_eq!(map.get(&key(i)).unwrap().as_deref(), Some(&key(i)[..]));
    }
    for i in 0..refused {
        assert!(map.remove(&key(i)).unwrap().is_some());
    }
    assert_eq!(map.insert(&key(refused), &key(refused)).unwrap(), None);
}

#[test]
fn says_what_is_wrong() {
    let mut map = builder(8, 4, 2).build().unwrap();
    assert!(matches!(map.get(&[0; 5]), Err(Error::WrongLength { want: 4, got: 5 })));
    assert!(matches!(map.insert(&[], &[0; 3]), Err(Error::WrongLength { want: 2, got: 3 })));
    for builder in [builder(CAPACITY_MAX + 1, 1, 1), builder(1, LEN_MAX + 1, 1)] {
        assert!(matches!(builder.build(), Err(Error::Geometry(_))));
    }
    let small = crate::Array::builder().blocks(2).block_len(8).build().unwrap();
    assert!(matches!(builder(8, 4, 2).over(small.into_oram()), Err(Error::Geometry(_))));
}

/// If the array fails after it passed a block on, the contents of the map are unknown.
#[test]
fn a_failed_write_is_final() {
    for good in [2, 3] {
        let (mut map, _) = open_map_failing(builder(8, 4, 2), good, true);
        map.insert(b"a", b"1").unwrap();
        assert!(matches!(map.insert(b"b", b"2"), Err(Error::Store(_))));
        assert!(matches!(map.get(b"a"), Err(Error::Poisoned)));
    }
}

/// A bucket cannot be read: the next operation finishes the interrupted one, or begins anew, and
/// each key has its old value or the new one.
#[test]
fn a_failed_read_loses_no_entry() {
    for good in 0..120 {
        let (mut map, _) = open_map(builder(8, 4, 2), good);
        let (mut model, mut draws) = (BTreeMap::<u8, u8>::new(), SeededRng::new(good));
        let mut failed = 0;
        for _ in 0..80 {
            let (key, value) = (draws.below(8) as u8, draws.below(256) as u8);
            let (done, new) = match draws.below(3) {
                0 => (map.remove(&[key]), None),
                _ => (map.insert(&[key], &[value]), Some(value)),
            };
            let old = model.get(&key).copied();
            let is_done = if let Ok(found) = done {
                assert_eq!(found, old.map(|old| vec![old]));
                true
            } else {
                failed += 1;
                let found = map.get(&[key]).unwrap().map(|found| found[0]);
                assert!(found == old || found == new, "{found:?}, not {old:?} nor {new:?}");
                found == new
            };
            match new.filter(|_| is_done) {
                Some(new) => _ = model.insert(key, new),
                None if is_done => _ = model.remove(&key),
                None => {}
            }
        }
        assert_eq!(failed, 1);
        for key in 0..8 {
            let want = model.get(&key).map(|value| vec![*value]);
            assert_eq!(map.get(&[key]).unwrap(), want, "{good}, {key}");
        }
    }
}
