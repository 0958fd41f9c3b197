//! The rows of the group tree. What has a memory of its own to be measured runs in a process of its
//! own.

use super::bytes::{apart, seen_over_calculated};
use super::measure::Numbers;
use crate::args::{Client, LabelKind, Seal, TreeArgs, TreeScheme, TreeWorkload};
use crate::failure::Failure;
use crate::numbers::{Hardware, failed};
use crate::output::{complain, say, say_json};
use serde::{Deserialize, Serialize};
use std::process::{Command, Stdio};
use traceless::scheme::traffic::{
    PAPER_BLOCK_LEN, PAPER_BUCKET, PAPER_LEVELS, Recursion, crossover,
};

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    machine: Hardware,
    rows: Vec<Row>,
}

/// One number, or the reason why there is none.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    unit: &'static str,
    measured: Option<f64>,
    spread: Option<f64>,
    why: Option<&'static str>,
}

#[derive(Deserialize)]
struct Measured {
    numbers: Numbers,
}

/// What one process measures, and the rows that come of it.
struct Subject {
    args: TreeArgs,
    rows: &'static [RowOf],
    /// Whether a quick run leaves it out.
    is_long: bool,
}

/// Name and unit of a row, and which number it is.
type RowOf = (&'static str, &'static str, fn(&Numbers) -> f64);

pub fn run(args: &TreeArgs) -> Result<(), Failure> {
    let mut rows = vec![];
    for subject in subjects(args) {
        if !args.json {
            complain(&format!("measuring {}", subject.rows[0].0));
        }
        rows.extend(subject.measure(args.quick)?);
    }
    rows.extend(calculated()?);
    let machine = Hardware::here();
    if args.json {
        return say_json(&Report { schema: "traceless.tree.bench.v1", machine, rows });
    }
    say(&machine.to_string());
    for Row { name, unit, measured, why, .. } in rows {
        let value = measured.map_or(why.unwrap_or_default().to_owned(), |m| format!("{m:9.3}"));
        say(&format!("{name:<40}{value} {unit}"));
    }
    Ok(())
}

fn subjects(args: &TreeArgs) -> Vec<Subject> {
    let accesses = if args.quick { 20_000 } else { 200_000 };
    let base = TreeArgs { floors: false, accesses, ..args.clone() };
    let mut subjects = plain(&base);
    subjects.extend(oblivious(&base));
    subjects.extend(unified(&base));
    subjects
}

fn plain(base: &TreeArgs) -> Vec<Subject> {
    let subject = |args, rows| Subject { args, rows, is_long: false };
    let cached = Some(12);
    vec![
        subject(
            TreeArgs { cached, ..base.clone() },
            &[
                ("tree-plain-aead-64b", "us", |n| n.cpu_us_per_access),
                ("tree-init-64b", "s", |n| n.init_seconds),
                ("tree-memory-z4", "ratio", |n| n.memory_over_payload),
            ],
        ),
        subject(
            TreeArgs {
                blocks: 1 << 16,
                block_len: 4096,
                accesses: base.accesses / 10,
                ..base.clone()
            },
            &[("tree-plain-aead-4k", "us", |n| n.cpu_us_per_access)],
        ),
        subject(
            TreeArgs { seal: Some(Seal::None), cached, ..base.clone() },
            &[("tree-plain-unsealed-64b", "us", |n| n.cpu_us_per_access)],
        ),
        subject(
            TreeArgs { z: Some(3), levels: Some(19), cached, ..base.clone() },
            &[("tree-memory-z3", "ratio", |n| n.memory_over_payload)],
        ),
        subject(
            TreeArgs { blocks: 1 << 26, block_len: 0, levels: Some(25), ..base.clone() },
            &[("tree-ghost-path", "us", |n| n.cpu_us_per_access)],
        ),
    ]
}

