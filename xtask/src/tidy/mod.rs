//! `cargo xtask tidy`: rules that a program can check, one file for each.

mod blobs;
mod changelog;
mod circles;
mod citations;
mod crates;
mod document_words;
mod documents;
mod examples;
mod floors_table;
mod functions;
mod imports;
mod layering;
mod lines;
mod names;
mod prose;
mod schemas;
mod tree;
mod unsafe_code;
mod words;

use std::fmt;
use std::path::Path;

use crate::Outcome;
use tree::Tree;

type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: [Rule; 17] = [
    layering::check,
    circles::check,
    crates::check,
    unsafe_code::check,
    lines::check,
    functions::check,
    blobs::check,
    words::check,
    names::check,
    prose::check,
    documents::check,
    document_words::check,
    citations::check,
    examples::check,
    schemas::check,
    floors_table::check,
    changelog::check,
];

/// One breach of one rule.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Finding {
    path: String,
    line: usize,
    what: String,
    remedy: &'static str,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>, remedy: &'static str) -> Self {
        Self { path: path.to_owned(), line, what: what.into(), remedy }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}; {}", self.path, self.line, self.what, self.remedy)
    }
}

/// Checks the repository at `root`. If `fix` is set, mends what can be mended first.
pub fn run(root: &Path, fix: bool) -> Result<Outcome, String> {
    if fix {
        floors_table::fix(root)?;
    }
    let tree = Tree::load(root)?;
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    findings.sort();
    findings.dedup();
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        return Ok(Outcome::Clean);
    }
    eprintln!("tidy: {} findings in {} files", findings.len(), tree.files.len());
    Ok(Outcome::Findings)
}

/// Helpers for the tests of the rules.
#[cfg(test)]
mod testing {
    use super::{Finding, Rule, Tree};

    /// Runs `rule` on a repository of these files.
    pub fn check(rule: Rule, files: &[(&str, &str)]) -> Vec<Finding> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("files have folders")).expect("folder");
            std::fs::write(path, text).expect("file");
        }
        super::tree::git(folder.path(), &["init", "--quiet"]).expect("git init");
        rule(&Tree::load(folder.path()).expect("a tree"))
    }

    /// Fails unless `rule` finds breaches at exactly these places.
    #[track_caller]
    pub fn finds(rule: Rule, files: &[(&str, &str)], expected: &[(&str, usize)]) {
        let found = check(rule, files);
        let places: Vec<_> = found.iter().map(|f| (f.path.as_str(), f.line)).collect();
        assert_eq!(places, expected, "{found:#?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_where_what_and_what_to_do() {
        let finding = Finding::new("a/b.rs", 7, "a tab", "use blanks");
        assert_eq!(finding.to_string(), "a/b.rs:7: a tab; use blanks");
    }

    #[test]
    fn one_breach_makes_the_whole_run_fail() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        tree::git(folder.path(), &["init", "--quiet"]).expect("git init");
        std::fs::write(folder.path().join("CHANGELOG.md"), "## Unreleased\n").expect("file");
        std::fs::write(folder.path().join("README.md"), "See [it](CHANGELOG.md).\n").expect("file");
        assert_eq!(run(folder.path(), false), Ok(Outcome::Clean));
        std::fs::write(folder.path().join("a.rs"), "fn a() {} \n").expect("file");
        assert_eq!(run(folder.path(), false), Ok(Outcome::Findings));
    }
}
