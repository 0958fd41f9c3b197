//! The rows of the group tree. Each measurement runs in a separate process, so that its peak memory
//! can be measured.

use super::bytes::{observed_over_calculated, ratio_distance};
use super::measure::{Numbers, Readings};
use super::operations;
use crate::args::{ClientKind, LabelKind, Seal, TreeArgs, TreeScheme, TreeWorkload};
use crate::bench::controls::{OperationTimes, Operations};
use crate::report::{Row, Scale, TimePair, Values, failed, print_rows};
use serde::Deserialize;
use std::process::{Command, Stdio};
use traceless::scheme::traffic::{
    PAPER_BLOCK_LEN, PAPER_BUCKET, PAPER_LEVELS, Recursion, crossover,
};
use traceless_cli::failure::Failure;
use traceless_cli::output::print_error;

#[derive(Deserialize)]
struct TreeNumbers {
    numbers: Numbers,
}

/// The measurement of one process, and its rows.
struct FloorSubject {
    args: TreeArgs,
    rows: &'static [RowOf],
    /// Whether a quick run leaves this measurement out.
    is_long: bool,
}

/// A row's name, and its quantity of the measurement.
type RowOf = (&'static str, Quantity);

enum Quantity {
    /// A number in this unit that is the same on every machine.
    Number(&'static str, fn(&Numbers) -> f64),
    /// The time of an access, in microseconds, with controls.
    Access(Operations),
    /// The time to make a tree, in seconds, with controls.
    Init(Operations),
}

pub fn run(args: &TreeArgs) -> Result<(), Failure> {
    let mut rows = vec![];
    for subject in subjects(args) {
        if !args.json {
            print_error(&format!("measuring {}", subject.rows[0].0));
        }
        rows.extend(subject.measure(args.quick)?);
    }
    rows.extend(calculated()?);
    print_rows("traceless.tree.bench.v1", &rows, args.json)
}

fn subjects(args: &TreeArgs) -> Vec<FloorSubject> {
    let accesses = if args.quick { 20_000 } else { 200_000 };
    let base = TreeArgs {
        floors: false,
        controls: Some(operations::BUCKET_64B),
        accesses,
        ..args.clone()
    };
    let mut subjects = plain(&base);
    subjects.extend(oblivious(&base));
    subjects.extend(unified(&base));
    subjects
}

fn plain(base: &TreeArgs) -> Vec<FloorSubject> {
    let subject = |args, rows| FloorSubject { args, rows, is_long: false };
    let cached = Some(12);
    vec![
        subject(
            TreeArgs { cached, ..base.clone() },
            &[
                ("tree-plain-aead-64b", Quantity::Access(operations::AEAD_64B)),
                ("tree-init-64b", Quantity::Init(operations::INIT)),
                ("tree-memory-z4", Quantity::Number("ratio", |n| n.memory_over_payload)),
            ],
        ),
        subject(
            TreeArgs {
                blocks: 1 << 16,
                block_len: 4096,
                controls: Some(operations::BUCKET_4K),
                accesses: base.accesses / 10,
                ..base.clone()
            },
            &[("tree-plain-aead-4k", Quantity::Access(operations::AEAD_4K))],
        ),
        subject(
            TreeArgs { seal: Some(Seal::None), cached, ..base.clone() },
            &[("tree-plain-unsealed-64b", Quantity::Access(operations::UNSEALED_64B))],
        ),
        subject(
            TreeArgs { z: Some(3), levels: Some(19), cached, controls: None, ..base.clone() },
            &[("tree-memory-z3", Quantity::Number("ratio", |n| n.memory_over_payload))],
        ),
        subject(
            TreeArgs { blocks: 1 << 26, block_len: 0, levels: Some(25), ..base.clone() },
            &[("tree-ghost-path", Quantity::Access(operations::GHOST))],
        ),
    ]
}

fn oblivious(base: &TreeArgs) -> Vec<FloorSubject> {
    let subject = |seal, log: u32, rows| {
        let scheme = TreeScheme::Circuit;
        let client = ClientKind::Oblivious;
        let seal = Some(seal);
        let (blocks, controls) = (1 << log, Some(operations::PAGE_64B));
        let args = TreeArgs { scheme, blocks, client, seal, controls, ..base.clone() };
        FloorSubject { args, rows, is_long: log > 20 }
    };
    vec![
        subject(
            Seal::None,
            16,
            &[("tree-oblivious-2-16", Quantity::Access(operations::OBLIVIOUS_16))],
        ),
        subject(
            Seal::None,
            20,
            &[("tree-oblivious-2-20", Quantity::Access(operations::OBLIVIOUS_20))],
        ),
        subject(
            Seal::None,
            24,
            &[("tree-oblivious-2-24", Quantity::Access(operations::OBLIVIOUS_24))],
        ),
        subject(
            Seal::Aead,
            20,
            &[("tree-oblivious-aead-2-20", Quantity::Access(operations::OBLIVIOUS_AEAD))],
        ),
    ]
}

/// Requests of the cache's model, which begins empty.
const MODEL_REQUESTS: u64 = 1 << 17;

/// Paths that the model counts for [`MODEL_REQUESTS`] requests, with 2^20 blocks.
const MODEL_SEQUENTIAL: f64 = 135_300.0;
const MODEL_RANDOM_64K: f64 = 334_603.0;
const MODEL_RANDOM_32K: f64 = 364_555.0;

/// The distance of the paths per request from the model's.
fn from_model(numbers: &Numbers, model: f64) -> f64 {
    ratio_distance(numbers.paths_per_access, model / MODEL_REQUESTS as f64)
}

fn unified(base: &TreeArgs) -> Vec<FloorSubject> {
    let subject = |plb, workload, rows| {
        let args = TreeArgs {
            scheme: TreeScheme::Unified,
            block_len: 0,
            controls: None,
            labels: LabelKind::Compressed,
            plb,
            plb_ways: 4,
            workload,
            accesses: MODEL_REQUESTS,
            rounds: 1,
            ..base.clone()
        };
        FloorSubject { args, rows, is_long: false }
    };
    vec![
        subject(
            64,
            TreeWorkload::Sequential,
            &[(
                "tree-unified-sequential-64k",
                Quantity::Number("ratio", |n| from_model(n, MODEL_SEQUENTIAL)),
            )],
        ),
        subject(
            64,
            TreeWorkload::Random,
            &[(
                "tree-unified-random-64k",
                Quantity::Number("ratio", |n| from_model(n, MODEL_RANDOM_64K)),
            )],
        ),
        subject(
            32,
            TreeWorkload::Sequential,
            &[(
                "tree-unified-sequential-32k",
                Quantity::Number("ratio", |n| from_model(n, MODEL_SEQUENTIAL)),
            )],
        ),
        subject(
            32,
            TreeWorkload::Random,
            &[(
                "tree-unified-random-32k",
                Quantity::Number("ratio", |n| from_model(n, MODEL_RANDOM_32K)),
            )],
        ),
    ]
}

/// Bytes moved, by the formulas of the paper.
fn calculated() -> Result<[Row; 4], Failure> {
    let recursion = Recursion::of_the_paper();
    let path_len = PAPER_BUCKET.path_len(PAPER_LEVELS, PAPER_BLOCK_LEN);
    let row = |name, unit, value| Row::of(name, unit, vec![value].into());
    Ok([
        row("tree-bytes-recursive-h5", "bytes", recursion.bytes_per_access()),
        row("tree-bytes-unified-path", "bytes", (2 * path_len) as f64),
        row("tree-bytes-unified-seen", "ratio", observed_over_calculated()?),
        row("tree-bytes-crossover", "paths", crossover(path_len, &recursion)),
    ])
}

impl FloorSubject {
    fn measure(&self, quick: bool) -> Result<Vec<Row>, Failure> {
        if quick && self.is_long {
            let row = |&(name, ref quantity): &RowOf| {
                Row::absent(name, quantity.unit(), "takes too long for a quick run")
            };
            return Ok(self.rows.iter().map(row).collect());
        }
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(self.args.command_line()).stderr(Stdio::inherit());
        let output = command.output().map_err(failed)?;
        if !output.status.success() {
            return Err(failed(format!("{command:?} ended with {}", output.status)));
        }
        let TreeNumbers { numbers } = serde_json::from_slice(&output.stdout).map_err(failed)?;
        self.rows.iter().map(|(name, quantity)| quantity.row(name, &numbers)).collect()
    }
}

impl Quantity {
    fn unit(&self) -> &'static str {
        if let Self::Number(unit, _) = self { unit } else { "ratio" }
    }

    fn row(&self, name: &'static str, numbers: &Numbers) -> Result<Row, Failure> {
        let values: Values = match self {
            Self::Number(_, value) => vec![value(numbers)].into(),
            Self::Access(unit) => {
                let rounds = &readings(numbers)?.rounds;
                let pair = |(us, reading): &(f64, OperationTimes)| TimePair {
                    ns: us * 1e3,
                    control_ns: unit.ns(reading),
                };
                let pairs: Vec<TimePair> = rounds.iter().map(pair).collect();
                Scale::Time("us", 1e3).ratios(&pairs).into()
            }
            Self::Init(unit) => {
                let control_ns = unit.ns(&readings(numbers)?.init);
                let pair = TimePair { ns: numbers.init_seconds * 1e9, control_ns };
                Scale::Time("s", 1e9).ratios(&[pair]).into()
            }
        };
        Ok(Row::of(name, self.unit(), values))
    }
}

fn readings(numbers: &Numbers) -> Result<&Readings, Failure> {
    numbers.readings.as_ref().ok_or_else(|| failed("there were no controls"))
}
