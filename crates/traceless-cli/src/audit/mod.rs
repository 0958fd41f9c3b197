//! `traceless audit`: can an adversary tell two users apart? docs/audit.md explains every claim.
//!
//! What judges events is the crate `traceless-audit`; here stands what runs schemes, what reads
//! files, and the mutants that prove that the judge sees.

mod alarms;
mod audited;
mod claims;
mod cloud;
mod compare;
mod convert;
mod diff;
mod drawn;
mod floors;
mod mutants;
mod page;
mod pager;
mod places;
mod random_mutants;
mod runner;
mod self_test;
mod sim;
mod source;
mod sq_mutants;
mod suite;
mod target;
mod timing;
mod tree;
mod volume;
mod workload;

use crate::args::audit::{AuditArgs, AuditCommand, RecordArgs};
use crate::failure::{Failure, telling};
use crate::trace::Trace;
use std::io::Write;
use std::path::Path;

/// Nothing was found.
const CLEAN: u8 = 0;
/// Two users can be told apart, or a scheme does not do its work.
const FOUND: u8 = 1;
/// Wrong usage, or something could not be run.
const FAILED: u8 = 2;
/// Too little was seen to say that nothing is told.
const NOT_JUDGED: u8 = 3;
/// A file or an image is not what it should be.
const NOT_WHAT_IT_SHOULD_BE: u8 = 4;

/// Runs the command, prints what it found, and returns the exit code.
pub fn run(args: &AuditArgs) -> u8 {
    outcome(args).print(&mut std::io::stdout().lock(), &mut std::io::stderr().lock())
}

fn outcome(args: &AuditArgs) -> Outcome {
    match &args.command {
        None => self_test::run(&args.shown),
        Some(AuditCommand::Volume(args)) => volume::run(args),
        Some(AuditCommand::Tree(args)) => tree::run(args),
        Some(AuditCommand::Pager(args)) => pager::run(args),
        Some(AuditCommand::Cloud(args)) => cloud::run(args),
        Some(AuditCommand::Timing(args)) => timing::run(args),
        Some(AuditCommand::Sim(args)) => sim::run(args),
        Some(AuditCommand::Compare(args)) => compare::run(args),
        Some(AuditCommand::Convert(args)) => convert::run(args),
        Some(AuditCommand::Floors(args)) => Outcome::of_printed(floors::run(args)),
        Some(AuditCommand::Alarms(args)) => alarms::run(args),
        Some(AuditCommand::Diff(args)) => diff::run(args),
    }
}

/// Records what `run` shows, and audits nothing.
fn recorded(args: &RecordArgs, run: impl FnOnce(&Trace) -> traceless::Result) -> Outcome {
    let failed = |failure: Failure| Outcome::error(FAILED, &failure.message);
    let trace = match Trace::open(&args.trace) {
        Err(failure) => return failed(failure),
        Ok(trace) => trace,
    };
    if let Err(error) = run(&trace) {
        return Outcome::error(FAILED, &format!("nothing could be recorded: {error}"));
    }
    let seen = trace.seen();
    match trace.finish() {
        Err(failure) => failed(failure),
        Ok(()) => Outcome::new(CLEAN, format!("{} events recorded\n", grouped(seen))),
    }
}

/// What a command has to say.
#[derive(Debug)]
struct Outcome {
    code: u8,
    out: String,
    err: String,
}

impl Outcome {
    fn new(code: u8, out: String) -> Self {
        Self { code, out, err: String::new() }
    }

    fn error(code: u8, message: &str) -> Self {
        Self {
            code,
            out: String::new(),
            err: format!("{}\n", telling(code, kind_of(code), message)),
        }
    }

    /// Of a command that prints by itself.
    fn of_printed(done: Result<(), Failure>) -> Self {
        match done {
            Ok(()) => Self::new(CLEAN, String::new()),
            Err(failure) => Self::error(failure.code, &failure.message),
        }
    }

    /// A file could not be opened or read: it is missing, or not what it should be.
    fn file_error(path: &Path, error: &std::io::Error) -> Self {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let code = if missing { FAILED } else { NOT_WHAT_IT_SHOULD_BE };
        Self::error(code, &format!("{}: {error}", path.display()))
    }

    /// A reader that went away has seen enough: the code stays. Any other failure to print means
    /// that the verdict did not arrive.
    fn print(self, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
        // There is nowhere to report that errors cannot be reported.
        let _ = err.write_all(self.err.as_bytes()).and_then(|()| err.flush());
        match out.write_all(self.out.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                let _ = writeln!(err, "traceless: the report could not be printed: {error}");
                FAILED
            }
            _ => self.code,
        }
    }
}

/// An exit code of the auditor as a word.
fn kind_of(code: u8) -> &'static str {
    match code {
        FOUND => "finding",
        NOT_JUDGED => "not judged",
        NOT_WHAT_IT_SHOULD_BE => "device",
        _ => "usage",
    }
}

/// `value` as JSON, with a newline at the end.
fn json(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string_pretty(value).expect("only strings are keys");
    format!("{text}\n")
}

/// A claim, and below it what was seen.
fn claim_line(claim: &traceless_audit::Claim) -> String {
    format!("{:<6} {}\n       {}\n", claim.verdict.word(), claim.name, claim.evidence)
}

/// `number` with a comma at each thousand.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::io;

    /// What `main` makes of a command line that begins with `audit`.
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

    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_closed_pipe_keeps_the_verdict_and_a_full_disk_does_not() {
        let printed = |kind| {
            let outcome = Outcome::new(FOUND, "leak\n".to_owned());
            outcome.print(&mut Broken(kind), &mut Broken(io::ErrorKind::BrokenPipe))
        };
        assert_eq!(printed(io::ErrorKind::BrokenPipe), FOUND);
        assert_eq!(printed(io::ErrorKind::StorageFull), FAILED);
    }

    #[test]
    fn wrong_usage_is_refused() {
        let lines: [&[&str]; 6] = [
            &[],
            &["--json"],
            &["volume", "--scheme", "x"],
            &["diff", "a"],
            &["play"],
            &["--self-test", "tree"],
        ];
        for line in lines {
            assert_eq!(outcome(line).code, FAILED, "{line:?}");
        }
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1000, 12_345_678].map(grouped), ["0", "999", "1,000", "12,345,678"]);
    }
}
