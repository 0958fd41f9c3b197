//! `tests/mutants.toml`: groups of files with their tests, and mutants that no test can notice.

use super::mutant::Mutant;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;

/// The file with the groups.
const FILE: &str = "tests/mutants.toml";

/// The contents of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    group: Vec<Group>,
    #[serde(default)]
    equivalent: Vec<Equivalent>,
}

/// Files of one package, and the tests that must notice when one of them is changed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The name of the group on the command line.
    pub name: String,
    /// The package that the files belong to.
    pub package: String,
    /// Files below the package's `src`; `*.rs` stands for all of a folder.
    pub files: Vec<String>,
    /// The tests, the quickest first: a package, then arguments of `cargo test`.
    pub tests: Vec<String>,
}

/// A mutant that behaves like the code.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Equivalent {
    /// The file, from the root of the repository.
    file: String,
    /// A part of the line that is changed.
    code: String,
    /// The change, as cargo-mutants prints it.
    mutant: String,
    /// Why no test can notice it.
    reason: String,
}

impl Config {
    /// Reads the file in the repository at `root`.
    pub fn load(root: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(root.join(FILE));
        Self::parse(&text.map_err(|error| format!("cannot read {FILE}: {error}"))?)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| format!("{FILE}: {error}"))?;
        match config.equivalent.iter().find(|entry| entry.reason.trim().is_empty()) {
            Some(entry) => Err(format!("{FILE}: {} has no reason", entry.name())),
            None => Ok(config),
        }
    }

    /// The groups with these names; all groups if there are no names.
    pub fn named(&self, names: &[String]) -> Result<Vec<&Group>, String> {
        if names.is_empty() {
            return Ok(self.group.iter().collect());
        }
        let find = |name: &String| self.group.iter().find(|group| group.name == *name);
        let all = || self.group.iter().map(|group| &group.name[..]).collect::<Vec<_>>().join(", ");
        let unknown = |name| format!("there is no group {name}; groups are {}", all());
        names.iter().map(|name| find(name).ok_or_else(|| unknown(name))).collect()
    }

    /// Whether a mutant is listed as one that no test can notice. The number of its entry is added
    /// to `known`.
    pub fn find(&self, tree: &Path, mutant: &Mutant, known: &mut BTreeSet<usize>) -> bool {
        let text = std::fs::read_to_string(tree.join(&mutant.file)).unwrap_or_default();
        let line = text.lines().nth(mutant.line - 1).unwrap_or_default();
        let is_same = |entry: &&Equivalent| {
            entry.file == mutant.file && entry.mutant == mutant.change && line.contains(&entry.code)
        };
        let found: Vec<usize> =
            (0..).zip(&self.equivalent).filter(|(_, e)| is_same(e)).map(|(nth, _)| nth).collect();
        known.extend(&found);
        !found.is_empty()
    }

    /// Entries that are not in `known`: they match no mutant.
    pub fn stale(&self, known: &BTreeSet<usize>) -> Vec<String> {
        let entries = (0..).zip(&self.equivalent);
        entries.filter(|(nth, _)| !known.contains(nth)).map(|(_, entry)| entry.name()).collect()
    }
}

impl Group {
    /// Whether a file, named from the root of the repository, is one of the group's.
    pub fn has(&self, file: &str) -> bool {
        let src = format!("crates/{}/src/", self.package);
        let Some(file) = file.strip_prefix(&src) else { return false };
        self.files.iter().any(|own| match own.strip_suffix("*.rs") {
            Some(folder) => file.strip_prefix(folder).is_some_and(|name| !name.contains('/')),
            None => own == file,
        })
    }
}

impl Equivalent {
    fn name(&self) -> String {
        format!("{}: {} in `{}`", self.file, self.mutant, self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        [[group]]
        name = "one"
        package = "p"
        files = ["a.rs"]
        tests = ["p --lib"]

        [[equivalent]]
        file = "a.rs"
        code = "a + b"
        mutant = "replace + with - in f"
        reason = "b is zero"
    "#;

    #[test]
    fn equivalent_mutants_are_found_by_their_line() {
        let config = Config::parse(TEXT).unwrap();
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("a.rs"), "let x = a + c;\nlet y = a + b;\n").unwrap();
        let mut known = BTreeSet::new();
        for (line, is_known) in [(1, false), (2, true)] {
            let mutant = format!("a.rs:{line}:11: replace + with - in f");
            let mutant = Mutant::parse(&mutant).unwrap();
            assert_eq!(config.find(tree.path(), &mutant, &mut known), is_known);
        }
        assert!(config.stale(&known).is_empty());
        assert_eq!(config.stale(&BTreeSet::new()).len(), 1);
    }

    #[test]
    fn an_entry_without_a_reason_is_refused() {
        assert!(Config::parse(&TEXT.replace("b is zero", " ")).is_err());
        assert!(Config::parse(&TEXT.replace("reason", "because")).is_err());
    }

    #[test]
    fn groups_are_found_by_name() {
        let config = Config::parse(TEXT).unwrap();
        assert_eq!(config.named(&[]).unwrap().len(), 1);
        assert_eq!(config.named(&["one".to_owned()]).unwrap().len(), 1);
        assert!(config.named(&["two".to_owned()]).is_err());
    }

    #[test]
    fn a_group_has_its_files() {
        let text = TEXT.replace("a.rs\"]", "a.rs\", \"b/*.rs\"]");
        let config = Config::parse(&text).unwrap();
        for (file, is_own) in
            [("a.rs", true), ("b/c.rs", true), ("c.rs", false), ("b/c/d.rs", false)]
        {
            assert_eq!(config.group[0].has(&format!("crates/p/src/{file}")), is_own, "{file}");
            assert!(!config.group[0].has(&format!("crates/q/src/{file}")));
        }
    }

    #[test]
    fn the_repository_has_groups() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert!(Config::load(root).unwrap().group.len() > 5);
    }
}