fn oblivious(base: &TreeArgs) -> Vec<Subject> {
    let subject = |seal, log: u32, rows| {
        let scheme = TreeScheme::Circuit;
        let client = Client::Oblivious;
        let seal = Some(seal);
        let args = TreeArgs { scheme, client, seal, blocks: 1 << log, ..base.clone() };
        Subject { args, rows, is_long: log > 20 }
    };
    vec![
        subject(Seal::None, 16, &[("tree-oblivious-2-16", "us", |n| n.cpu_us_per_access)]),
        subject(Seal::None, 20, &[("tree-oblivious-2-20", "us", |n| n.cpu_us_per_access)]),
        subject(Seal::None, 24, &[("tree-oblivious-2-24", "us", |n| n.cpu_us_per_access)]),
        subject(Seal::Aead, 20, &[("tree-oblivious-aead-2-20", "us", |n| n.cpu_us_per_access)]),
    ]
}

/// Requests of the model of the cache, which begins empty.
const MODEL_REQUESTS: u64 = 1 << 17;

/// Paths that it counted for them, with 2^20 blocks.
const MODEL_SEQUENTIAL: f64 = 135_300.0;
const MODEL_RANDOM_64K: f64 = 334_603.0;
const MODEL_RANDOM_32K: f64 = 364_555.0;

/// How far the paths of a request are from what the model says.
fn from_model(numbers: &Numbers, model: f64) -> f64 {
    apart(numbers.paths_per_access, model / MODEL_REQUESTS as f64)
}

fn unified(base: &TreeArgs) -> Vec<Subject> {
    let subject = |plb, workload, rows| {
        let args = TreeArgs {
            scheme: TreeScheme::Unified,
            block_len: 0,
            labels: LabelKind::Compressed,
            plb,
            plb_ways: 4,
            workload,
            accesses: MODEL_REQUESTS,
            rounds: 1,
            ..base.clone()
        };
        Subject { args, rows, is_long: false }
    };
    vec![
        subject(
            64,
            TreeWorkload::Sequential,
            &[("tree-unified-sequential-64k", "ratio", |n| from_model(n, MODEL_SEQUENTIAL))],
        ),
        subject(
            64,
            TreeWorkload::Random,
            &[("tree-unified-random-64k", "ratio", |n| from_model(n, MODEL_RANDOM_64K))],
        ),
        subject(
            32,
            TreeWorkload::Sequential,
            &[("tree-unified-sequential-32k", "ratio", |n| from_model(n, MODEL_SEQUENTIAL))],
        ),
        subject(
            32,
            TreeWorkload::Random,
            &[("tree-unified-random-32k", "ratio", |n| from_model(n, MODEL_RANDOM_32K))],
        ),
    ]
}

/// Bytes moved, by the formulas of the paper.
fn calculated() -> Result<[Row; 4], Failure> {
    let recursion = Recursion::of_the_paper();
    let path_len = PAPER_BUCKET.path_len(PAPER_LEVELS, PAPER_BLOCK_LEN);
    let row = |name, unit, measured| Row {
        name,
        unit,
        measured: Some(measured),
        spread: None,
        why: None,
    };
    Ok([
        row("tree-bytes-recursive-h5", "bytes", recursion.bytes_per_access()),
        row("tree-bytes-unified-path", "bytes", (2 * path_len) as f64),
        row("tree-bytes-unified-seen", "ratio", seen_over_calculated()?),
        row("tree-bytes-crossover", "paths", crossover(path_len, &recursion)),
    ])
}

impl Subject {
    fn measure(&self, quick: bool) -> Result<Vec<Row>, Failure> {
        if quick && self.is_long {
            let why = Some("takes too long for a quick run");
            let row =
                |&(name, unit, _): &RowOf| Row { name, unit, measured: None, spread: None, why };
            return Ok(self.rows.iter().map(row).collect());
        }
        let own = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(own);
        command.args(self.args.command_line()).stderr(Stdio::inherit());
        let output = command.output().map_err(failed)?;
        if !output.status.success() {
            return Err(failed(format!("{command:?} ended with {}", output.status)));
        }
        let Measured { numbers } = serde_json::from_slice(&output.stdout).map_err(failed)?;
        let row = |&(name, unit, value): &RowOf| Row {
            name,
            unit,
            measured: Some(value(&numbers)),
            spread: numbers.spread,
            why: None,
        };
        Ok(self.rows.iter().map(row).collect())
    }
}
