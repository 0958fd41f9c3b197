//! CPU time of an access to the Oblivious client: uniformly random blocks of 64 bytes, half of them
//! written, one thread; and of an operation on a full map over it.
//!
//! `cargo run --release --example oblivious_speed -- [LOG2_BLOCKS...]`

use std::hint::black_box;
use std::sync::Arc;
use traceless::oblivious::{self, Lines, ScanArray};
use traceless::oram::Oram;
use traceless::rng::{Rng, SeededRng, System};
use traceless::store::MemStore;
use traceless::{Addr, Map};

const BLOCK_LEN: usize = 64;

fn main() {
    println!("level {:?}", traceless_sys::ct::level());
    let logs: Vec<u32> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    for log in if logs.is_empty() { vec![16, 20, 24] } else { logs.clone() } {
        tree(1 << log);
        path(1 << log);
        sealed(1 << log);
        map(1 << log);
    }
    if logs.is_empty() {
        // Sizes around the point where a tree becomes faster than a scan.
        for blocks in [128, 256, 512, 1024, 2048] {
            tree(blocks);
            let mut scan = ScanArray::new(blocks, BLOCK_LEN, Lines::<1>).expect("it fits");
            println!("scan of {blocks} blocks: {:.3} us", best_us(&mut scan));
        }
    }
}

fn tree(blocks: u64) {
    let started = cpu_seconds();
    let rng = Box::new(System);
    let mut oram = oblivious::Oblivious::new(blocks, BLOCK_LEN, Lines::<1>, rng).expect("it fits");
    let creation_s = cpu_seconds() - started;
    let best = best_us(&mut oram);
    println!("tree of {blocks} blocks: {best:.3} us, created in {creation_s:.3} s");
}

fn path(blocks: u64) {
    let mut oram = oblivious::create_path(blocks, BLOCK_LEN, Box::new(System)).expect("it fits");
    let best = best_us_of(&mut *oram, 5000);
    println!("tree of {blocks} blocks, evictions of Path ORAM: {best:.3} us");
}

fn sealed(blocks: u64) {
    let store_len = oblivious::sealed_len(blocks, BLOCK_LEN).expect("it fits");
    let store = Arc::new(MemStore::new(store_len));
    let rng = Box::new(System);
    let mut oram = oblivious::create_sealed(blocks, BLOCK_LEN, store, rng).expect("it fits");
    let best = best_us(&mut *oram);
    println!("tree of {blocks} blocks, {} MiB of it sealed: {best:.3} us", store_len >> 20);
}

/// Keys and values of 8 bytes.
fn map(capacity: u64) {
    let builder = Map::builder().capacity(capacity).key_len(8).value_len(8);
    let mut map = builder.build().expect("it fits");
    for key in 0..capacity {
        map.insert(&key.to_le_bytes(), &[1; 8]).expect("there is room");
    }
    let mut rng = SeededRng::new(1);
    let mut measure = |count: u64| {
        let started = cpu_seconds();
        for _ in 0..count {
            let key = rng.below(capacity).to_le_bytes();
            black_box(map.get(&key).expect("an operation works"));
        }
        (cpu_seconds() - started) * 1e6 / count as f64
    };
    let best = (0..5).map(|_| measure(100_000)).fold(f64::INFINITY, f64::min);
    println!("map of {capacity} entries: {best:.3} us");
}

/// The least of five measurements, after accesses that touch all memory.
fn best_us(oram: &mut dyn Oram) -> f64 {
    best_us_of(oram, 200_000)
}

/// The least of five measurements of `accesses` accesses each, after accesses that touch all
/// memory.
fn best_us_of(oram: &mut dyn Oram, accesses: u64) -> f64 {
    let mut rng = SeededRng::new(1);
    let mut block = vec![7; oram.block_len()];
    let mut measure = |count: u64| {
        let started = cpu_seconds();
        for _ in 0..count {
            let word = rng.next_u64();
            let addr = Addr((word >> 1) % oram.blocks());
            if word & 1 == 0 {
                oram.read(addr, &mut block).expect("an access works");
            } else {
                oram.write(addr, &block).expect("an access works");
            }
        }
        black_box(&block);
        (cpu_seconds() - started) * 1e6 / count as f64
    };
    measure(3 * accesses);
    (0..5).map(|_| measure(accesses)).fold(f64::INFINITY, f64::min)
}

/// CPU time of this program, which has one thread.
fn cpu_seconds() -> f64 {
    let times = std::fs::read_to_string("/proc/self/schedstat").expect("Linux tells");
    let ns: f64 = times.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number");
    ns * 1e-9
}
