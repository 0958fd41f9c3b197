//! Tests that documents cite as proof of a claim exist under that name.

use std::collections::HashSet;

use super::Finding;
use super::tree::{Tree, has_extension};

/// Where claims and invariants are, each with its test.
const CITING: [&str; 3] = ["docs/security/", "docs/threat-model.md", "ARCHITECTURE.md"];

/// Names of the tests that `./test quick` leaves out.
const SLOW: &str = "tests/slow_tests.txt";

/// Underscores of a name, at least, that is taken for the name of a test.
const UNDERSCORES_MIN: usize = 3;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut names = HashSet::new();
    for file in &tree.rust {
        names.extend(file.code.split(|c| !is_word(c)));
    }
    let mut found = Vec::new();
    for (index, line) in tree.text(SLOW).unwrap_or_default().lines().enumerate() {
        let name = line.rsplit("::").next().unwrap_or(line);
        if !line.starts_with('#') && !names.contains(name) {
            let what = format!("{name}, which no code has");
            found.push(Finding::new(SLOW, index + 1, what, "name a test, or leave it out"));
        }
    }
    for (path, text) in tree.texts().filter(|(path, _)| has_extension(path, "md")) {
        if !CITING.iter().any(|start| path.starts_with(start)) {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            for name in line.split('`').skip(1).step_by(2) {
                let is_test = name.matches('_').count() >= UNDERSCORES_MIN
                    && name.chars().all(|c| is_word(c) && !c.is_uppercase());
                if is_test && !names.contains(name) {
                    let what = format!("{name}, which no code has");
                    found.push(Finding::new(path, index + 1, what, "name the test that does it"));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds;
    use super::check;

    #[test]
    fn a_test_that_is_cited_and_not_there_is_found() {
        let code =
            ("crates/a/src/lib.rs", "fn no_crash_loses_writes() {}\n// other_test_of_it_all\n");
        let claims = "| a | `no_crash_loses_writes` |\n| b | `other_test_of_it_all`, `a_b_c` |\n";
        finds(check, &[code, ("docs/security/a.md", claims)], &[("docs/security/a.md", 2)]);
        finds(check, &[code, ("docs/guide.md", claims)], &[]);
        let slow = "# Tests.\na::tests::no_crash_loses_writes\na::tests::gone\n";
        finds(check, &[code, (super::SLOW, slow)], &[(super::SLOW, 3)]);
    }
}
