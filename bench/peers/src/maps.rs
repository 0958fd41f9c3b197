//! Maps from 8 bytes to 8 bytes, which are full. Every key that is looked up is there, and
//! every insertion overwrites: the cost of oblivious maps does not depend on it.

use crate::Subject;
use crate::arrays::mc_rng;
use aligned_cmov::A8Bytes;
use aligned_cmov::typenum::{U8, U1024};
use mc_oblivious_map::CuckooHashTableCreator;
use mc_oblivious_ram::PathORAM4096Z4Creator;
use mc_oblivious_traits::{HeapORAMStorageCreator, OMapCreator, ObliviousHashMap};
use rostl_datastructures::map::UnsortedMap;
use std::hint::black_box;
use traceless::Map;

type McRng = rand10::rngs::StdRng;
type McCreator =
    CuckooHashTableCreator<U1024, McRng, PathORAM4096Z4Creator<McRng, HeapORAMStorageCreator>>;
type McTable = <McCreator as OMapCreator<U8, U8, McRng>>::Output;

/// Entries of `mc-oblivious-map` that are filled in: to fill it takes minutes.
const MC_ENTRIES: u64 = 1 << 12;

pub fn look_ups(entries: u64) -> Vec<Subject> {
    println!("maps of {entries} entries");
    vec![
        Subject::made("traceless, Map", "looks like an insertion", move || ours(entries), {
            move |map: &mut Map, number| {
                black_box(map.get(&(number % entries).to_le_bytes()).expect("it works"));
            }
        }),
        Subject::made(
            "rostl, UnsortedMap",
            "cannot remove",
            move || rostl(entries),
            move |map, number| {
                let mut value = 0;
                assert!(map.get(number % entries, &mut value), "it is there");
                black_box(value);
            },
        ),
        Subject::made(
            "mc-oblivious-map",
            "insertions show",
            move || mc(entries),
            move |map, number| {
                let mut value = A8Bytes::<U8>::default();
                black_box(map.read(&mc_key(number), &mut value));
            },
        ),
    ]
}

pub fn insertions(entries: u64) -> Vec<Subject> {
    println!("maps of {entries} entries");
    vec![
        Subject::made("traceless, Map", "looks like a look-up", move || ours(entries), {
            move |map: &mut Map, number| {
                map.insert(&(number % entries).to_le_bytes(), &[1; 8]).expect("there is room");
            }
        }),
        Subject::made(
            "rostl, UnsortedMap",
            "`insert_cond`; does not overwrite",
            move || rostl(entries),
            move |map, number| map.insert_cond(number % entries, number, false),
        ),
        Subject::made(
            "mc-oblivious-map",
            "`vartime_write`: not oblivious",
            move || mc(entries),
            move |map, number| {
                black_box(map.vartime_write(&mc_key(number), &A8Bytes::default(), 1.into()));
            },
        ),
    ]
}

fn ours(entries: u64) -> Map {
    let map = Map::builder().capacity(entries).key_len(8).value_len(8).build();
    let mut map = map.expect("it fits");
    for key in 0..entries {
        map.insert(&key.to_le_bytes(), &[1; 8]).expect("there is room");
    }
    map
}

fn rostl(entries: u64) -> UnsortedMap<u64, u64> {
    let mut map = UnsortedMap::new(entries as usize);
    for key in 0..entries {
        map.insert(key, 1);
    }
    map
}

fn mc(entries: u64) -> McTable {
    let mut map = McCreator::create(entries, 32, mc_rng);
    for number in 0..MC_ENTRIES {
        map.vartime_write(&mc_key(number), &A8Bytes::default(), 1.into());
    }
    map
}

/// A key that is there; zero is none.
fn mc_key(number: u64) -> A8Bytes<U8> {
    let mut key = A8Bytes::default();
    key.copy_from_slice(&(number % MC_ENTRIES + 1).to_le_bytes());
    key
}
