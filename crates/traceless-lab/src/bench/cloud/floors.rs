//! The rows of the group cloud.

use super::serving::{RedisLoad, ServingProcess, redis_benchmark};
use super::{Report, engines, far, kernel, measure_in_rounds, operations, partitions, skewed};
use crate::args::{BenchKernel, CloudArgs, FloorPart};
use crate::bench::controls::{Controls, OperationTimes, Operations};
use crate::report::{Row, Scale, TimePair, failed, print_rows, row, row_of_ratios};
use crate::scale;
use std::ffi::OsStr;
use std::path::Path;
use traceless::seal::Cipher;
use traceless_cli::failure::Failure;
use traceless_cli::output::print_error;
use traceless_cloud::geometry::PART_LEN;
use traceless_cloud::params::Params;
use traceless_cloud::store::{CachedStore, MemStore};

/// Rounds of each measurement.
const ROUNDS: u64 = 9;

/// Measurements, each with the times of the controls in the same round.
type Reports = Vec<(Report, OperationTimes)>;

pub fn run(args: &CloudArgs) -> Result<(), Failure> {
    let is_measured = |part| args.part.is_none_or(|one| one == part);
    let base = CloudArgs { data: if args.quick { 1 << 26 } else { 1 << 30 }, ..args.clone() };
    let mut controls = Controls::of_memory()
        .and_passes(|key| Cipher::AesGcm.sealer(key), PART_LEN)
        .and_round_trips();
    let mut rows = vec![];
    if is_measured(FloorPart::Tree) {
        rows.extend(tree(&mut controls, &base)?);
    }
    if is_measured(FloorPart::Redis) {
        rows.extend(redis(&mut controls, args.quick, &params(&base)?)?);
        rows.push(dashboard(args.quick)?);
    }
    if is_measured(FloorPart::Hosts) {
        rows.push(far::clients(args.quick)?);
        rows.push(partitions::padding()?);
    }
    if is_measured(FloorPart::Engines) {
        rows.extend(engines::rows(args.quick)?);
    }
    if is_measured(FloorPart::Copies) {
        rows.push(skewed::requests(args.quick)?);
    }
    if is_measured(FloorPart::Model) {
        rows.push(scale::row()?);
    }
    print_rows("traceless.cloud.bench.v1", &rows, args.json)
}

/// The rows of a tree in this process.
fn tree(controls: &mut Controls, base: &CloudArgs) -> Result<Vec<Row>, Failure> {
    let many = CloudArgs { clients: 50, together: 16, queries: 40_000, ..base.clone() };
    let long = CloudArgs { block_len: 8192, queries: 20_000, ..many.clone() };
    let one = measure_clients(controls, base)?;
    let mut rows = times(&params(base)?, &one);
    let behind_tls = behind_tls(controls, base)?;
    let unit = operations::average_behind_tls(&params(base)?);
    rows.push(time("cloud-average-tls", &unit, &behind_tls, |report| report.average_ms));
    for (name, args) in [("cloud-throughput-1k", &many), ("cloud-throughput-8k", &long)] {
        rows.push(throughput(name, &params(args)?, &measure_clients(controls, args)?));
    }
    let filed = in_files(controls, &long, base.quick)?;
    rows.push(throughput("cloud-throughput-8k-files", &params(&filed.0)?, &filed.1));
    rows.push(kernel_alone(controls)?);
    let bytes = one.iter().map(|(report, _)| report.tree.gateway_bytes_per_block).collect();
    rows.push(row("cloud-gateway-memory", "bytes a block", bytes));
    for (name, data) in [("cloud-space-10g", 10 << 30), ("cloud-space-20g", 20 << 30)] {
        let params = Params::new(data / 1024, 1024, 32).map_err(failed)?;
        rows.push(row(name, "ratio", vec![params.space()]));
    }
    rows.extend(requests_of_a_query()?);
    Ok(rows)
}

