//! CPU time of an access to the Oblivious client: uniformly random blocks, half of them written.
//!
//! `cargo run --release --example oblivious_speed -- [LOG2_BLOCKS...]`

use std::hint::black_box;
use std::sync::Arc;
use traceless::oblivious::{self, Lines, Oblivious, Scan};
use traceless::rng::{Rng, Seeded, System};
use traceless::store::MemStore;
use traceless::{Addr, Oram};

fn main() {
    let logs: Vec<u32> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let (logs, scans) = match logs.is_empty() {
        true => (vec![16, 20, 24], vec![64, 128, 256, 512, 1024]),
        false => (logs, vec![]),
    };
    println!("level {:?}", traceless_sys::ct::level());
    for log in logs {
        for len in [64] {
            let started = cpu_seconds();
            let mut oram = oblivious::create(1 << log, len, Box::new(System)).expect("it fits");
            let creation_s = cpu_seconds() - started;
            println!(
                "2^{log} x {len} B: {:.3} us an access, created in {creation_s:.3} s",
                best_us(&mut *oram)
            );
        }
        let store_len = oblivious::sealed_len(1 << log, Lines::<1>).expect("it fits");
        let store = Arc::new(MemStore::new(store_len));
        let mut oram =
            Oblivious::sealed(1 << log, 64, Lines::<1>, store, Box::new(System)).expect("it fits");
        println!(
            "2^{log} x 64 B, {} MiB sealed: {:.3} us an access",
            store_len >> 20,
            best_us(&mut oram)
        );
    }
    for blocks in scans {
        let mut scan = Scan::new(blocks, 64).expect("it fits");
        println!("scan of {blocks} x 64 B: {:.3} us an access", best_us(&mut scan));
    }
}

/// The least of five measurements, after some that touch all memory.
fn best_us(oram: &mut dyn Oram) -> f64 {
    let mut rng = Seeded::new(1);
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
    let warm = std::env::var("ACC").map_or(1_000_000, |a| a.parse().unwrap());
    measure(warm);
    (0..5).map(|_| measure(warm / 5)).fold(f64::INFINITY, f64::min)
}

/// CPU time of this program, which has one thread.
fn cpu_seconds() -> f64 {
    let times = std::fs::read_to_string("/proc/self/schedstat").expect("Linux tells");
    let ns: f64 = times.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number");
    ns * 1e-9
}
