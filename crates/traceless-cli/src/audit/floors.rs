//! The rows of the group audit: how small traces are, how fast they are written and read, how fast
//! they are judged, and how often falsely.

use super::{alarms, tree};
use crate::args::audit::AuditFloorsArgs;
use crate::bench::cpu_seconds;
use crate::failure::Failure;
use crate::numbers::{Row, failed, row, say_rows};
use std::sync::Arc;
use traceless::rng::{Rng, Seeded};
use traceless::trace::{Event, Recorder, TraceError, TraceReader, TraceWriter};
use traceless_audit::{Draws, Verdict, cannot_be_told_apart};

/// Times that each measurement is made.
const ROUNDS: usize = 7;

const BYTES: &str = "audit-trace-bytes";
const WRITE: &str = "audit-trace-write";
const READ: &str = "audit-trace-read";
const STATISTICS: &str = "audit-statistics";
const ALARMS: &str = "audit-false-alarms";

pub fn run(args: &AuditFloorsArgs) -> Result<(), Failure> {
    let (steps, seeds) = if args.quick { (10_000, 33) } else { (100_000, 1000) };
    let mut rows = vec![];
    if [BYTES, WRITE, READ].iter().any(|name| args.wants(name)) {
        rows = of_traces(steps).map_err(failed)?;
        rows.retain(|row| args.wants(row.name));
    }
    if args.wants(STATISTICS) {
        rows.push(row(STATISTICS, "M/s", judged(100 * steps as usize)));
    }
    if args.wants(ALARMS) {
        let measured = alarms::count(seeds).map_err(failed)? as f64;
        rows.push(row(ALARMS, "alarms", vec![measured]));
    }
    say_rows("traceless.audit.bench.v1", rows, args.json)
}

/// Of what a Path ORAM shows in so many steps.
fn of_traces(steps: u64) -> Result<Vec<Row>, TraceError> {
    let witness = Arc::new(Recorder::default());
    let shown = tree::show_path(steps, witness.clone());
    shown.map_err(|error| TraceError::Io(std::io::Error::other(error)))?;
    let events = witness.take();
    let (mut written, mut read, mut file) = (vec![], vec![], vec![]);
    let rate = |seconds: f64| events.len() as f64 / seconds / 1e6;
    for _ in 0..ROUNDS {
        let start = cpu_seconds();
        file = write(&events)?;
        written.push(rate(cpu_seconds() - start));
        let start = cpu_seconds();
        let places = sum_of_places(&file)?;
        read.push(rate(cpu_seconds() - start));
        assert_eq!(places, events.iter().fold(0, |sum, event| event.at.wrapping_add(sum)));
    }
    let bytes = file.len() as f64 / events.len() as f64;
    Ok(vec![row(BYTES, "B/event", vec![bytes]), row(WRITE, "M/s", written), row(READ, "M/s", read)])
}

/// Millions of draws a second, on one core, of which all is claimed: of each of two users, and of
/// both.
fn judged(draws: usize) -> Vec<f64> {
    const LEAVES: u64 = 1 << 20;
    let mut rng = Seeded::new(1);
    let mut user = || Draws {
        noun: "leaves",
        places: LEAVES,
        drawn: (0..draws).map(|_| rng.below(LEAVES)).collect(),
        secrets: (0..draws as u64).map(|i| i % 1024).collect(),
        ..Draws::default()
    };
    let (a, b) = (user(), user());
    let judge = |_| {
        let start = cpu_seconds();
        let alone = [a.claims(""), b.claims("")].concat();
        let together = [a.are_spread_as(&b, ""), cannot_be_told_apart(&a, &b, "")];
        let seconds = cpu_seconds() - start;
        assert!(alone.iter().chain(&together).all(|claim| claim.verdict == Verdict::Pass));
        2.0 * draws as f64 / seconds / 1e6
    };
    (0..ROUNDS).map(judge).collect()
}

fn write(events: &[Event]) -> Result<Vec<u8>, TraceError> {
    let mut file = vec![];
    let mut writer = TraceWriter::new(&mut file)?;
    for event in events {
        writer.append(*event)?;
    }
    writer.finish()?;
    Ok(file)
}

/// So that each event is looked at.
fn sum_of_places(file: &[u8]) -> Result<u64, TraceError> {
    let mut sum = 0u64;
    for event in TraceReader::new(file)? {
        sum = sum.wrapping_add(event?.at);
    }
    Ok(sum)
}
