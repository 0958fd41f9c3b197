//! The Oblivious client with its secrets marked, for memcheck, which reports a branch or an address
//! that depends on a secret. `./test memcheck` runs it.
//!
//! `oblivious_memcheck honest` must be clean; the planted faults must not be: `early-exit`, a
//! look-up that stops at the first match, `branch`, which branches on a visited block, and `found`,
//! which branches on a map's answer.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use subtle::{Choice, ConditionallySelectable};
use traceless::map::{Map, Operation};
use traceless::oblivious::{self, Dynamic, Oblivious};
use traceless::oram::Oram;
use traceless::rng::{Rng, SeededRng};
use traceless::seal::SECRET_LEN;
use traceless::store::MemStore;
use traceless::{Addr, Array};
use traceless_sys::ct;
use traceless_sys::ct::secret::{classify, declassify, made_public};

fn main() {
    let mode = std::env::args().nth(1).unwrap_or_default();
    println!("{mode}, level {:?}", ct::level());
    match mode.as_str() {
        "honest" => honest(),
        "early-exit" => early_exit(),
        "branch" => branch(),
        "found" => found(),
        _ => {
            eprintln!("usage: oblivious_memcheck honest|early-exit|branch|found");
            std::process::exit(2);
        }
    }
}

/// Every kind of array: scanned, in a tree, with maps; blocks in registers and in memory.
fn honest() {
    for (blocks, block_len) in [(9, 20), (50, 64), (600, 20), (600, 128), (5000, 64), (70_000, 8)] {
        let rng = Box::new(Secret(SeededRng::new(blocks)));
        let mut oram = oblivious::create(blocks, block_len, rng).expect("it fits");
        let rounds = if blocks < 1000 { 60 } else { 200 };
        exercise(&mut *oram, rounds);
        println!("{blocks} x {block_len} B: {} accesses", 3 * rounds);
    }
    let (blocks, block_len) = (20_000, 64);
    let store_len = oblivious::sealed_len(blocks, block_len).expect("it fits");
    let (store, rng) = (Arc::new(MemStore::new(store_len)), Box::new(Secret(SeededRng::new(2))));
    let mut oram = oblivious::create_sealed(blocks, block_len, store, rng).expect("it fits");
    exercise(&mut *oram, 100);
    println!("{blocks} x {block_len} B on a store: 300 accesses");
    saved();
    let rng = Box::new(Secret(SeededRng::new(1)));
    exercise(&mut Oblivious::new(20, 5000, Dynamic::of(5000), rng).expect("it fits"), 10);
    for (blocks, block_len) in [(50, 64), (5000, 20)] {
        let rng = Box::new(Secret(SeededRng::new(blocks)));
        let mut oram = oblivious::create_path(blocks, block_len, rng).expect("it fits");
        exercise(&mut *oram, 60);
        println!("{blocks} x {block_len} B with evictions of Path ORAM: 180 accesses");
    }
    for (capacity, key_len, value_len) in [(20, 3, 70), (5000, 8, 8), (20_000, 16, 11)] {
        exercise_map(&mut map(capacity, key_len, value_len), key_len, value_len);
        println!("a map of {capacity} entries: 400 operations");
    }
}

/// An array and a map in stores, opened after a close and after a kill.
fn saved() {
    let (blocks, block_len) = (5000, 64);
    let key = || traceless::seal::Secret::from_bytes([7; 32]);
    let array = |seed| {
        let array = Array::builder().blocks(blocks).block_len(block_len).oblivious(true);
        array.key(key()).rng(Secret(SeededRng::new(seed)))
    };
    let store = Arc::new(MemStore::new(array(0).store_len().expect("it fits")));
    let mut oram = array(1).store(store.clone()).build().expect("it fits").into_oram();
    exercise(&mut *oram, 20);
    oram.close().expect("it is saved");
    let mut oram = array(2).store(store.clone()).open().expect("it was saved").into_oram();
    exercise(&mut *oram, 20);
    drop(oram);
    let mut oram = array(3).store(store).open().expect("it was saved").into_oram();
    exercise(&mut *oram, 20);
    println!("{blocks} x {block_len} B saved: 180 accesses, one opening after a kill");
    let map = |seed| {
        let map = Map::builder().capacity(20).key_len(3).value_len(70);
        map.key(key()).rng(Secret(SeededRng::new(seed)))
    };
    let store = Arc::new(MemStore::new(map(0).store_len().expect("it fits")));
    let mut made = map(1).store(store.clone()).build().expect("it fits");
    exercise_map(&mut made, 3, 70);
    made.close().expect("it is saved");
    map(2).store(store).open().expect("it was saved");
    println!("a saved map of 20 entries: 400 operations");
}

