//! `cargo xtask crash`: the crash test of the volume, for any length of time.

use std::path::Path;
use std::process::Command;

use crate::Outcome;

/// The length of a run without `--seconds` or `--rounds`.
const SECONDS: &str = "60";

/// The test that does random rounds.
const TEST: &str = "nothing_is_lost_in_random_rounds";

/// Arguments of the command line, as the environment variables that the test reads.
#[derive(PartialEq, Eq, Debug)]
pub struct CrashOptions {
    variables: Vec<(&'static str, String)>,
}

impl CrashOptions {
    /// Reads the arguments after `crash`.
    pub fn parse(args: &[&str]) -> Result<Self, String> {
        let mut variables = Vec::new();
        for pair in args.chunks(2) {
            let variable = match pair[0] {
                "--rounds" => "TRACELESS_CRASH_ROUNDS",
                "--seconds" => "TRACELESS_CRASH_SECONDS",
                "--scheme" => "TRACELESS_CRASH_SCHEME",
                "--seed" => "TRACELESS_CRASH_SEED",
                other => return Err(format!("crash does not know {other}; see --help")),
            };
            let [option, value] = pair else { return Err(format!("{} takes a value", pair[0])) };
            if *option != "--scheme" && value.parse::<u64>().is_err() {
                return Err(format!("{option} takes a number, not {value}"));
            }
            variables.push((variable, (*value).to_owned()));
        }
        let bounded = |(name, _): &(&str, String)| {
            matches!(*name, "TRACELESS_CRASH_ROUNDS" | "TRACELESS_CRASH_SECONDS")
        };
        if !variables.iter().any(bounded) {
            variables.push(("TRACELESS_CRASH_SECONDS", SECONDS.to_owned()));
        }
        Ok(Self { variables })
    }
}

/// Builds the test, then runs it. The test prints to the terminal.
pub fn run(root: &Path, options: &CrashOptions) -> Result<Outcome, String> {
    if !succeeds(cargo_test(root).arg("--no-run"))? {
        return Err("the crash test does not build".to_owned());
    }
    let variables = options.variables.iter().map(|(name, value)| (name, value));
    let mut test = cargo_test(root);
    // What matters of a violation is the command that repeats it, which a backtrace would hide.
    test.envs(variables).env("RUST_BACKTRACE", "0");
    test.args(["--quiet", "--", "--exact", "--nocapture", TEST]);
    Ok(if succeeds(&mut test)? { Outcome::Clean } else { Outcome::Findings })
}

fn cargo_test(root: &Path) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--release", "--package", "traceless-volume", "--test", "crash"]);
    command.current_dir(root);
    command
}

fn succeeds(command: &mut Command) -> Result<bool, String> {
    let status = command.status().map_err(|error| format!("cannot run cargo: {error}"))?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(args: &[&str]) -> Vec<(&'static str, String)> {
        CrashOptions::parse(args).expect("options").variables
    }

    #[test]
    fn options_become_variables() {
        let seconds = |n: &str| ("TRACELESS_CRASH_SECONDS", n.to_owned());
        assert_eq!(variables(&[]), [seconds(SECONDS)]);
        assert_eq!(variables(&["--seconds", "7"]), [seconds("7")]);
        let scheme = ("TRACELESS_CRASH_SCHEME", "detwo".to_owned());
        assert_eq!(variables(&["--scheme", "detwo"]), [scheme.clone(), seconds(SECONDS)]);
        let (seed, rounds) = ("TRACELESS_CRASH_SEED", "TRACELESS_CRASH_ROUNDS");
        assert_eq!(
            variables(&["--seed", "3", "--rounds", "1", "--scheme", "detwo"]),
            [(seed, "3".to_owned()), (rounds, "1".to_owned()), scheme]
        );
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for args in [&["--rounds"][..], &["--rounds", "many"], &["--seed", "-1"], &["--loops", "1"]]
        {
            assert!(CrashOptions::parse(args).is_err(), "{args:?}");
        }
    }
}