fn params(args: &CloudArgs) -> Result<Params, Failure> {
    let block_len = usize::try_from(args.block_len).map_err(failed)?;
    let blocks = args.data / args.block_len;
    Params::for_kernel(args.kernel.choice(), args.arity, blocks, block_len, args.lambda)
        .map_err(failed)
}

/// The rows of requests to an engine, of a tree with wide nodes below the layers in memory.
fn requests_of_a_query() -> Result<[Row; 2], Failure> {
    let geometry = Params::with_arity(16, 10_000_000, 1024, 32).map_err(failed)?.geometry;
    let cached = CachedStore::new(MemStore::new(geometry), geometry, 64 << 20).layers();
    let requests = (geometry.layers - cached) as f64;
    let bytes = requests * geometry.slot_len() as f64 / 1024.0;
    Ok([
        row("cloud-requests-10g", "requests", vec![requests]),
        row("cloud-request-bytes-10g", "KiB", vec![bytes]),
    ])
}

/// The rows of one client.
fn times(params: &Params, reports: &Reports) -> Vec<Row> {
    let (average, query) = (operations::average(params), operations::query(&params.geometry));
    let round = operations::round(&params.geometry);
    vec![
        time("cloud-average", &average, reports, |report| report.average_ms),
        time("cloud-p50", &query, reports, |report| report.p50_ms),
        time("cloud-p99", &round, reports, |report| report.p99_ms),
        time("cloud-p999", &round, reports, |report| report.p999_ms),
    ]
}

/// A row of times in milliseconds, with the time of `unit` as control.
fn time(
    name: &'static str,
    unit: &Operations,
    reports: &Reports,
    ms: impl Fn(&Report) -> f64,
) -> Row {
    let pair = |(report, reading): &(Report, OperationTimes)| TimePair {
        ns: ms(report) * 1e6,
        control_ns: unit.ns(reading),
    };
    let pairs: Vec<TimePair> = reports.iter().map(pair).collect();
    row_of_ratios(name, Scale::Time("ms", 1e6), &pairs)
}

/// A row of the throughput of many clients, with the operations of a query as control.
fn throughput(name: &'static str, params: &Params, reports: &Reports) -> Row {
    let (unit, len) = (operations::average(params), params.geometry.block_len as f64);
    let pair = |(report, reading): &(Report, OperationTimes)| TimePair {
        ns: len * 1e6 / report.kb_per_second,
        control_ns: unit.ns(reading),
    };
    let pairs: Vec<TimePair> = reports.iter().map(pair).collect();
    row_of_ratios(name, Scale::Rate("MB/s", len * 1e3), &pairs)
}

/// The row of the kernel, which makes a node anew.
fn kernel_alone(controls: &mut Controls) -> Result<Row, Failure> {
    let geometry = Params::new(10 << 20, 1024, 32).map_err(failed)?.geometry;
    let unit = operations::piece(&geometry);
    let mut pairs = vec![];
    for _ in 0..ROUNDS {
        let measure = || kernel::measure(geometry, BenchKernel::Benes, 1);
        let (times, reading) = controls.beside(measure)?;
        let control_ns = unit.ns(&reading);
        pairs.extend(times.into_iter().map(|ns| TimePair { ns, control_ns }));
    }
    Ok(row_of_ratios("cloud-kernel", Scale::Time("ns a piece", 1.0), &pairs))
}

fn measure_clients(controls: &mut Controls, args: &CloudArgs) -> Result<Reports, Failure> {
    print_error(&format!(
        "measuring {} clients, {} blocks of {} B at a time",
        args.clients, args.together, args.block_len
    ));
    measure_in_rounds(args, ROUNDS, controls)
}

