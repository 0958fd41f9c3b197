//! `cargo xtask floors`: measures the rows of `bench/floors.toml`, each group in one run.
//!
//! A floor that is not met is printed, and is no failure: a machine under load would fail it.

mod join;
pub mod rows;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Outcome, size};
use rows::{FLOORS, GROUPS};

/// Arguments of the command line.
#[derive(PartialEq, Eq, Debug)]
pub struct FloorOptions {
    group: Option<String>,
    json: bool,
    quick: bool,
}

impl FloorOptions {
    /// Reads the arguments after `floors`.
    pub fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Self { group: None, json: false, quick: false };
        for arg in args {
            match *arg {
                "--json" => options.json = true,
                "--quick" => options.quick = true,
                group if GROUPS.contains(&group) && options.group.is_none() => {
                    options.group = Some(group.to_owned());
                }
                other => {
                    let groups = GROUPS.join(", ");
                    return Err(format!("floors does not know {other}; groups are {groups}"));
                }
            }
        }
        Ok(options)
    }
}

/// Measures the groups and prints the results.
pub fn run(root: &Path, options: &FloorOptions) -> Result<Outcome, String> {
    let text = std::fs::read_to_string(root.join(FLOORS))
        .map_err(|error| format!("cannot read {FLOORS}: {error}"))?;
    let rows = rows::parse(&text)?;
    let groups: Vec<&str> = match &options.group {
        Some(group) => vec![group],
        None => GROUPS.into_iter().filter(|g| rows.iter().any(|row| row.group == *g)).collect(),
    };
    for group in groups {
        let rows: Vec<_> = rows.iter().filter(|row| row.group == group).collect();
        if rows.is_empty() {
            return Err(format!("the group {group} has no rows in {FLOORS} yet"));
        }
        let reported = measure(root, group, options.quick)?;
        let joined = join::join(group, &rows, &reported)?;
        if options.json {
            println!("{}", joined.json());
        } else {
            print!("{}", joined.table());
        }
    }
    Ok(Outcome::Clean)
}

/// The output of the command that measures `group`.
fn measure(root: &Path, group: &str, quick: bool) -> Result<String, String> {
    let command: &[&str] = match group {
        "volume" | "write-only" => &["bench", "volume", "--suite", group],
        "tree" => &["bench", "tree", "--floors"],
        "pager" => &["bench", "pager"],
        "cloud" => &["bench", "cloud", "--floors"],
        "audit" => &["bench", "auditor"],
        "sim" => &["bench", "simulator"],
        "size" => return size::measure(root, quick),
        "python" => {
            let mut script = Command::new(root.join("tests/python/floors.sh"));
            script.arg("--json").args(quick.then_some("--quick"));
            return output_of(&mut script);
        }
        _ => return Err(format!("no command measures the group {group} yet")),
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--release", "--package", "traceless-lab", "--package", "traceless-cli"]);
    build.args(["--features", "traceless-cli/engines"]);
    build.current_dir(root);
    let status = build.status().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !status.success() {
        return Err("traceless-lab does not build".to_owned());
    }
    let mut bench = Command::new(target_folder(root).join("release/traceless-lab"));
    bench.args(command).arg("--json").args(quick.then_some("--quick"));
    output_of(&mut bench)
}

fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

fn output_of(command: &mut Command) -> Result<String, String> {
    let name = format!("{command:?}");
    // Errors and progress go straight to the user's terminal.
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run {name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name} failed: {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{name} printed something unreadable"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_in_any_order() {
        let options = FloorOptions::parse(&["--quick", "volume", "--json"]).expect("options");
        assert_eq!(options, FloorOptions { group: Some("volume".into()), json: true, quick: true });
        assert!(FloorOptions::parse(&["volume", "tree"]).is_err());
        assert!(FloorOptions::parse(&["nothing"]).is_err());
    }

    #[test]
    fn a_group_without_rows_is_an_error_that_says_so() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("bench")).expect("folder");
        std::fs::write(folder.path().join(FLOORS), "row = []\n").expect("file");
        let options = FloorOptions::parse(&["cloud"]).expect("options");
        let error = run(folder.path(), &options).expect_err("no rows");
        assert!(error.contains("cloud has no rows"), "{error}");
    }

    #[test]
    fn a_command_that_fails_is_an_error() {
        let printed = output_of(Command::new("sh").args(["-c", "echo out"]));
        assert_eq!(printed, Ok("out\n".to_owned()));
        assert!(output_of(Command::new("sh").args(["-c", "exit 3"])).is_err());
        assert!(output_of(&mut Command::new("no-such-command")).is_err());
    }
}
