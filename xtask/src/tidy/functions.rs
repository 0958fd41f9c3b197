//! A function fits a screen, or has a comment with the reason why not.

use super::Finding;
use super::tree::Tree;
use crate::rust_text;

const LINES_MAX: usize = 70;
const WAIVER: &str = "// tidy: long function because ";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in &tree.rust {
        let text: Vec<&str> = file.text.lines().collect();
        for function in rust_text::functions(&file.code) {
            let lines = function.last_line - function.first_line + 1;
            if lines > LINES_MAX && !is_waived(&text, function.first_line) {
                let what = format!("{} has {lines} lines", function.name);
                let remedy = "split it, or write `// tidy: long function because ...` above it";
                found.push(Finding::new(&file.path, function.first_line, what, remedy));
            }
        }
    }
    found
}

/// Whether the comments and attributes above `line` (counted from 1) hold a waiver with a reason.
fn is_waived(text: &[&str], line: usize) -> bool {
    let above = text[..line - 1].iter().rev().map(|line| line.trim());
    let mut heading = above.take_while(|line| line.starts_with("//") || line.starts_with("#["));
    heading.any(|line| line.strip_prefix(WAIVER).is_some_and(|reason| !reason.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds;
    use super::{LINES_MAX, check};

    fn function(lines: usize) -> String {
        format!("pub fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    #[test]
    fn a_long_function_is_found() {
        finds(check, &[("a.rs", &function(LINES_MAX))], &[]);
        finds(check, &[("a.rs", &function(LINES_MAX + 1))], &[("a.rs", 1)]);
    }

    #[test]
    fn only_a_waiver_with_a_reason_helps() {
        let long = function(LINES_MAX + 1);
        let waived = "// tidy: long function because it is one table.\n";
        finds(check, &[("a.rs", &format!("{waived}{long}"))], &[]);
        finds(check, &[("a.rs", &format!("{waived}/// Docs.\n#[inline]\n{long}"))], &[]);
        finds(check, &[("a.rs", &format!("{waived}\n{long}"))], &[("a.rs", 3)]);
        let empty = "// tidy: long function because \n";
        finds(check, &[("a.rs", &format!("{empty}{long}"))], &[("a.rs", 2)]);
    }
}
