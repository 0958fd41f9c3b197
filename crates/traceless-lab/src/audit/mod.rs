//! `traceless-lab audit`: can an adversary distinguish two users of a scheme? docs/audit.md
//! explains every claim.
//!
//! The crate `traceless-audit` judges the events. This module runs the schemes, and the planted
//! faults that prove that the judge detects faults.

mod claims;
mod cloud;
mod deniable;
mod discard_mutants;
mod false_positives;
pub mod floors;
mod leaf_draws;
mod mutants;
mod pager;
mod random_mutants;
mod repeat_mutant;
mod report;
mod runner;
mod sampling;
mod self_test;
mod sim;
mod slot_draws;
mod sq_mutants;
mod suite;
mod target;
mod timing;
mod tree;
mod volume;
mod workload;

use crate::args::audit::{AuditArgs, AuditCommand, RecordArgs};
use traceless_audit::grouped;
use traceless_cli::audit::{CLEAN, FAILED, FOUND, Outcome, json, write_page};
use traceless_cli::failure::Failure;
use traceless_cli::trace::Trace;

/// Runs the command, prints what it found, and returns the exit code.
pub fn run(args: &AuditArgs) -> u8 {
    outcome(args).printed()
}

fn outcome(args: &AuditArgs) -> Outcome {
    match &args.command {
        None => self_test::run(&args.output),
        Some(AuditCommand::Volume(args)) => volume::run(args),
        Some(AuditCommand::Tree(args)) => tree::run(args),
        Some(AuditCommand::Pager(args)) => pager::run(args),
        Some(AuditCommand::Cloud(args)) => cloud::run(args),
        Some(AuditCommand::Deniable(args)) => deniable::run(args),
        Some(AuditCommand::Timing(args)) => timing::run(args),
        Some(AuditCommand::Sim(args)) => sim::run(args),
        Some(AuditCommand::Alarms(args)) => false_positives::run(args),
    }
}

/// Records the events of `run`, and audits nothing.
fn record_only(args: &RecordArgs, run: impl FnOnce(&Trace) -> traceless::Result) -> Outcome {
    let failed = |failure: Failure| Outcome::error(FAILED, &failure.message);
    let trace = match Trace::open(&args.trace) {
        Err(failure) => return failed(failure),
        Ok(trace) => trace,
    };
    if let Err(error) = run(&trace) {
        return Outcome::error(FAILED, &format!("nothing could be recorded: {error}"));
    }
    let events = trace.events();
    match trace.finish() {
        Err(failure) => failed(failure),
        Ok(()) => Outcome::new(CLEAN, format!("{} events recorded\n", grouped(events))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    /// A command line that begins with `audit`, as `main` parses it.
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        audit: AuditArgs,
    }

    pub(super) fn outcome(line: &[&str]) -> Outcome {
        let words = std::iter::once("audit").chain(line.iter().copied());
        match Line::try_parse_from(words) {
            Err(error) => Outcome::error(FAILED, &error.to_string()),
            Ok(line) => super::outcome(&line.audit),
        }
    }

    #[test]
    fn wrong_usage_is_refused() {
        let lines: [&[&str]; 4] =
            [&[], &["--json"], &["volume", "--scheme", "x"], &["--self-test", "tree"]];
        for line in lines {
            assert_eq!(outcome(line).code, FAILED, "{line:?}");
        }
    }
}
