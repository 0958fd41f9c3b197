//! Each public module of a library has an example that runs as a test.
//!
//! The example is in the module's file, or in a file of one of its private modules: there it is on
//! an item that the module exports.

use super::Finding;
use super::tree::{RustFile, Tree};
use crate::rust_text::{line_of, without_tests};

/// Crates without an interface for other crates: programs, and a library that programs run with.
const NO_LIBRARIES: [&str; 4] =
    ["traceless-cli", "traceless-lab", "traceless-preload", "traceless-py"];

const REMEDY: &str = "show its main use in a code block of its documentation";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in &tree.rust {
        let krate = file.path.strip_prefix("crates/").and_then(|p| p.strip_suffix("/src/lib.rs"));
        if krate.is_some_and(|name| !name.contains('/') && !NO_LIBRARIES.contains(&name)) {
            let folder = file.path.strip_suffix("/lib.rs").expect("it ends with it");
            if !has_example(file) {
                found.push(Finding::new(&file.path, 1, "a crate without an example", REMEDY));
            }
            check_modules(tree, file, folder, &mut found);
        }
    }
    found
}

/// Checks the public modules that `file` declares, which lie in `folder`, and their own modules.
fn check_modules(tree: &Tree, file: &RustFile, folder: &str, found: &mut Vec<Finding>) {
    for (name, at, is_public) in modules(&without_tests(&file.code)) {
        let inner = format!("{folder}/{name}");
        let Some(module) = module_file(tree, &inner) else { continue };
        if is_public {
            if !has_example(module) && !private_modules_show(tree, module, &inner) {
                let what = format!("the public module {name} has no example");
                found.push(Finding::new(&file.path, line_of(&file.code, at), what, REMEDY));
            }
            check_modules(tree, module, &inner, found);
        }
    }
}

fn private_modules_show(tree: &Tree, module: &RustFile, folder: &str) -> bool {
    modules(&without_tests(&module.code)).iter().filter(|(.., is_public)| !is_public).any(
        |(name, ..)| {
            let inner = format!("{folder}/{name}");
            module_file(tree, &inner)
                .is_some_and(|file| has_example(file) || private_modules_show(tree, file, &inner))
        },
    )
}

/// The modules that code declares in files of their own: name, first byte, and whether it is
/// public.
fn modules(code: &str) -> Vec<(String, usize, bool)> {
    let mut found = Vec::new();
    let mut at = 0;
    for line in code.split_inclusive('\n') {
        let text = line.trim();
        let (is_public, rest) = match text.strip_prefix("pub mod ") {
            Some(rest) => (true, Some(rest)),
            None => (false, text.split_once("mod ").map(|(_, rest)| rest)),
        };
        if let Some(name) = rest.and_then(|rest| rest.strip_suffix(';')) {
            found.push((name.to_owned(), at, is_public));
        }
        at += line.len();
    }
    found
}

fn module_file<'a>(tree: &'a Tree, path: &str) -> Option<&'a RustFile> {
    let names = [format!("{path}.rs"), format!("{path}/mod.rs")];
    tree.rust.iter().find(|file| names.contains(&file.path))
}

/// Whether documentation in the file has a code block that is compiled and run.
fn has_example(file: &RustFile) -> bool {
    let comments = file.text.lines().map(str::trim_start);
    let docs = comments.filter_map(|l| l.strip_prefix("//!").or_else(|| l.strip_prefix("///")));
    let mut is_inside = false;
    for fence in docs.filter_map(|line| line.trim().strip_prefix("```")) {
        let opens = !is_inside;
        is_inside = opens;
        let is_run = fence
            .split(',')
            .all(|word| matches!(word.trim(), "" | "rust" | "standalone_crate" | "should_panic"));
        if opens && is_run {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds;
    use super::check;

    const SHOWN: &str = "//! ```\n//! assert!(true);\n//! ```\n";

    #[test]
    fn a_public_module_without_a_running_example_is_found() {
        let lib = format!("{SHOWN}pub mod a;\nmod b;\n#[cfg(test)]\npub mod c;\n");
        let (path, a) = ("crates/x/src/lib.rs", "crates/x/src/a.rs");
        let of = |text| [(path, lib.as_str()), (a, text), ("crates/x/src/b.rs", "")];
        finds(check, &of("//! Nothing.\n"), &[(path, 4)]);
        finds(check, &of("//! ```no_run\n//! f();\n//! ```\n"), &[(path, 4)]);
        finds(check, &of(SHOWN), &[]);
        finds(check, &[("crates/x/src/lib.rs", "//! Nothing.\n")], &[(path, 1)]);
        finds(check, &[("crates/traceless-cli/src/lib.rs", "pub mod a;\n"), (a, "")], &[]);
    }

    #[test]
    fn an_example_of_a_private_module_counts_for_the_module_around_it() {
        let lib = format!("{SHOWN}pub mod a;\n");
        let (path, a) = ("crates/x/src/lib.rs", "crates/x/src/a/mod.rs");
        let inner = "crates/x/src/a/i.rs";
        finds(check, &[(path, &lib), (a, "mod i;\npub use i::I;\n"), (inner, SHOWN)], &[]);
        finds(check, &[(path, &lib), (a, "pub mod i;\n"), (inner, SHOWN)], &[(path, 4)]);
    }
}
