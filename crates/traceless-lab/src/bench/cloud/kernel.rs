//! The time to make a node anew, without a gateway.

use crate::args::BenchKernel;
use crate::report::{cpu_seconds, failed};
use traceless::rng::{Rng, SeededRng, System};
use traceless::seal::Secret;
use traceless_cli::failure::Failure;
use traceless_cloud::channel::Sender;
use traceless_cloud::enclave::{Evictor, NodeBytes, Shared};
use traceless_cloud::enclave_orders::Eviction;
use traceless_cloud::geometry::{Geometry, PIECE_LEN};
use traceless_cloud::kernel::{Choice, Network};

/// Nanoseconds of processor time that one thread takes for 32 bytes of a root: opened and verified,
/// permuted, and sealed.
pub fn measure(geometry: Geometry, kernel: BenchKernel, times: usize) -> Result<Vec<f64>, Failure> {
    let choice = kernel.choice();
    let shared = Shared::new(geometry, choice, &Secret::from_bytes([1; 32]));
    let session = shared.session(&[0; 16], &[0; 16]);
    let mut evictor = Evictor::new(&shared, &session).map_err(failed)?;
    if kernel == BenchKernel::BlockWise {
        evictor = evictor.by_whole_blocks(&shared);
    }
    let (mut sender, mut rng) = (Sender::new(&session.evict, Box::new(System)), SeededRng::new(1));
    let (mut node, mut new_node) = (vec![0; geometry.node_len(0)], vec![0; geometry.node_len(0)]);
    let slots = geometry.slots(0);
    let network = Network::new(slots);
    let pieces = slots * geometry.sealed_len() / PIECE_LEN;
    let mut nanoseconds = Vec::with_capacity(times + 1);
    for attempt in 1..=times as u64 + 1 {
        let mut dest: Vec<u32> = (0..slots as u32).collect();
        for i in (1..dest.len()).rev() {
            dest.swap(i, rng.below(i as u64 + 1) as usize);
        }
        let control = match choice {
            Choice::Benes => network.route(&dest),
            Choice::Paper => dest.iter().flat_map(|&to| (to as u16).to_le_bytes()).collect(),
        };
        // A single root, outside a round: the same work per row as in a round, and no rows to make
        // first.
        let order = Eviction {
            zeroed: Vec::new(),
            round: 0,
            node: geometry.node(0, 0),
            in_round: false,
            before: attempt - 1,
            attempt,
            control,
        };
        let mut message = sender.seal(&order.encode());
        let bytes =
            NodeBytes { node: &node, carried: &[], new_node: &mut new_node, new_carried: &mut [] };
        let began = cpu_seconds();
        evictor.evict(&mut message, bytes).map_err(failed)?;
        nanoseconds.push((cpu_seconds() - began) * 1e9 / pieces as f64);
        core::mem::swap(&mut node, &mut new_node);
    }
    // The first node is empty, so it has nothing to open.
    nanoseconds.remove(0);
    Ok(nanoseconds)
}
