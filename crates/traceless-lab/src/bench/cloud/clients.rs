//! Clients that request random blocks, several at a time, and wait for the answers.

use crate::args::CloudArgs;
use crate::report::{cpu_seconds, failed};
use std::sync::{Mutex, PoisonError};
use traceless::clock::{Clock, Monotonic};
use traceless::rng::{Rng, SeededRng};
use traceless_cli::failure::Failure;
use traceless_cloud::gateway::Gateway;

/// The measurements of all clients.
pub struct ClientTimes {
    /// Nanoseconds of each wait for an answer that queries were sent for, sorted.
    pub latencies: Vec<u64>,
    /// Sum of the latencies that include the end of a round, in nanoseconds.
    pub waited_ns: u64,
    /// Number of latencies that include the end of a round.
    pub waits: u64,
    /// Blocks received.
    pub blocks: u64,
    /// Queries sent for these blocks; a block at hand needs none.
    pub queries: u64,
    /// Nanoseconds that queries waited for their shares of rounds.
    pub shares_ns: u64,
    pub seconds: f64,
    pub cpu_seconds: f64,
}

/// One request and its answer.
struct Wait {
    ns: u64,
    /// Whether a query was sent.
    sent_query: bool,
    /// Whether a round had to end first.
    included_round: bool,
}

/// Runs clients until queries were sent for `args.queries` blocks in all.
pub fn measure(args: &CloudArgs, gateway: &mut Gateway) -> Result<ClientTimes, Failure> {
    let (clock, cpu, before) = (Monotonic::start(), cpu_seconds(), gateway.counts());
    let gateway = Mutex::new(gateway);
    let clients = args.clients as u64;
    let share = args.queries.div_ceil(clients);
    let waits = std::thread::scope(|scope| {
        let client = |number| {
            let (gateway, clock) = (&gateway, &clock);
            let rng = SeededRng::new(args.seed.wrapping_mul(clients) + number);
            scope.spawn(move || client(args, gateway, clock, rng, share))
        };
        let clients: Vec<_> = (0..clients).map(client).collect();
        let panicked = |_| Err(failed("a client is gone"));
        let waits = clients.into_iter().map(|client| client.join().unwrap_or_else(panicked));
        waits.collect::<Result<Vec<_>, Failure>>()
    })?;
    let seconds = clock.now() as f64 / 1e9;
    let after = gateway.into_inner().unwrap_or_else(PoisonError::into_inner).counts();
    let waits: Vec<Wait> = waits.into_iter().flatten().collect();
    let sent_query = || waits.iter().filter(|wait| wait.sent_query);
    let with_round = || sent_query().filter(|wait| wait.included_round);
    let mut latencies: Vec<u64> = sent_query().map(|wait| wait.ns).collect();
    latencies.sort_unstable();
    Ok(ClientTimes {
        latencies,
        waited_ns: with_round().map(|wait| wait.ns).sum(),
        waits: with_round().count() as u64,
        blocks: waits.len() as u64 * args.together as u64,
        queries: after.queries - before.queries,
        shares_ns: after.shares_ns - before.shares_ns,
        seconds,
        cpu_seconds: cpu_seconds() - cpu,
    })
}

/// Sends requests until they have caused `queries` queries.
fn client(
    args: &CloudArgs,
    gateway: &Mutex<&mut Gateway>,
    clock: &Monotonic,
    mut rng: SeededRng,
    queries: u64,
) -> Result<Vec<Wait>, Failure> {
    let (mut waits, mut sent) = (Vec::new(), 0);
    // A bound, because if nearly all blocks are at hand, few requests cause a query.
    while sent < queries && (waits.len() as u64) < 100 * queries {
        let began = clock.now();
        let mut gateway = gateway.lock().unwrap_or_else(PoisonError::into_inner);
        let (block_count, before) = (gateway.params().blocks, gateway.counts());
        let ids: Vec<u64> = (0..args.together).map(|_| rng.below(block_count)).collect();
        let blocks = gateway.get_many(&ids).map_err(failed)?;
        let after = gateway.counts();
        drop(gateway);
        let ns = clock.now() - began;
        if let Some((id, _)) = ids.iter().zip(blocks).find(|(id, b)| b[..8] != id.to_le_bytes()) {
            return Err(failed(format!("block {id} holds something else")));
        }
        let (sent_query, included_round) =
            (after.queries > before.queries, after.waits > before.waits);
        sent += after.queries - before.queries;
        waits.push(Wait { ns, sent_query, included_round });
    }
    Ok(waits)
}
