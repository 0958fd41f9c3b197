//! The rows of the group cloud.

use super::serving::{Serving, redis_benchmark};
use super::{Report, kernel, measured};
use crate::args::{BenchKernel, CloudArgs};
use crate::failure::Failure;
use crate::numbers::{Row, failed, row, say_rows};
use crate::output::complain;
use std::ffi::OsStr;
use traceless_cloud::params::Params;

/// Times that each is measured.
const ROUNDS: usize = 3;

pub fn run(args: &CloudArgs) -> Result<(), Failure> {
    let base = CloudArgs { data: if args.quick { 1 << 26 } else { 1 << 30 }, ..args.clone() };
    let one = repeated(&base)?;
    let many = CloudArgs { clients: 50, together: 16, queries: 40_000, ..base.clone() };
    let long = CloudArgs { block_len: 8192, queries: 20_000, ..many.clone() };
    let (small, large, filed) = (repeated(&many)?, repeated(&long)?, [in_files(&long)?]);
    let of = |name, unit, reports: &[Report], value: fn(&Report) -> f64| {
        row(name, unit, reports.iter().map(value).collect())
    };
    let node = Params::new(10 << 20, 1024, 32).map_err(failed)?.geometry;
    let space = |name, data: u64| -> Result<Row, Failure> {
        let params = Params::new(data / 1024, 1024, 32).map_err(failed)?;
        Ok(row(name, "ratio", vec![params.space()]))
    };
    let behind_tls = behind_tls(&base)?;
    let [set, get] = redis(args.quick)?;
    let rows = vec![
        of("cloud-average", "ms", &one, |report| report.average_ms),
        of("cloud-average-tls", "ms", &behind_tls, |report| report.average_ms),
        of("cloud-p50", "ms", &one, |report| report.p50_ms),
        of("cloud-p99", "ms", &one, |report| report.p99_ms),
        of("cloud-p999", "ms", &one, |report| report.p999_ms),
        of("cloud-throughput-1k", "MB/s", &small, |report| report.kb_per_second / 1e3),
        of("cloud-throughput-8k", "MB/s", &large, |report| report.kb_per_second / 1e3),
        of("cloud-throughput-8k-files", "MB/s", &filed, |report| report.kb_per_second / 1e3),
        row("cloud-kernel", "ns a piece", kernel::measure(node, BenchKernel::Benes, 3 * ROUNDS)?),
        of("cloud-gateway-memory", "bytes a block", &one, |report| {
            report.tree.gateway_bytes_per_block
        }),
        space("cloud-space-10g", 10 << 30)?,
        space("cloud-space-20g", 20 << 30)?,
        row("cloud-redis-set", "requests/s", set),
        row("cloud-redis-get", "requests/s", get),
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

/// Ten gigabytes in files, once: it takes about a minute and 18 GB of disk.
fn in_files(args: &CloudArgs) -> Result<Report, Failure> {
    let folder = tempfile::tempdir().map_err(failed)?;
    let data = if args.quick { args.data } else { 10 << 30 };
    complain("measuring them with the tree in files");
    measured(&CloudArgs { data, dir: Some(folder.path().join("tree")), ..args.clone() })
}

/// Of one client, with a host that keeps the tree in files and its enclave in another process.
fn behind_tls(args: &CloudArgs) -> Result<Vec<Report>, Failure> {
    let measured = || {
        let folder = tempfile::tempdir().map_err(failed)?;
        let tree = folder.path().join("tree");
        let store = format!("file:{}", tree.display());
        let listen = ["host", "--listen", "127.0.0.1:0", "--store", &store].map(OsStr::new);
        let host = Serving::start(&listen, "host")?;
        let mut args = args.clone();
        args.remote.host = Some(host.address.clone());
        args.remote.host_cert = Some(tree.join("host.pem"));
        measured(&args)
    };
    complain("measuring a client with a host and an enclave in other processes, over TLS");
    (0..ROUNDS).map(|_| measured()).collect()
}

/// Requests a second, set and get, of a gateway that keeps everything in files.
fn redis(quick: bool) -> Result<[Vec<f64>; 2], Failure> {
    let folder = tempfile::tempdir().map_err(failed)?;
    let local = folder.path().join("store");
    let all = "gateway --resp 127.0.0.1:0 --allow-simulated-tee --local";
    let args: Vec<&OsStr> = all.split(' ').map(OsStr::new).chain([local.as_os_str()]).collect();
    let gateway = Serving::start(&args, "RESP")?;
    complain("measuring redis-benchmark");
    let requests = if quick { 20_000 } else { 200_000 };
    let rounds = (0..ROUNDS).map(|_| redis_benchmark(&gateway, requests));
    let rates = rounds.collect::<Result<Vec<_>, _>>()?;
    Ok([0, 1].map(|which| rates.iter().map(|rate| rate[which]).collect()))
}
