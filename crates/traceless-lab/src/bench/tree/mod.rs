//! `traceless-lab bench tree`: one scheme in memory, one access after the other.
//!
//! A scheme is a file with a function `measure` and an arm of [`measure_scheme`]; a way to seal is
//! an arm of [`plain::with_sealer`].

mod bytes;
mod circuit;
pub mod floors;
mod last_level;
mod measure;
mod oblivious;
mod operations;
mod path;
mod plain;
mod rho;
mod ring;
mod unified;

use crate::args::{ClientKind, TreeArgs, TreeScheme, word};
use crate::report::Hardware;
use measure::Numbers;
use serde::Serialize;
use traceless_cli::failure::Failure;
use traceless_cli::output::{print_json, print_line};

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    machine: Hardware,
    what: TreeParameters,
    numbers: Numbers,
}

/// The parameters of a measurement, so that only rows with equal parameters are compared.
#[derive(Serialize)]
struct TreeParameters {
    scheme: String,
    client: String,
    blocks: u64,
    block_len: usize,
    workload: String,
    #[serde(flatten)]
    details: Details,
}

/// Further parameters of a scheme; `None` if the scheme does not have them.
#[derive(Clone, Serialize)]
struct Details {
    cipher: &'static str,
    encrypted: bool,
    authenticated: bool,
    fresh: bool,
    levels: Option<usize>,
    z: Option<u8>,
    /// Reads that a bucket answers besides its blocks.
    dummies: Option<u8>,
    /// Accesses for each eviction.
    eviction_rate: Option<u8>,
    cached_levels: usize,
    maps_in_trees: usize,
    labels: Option<String>,
    plb_bytes: Option<usize>,
    plb_ways: Option<usize>,
    /// Bytes of the cache above the scheme.
    llc_bytes: Option<usize>,
}

impl Details {
    /// Details of a tree with slots sealed by `cipher`, or not sealed.
    fn new(cipher: Option<&'static str>) -> Self {
        let is_sealed = cipher.is_some();
        Self {
            cipher: cipher.unwrap_or("none"),
            encrypted: is_sealed,
            authenticated: is_sealed,
            fresh: is_sealed,
            levels: None,
            z: None,
            dummies: None,
            eviction_rate: None,
            cached_levels: 0,
            maps_in_trees: 0,
            labels: None,
            plb_bytes: None,
            plb_ways: None,
            llc_bytes: None,
        }
    }
}

/// The result of a scheme's `measure`.
struct TreeMeasurement {
    details: Details,
    numbers: Numbers,
}

fn measure_scheme(args: &TreeArgs) -> Result<TreeMeasurement, Failure> {
    if args.scheme != TreeScheme::Unified {
        refuse("a scheme other than unified", &[("--bundle", args.bundle > 1)])?;
    }
    match (args.scheme, args.client) {
        (TreeScheme::Path, ClientKind::Plain) => path::measure(args),
        (
            TreeScheme::Unified | TreeScheme::Rho | TreeScheme::LlcD | TreeScheme::IrDwb,
            ClientKind::Plain,
        ) => unified::measure(args),
        (TreeScheme::Circuit, ClientKind::Plain) => circuit::measure(args),
        (TreeScheme::Ring, ClientKind::Plain) => ring::measure(args),
        (TreeScheme::Circuit, ClientKind::Oblivious) => oblivious::measure(args),
        (scheme, ClientKind::Oblivious) => Err(Failure::usage(format!(
            "{} has no oblivious client: --client oblivious goes with --scheme circuit",
            word(&scheme)
        ))),
    }
}

/// Refuses options that do not apply to the scheme.
fn refuse(scheme: &str, options: &[(&str, bool)]) -> Result<(), Failure> {
    match options.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(Failure::usage(format!("{name} does not go with {scheme}"))),
        None => Ok(()),
    }
}

pub fn run(args: &TreeArgs) -> Result<(), Failure> {
    let TreeMeasurement { details, numbers } = measure_scheme(args)?;
    let report = Report {
        schema: "traceless.bench.tree.v1",
        machine: Hardware::here(),
        what: TreeParameters {
            scheme: word(&args.scheme),
            client: word(&args.client),
            blocks: args.blocks,
            block_len: args.block_len,
            workload: word(&args.workload),
            details,
        },
        numbers,
    };
    if args.json {
        return print_json(&report);
    }
    let (what, numbers) = (&report.what, &report.numbers);
    let details = &what.details;
    let number = |value: Option<usize>| value.map_or("no".to_owned(), |value| value.to_string());
    print_line(&report.machine.to_string());
    print_line(&format!(
        "{}, {} client, {} blocks of {} bytes, {}; {}; {} levels, Z = {}, {} cached; {} maps",
        what.scheme,
        what.client,
        what.blocks,
        what.block_len,
        what.workload,
        details.cipher,
        number(details.levels),
        number(details.z.map(usize::from)),
        details.cached_levels,
        details.maps_in_trees,
    ));
    let lines = [
        ("an access, CPU", numbers.cpu_us_per_access, "us"),
        ("accesses a second, CPU", numbers.accesses_per_cpu_second, ""),
        ("accesses a second, wall", numbers.accesses_per_second, ""),
        ("paths an access", numbers.paths_per_access, ""),
        ("paths between accesses", numbers.idle_paths_per_access, ""),
        ("bytes moved an access", numbers.bytes_per_access, ""),
        ("initialisation", numbers.init_seconds, "s"),
        ("peak memory", numbers.peak_memory_bytes as f64 / f64::from(1 << 20), "MiB"),
        ("peak memory over payload", numbers.memory_over_payload, ""),
    ];
    let spread = numbers.spread.map(|spread| ("spread", spread * 100.0, "%"));
    for (name, value, unit) in lines.into_iter().chain(spread) {
        print_line(&format!("{name:<28}{value:>14.3} {unit}"));
    }
    Ok(())
}
