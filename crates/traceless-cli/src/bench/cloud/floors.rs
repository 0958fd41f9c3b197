//! The rows of the group cloud.

use super::{Report, measured};
use crate::args::CloudArgs;
use crate::failure::Failure;
use crate::numbers::{Row, failed, row, say_rows};
use crate::output::complain;
use traceless::clock::{Clock, Monotonic};
use traceless::rng::{Rng, Seeded};
use traceless::seal::Secret;
use traceless_cloud::channel::Sender;
use traceless_cloud::enclave::{Evictor, NodeBytes, Shared};
use traceless_cloud::geometry::PIECE_LEN;
use traceless_cloud::kernel::{Choice, Network};
use traceless_cloud::orders::Eviction;
use traceless_cloud::params::Params;

/// Times that each is measured.
const ROUNDS: usize = 3;

pub fn run(args: &CloudArgs) -> Result<(), Failure> {
    let base = CloudArgs { data: if args.quick { 1 << 26 } else { 1 << 30 }, ..args.clone() };
    let one = repeated(&base)?;
    let many = CloudArgs { clients: 50, together: 16, queries: 40_000, ..base.clone() };
    let (small, large) =
        (repeated(&many)?, repeated(&CloudArgs { block_len: 8192, queries: 20_000, ..many })?);
    let of = |name, unit, reports: &[Report], value: fn(&Report) -> f64| {
        row(name, unit, reports.iter().map(value).collect())
    };
    let space = |name, data: u64| -> Result<Row, Failure> {
        let params = Params::new(data / 1024, 1024, 32).map_err(failed)?;
        Ok(row(name, "ratio", vec![params.space()]))
    };
    let rows = vec![
        of("cloud-average", "ms", &one, |report| report.average_ms),
        of("cloud-average-to-best", "ratio", &one, |report| report.average_to_best),
        of("cloud-throughput-1k", "MB/s", &small, |report| report.kb_per_second / 1e3),
        of("cloud-throughput-8k", "MB/s", &large, |report| report.kb_per_second / 1e3),
        row("cloud-kernel", "ns a piece", kernel()?),
        of("cloud-gateway-memory", "bytes a block", &one, |report| {
            report.tree.gateway_bytes_per_block
        }),
        space("cloud-space-10g", 10 << 30)?,
        space("cloud-space-20g", 20 << 30)?,
    ];
    say_rows("traceless.cloud.bench.v1", rows, args.json)
}

fn repeated(args: &CloudArgs) -> Result<Vec<Report>, Failure> {
    complain(&format!(
        "measuring {} clients, {} blocks of {} B at a time",
        args.clients, args.together, args.block_len
    ));
    (0..ROUNDS).map(|_| measured(args)).collect()
}

/// Nanoseconds a piece of making a node anew on one thread, of the tree of 10 GB of 1 KB blocks:
/// opened, permuted, and sealed.
fn kernel() -> Result<Vec<f64>, Failure> {
    let geometry = Params::new(10 << 20, 1024, 32).map_err(failed)?.geometry;
    let shared = Shared::new(geometry, Choice::Benes, &Secret::from_bytes([1; 32]));
    let session = shared.session(&[0; 16], &[0; 16]);
    let mut evictor = Evictor::new(&shared, &session).map_err(failed)?;
    let (mut sender, mut rng, clock) =
        (Sender::new(&session.evict), Seeded::new(1), Monotonic::start());
    let (mut node, mut made) = (vec![0; geometry.node_len(0)], vec![0; geometry.node_len(0)]);
    let network = Network::new(geometry.inner_slots);
    let pieces = geometry.inner_slots * geometry.sealed_len() / PIECE_LEN;
    let mut times = Vec::new();
    // The first finds nothing to open.
    for attempt in 1..=3 * ROUNDS as u64 + 1 {
        let mut dest: Vec<u32> = (0..geometry.inner_slots as u32).collect();
        for i in (1..dest.len()).rev() {
            dest.swap(i, rng.below(i as u64 + 1) as usize);
        }
        let order = Eviction {
            round: 0,
            node: geometry.node(0, 0),
            in_round: false,
            before: attempt - 1,
            attempt,
            control: network.route(&dest),
        };
        let mut message = sender.seal(&order.encode());
        let bytes =
            NodeBytes { node: &node, carried: &[], new_node: &mut made, new_carried: &mut [] };
        let began = clock.now();
        evictor.evict(&mut message, bytes).map_err(failed)?;
        times.push((clock.now() - began) as f64 / pieces as f64);
        core::mem::swap(&mut node, &mut made);
    }
    times.remove(0);
    Ok(times)
}
