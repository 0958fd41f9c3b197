//! Unsafe code is only in named crates, and has a SAFETY comment each time.

use super::Finding;
use super::tree::{RustFile, Tree};
use crate::rust_text::{line_of, skip_blanks, words};

/// The crates that may hold unsafe code.
const UNSAFE_CRATES: [&str; 3] =
    ["crates/traceless-sys", "crates/traceless-pager", "crates/traceless-preload"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (folder, ..) in tree.manifests().filter(|(folder, ..)| is_watched(folder)) {
        for root in ["lib.rs", "main.rs"] {
            let path = format!("{folder}/src/{root}");
            let file = tree.rust.iter().find(|file| file.path == path);
            if file.is_some_and(|file| !forbids_unsafe(&file.code)) {
                let remedy = "begin with #![forbid(unsafe_code)]";
                found.push(Finding::new(&path, 1, "unsafe code is not forbidden", remedy));
            }
        }
    }
    found.extend(tree.rust.iter().flat_map(unexplained));
    found
}

fn is_watched(folder: &str) -> bool {
    let ours = folder == "xtask" || folder.starts_with("crates/");
    ours && !UNSAFE_CRATES.contains(&folder)
}

fn forbids_unsafe(code: &str) -> bool {
    code.match_indices("#![forbid(").any(|(at, _)| {
        let list = &code[at..];
        let end = list.find(')').unwrap_or(list.len());
        words(&list[..end], "unsafe_code").next().is_some()
    })
}

/// Unsafe blocks and unsafe impls without a SAFETY comment.
fn unexplained(file: &RustFile) -> Vec<Finding> {
    let code = &file.code;
    let text: Vec<&str> = file.text.lines().collect();
    let mut found = Vec::new();
    for at in words(code, "unsafe") {
        let next = &code[skip_blanks(code.as_bytes(), at + "unsafe".len())..];
        let line = line_of(code, at);
        if (next.starts_with('{') || next.starts_with("impl")) && !is_explained(&text, line) {
            let remedy = "say in a `// SAFETY:` comment just above why it is sound";
            found.push(Finding::new(&file.path, line, "unsafe without a reason", remedy));
        }
    }
    found
}

/// Whether the comment above the statement that holds `line` (counted from 1) gives a reason.
fn is_explained(text: &[&str], line: usize) -> bool {
    if text[line - 1].contains("// SAFETY:") {
        return true;
    }
    let mut above = text[..line - 1].iter().rev().map(|line| line.trim()).peekable();
    // The lines on which the statement began, and its attributes.
    while let Some(line) = above.peek() {
        let ends_something = line.is_empty() || line.ends_with([';', '{', '}', ',']);
        if line.starts_with("//") || (ends_something && !line.starts_with("#[")) {
            break;
        }
        above.next();
    }
    above.take_while(|line| line.starts_with("//")).any(|line| line.starts_with("// SAFETY:"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds;
    use super::check;

    #[test]
    fn a_crate_that_does_not_forbid_unsafe_is_found() {
        let manifest = ("crates/traceless/Cargo.toml", "");
        let path = "crates/traceless/src/lib.rs";
        for text in ["//! #![forbid(unsafe_code)]\n", "#![forbid(missing_docs)]\n"] {
            finds(check, &[manifest, (path, text)], &[(path, 1)]);
        }
        let fine = "//! Docs.\n#![forbid(unsafe_code, unused)]\n";
        finds(check, &[manifest, (path, fine)], &[]);
        let main = "xtask/src/main.rs";
        finds(check, &[("xtask/Cargo.toml", ""), (main, "fn main() {}\n")], &[(main, 1)]);
    }

    #[test]
    fn the_named_crates_may_be_unsafe() {
        let files =
            [("crates/traceless-sys/Cargo.toml", ""), ("crates/traceless-sys/src/lib.rs", "")];
        finds(check, &files, &[]);
    }

    #[test]
    fn unsafe_without_a_reason_is_found() {
        let path = "crates/traceless-sys/src/lib.rs";
        let cases = [
            ("fn f() {\n    unsafe { g() }\n}\n", 2),
            ("// Fast.\nunsafe impl Send for T {}\n", 2),
            ("fn f() {\n    // SAFETY: old.\n    g();\n    unsafe { g() }\n}\n", 4),
            ("fn f() {\n    // SAFETY: far.\n\n    unsafe { g() }\n}\n", 4),
            ("let a = \"// SAFETY:\n\";\nunsafe\n{ g() }\n", 3),
        ];
        for (text, line) in cases {
            finds(check, &[(path, text)], &[(path, line)]);
        }
    }

    #[test]
    fn unsafe_with_a_reason_is_fine() {
        let path = "crates/traceless-sys/src/lib.rs";
        let cases = [
            "fn f() {\n    // SAFETY: it is ours,\n    // and aligned.\n    unsafe { g() }\n}\n",
            "// SAFETY: aligned.\nlet a =\n    unsafe { g() };\n",
            "// SAFETY: no state.\n#[cfg(unix)]\nunsafe impl Send for T {}\n",
            "/// # Safety\n/// Aligned.\nunsafe fn f() {}\n// unsafe {\n",
        ];
        for text in cases {
            finds(check, &[(path, text)], &[]);
        }
    }
}
