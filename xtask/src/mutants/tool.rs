//! cargo-mutants: installs it, lists mutants with it, and runs tests on them.

use super::config::Group;
use super::mutant::Mutant;
use crate::command::cargo;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const VERSION: &str = "27.1.0";

/// Exit codes of cargo-mutants: no mutant was missed; some were; some ran too long.
const DONE: [i32; 3] = [0, 2, 3];

/// cargo-mutants, for one copy of the repository.
pub struct Tool {
    program: PathBuf,
    tree: PathBuf,
    folder: PathBuf,
}

impl Tool {
    /// Installs cargo-mutants below the target folder of `root` if it is not there.
    pub fn install(root: &Path, tree: &Path) -> Result<Self, String> {
        let tools = root.join("target/tools");
        let program = tools.join("bin/cargo-mutants");
        let (tree, folder) = (tree.to_owned(), root.join("target/mutants"));
        let tool = Self { program, tree, folder };
        let version = Command::new(&tool.program).args(["mutants", "--version"]).output();
        let wanted = format!("cargo-mutants {VERSION}");
        if version.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).trim() == wanted) {
            return Ok(tool);
        }
        let mut install = Command::new(cargo());
        // It waits for builds and tests: optimizing it takes longer than it ever saves.
        install.args(["install", "--debug", "cargo-mutants", "--locked", "--version", VERSION]);
        install.arg("--root");
        let status = install.arg(&tools).status();
        if status.map_err(|error| format!("cannot run cargo: {error}"))?.success() {
            Ok(tool)
        } else {
            Err(format!("{wanted} cannot be installed"))
        }
    }

    /// All mutants of a group, or only the mutants of the lines of a diff.
    pub fn list(&self, group: &Group, diff: Option<&Path>) -> Result<Vec<Mutant>, String> {
        let mut command = self.command(group);
        command.arg("--list");
        if let Some(diff) = diff {
            command.arg("--in-diff").arg(diff);
        }
        let output = command.stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("cannot run cargo-mutants: {error}"))?;
        if !output.status.success() {
            return Err(format!("cargo-mutants cannot list {}: {}", group.name, output.status));
        }
        let names = String::from_utf8_lossy(&output.stdout);
        Ok(names.lines().filter_map(Mutant::parse).filter(is_of_product).collect())
    }

    /// The mutants with which the tests pass. cargo-mutants leaves its notes in the folder `out`.
    pub fn unnoticed(
        &self,
        group: &Group,
        mutants: &[Mutant],
        tests: &str,
        out: &str,
    ) -> Result<Vec<Mutant>, String> {
        let folder = self.folder.join("out").join(out);
        let failed = |error| format!("cannot write {}: {error}", folder.display());
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let patterns: Vec<String> = mutants.iter().map(Mutant::pattern).collect();
        let patterns = toml::Value::from(patterns);
        let config = folder.join("config.toml");
        std::fs::write(&config, format!("examine_re = {patterns}\n")).map_err(failed)?;
        let mut command = self.command(group);
        command.args(["--in-place", "--profile", "mutants", "--timeout-multiplier", "8"]);
        command.args(["--minimum-test-timeout", "60", "--build-timeout", "600"]);
        command.args(["--colors", "never", "--annotations", "none"]);
        command.arg("--config").arg(&config).arg("--output").arg(&folder);
        let mut words = tests.split_whitespace();
        command.arg("--test-package").args(words.next()).arg("--").args(words);
        command.env("CARGO_TARGET_DIR", self.folder.join("build"));
        let status = command.status();
        let status = status.map_err(|error| format!("cannot run cargo-mutants: {error}"))?;
        if !status.code().is_some_and(|code| DONE.contains(&code)) {
            return Err(format!("cargo-mutants failed with {status} at `cargo test {tests}`"));
        }
        let missed = folder.join("mutants.out/missed.txt");
        let text = std::fs::read_to_string(&missed);
        let text = text.map_err(|error| format!("cannot read {}: {error}", missed.display()))?;
        // cargo-mutants also tries deleted fields, which its `examine_re` does not filter.
        let is_chosen = |mutant: &Mutant| mutants.contains(mutant);
        Ok(text.lines().filter_map(Mutant::parse).filter(is_chosen).collect())
    }

    fn command(&self, group: &Group) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("mutants").arg("--dir").arg(&self.tree).args(["--package", &group.package]);
        for file in &group.files {
            command.arg("--file").arg(format!("crates/{}/src/{file}", group.package));
        }
        command.current_dir(&self.tree);
        command
    }
}

/// Whether a mutant is of code that users run. Changes of printed text need no test.
fn is_of_product(mutant: &Mutant) -> bool {
    let is_test = mutant.file.split('/').any(|part| part.starts_with("test"))
        || mutant.change.contains("tests::")
        || mutant.change.contains("mod tests");
    let is_printing =
        mutant.change.contains("fmt::Display") || mutant.change.contains("fmt::Debug");
    !is_test && !is_printing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_no_product() {
        for (name, is_product) in [
            ("crates/a/src/b.rs:1:1: replace f with ()", true),
            ("crates/a/src/b.rs:1:1: replace tests::f with ()", false),
            ("crates/a/src/tests.rs:1:1: replace f with ()", false),
            ("crates/a/src/testing.rs:1:1: replace f with ()", false),
            ("crates/a/src/tests/b.rs:1:1: replace f with ()", false),
        ] {
            assert_eq!(is_of_product(&Mutant::parse(name).unwrap()), is_product, "{name}");
        }
    }
}
