//! The rows of the group audit: the size of traces, the speed of writing, reading and judging them,
//! and the number of false alarms.

use super::{false_positives, tree};
use crate::args::AuditorArgs;
use crate::bench::controls::{Controls, Operations};
use crate::report::{Row, Scale, TimePair, failed, print_rows, row, row_of_ratios};
use std::sync::Arc;
use traceless::rng::{Rng, SeededRng};
use traceless::trace::{Event, Recorder, TraceError, TraceReader, TraceWriter};
use traceless_audit::{Draws, Verdict, are_indistinguishable};
use traceless_cli::failure::Failure;

/// Rounds of each measurement.
const ROUNDS: usize = 7;

const BYTES: &str = "audit-trace-bytes";
const WRITE: &str = "audit-trace-write";
const READ: &str = "audit-trace-read";
const STATISTICS: &str = "audit-statistics";
const ALARMS: &str = "audit-false-alarms";

/// The control of one event or one draw: only the core's speed is comparable.
const EVENT_WRITTEN: Operations = Operations { hits: 20.0, ..Operations::NONE };
const EVENT_READ: Operations = Operations { hits: 20.0, ..Operations::NONE };
const DRAW: Operations = Operations { hits: 200.0, ..Operations::NONE };

pub fn run(args: &AuditorArgs) -> Result<(), Failure> {
    let (steps, seeds) = if args.quick { (10_000, 33) } else { (100_000, 1000) };
    let mut rows = vec![];
    if [BYTES, WRITE, READ].iter().any(|name| args.wants(name)) {
        rows = of_traces(steps)?;
        rows.retain(|row| args.wants(&row.name));
    }
    if args.wants(STATISTICS) {
        let pairs = judge_times(100 * steps as usize)?;
        rows.push(row_of_ratios(STATISTICS, MILLIONS, &pairs));
    }
    if args.wants(ALARMS) {
        let measured = false_positives::count(seeds).map_err(failed)? as f64;
        rows.push(row(ALARMS, "alarms", vec![measured]));
    }
    print_rows("traceless.audit.bench.v1", &rows, args.json)
}

/// Millions per second.
const MILLIONS: Scale = Scale::Rate("M/s", 1e3);

/// The rows about the trace of a Path ORAM with `steps` steps.
fn of_traces(steps: u64) -> Result<Vec<Row>, Failure> {
    let witness = Arc::new(Recorder::default());
    tree::record_path(steps, witness.clone()).map_err(failed)?;
    let events = witness.take();
    let sum = events.iter().fold(0, |sum, event| event.at.wrapping_add(sum));
    let (mut written, mut read, mut file) = (vec![], vec![], vec![]);
    let mut controls = Controls::of_hits();
    for _ in 0..ROUNDS {
        written.push(controls.time(&EVENT_WRITTEN, || {
            file = write(&events).map_err(failed)?;
            Ok(events.len() as f64)
        })?);
        read.push(controls.time(&EVENT_READ, || {
            assert_eq!(sum_of_places(&file).map_err(failed)?, sum);
            Ok(events.len() as f64)
        })?);
    }
    let bytes = file.len() as f64 / events.len() as f64;
    Ok(vec![
        row(BYTES, "B/event", vec![bytes]),
        row_of_ratios(WRITE, MILLIONS, &written),
        row_of_ratios(READ, MILLIONS, &read),
    ])
}

/// Times of judging draws on one core, with all claims: of each of two users, and of both together.
fn judge_times(draws: usize) -> Result<Vec<TimePair>, Failure> {
    const LEAVES: u64 = 1 << 20;
    let mut rng = SeededRng::new(1);
    let mut user = || Draws {
        noun: "leaves",
        places: LEAVES,
        drawn: (0..draws).map(|_| rng.below(LEAVES)).collect(),
        secrets: (0..draws as u64).map(|i| i % 1024).collect(),
        ..Draws::default()
    };
    let (a, b) = (user(), user());
    let judge = || {
        let alone = [a.claims(""), b.claims("")].concat();
        let together = [a.have_distribution_of(&b, ""), are_indistinguishable(&a, &b, "")];
        assert!(alone.iter().chain(&together).all(|claim| claim.verdict == Verdict::Pass));
        Ok(2.0 * draws as f64)
    };
    let mut controls = Controls::of_hits();
    (0..ROUNDS).map(|_| controls.time(&DRAW, judge)).collect()
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

/// Reads the whole trace: the sum depends on each event.
fn sum_of_places(file: &[u8]) -> Result<u64, TraceError> {
    let mut sum = 0u64;
    for event in TraceReader::new(file)? {
        sum = sum.wrapping_add(event?.at);
    }
    Ok(sum)
}