/// Throughput with ten gigabytes in files: filling them takes about a minute and 18 GB of disk.
fn in_files(
    controls: &mut Controls,
    args: &CloudArgs,
    quick: bool,
) -> Result<(CloudArgs, Reports), Failure> {
    let folder = tempfile::tempdir().map_err(failed)?;
    let data = if quick { args.data } else { 10 << 30 };
    print_error("measuring them with the tree in files");
    let args = CloudArgs { data, dir: Some(folder.path().join("tree")), ..args.clone() };
    let reports = measure_in_rounds(&args, ROUNDS / 3, controls)?;
    Ok((args, reports))
}

/// Times of one client, with a host that keeps the tree in files and its enclave in another
/// process.
fn behind_tls(controls: &mut Controls, args: &CloudArgs) -> Result<Reports, Failure> {
    print_error("measuring a client with a host and an enclave in other processes, over TLS");
    let folder = tempfile::tempdir().map_err(failed)?;
    let tree = folder.path().join("tree");
    let store = format!("file:{}", tree.display());
    let listen = ["host", "--listen", "127.0.0.1:0", "--store", &store].map(OsStr::new);
    let host = ServingProcess::start(&listen, "host")?;
    let mut args = args.clone();
    args.remote.host = vec![host.address.clone()];
    args.remote.host_cert = vec![tree.join("host.pem")];
    measure_in_rounds(&args, ROUNDS, controls)
}

/// Rows of setting and getting values at a gateway that keeps everything in files. An answer
/// survives the end of the process only, since otherwise the disk's syncs would be measured.
fn redis(controls: &mut Controls, quick: bool, params: &Params) -> Result<[Row; 2], Failure> {
    let folder = tempfile::tempdir().map_err(failed)?;
    let gateway = filed_gateway(&folder.path().join("store"), &[])?;
    print_error("measuring redis-benchmark");
    let requests = if quick { 10_000 } else { 50_000 };
    let unit = operations::request(params);
    let mut pairs = [vec![], vec![]];
    for _ in 0..ROUNDS {
        let (rates, reading) =
            controls.beside(|| redis_benchmark(&gateway, &RedisLoad::pipelined(requests)))?;
        for (pairs, rate) in pairs.iter_mut().zip(rates) {
            pairs.push(TimePair { ns: 1e9 / rate, control_ns: unit.ns(&reading) });
        }
    }
    let scale = Scale::Rate("requests/s", 1e9);
    Ok([("cloud-redis-set", 0), ("cloud-redis-get", 1)]
        .map(|(name, index)| row_of_ratios(name, scale, &pairs[index])))
}

/// The cost of the live page: requests to two gateways, one of which is shown.
fn dashboard(quick: bool) -> Result<Row, Failure> {
    let folder = tempfile::tempdir().map_err(failed)?;
    let alone = filed_gateway(&folder.path().join("alone"), &[])?;
    let shown = filed_gateway(&folder.path().join("shown"), &["--dashboard", "127.0.0.1:0"])?;
    print_error("measuring redis-benchmark beside a live page");
    let requests = if quick { 5_000 } else { 25_000 };
    let mut ratios = vec![];
    for nth in 0..2 * ROUNDS {
        let mut rates = [0.0; 2];
        // Each is first in every second round, so that other load on the machine affects both.
        for which in [nth % 2, 1 - nth % 2] {
            let gateway = [&alone, &shown][which as usize];
            let [set, get] = redis_benchmark(gateway, &RedisLoad::pipelined(requests))?;
            rates[which as usize] = 2.0 / (1.0 / set + 1.0 / get);
        }
        ratios.push(rates[1] / rates[0]);
    }
    Ok(row("cloud-dashboard", "ratio", ratios))
}

/// A gateway that keeps everything in files. An answer survives the end of the process only.
fn filed_gateway(folder: &Path, more: &[&str]) -> Result<ServingProcess, Failure> {
    let all = "gateway --resp 127.0.0.1:0 --allow-simulated-tee --durability process --local";
    let args = all.split(' ').map(OsStr::new).chain([folder.as_os_str()]);
    let args: Vec<&OsStr> = args.chain(more.iter().map(OsStr::new)).collect();
    ServingProcess::start(&args, "RESP")
}
