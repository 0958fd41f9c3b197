//! `traceless-lab bench cloud`: queries of clients that each wait for their answers. Gateway, host
//! and enclave are in one process, or the host is remote.

mod clients;
mod compared;
mod engines;
pub mod experiment;
mod far;
pub mod floors;
pub mod kernel;
mod operations;
mod partitions;
pub mod serving;
mod skewed;

use crate::args::{BenchKernel, CloudArgs};
use crate::bench::controls::{Controls, OperationTimes};
use crate::bench::leftovers;
use crate::report::{Hardware, failed, summary};
use clients::{ClientTimes, measure};
use compared::{StoreTimes, measure_all};
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use traceless::clock::{Clock, Monotonic};
use traceless::rng::{Rng, System};
use traceless::seal::Secret;
use traceless_cli::cloud::remote;
use traceless_cli::failure::{DEVICE, Failure};
use traceless_cli::output::{Meter, print_json, print_line};
use traceless_cloud::enclave::{Session, Shared};
use traceless_cloud::gateway::{Gateway, Keys};
use traceless_cloud::host::{Host, HostedStore, Inside};
use traceless_cloud::kernel::Choice;
use traceless_cloud::params::Params;
use traceless_cloud::random::SystemStream;
use traceless_cloud::store::{Durability, FileStore, MemStore, NodeStore};
use traceless_cloud::tee::Policy;
use traceless_sim::experiment::text_table::shortened;

/// Tables I to III of the paper: bytes of data and of a block, best and average milliseconds, and
/// thousands of bytes per second.
#[expect(clippy::approx_constant, reason = "3.14 ms were measured")]
const PUBLISHED: [(u64, u64, f64, f64, f64); 11] = [
    (1 << 30, 1024, 0.54, 2.26, 453.81),
    (2 << 30, 1024, 0.63, 2.59, 395.13),
    (4 << 30, 1024, 0.66, 2.90, 353.59),
    (10 << 30, 1024, 0.86, 3.14, 325.98),
    (20 << 30, 1024, 0.88, 3.20, 319.20),
    (10 << 30, 2048, 0.77, 4.96, 413.31),
    (10 << 30, 4096, 0.67, 6.93, 590.99),
    (10 << 30, 8192, 0.82, 12.16, 673.46),
    (4 << 30, 2048, 0.61, 4.02, 509.10),
    (8 << 30, 4096, 0.69, 6.90, 593.59),
    (16 << 30, 8192, 0.74, 12.80, 640.18),
];

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    machine: Hardware,
    data: u64,
    block_len: u64,
    copies: u64,
    kernel: &'static str,
    store: &'static str,
    /// The enclave's protection: "none", because here it is simulated.
    tee_protection: &'static str,
    tree: CloudTree,
    clients: usize,
    together: usize,
    fill_seconds: f64,
    queries: u64,
    /// Milliseconds of answers that did not wait for the end of a round, in the mean.
    best_ms: f64,
    /// Milliseconds of all answers, in the mean.
    average_ms: f64,
    average_to_best: f64,
    /// Milliseconds that a query waited for its share of a round.
    share_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    /// Thousands of bytes per second, of all clients.
    kb_per_second: f64,
    cpu_ms_per_query: f64,
    /// Processor time of one thread for 32 bytes of a node that is made anew.
    kernel_ns_per_piece: f64,
    answers: u64,
    waits: u64,
    rounds: u64,
    renewed: u64,
    waiting_max: usize,
    published: Option<PaperNumbers>,
    /// Other systems, with `--compare`.
    compared: Vec<StoreTimes>,
}

#[derive(Serialize)]
struct CloudTree {
    lambda: u32,
    roots: u32,
    arity: u32,
    layers: usize,
    round_slots: usize,
    round_blocks: usize,
    inner_slots: usize,
    leaf_slots: usize,
    bounds_log2: Bounds,
    space: f64,
    gateway_bytes_per_block: f64,
}

#[derive(Serialize)]
struct Bounds {
    round: f64,
    inner: f64,
    leaf: f64,
    leaf_reads: f64,
    inner_reads: f64,
    lifetime: f64,
}

#[derive(Serialize)]
struct PaperNumbers {
    best_ms: f64,
    average_ms: f64,
    kb_per_second: f64,
}

pub fn run(args: &CloudArgs) -> Result<(), Failure> {
    let compared = if args.compare { measure_all(args)? } else { vec![] };
    let report = Report { compared, ..measure_once(args)? };
    if args.json {
        return print_json(&report);
    }
    report.print();
    Ok(())
}

fn measure_once(args: &CloudArgs) -> Result<Report, Failure> {
    let mut reports = measure_in_rounds(args, 1, &mut Controls::default())?;
    let (report, _) = reports.remove(0);
    Ok(report)
}

