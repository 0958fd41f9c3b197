//! The rows of the group tree, each in a process of its own, so that none sees the other's memory.

use super::tree::Numbers;
use crate::args::{Seal, TreeArgs};
use crate::failure::Failure;
use crate::numbers::{Hardware, Row, failed};
use crate::output::{complain, say, say_json};
use serde::{Deserialize, Serialize};
use std::process::{Command, Stdio};

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    machine: Hardware,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Measured {
    numbers: Numbers,
}

/// What one process measures, and the rows that come of it.
struct Subject {
    args: TreeArgs,
    rows: &'static [RowOf],
}

/// Name and unit of a row, and which number it is.
type RowOf = (&'static str, &'static str, fn(&Numbers) -> f64);

pub fn run(args: &TreeArgs) -> Result<(), Failure> {
    let mut rows = vec![];
    for subject in subjects(args) {
        if !args.json {
            complain(&format!("measuring {}", subject.rows[0].0));
        }
        let numbers = subject.measure()?;
        rows.extend(subject.rows.iter().map(|(name, unit, value)| Row {
            name,
            unit,
            measured: value(&numbers),
            spread: numbers.spread,
        }));
    }
    let machine = Hardware::here();
    if args.json {
        return say_json(&Report { schema: "traceless.bench.floors.v1", machine, rows });
    }
    say(&machine.to_string());
    for row in rows {
        say(&format!("{:<40}{:>9.3} {}", row.name, row.measured, row.unit));
    }
    Ok(())
}

fn subjects(args: &TreeArgs) -> [Subject; 5] {
    let accesses = if args.quick { 20_000 } else { 200_000 };
    let base = TreeArgs { floors: false, accesses, ..args.clone() };
    [
        Subject {
            args: TreeArgs { cached: 12, ..base.clone() },
            rows: &[
                ("tree-plain-aead-64b", "us", |n| n.cpu_us_per_access),
                ("tree-init-64b", "s", |n| n.init_seconds),
                ("tree-memory-z4", "ratio", |n| n.memory_over_payload),
            ],
        },
        Subject {
            args: TreeArgs {
                blocks: 1 << 16,
                block_len: 4096,
                accesses: accesses / 10,
                ..base.clone()
            },
            rows: &[("tree-plain-aead-4k", "us", |n| n.cpu_us_per_access)],
        },
        Subject {
            args: TreeArgs { seal: Seal::None, cached: 12, ..base.clone() },
            rows: &[("tree-plain-unsealed-64b", "us", |n| n.cpu_us_per_access)],
        },
        Subject {
            args: TreeArgs { z: 3, levels: Some(19), cached: 12, ..base.clone() },
            rows: &[("tree-memory-z3", "ratio", |n| n.memory_over_payload)],
        },
        Subject {
            args: TreeArgs { blocks: 1 << 26, block_len: 0, levels: Some(25), ..base },
            rows: &[("tree-ghost-path", "us", |n| n.cpu_us_per_access)],
        },
    ]
}

impl Subject {
    fn measure(&self) -> Result<Numbers, Failure> {
        let own = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(own);
        command.args(self.args.command_line()).stderr(Stdio::inherit());
        let output = command.output().map_err(failed)?;
        if !output.status.success() {
            return Err(failed(format!("{command:?} ended with {}", output.status)));
        }
        let measured: Measured = serde_json::from_slice(&output.stdout).map_err(failed)?;
        Ok(measured.numbers)
    }
}