fn map(capacity: u64, key_len: usize, value_len: usize) -> Map {
    let builder = Map::builder().capacity(capacity).key_len(key_len).value_len(value_len);
    builder.rng(Secret(SeededRng::new(capacity))).build().expect("it fits")
}

/// Secret keys, values and operations; answers must equal the answers of a plain map.
fn exercise_map(map: &mut Map, key_len: usize, value_len: usize) {
    let mut rng = SeededRng::new(7);
    let mut model = HashMap::new();
    for _ in 0..400 {
        let (mut key, mut value) = (vec![rng.below(16) as u8; key_len], vec![0; value_len]);
        rng.fill(&mut value);
        let operation = rng.below(3);
        let expected = match operation {
            0 => model.get(&key).cloned(),
            1 => model.insert(key.clone(), value.clone()),
            _ => model.remove(&key),
        };
        let mut is = [u8::from(operation == 1), u8::from(operation == 2)];
        classify(&mut key);
        classify(&mut value);
        classify(&mut is);
        let mut operation = Operation::GET;
        operation.conditional_assign(&Operation::INSERT, Choice::from(is[0]));
        operation.conditional_assign(&Operation::REMOVE, Choice::from(is[1]));
        let answer = map.operate(operation, &key, &value).expect("an operation works");
        let found = made_public(answer.found.unwrap_u8()) == 1;
        let mut value = answer.value[..made_public(answer.len) as usize].to_vec();
        declassify(&mut value);
        assert!(expected == found.then_some(value), "a map does not hold what was put into it");
    }
}

/// Secret addresses and contents; reads must return what was written.
fn exercise(oram: &mut dyn Oram, rounds: u64) {
    let mut rng = SeededRng::new(7);
    let len = oram.block_len();
    for _ in 0..rounds {
        let mut addr = [rng.below(oram.blocks())];
        let mut written = vec![0; len];
        rng.fill(&mut written);
        let expected = written.clone();
        classify(&mut addr);
        classify(&mut written);
        let addr = Addr(addr[0]);
        oram.write(addr, &written).expect("an access works");
        oram.update(addr, &mut |block| block[0] ^= 1).expect("an access works");
        let mut read = vec![0; len];
        oram.read(addr, &mut read).expect("an access works");
        declassify(&mut read);
        read[0] ^= 1;
        assert!(read == expected, "a block is not what was written");
    }
}

fn early_exit() {
    let labels: Vec<u32> = (0..100).collect();
    let mut addr = [40_u32];
    classify(&mut addr);
    let found = labels.iter().position(|&label| label == black_box(addr[0]));
    println!("found at {:?}", made_public(found));
}

/// Shows that a block that was secret when it was written is secret when it is read.
fn branch() {
    let rng = Box::new(Secret(SeededRng::new(1)));
    let mut oram = oblivious::create(5000, 64, rng).expect("it fits");
    let mut block = [1; 64];
    classify(&mut block);
    oram.write(Addr(3), &block).expect("an access works");
    let mut ones = 0;
    let mut look = |block: &mut [u8]| {
        if black_box(block[0]) == 1 {
            ones += 1;
        }
    };
    oram.update(Addr(3), &mut look).expect("an access works");
    println!("{ones} of 1");
}

/// Shows that a map's answer is secret, even where the caller's key is not.
fn found() {
    let mut map = map(5000, 8, 8);
    map.insert(b"key", b"value").expect("there is room");
    let answer = map.operate(Operation::GET, b"key", &[]).expect("an operation works");
    println!("{}", if black_box(answer.found.unwrap_u8()) == 1 { "there" } else { "not there" });
}

/// A generator of secret numbers.
struct Secret(SeededRng);

impl Rng for Secret {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
        // A key stays public: the cipher's library branches on whether a tag fits, which is public.
        if out.len() > SECRET_LEN {
            classify(out);
        }
    }
}
