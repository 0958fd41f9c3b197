//! Arrays and maps in stores, bit by bit: if any bit of a store is flipped, or the store is cut or
//! extended, an opening refuses it or all reads return what was written.
//!
//! In long runs of zeros, which were never written, one bit of some bytes is flipped.

use std::sync::Arc;
use traceless::rng::SeededRng;
use traceless::scheme::linear::LinearScheme;
use traceless::scheme::path;
use traceless::seal::Secret;
use traceless::store::MemStore;
use traceless::{Array, Map};

const BLOCK_LEN: usize = 8;

/// A kind of store: `write` fills it, `read` opens it and returns whether it was refused. Panics if
/// a read returns wrong data.
struct Subject {
    name: &'static str,
    store_len: u64,
    write: Box<dyn Fn(Arc<MemStore>, Ending)>,
    read: Box<dyn Fn(Arc<MemStore>) -> Outcome>,
}

#[derive(Clone, Copy, PartialEq)]
enum Ending {
    Closed,
    /// Synced, but not closed.
    Killed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Refused,
    Whole,
}

fn key() -> Secret {
    Secret::from_bytes([5; 32])
}

fn contents(addr: u64) -> [u8; BLOCK_LEN] {
    (addr * 0x0101_0101 + 0x1234_5678_9abc).to_le_bytes()
}

fn array(
    name: &'static str,
    blocks: u64,
    make: fn(u64) -> traceless::array::ArrayBuilder,
) -> Subject {
    let builder = move || make(blocks).key(key()).rng(SeededRng::new(1));
    let write = move |store: Arc<MemStore>, ending| {
        let mut array = builder().store(store).build().unwrap();
        (0..blocks).for_each(|addr| array.write(addr, &contents(addr)).unwrap());
        array.sync().unwrap();
        match ending {
            Ending::Closed => array.close().unwrap(),
            Ending::Killed => core::mem::forget(array),
        }
    };
    let read = move |store: Arc<MemStore>| {
        let opened = make(blocks).key(key()).rng(SeededRng::new(2)).store(store).open();
        let Ok(mut array) = opened else { return Outcome::Refused };
        for addr in 0..blocks {
            match array.read(addr) {
                Ok(block) => assert_eq!(block, contents(addr), "{name}: block {addr} is wrong"),
                Err(_) => return Outcome::Refused,
            }
        }
        Outcome::Whole
    };
    let store_len = make(blocks).key(key()).store_len().unwrap();
    Subject { name, store_len, write: Box::new(write), read: Box::new(read) }
}

fn map() -> Subject {
    let builder = |seed| {
        let map = Map::builder().capacity(4).key_len(2).value_len(8);
        map.key(key()).rng(SeededRng::new(seed))
    };
    let write = move |store: Arc<MemStore>, ending| {
        let mut map = builder(1).store(store).build().unwrap();
        (0..4).for_each(|nth: u8| assert!(map.insert(&[nth], &[nth; 8]).unwrap().is_none()));
        map.sync().unwrap();
        match ending {
            Ending::Closed => map.close().unwrap(),
            Ending::Killed => core::mem::forget(map),
        }
    };
    let read = move |store: Arc<MemStore>| {
        let Ok(mut map) = builder(2).store(store).open() else { return Outcome::Refused };
        for nth in 0..4 {
            match map.get(&[nth]) {
                Ok(value) => assert_eq!(value, Some(vec![nth; 8]), "map: key {nth} is wrong"),
                Err(_) => return Outcome::Refused,
            }
        }
        Outcome::Whole
    };
    let store_len = builder(1).store_len().unwrap();
    Subject { name: "map", store_len, write: Box::new(write), read: Box::new(read) }
}

fn linear(blocks: u64) -> traceless::array::ArrayBuilder {
    Array::builder().scheme(LinearScheme { blocks, block_len: BLOCK_LEN })
}

fn flat(blocks: u64) -> traceless::array::ArrayBuilder {
    let geometry = path::PathGeometry::new(blocks, BLOCK_LEN).unwrap();
    Array::builder().scheme(path::PathGeometry { unsynced_max: 9, ..geometry })
}

fn recursive(blocks: u64) -> traceless::array::ArrayBuilder {
    let geometry = path::PathGeometry::new(blocks, BLOCK_LEN).unwrap();
    let geometry =
        path::PathGeometry { map_trees: 1, map_block_len: 16, unsynced_max: 9, ..geometry };
    Array::builder().scheme(geometry)
}

fn oblivious(blocks: u64) -> traceless::array::ArrayBuilder {
    let geometry = traceless::oblivious::ArrayGeometry::new(blocks, BLOCK_LEN).unwrap();
    let geometry =
        traceless::oblivious::ArrayGeometry { memory_levels: 1, unsynced_max: 5, ..geometry };
    Array::builder().scheme(geometry)
}

