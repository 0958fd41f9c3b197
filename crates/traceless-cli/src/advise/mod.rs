//! `traceless advise`: which product and parameters protect from an adversary, what that costs, and
//! what leaks, by `traceless-advise`.
//!
//! File by file: `interview`: questions on a terminal; `testing`: what tests of both share.

mod interview;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use crate::args::{AdviseArgs, Watcher, WritePattern, YesNo};
use crate::failure::{FINDING, Failure};
use crate::output::{print_json, print_line};
use clap::{Args, Command, FromArgMatches};
use std::io::{IsTerminal, stderr, stdin};
use std::num::NonZeroU32;
use traceless_advise::{Advice, Requirements};

/// Prints the advice, and returns the exit code: 1 if no product protects.
pub fn run(args: &AdviseArgs) -> Result<u8, Failure> {
    let mut args = args.clone();
    if stdin().is_terminal() && stderr().is_terminal() {
        interview::complete(&mut args, stdin().lock(), stderr()).map_err(Failure::usage)?;
    }
    let advice = advise(&args)?;
    if args.json {
        print_json(&advice)?;
    } else {
        for line in traceless_advise::lines(&advice) {
            print_line(&line);
        }
    }
    Ok(if advice.protected { 0 } else { FINDING })
}

/// The advice for options as the command line has them: `--size=1G`.
pub fn advise_by_options(options: impl IntoIterator<Item = String>) -> Result<Advice, Failure> {
    let words = ["advise".to_owned()].into_iter().chain(options);
    let command = AdviseArgs::augment_args(Command::new("advise"));
    let args = command
        .try_get_matches_from(words)
        .and_then(|matches| AdviseArgs::from_arg_matches(&matches))
        .map_err(|error| Failure::usage(first_paragraph(&error.to_string())))?;
    advise(&args)
}

/// The advice for complete arguments.
fn advise(args: &AdviseArgs) -> Result<Advice, Failure> {
    traceless_advise::advise(&requirements(args)?).map_err(Failure::usage)
}

/// What is wrong with a command line, without the hint on how to get help.
fn first_paragraph(message: &str) -> &str {
    let message = message.strip_prefix("error: ").unwrap_or(message);
    message.split("\n\n").next().unwrap_or(message).trim_end()
}

/// What the arguments require.
fn requirements(args: &AdviseArgs) -> Result<Requirements, Failure> {
    let watcher = args.watcher.ok_or_else(|| missing("the adversary", "--watcher NAME"))?;
    let required = Requirements {
        hide_reads: args.hide_reads == Some(YesNo::Yes),
        block_len: args.block_len,
        memory: args.memory,
        space_factor: args.space_factor,
        writes: args.writes,
        pattern: args.pattern.map(Into::into),
        rate: args.rate.and_then(NonZeroU32::new),
        latency: args.latency.and_then(NonZeroU32::new),
        dollars: args.dollars,
        ..Requirements::new(watcher.into(), args.size.unwrap_or(0))
    };
    if args.size.is_none() && required.is_protectable() {
        return Err(missing("the size", "--size SIZE"));
    }
    Ok(required)
}

fn missing(what: &str, option: &str) -> Failure {
    let remedy = format!("give {option}, or run `traceless advise` on a terminal");
    Failure::usage(format!("{what} is missing: {remedy}"))
}

impl From<Watcher> for traceless_advise::Watcher {
    fn from(watcher: Watcher) -> Self {
        match watcher {
            Watcher::Copies => Self::Copies,
            Watcher::DeviceWrites => Self::DeviceWrites,
            Watcher::Device => Self::Device,
            Watcher::Swap => Self::Swap,
            Watcher::Cloud => Self::Cloud,
            Watcher::Bus => Self::Bus,
            Watcher::Kernel => Self::Kernel,
        }
    }
}

impl From<WritePattern> for traceless_advise::WritePattern {
    fn from(pattern: WritePattern) -> Self {
        match pattern {
            WritePattern::Runs => Self::Runs,
            WritePattern::Scattered => Self::Scattered,
        }
    }
}
