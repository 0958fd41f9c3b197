//! The beginning and end of a program of this workspace: reading its command line, and turning its
//! outcome into an exit code.

use crate::failure::{self, Failure};
use crate::output;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Reads the command line, and notes whether failures are printed as JSON. If there is nothing to
/// run, because of `--help` or of a mistake, prints the help or the mistake and returns the exit
/// code.
pub fn parse<C: CommandFactory + FromArgMatches>() -> Result<C, ExitCode> {
    let parsed = C::command().try_get_matches().and_then(|matches| {
        if wants_json(&matches) {
            failure::print_as_json();
        }
        C::from_arg_matches(&matches)
    });
    parsed.map_err(|error| ExitCode::from(refuse(&error)))
}

/// Prints the message of a failure, and returns the exit code of `result`.
pub fn report(result: Result<(), Failure>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(Failure { code, message }) => {
            output::eprint_line(&failure::error_line(code, failure::kind_of(code), &message));
            code
        }
    }
}

/// The command for another program of this workspace: the one in this program's folder, or else the
/// one of that name in PATH.
pub fn sibling(name: &str) -> Command {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(name));
    let found = beside.filter(|path| path.is_file());
    Command::new(found.unwrap_or_else(|| PathBuf::from(name)))
}

/// Whether the innermost command has an option `--json` and got it.
fn wants_json(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some((_, inner)) => wants_json(inner),
        None => matches!(matches.try_get_one::<bool>("json"), Ok(Some(true))),
    }
}

/// Prints what is wrong with the command line. As it could not be parsed, `--json` is looked for
/// among its words, up to `--`.
fn refuse(error: &clap::Error) -> u8 {
    if !error.use_stderr() {
        let _ = error.print();
        return 0;
    }
    if std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json") {
        failure::print_as_json();
        output::eprint_line(&failure::error_line(
            failure::USAGE,
            failure::kind_of(failure::USAGE),
            error.to_string().trim_end(),
        ));
    } else {
        let _ = error.print();
    }
    failure::USAGE
}
