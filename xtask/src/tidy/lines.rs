//! Lines: no longer than a screen, no tabs, no trailing blanks, a newline at the end.

use super::Finding;
use super::tree::{Tree, has_extension, is_script};

const CODE_COLUMNS_MAX: usize = 100;
const PROSE_COLUMNS_MAX: usize = 120;

pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.texts().flat_map(|(path, text)| check_text(path, text)).collect()
}

fn check_text(path: &str, text: &str) -> Vec<Finding> {
    let prose = has_extension(path, "md");
    let kinds = ["rs", "toml", "py", "c", "h"];
    if !prose && !is_script(path, text) && !kinds.iter().any(|kind| has_extension(path, kind)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut fenced = false;
    // `lines` would hide a carriage return.
    for (index, line) in text.split('\n').enumerate() {
        let fence = prose && line.trim_start().starts_with("```");
        fenced ^= fence;
        let columns =
            if prose { prose_columns(line, fenced || fence) } else { line.chars().count() };
        let limit = if prose { PROSE_COLUMNS_MAX } else { CODE_COLUMNS_MAX };
        let mut report = |what: String, remedy| {
            found.push(Finding::new(path, index + 1, what, remedy));
        };
        if columns > limit {
            report(format!("{columns} columns"), "break the line");
        }
        if line.contains('\t') {
            report("a tab".to_owned(), "use blanks");
        }
        if line.ends_with([' ', '\t', '\r']) {
            report("trailing blanks".to_owned(), "remove them");
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        let line = text.lines().count();
        found.push(Finding::new(path, line, "no newline at the end", "add one"));
    }
    found
}

/// The columns of a line of Markdown that can be broken: tables, code and link targets cannot.
fn prose_columns(line: &str, fenced: bool) -> usize {
    let indented_code = line.starts_with("    ") && !line.trim_start().starts_with(['-', '*']);
    if fenced || indented_code || line.trim_start().starts_with('|') {
        return 0;
    }
    let mut columns = line.chars().count();
    for (at, _) in line.match_indices("](") {
        let target = &line[at + 2..];
        columns -= target[..target.find(')').unwrap_or(target.len())].chars().count();
    }
    for word in line.split_whitespace().filter(|word| word.contains("://") && !word.contains("]("))
    {
        columns -= word.chars().count();
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds;
    use super::check;

    #[test]
    fn long_lines_are_found_in_code() {
        let fits = format!("//{}\n", "é".repeat(98));
        let long = format!("//{}\n", "é".repeat(99));
        for path in ["a.rs", "a.sh", "a.toml", "test", "quickstart", ".ci/run"] {
            finds(check, &[(path, &fits)], &[]);
            finds(check, &[(path, &long)], &[(path, 1)]);
        }
        finds(check, &[("Cargo.lock", &long)], &[]);
    }

    #[test]
    fn long_lines_are_found_in_prose_where_they_can_be_broken() {
        let long = "word ".repeat(25);
        let long = long.trim_end();
        finds(check, &[("a.md", &format!("x\n{long}\n"))], &[("a.md", 2)]);
        let exempt = [
            format!("| {long} |\n"),
            format!("```\n{long}\n```\n"),
            format!("[a](https://{})\n", "b".repeat(120)),
            format!("See https://{}\n", "b".repeat(120)),
        ];
        for text in exempt {
            finds(check, &[("a.md", &text)], &[]);
        }
        finds(check, &[("a.md", &format!("```\nx\n```\n{long}\n"))], &[("a.md", 4)]);
    }

    #[test]
    fn tabs_blanks_and_missing_newlines_are_found() {
        for (text, line) in [("a\n\tb\n", 2), ("a \n", 1), ("a\r\n", 1), ("a\nb", 2)] {
            finds(check, &[("a.rs", text)], &[("a.rs", line)]);
        }
        finds(check, &[("a.rs", ""), ("b.bin", "\t ")], &[]);
    }
}