/// Fills a tree once, then measures in rounds. Each round requests other blocks, and measures the
/// controls before and after.
fn measure_in_rounds(
    args: &CloudArgs,
    rounds: u64,
    controls: &mut Controls,
) -> Result<Vec<(Report, OperationTimes)>, Failure> {
    let block_len = usize::try_from(args.block_len).map_err(Failure::usage)?;
    let blocks = args.data / args.block_len.max(1);
    let choice = args.kernel.choice();
    let params = Params::for_kernel(choice, args.arity, blocks, block_len, args.lambda);
    let params = params.map_err(Failure::usage)?;
    let mut gateway = match &args.dir {
        _ if !args.remote.host.is_empty() => {
            if args.kernel == BenchKernel::BlockWise {
                return Err(Failure::usage("no host has an enclave that evicts block-wise"));
            }
            let remote = remote(&args.remote, Policy::Simulated)?;
            remote.open_once(params, choice).map_err(failed)?.gateway
        }
        Some(dir) => {
            let store = FileStore::open(dir, params.geometry, Durability::Process);
            start(args, params, store.map_err(failed)?)?
        }
        None => start(args, params, MemStore::new(params.geometry))?,
    };
    gateway.keep_copies(usize::try_from(args.copies).map_err(Failure::usage)?);
    let clock = Monotonic::start();
    fill(args, &mut gateway)?;
    let fill_seconds = clock.now() as f64 / 1e9;
    warm_up(&mut gateway)?;
    let kernel_ns = summary(kernel::measure(params.geometry, args.kernel, 3)?).0;
    let round = |round| {
        let args = CloudArgs { seed: args.seed.wrapping_add(round), ..args.clone() };
        let (times, reading) = controls.beside(|| measure(&args, &mut gateway))?;
        Ok((report(&args, &gateway, (fill_seconds, kernel_ns), &times), reading))
    };
    (0..rounds).map(round).collect()
}

/// Runs two rounds, after which the gateway knows how long they take.
fn warm_up(gateway: &mut Gateway) -> Result<(), Failure> {
    for _ in 0..2 * gateway.params().round_blocks {
        gateway.dummy().map_err(failed)?;
    }
    Ok(())
}

impl BenchKernel {
    fn choice(self) -> Choice {
        match self {
            Self::Benes | Self::BlockWise => Choice::Benes,
            Self::Paper => Choice::Paper,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Benes => "benes",
            Self::Paper => "paper",
            Self::BlockWise => "block-wise",
        }
    }

    fn enclave(self, shared: &Shared, session: &Session) -> traceless_cloud::Result<Inside> {
        match self {
            Self::Benes | Self::Paper => Inside::new(shared, session, Box::new(System)),
            Self::BlockWise => Inside::by_whole_blocks(shared, session, Box::new(System)),
        }
    }
}

/// A folder for a tree, deleted when it is dropped.
fn fresh_folder(beside: &Path) -> Result<TempDir, Failure> {
    let path = leftovers::path(beside, "tree-");
    let prefix = path.file_name().unwrap_or_default();
    let failed = |e| Failure::new(DEVICE, format!("{}: {e}", beside.display()));
    tempfile::Builder::new().prefix(prefix).tempdir_in(beside).map_err(failed)
}

fn start(
    args: &CloudArgs,
    params: Params,
    store: impl NodeStore + 'static,
) -> Result<Gateway, Failure> {
    let mut rng = SystemStream::drawn();
    let keys = Keys::new(&Secret::random(&mut rng), &[0; 16]);
    let mut nonce = [0; 16];
    rng.fill(&mut nonce);
    let choice = args.kernel.choice();
    let shared = keys.shared(&params, choice);
    let mut own = [0; 16];
    rng.fill(&mut own);
    let enclave = args.kernel.enclave(&shared, &shared.session(&nonce, &own)).map_err(failed)?;
    let host: Arc<dyn Host> = Arc::new(HostedStore::new(params.geometry, store, enclave));
    let session = (&nonce, &own);
    Gateway::open(params, &keys, choice, host, session, None, Box::new(rng)).map_err(failed)
}

fn fill(args: &CloudArgs, gateway: &mut Gateway) -> Result<(), Failure> {
    let blocks = gateway.params().blocks;
    let meter = Mutex::new(Meter::new("filling", args.progress));
    let filled = AtomicU64::new(0);
    let contents = |id: u64, block: &mut [u8]| {
        block[..8].copy_from_slice(&id.to_le_bytes());
        let filled = filled.fetch_add(1, Ordering::Relaxed);
        if filled.is_multiple_of(1024)
            && let Ok(mut meter) = meter.try_lock()
        {
            meter.update(filled, blocks);
        }
    };
    gateway.fill(&contents).map_err(failed)?;
    meter.into_inner().map_err(failed)?.finish();
    Ok(())
}

