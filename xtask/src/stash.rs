//! `cargo xtask stash`: draws curves of stashes and levels into the target folder.

use std::path::Path;
use std::process::Command;

use crate::Outcome;
use crate::command::cargo;

/// The file of the curves, below the root.
const PLOT: &str = "target/stash.svg";

/// Arguments of the command line, for `traceless-lab bench stash`.
#[derive(PartialEq, Eq, Debug)]
pub struct StashOptions {
    arguments: Vec<String>,
    is_search: bool,
}

impl StashOptions {
    /// Reads the arguments after `stash`.
    pub fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Self { arguments: vec![], is_search: false };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            options.is_search |= *arg == "--search";
            options.arguments.push((*arg).to_owned());
            match *arg {
                "--full" | "--search" | "--json" => {}
                "--levels" | "--above" | "--accesses" | "--seed" => {
                    let value = args.next().ok_or_else(|| format!("{arg} takes a value"))?;
                    if value.parse::<u64>().is_err() {
                        return Err(format!("{arg} takes a number, not {value}"));
                    }
                    options.arguments.push((*value).to_owned());
                }
                other => return Err(format!("stash does not know {other}; see --help")),
            }
        }
        Ok(options)
    }
}

/// Builds the command, and runs it to measure and draw.
pub fn run(root: &Path, options: &StashOptions) -> Result<Outcome, String> {
    let mut command = Command::new(cargo());
    command.args(["run", "--release", "--quiet", "--package", "traceless-lab", "--"]);
    command.args(["bench", "stash"]).args(&options.arguments).current_dir(root);
    if !options.is_search {
        command.args(["--plot", PLOT]);
    }
    let status = command.status().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !status.success() {
        return Err(format!("traceless-lab bench stash ended with {status}"));
    }
    if !options.is_search {
        eprintln!("the curves are in {PLOT}");
    }
    Ok(Outcome::Clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_handed_on() {
        let options =
            StashOptions::parse(&["--search", "--levels", "22", "--json"]).expect("options");
        assert_eq!(options.arguments, ["--search", "--levels", "22", "--json"]);
        assert!(options.is_search && !StashOptions::parse(&["--full"]).expect("options").is_search);
    }

    #[test]
    fn what_is_no_argument_is_refused() {
        for args in [&["--levels"][..], &["--levels", "deep"], &["--fulll"], &["--plot", "x"]] {
            assert!(StashOptions::parse(args).is_err(), "{args:?}");
        }
    }
}
