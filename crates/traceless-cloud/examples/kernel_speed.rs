//! What an eviction costs for each piece of 32 bytes, with verification and tags, by kernel:
//! `cargo run --release -p traceless-cloud --example kernel_speed`.

use traceless::clock::{Clock, Monotonic};
use traceless::rng::{Rng, Seeded};
use traceless::seal::Secret;
use traceless_cloud::channel::Sender;
use traceless_cloud::enclave::{Evictor, NodeBytes, Shared};
use traceless_cloud::geometry::{Geometry, PIECE_LEN};
use traceless_cloud::kernel::{Choice, Network};
use traceless_cloud::orders::Eviction;
use traceless_cloud::params::Params;

fn main() -> traceless_cloud::Result {
    for block_len in [1024, 8192] {
        for (choice, rounds) in [(Choice::Benes, 9), (Choice::Paper, 1)] {
            let (evict, route) = measured(block_len, choice, rounds)?;
            println!(
                "{block_len} B, {choice:?}: {evict:.1} ns a piece; routing {route:.1} ns a row"
            );
        }
    }
    Ok(())
}

/// Nanoseconds a piece, of the fastest round, and nanoseconds a row at the gateway.
fn measured(
    block_len: usize,
    choice: Choice,
    rounds: usize,
) -> traceless_cloud::Result<(f64, f64)> {
    let geometry = Params::new(10 << 20, block_len, 32)?.geometry;
    let shared = Shared::new(geometry, choice, &Secret::from_bytes([1; 32]));
    let session = shared.session(&[0; 16], &[0; 16]);
    let (mut evictor, mut sender) = (Evictor::new(&shared, &session)?, Sender::new(&session.evict));
    let (mut rng, clock) = (Seeded::new(1), Monotonic::start());
    let mut node = vec![0; geometry.node_len(0)];
    let mut best = (f64::MAX, f64::MAX);
    for attempt in 1..=rounds as u64 + 1 {
        let mut dest: Vec<u32> = (0..geometry.inner_slots as u32).collect();
        for i in (1..dest.len()).rev() {
            dest.swap(i, rng.below(i as u64 + 1) as usize);
        }
        let started = clock.now();
        let control = control(choice, &geometry, &dest);
        let routed = (clock.now() - started) as f64 / dest.len() as f64;
        // The root by itself: the same work a row as in a round, and no rows to be made first.
        let order = Eviction {
            round: 0,
            node: geometry.node(0, 0),
            in_round: false,
            before: attempt - 1,
            attempt,
            control,
        };
        let mut message = sender.seal(&order.encode());
        let mut made = vec![0; node.len()];
        let bytes =
            NodeBytes { node: &node, carried: &[], new_node: &mut made, new_carried: &mut [] };
        let started = clock.now();
        evictor.evict(&mut message, bytes)?;
        let pieces = geometry.inner_slots * geometry.sealed_len() / PIECE_LEN;
        let evicted = (clock.now() - started) as f64 / pieces as f64;
        node = made;
        // The first finds nothing to open.
        if attempt > 1 {
            best = (best.0.min(evicted), best.1.min(routed));
        }
    }
    Ok(best)
}

fn control(choice: Choice, geometry: &Geometry, dest: &[u32]) -> Vec<u8> {
    match choice {
        Choice::Benes => Network::new(geometry.inner_slots).route(dest),
        Choice::Paper => dest.iter().flat_map(|&to| (to as u16).to_le_bytes()).collect(),
    }
}
