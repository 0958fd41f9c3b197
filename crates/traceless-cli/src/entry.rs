//! How a program of this workspace begins and ends: its command line is read, and its outcome
//! becomes an exit code.

use crate::failure::{self, Failure};
use crate::output;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Reads the command line, and notes whether failures are printed as JSON. If there is nothing to
/// run, because of `--help` or of a mistake, that is printed, and this is the exit code.
pub fn parse<C: CommandFactory + FromArgMatches>() -> Result<C, ExitCode> {
    let parsed = C::command().try_get_matches().and_then(|matches| {
        if asks_for_json(&matches) {
            failure::tell_as_json();
        }
        C::from_arg_matches(&matches)
    });
    parsed.map_err(|error| ExitCode::from(refuse(&error)))
}

/// The exit code of a result, after the message is printed.
pub fn report(result: Result<(), Failure>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(Failure { code, message }) => {
            output::tell(&failure::telling(code, failure::kind_of(code), &message));
            code
        }
    }
}

/// Another program of this workspace: the one beside this one, or else any of its name in PATH.
pub fn sibling(name: &str) -> Command {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(name));
    let found = beside.filter(|path| path.is_file());
    Command::new(found.unwrap_or_else(|| PathBuf::from(name)))
}

/// Whether the innermost command has an option `--json` that was given.
fn asks_for_json(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some((_, inner)) => asks_for_json(inner),
        None => matches!(matches.try_get_one::<bool>("json"), Ok(Some(true))),
    }
}

/// Prints what is wrong with the command line. It was not understood, so that `--json` is looked
/// for word by word, as far as the words are ours.
fn refuse(error: &clap::Error) -> u8 {
    if !error.use_stderr() {
        let _ = error.print();
        return 0;
    }
    if std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json") {
        failure::tell_as_json();
        output::tell(&failure::telling(
            failure::USAGE,
            failure::kind_of(failure::USAGE),
            error.to_string().trim_end(),
        ));
    } else {
        let _ = error.print();
    }
    failure::USAGE
}