fn report(
    args: &CloudArgs,
    gateway: &Gateway,
    (fill_seconds, kernel_ns_per_piece): (f64, f64),
    times: &ClientTimes,
) -> Report {
    let ClientTimes { latencies, waited_ns, waits, queries, .. } = times;
    let counts = gateway.counts();
    let answers = latencies.len() as u64;
    let sum: u64 = latencies.iter().sum();
    let ms = |ns: u64, count: u64| ns as f64 / count.max(1) as f64 / 1e6;
    let (best_ms, average_ms) = (ms(sum - waited_ns, answers - waits), ms(sum, answers));
    let index = |share: f64| (answers.saturating_sub(1) as f64 * share) as usize;
    let at = |share: f64| ms(latencies.get(index(share)).copied().unwrap_or(0), 1);
    let row = PUBLISHED.iter().find(|row| (row.0, row.1) == (args.data, args.block_len));
    Report {
        schema: "traceless.bench.cloud.v1",
        machine: Hardware::here(),
        data: args.data,
        block_len: args.block_len,
        copies: args.copies,
        kernel: args.kernel.name(),
        store: match &args.dir {
            _ if !args.remote.host.is_empty() => "host",
            Some(_) => "files",
            None => "memory",
        },
        tee_protection: "none",
        tree: CloudTree::of(gateway),
        clients: args.clients,
        together: args.together,
        fill_seconds,
        queries: *queries,
        best_ms,
        average_ms,
        average_to_best: average_ms / best_ms,
        share_ms: ms(times.shares_ns, *queries),
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        p999_ms: at(0.999),
        kb_per_second: args.block_len as f64 * times.blocks as f64 / times.seconds / 1e3,
        kernel_ns_per_piece,
        cpu_ms_per_query: times.cpu_seconds * 1e3 / *queries as f64,
        answers,
        waits: *waits,
        rounds: counts.rounds,
        renewed: counts.renewed,
        waiting_max: counts.stash_max,
        published: row.map(|&(_, _, best_ms, average_ms, kb_per_second)| PaperNumbers {
            best_ms,
            average_ms,
            kb_per_second,
        }),
        compared: vec![],
    }
}

impl CloudTree {
    fn of(gateway: &Gateway) -> Self {
        let params = gateway.params();
        let (g, bounds) = (params.geometry, params.bounds());
        Self {
            lambda: params.lambda,
            roots: g.roots,
            arity: g.arity,
            layers: g.layers,
            round_slots: g.round_slots,
            round_blocks: params.round_blocks,
            inner_slots: g.inner_slots,
            leaf_slots: g.leaf_slots,
            bounds_log2: Bounds {
                round: bounds.round,
                inner: bounds.inner,
                leaf: bounds.leaf,
                leaf_reads: bounds.leaf_reads,
                inner_reads: bounds.inner_reads,
                lifetime: bounds.lifetime,
            },
            space: params.space(),
            gateway_bytes_per_block: gateway.index_bytes() as f64 / params.blocks as f64,
        }
    }
}

impl Report {
    fn print(&self) {
        let tree = &self.tree;
        print_line(&format!(
            "{} B of data, blocks of {} B, kernel {}, tree in {}; the enclave is simulated and \
             protects nothing",
            self.data, self.block_len, self.kernel, self.store
        ));
        print_line(&format!(
            "roots {}, children a node {}, layers {}; {} slots in a node and {} in a leaf, {} \
             slots and {} blocks a round",
            tree.roots,
            tree.arity,
            tree.layers,
            tree.inner_slots,
            tree.leaf_slots,
            tree.round_slots,
            tree.round_blocks
        ));
        let bounds = &tree.bounds_log2;
        print_line(&format!(
            "limits met with probability 2^: round {:.0}, node {:.0}, leaf {:.0}, reads of a leaf \
             {:.0}; blocks wait further up once in 2^20 rounds {:.0}",
            bounds.round, bounds.inner, bounds.leaf, bounds.leaf_reads, bounds.lifetime
        ));
        print_line(&format!(
            "space {} of the data, gateway {} B a block; at most {} blocks waited, {} nodes were \
             made anew early",
            shortened(tree.space),
            shortened(tree.gateway_bytes_per_block),
            self.waiting_max,
            self.renewed
        ));
        self.print_latency();
    }

    fn print_latency(&self) {
        print_line(&format!(
            "{} clients, {} blocks at a time; filled in {} s",
            self.clients,
            self.together,
            shortened(self.fill_seconds)
        ));
        let line = |name: &str, best: f64, average: f64, rate: f64| {
            let (best, average, rate) = (shortened(best), shortened(average), shortened(rate));
            print_line(&format!("{name}: best {best} ms, average {average} ms, {rate} KB/s"));
        };
        line("here", self.best_ms, self.average_ms, self.kb_per_second);
        if let Some(paper) = &self.published {
            line("paper", paper.best_ms, paper.average_ms, paper.kb_per_second);
        }
        for StoreTimes { name, average_ms, .. } in &self.compared {
            print_line(&format!("{name}: average {} ms", shortened(*average_ms)));
        }
        print_line(&format!(
            "average to best {}, {} ms a query for its share of a round; p50 {} ms, p99 {} ms, \
             p99.9 {} ms; {} of {} answers waited for a round's end; {} ms of processor a query, \
             {} ns for 32 bytes of a node",
            shortened(self.average_to_best),
            shortened(self.share_ms),
            shortened(self.p50_ms),
            shortened(self.p99_ms),
            shortened(self.p999_ms),
            self.waits,
            self.answers,
            shortened(self.cpu_ms_per_query),
            shortened(self.kernel_ns_per_piece)
        ));
    }
}
