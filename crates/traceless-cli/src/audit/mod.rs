//! `traceless audit`: can an adversary distinguish two users? docs/audit.md explains every claim.
//!
//! This module has the commands that read files. The commands that run schemes to audit them are in
//! traceless-lab, together with the planted faults that prove that the judge, the crate
//! `traceless-audit`, finds them.

mod compare;
mod convert;
mod diff;
mod outcome;
mod source;

pub use outcome::{
    CLEAN, FAILED, FOUND, NOT_JUDGED, NOT_WHAT_IT_SHOULD_BE, Outcome, json, write_page,
};

use crate::args::audit::{AuditArgs, AuditCommand};
use crate::entry::report;
use crate::lab;

/// Runs the command, prints what it found, and returns the exit code.
pub fn run(args: &AuditArgs) -> u8 {
    match outcome(args) {
        Some(outcome) => outcome.printed(),
        None => report(lab::run()),
    }
}

/// The outcome of a command that reads files; `None` for a command that runs schemes.
fn outcome(args: &AuditArgs) -> Option<Outcome> {
    match args.command.as_ref()? {
        AuditCommand::Compare(args) => Some(compare::run(args)),
        AuditCommand::Convert(args) => Some(convert::run(args)),
        AuditCommand::Diff(args) => Some(diff::run(args)),
        _ => None,
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
            Ok(line) => super::outcome(&line.audit).expect("not a command of traceless-lab"),
        }
    }

    #[test]
    fn wrong_usage_is_refused() {
        let lines: [&[&str]; 5] =
            [&[], &["--json"], &["diff", "a"], &["play"], &["--self-test", "tree"]];
        for line in lines {
            assert_eq!(outcome(line).code, FAILED, "{line:?}");
        }
    }
}
