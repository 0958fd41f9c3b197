//! Scripts read JSON by the name of its schema: each that a program prints is in the document.

use super::Finding;
use super::tree::Tree;
use crate::rust_text::line_of;

const DOCUMENT: &str = "docs/json.md";
/// How the literal of a name begins.
const BEGIN: &str = "\"traceless.";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let document = tree.text(DOCUMENT).unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let known: Vec<&str> = document.split(|c| !is_name(c)).collect();
    let mut found = Vec::new();
    for file in &tree.rust {
        for (at, _) in file.text.match_indices(BEGIN) {
            let name = file.text[at + 1..].split('"').next().unwrap_or_default();
            if is_schema(name) && name.chars().all(is_name) && !known.contains(&name) {
                let what = format!("the schema {name}, which {DOCUMENT} does not have");
                let line = line_of(&file.text, at);
                found.push(Finding::new(&file.path, line, what, "say there what its fields are"));
            }
        }
    }
    found
}

/// Whether a name ends with a version: names of files and metrics do not.
fn is_schema(name: &str) -> bool {
    let version = name.rsplit_once(".v").map(|(_, version)| version);
    version.is_some_and(|digits| digits.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds;
    use super::check;

    #[test]
    fn a_schema_that_the_document_lacks_is_found() {
        let code = ("crates/a/src/lib.rs", "f(\"traceless.a.v1\");\nf(\"traceless.toml\");\n");
        finds(check, &[code], &[("crates/a/src/lib.rs", 1)]);
        finds(check, &[code, ("docs/json.md", "## traceless.a.v12\n")], &[(code.0, 1)]);
        finds(check, &[code, ("docs/json.md", "| `traceless.a.v1`, of `a` | b |\n")], &[]);
    }
}
