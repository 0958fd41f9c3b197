//! Names of types and modules: nouns of the field, and each type name once in a crate.

use std::collections::HashMap;

use super::Finding;
use super::imports::place;
use super::tree::Tree;
use crate::rust_text::{line_of, without_tests, words};

/// Participles, pronouns and figures of speech that name no type and no module.
const BANNED: [&str; 65] = [
    "Above",
    "Again",
    "Asked",
    "Asks",
    "Beat",
    "Beating",
    "Bell",
    "Board",
    "Cut",
    "Crew",
    "Desk",
    "Done",
    "Drawn",
    "Found",
    "Front",
    "Given",
    "Gone",
    "Held",
    "House",
    "It",
    "Joint",
    "Kept",
    "Known",
    "Lags",
    "Lead",
    "Left",
    "Listed",
    "Lost",
    "Made",
    "Meant",
    "Measured",
    "Mine",
    "Noted",
    "Odds",
    "Others",
    "Outside",
    "Own",
    "Parked",
    "Passed",
    "Printed",
    "Said",
    "Saved",
    "Seen",
    "Sent",
    "Served",
    "Sheet",
    "Shown",
    "Such",
    "Taken",
    "Tail",
    "Them",
    "Themselves",
    "They",
    "This",
    "Those",
    "Told",
    "Touched",
    "Trips",
    "Under",
    "Wants",
    "What",
    "Who",
    "Whose",
    "Wishes",
    "Written",
];

/// Names that several types of a crate may have.
const SHARED: [&str; 3] = ["Config", "Error", "Report"];

const NOUN: &str = "name it by a noun of the field";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut known: HashMap<(&str, String), &str> = HashMap::new();
    for file in tree.rust.iter().filter(|file| file.path.contains("/src/")) {
        let Some((root, modules)) = place(&file.path) else { continue };
        if modules.iter().any(|module| module.contains("test")) {
            continue;
        }
        if let Some(module) = modules.last().filter(|module| is_banned(module)) {
            found.push(Finding::new(&file.path, 1, format!("a module named {module}"), NOUN));
        }
        let code = without_tests(&file.code);
        let declared = declarations(&code, &["struct", "enum", "trait"]);
        let aliases = declarations(&code, &["type"]);
        for (line, name) in declared.iter().chain(&aliases).filter(|(_, name)| is_banned(name)) {
            found.push(Finding::new(&file.path, *line, format!("a type named {name}"), NOUN));
        }
        for (line, name) in declared {
            if SHARED.contains(&name.as_str()) {
                continue;
            }
            if let Some(first) = known.insert((root, name.clone()), &file.path) {
                let what = format!("a second type named {name}, besides the one in {first}");
                found.push(Finding::new(&file.path, line, what, "say in its name what it is of"));
            }
        }
    }
    found
}

/// Whether a name of a type, or of a module, is one of the banned words.
fn is_banned(name: &str) -> bool {
    BANNED.iter().any(|word| word.eq_ignore_ascii_case(name))
}

/// The names that stand behind some keywords, each with its line.
fn declarations(code: &str, keywords: &[&str]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for keyword in keywords {
        for at in words(code, keyword) {
            let rest = code[at + keyword.len()..].trim_start();
            let name: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !name.is_empty() {
                found.push((line_of(code, at), name));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds;
    use super::check;

    const LIB: &str = "crates/a/src/lib.rs";

    #[test]
    fn a_participle_as_a_name_is_found() {
        finds(check, &[(LIB, "struct Stash;\n\npub enum Told { A }\n")], &[(LIB, 3)]);
        finds(check, &[(LIB, "trait Make {\n    type Made;\n}\n")], &[(LIB, 2)]);
        let module = "crates/a/src/gateway/told.rs";
        finds(check, &[(module, "struct Stash;\n")], &[(module, 1)]);
        let folder = "crates/a/src/house/mod.rs";
        finds(check, &[(folder, "struct Stash;\n")], &[(folder, 1)]);
    }

    #[test]
    fn a_name_that_comes_twice_in_a_crate_is_found() {
        let other = "crates/a/src/other.rs";
        finds(check, &[(LIB, "struct Row;\n"), (other, "\ntrait Row {}\n")], &[(other, 2)]);
        let elsewhere = "crates/b/src/lib.rs";
        finds(check, &[(LIB, "struct Row;\n"), (elsewhere, "struct Row;\n")], &[]);
        finds(check, &[(LIB, "enum Error {}\n"), (other, "struct Error;\n")], &[]);
    }

    #[test]
    fn tests_are_free() {
        let tests = "crates/a/src/store/tests.rs";
        let text = "struct Row;\n#[cfg(test)]\nmod tests {\n    struct Row;\n    struct Seen;\n}\n";
        finds(check, &[(LIB, text), (tests, "struct Row;\nstruct Told;\n")], &[]);
    }
}