fn subjects() -> Vec<Subject> {
    vec![
        array("linear", 3, linear),
        array("path", 5, flat),
        array("recursive path", 9, recursive),
        array("oblivious", 9, oblivious),
        map(),
    ]
}

/// Bits to flip: in one of every `stride` bytes, all bits of written bytes, and one bit of some
/// bytes in long runs of zeros.
fn bits(bytes: &[u8], stride: usize) -> Vec<usize> {
    const RUN: usize = 32;
    let is_written = |at: usize| {
        let around = at.saturating_sub(RUN)..(at + RUN).min(bytes.len());
        bytes[around].iter().any(|&byte| byte != 0)
    };
    let all = (0..bytes.len()).step_by(stride);
    all.flat_map(|at| {
        let count = if is_written(at) { 8 } else { usize::from(at % 64 == 0) };
        (0..count).map(move |bit| at * 8 + (bit + at) % 8)
    })
    .collect()
}

fn saved(subject: &Subject, ending: Ending) -> Vec<u8> {
    let store = Arc::new(MemStore::new(subject.store_len));
    (subject.write)(store.clone(), ending);
    store.snapshot()
}

fn read(subject: &Subject, bytes: &[u8]) -> Outcome {
    (subject.read)(Arc::new(MemStore::from_bytes(bytes)))
}

/// Approximate number of bytes in which bits are flipped.
const BYTES_TRIED: usize = 40_000;

/// Number of flips that were refused. A read panics if a flip goes unnoticed where it matters.
fn flips_refused(subject: &Subject, sound: &[u8], stride: usize) -> usize {
    let (mut bytes, mut refused) = (sound.to_vec(), 0);
    for bit in bits(sound, stride) {
        bytes[bit / 8] ^= 1 << (bit % 8);
        refused += usize::from(read(subject, &bytes) == Outcome::Refused);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    refused
}

#[test]
fn every_flipped_bit_is_refused_or_harmless() {
    for subject in subjects() {
        let closed = saved(&subject, Ending::Closed);
        assert_eq!(read(&subject, &closed), Outcome::Whole, "{}", subject.name);
        // Every byte of a short store, and a sample of a long one.
        let stride = closed.len().div_ceil(BYTES_TRIED);
        let refused = flips_refused(&subject, &closed, stride);
        // At least a live block or two, with a tag, must be refused, of which a sample is tried:
        // the other bytes are older copies, and empty slots.
        assert!(refused >= 320 / stride, "{}: {refused} were refused: blind", subject.name);
    }
}

/// After a kill an opening replays the log, and makes all labels anew.
#[test]
fn flipped_bits_of_what_was_killed_are_refused_or_harmless() {
    for subject in subjects() {
        let killed = saved(&subject, Ending::Killed);
        assert_eq!(read(&subject, &killed), Outcome::Whole, "{}", subject.name);
        let refused = flips_refused(&subject, &killed, 37);
        assert!(refused >= 8, "{}: {refused} were refused: blind", subject.name);
    }
}

#[test]
fn every_cut_is_refused_or_harmless_and_so_are_tails() {
    for subject in subjects() {
        for ending in [Ending::Closed, Ending::Killed] {
            let sound = saved(&subject, ending);
            // The length of a store is checked before its contents.
            let near = (0..200).chain(sound.len() - 200..sound.len());
            for len in near.chain((0..sound.len()).step_by(509)) {
                // A store of this length, and one that is zeros from there on.
                assert_eq!(read(&subject, &sound[..len]), Outcome::Refused, "{}", subject.name);
            }
            for len in (0..sound.len()).step_by(1021) {
                let mut torn = sound.clone();
                torn[len..].fill(0);
                read(&subject, &torn);
                torn[len..].iter_mut().zip(0u8..=255).for_each(|(byte, noise)| *byte = noise);
                read(&subject, &torn);
            }
            for tail in [1, 100, 5000] {
                for byte in [0, 0xa5] {
                    let mut longer = sound.clone();
                    longer.resize(sound.len() + tail, byte);
                    assert_eq!(read(&subject, &longer), Outcome::Whole, "{}", subject.name);
                }
            }
        }
    }
}

/// The planted fault: an unauthenticated change reads wrong, and the test reports it.
#[test]
#[should_panic(expected = "is wrong")]
fn a_flip_that_nothing_notices_is_found() {
    let subject = array("planted", 3, linear);
    let store = Arc::new(MemStore::new(subject.store_len));
    let mut array =
        linear(3).key(key()).rng(SeededRng::new(1)).store(store.clone()).build().unwrap();
    (0..3).for_each(|addr| array.write(addr, &contents(addr + u64::from(addr == 2))).unwrap());
    array.close().unwrap();
    (subject.read)(store);
}
