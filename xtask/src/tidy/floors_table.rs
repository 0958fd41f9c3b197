//! The floors: `bench/floors.toml` can be read, and the tables in docs/performance.md agree with
//! it.

use std::path::Path;

use super::Finding;
use super::tree::Tree;
use crate::floors::rows::{self, FLOORS, Row};
use crate::rust_text::line_of;

const TABLES: &str = "docs/performance.md";
const BEGIN: &str = "<!-- floors:";
const END: &str = "<!-- /floors -->";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(floors) = tree.text(FLOORS) else { return Vec::new() };
    let rows = match rows::parse(floors) {
        Ok(rows) => rows,
        Err(error) => return vec![Finding::new(FLOORS, 1, error, "mend the row")],
    };
    let document = tree.text(TABLES).unwrap_or_default();
    match rewritten(document, &rows) {
        Err((line, what)) => vec![Finding::new(TABLES, line, what, "mend the marker")],
        Ok(expected) if expected == document => Vec::new(),
        Ok(expected) => {
            let same = document.lines().zip(expected.lines()).take_while(|(a, b)| a == b).count();
            let what = "the table of floors differs from bench/floors.toml";
            vec![Finding::new(TABLES, same + 1, what, "run `cargo xtask tidy --fix`")]
        }
    }
}

/// Rewrites the tables in docs/performance.md.
pub fn fix(root: &Path) -> Result<(), String> {
    let path = root.join(TABLES);
    let (Ok(document), Ok(floors)) =
        (std::fs::read_to_string(&path), std::fs::read_to_string(root.join(FLOORS)))
    else {
        return Ok(());
    };
    let fixed = rewritten(&document, &rows::parse(&floors)?)
        .map_err(|(line, what)| format!("{TABLES}:{line}: {what}"))?;
    if fixed != document {
        std::fs::write(&path, fixed).map_err(|error| format!("cannot write {TABLES}: {error}"))?;
    }
    Ok(())
}

/// `document` with each table between its markers rewritten from the rows; or the line of a wrong
/// marker.
fn rewritten(document: &str, rows: &[Row]) -> Result<String, (usize, String)> {
    let mut out = String::with_capacity(document.len());
    let mut rest = document;
    while let Some(at) = rest.find(BEGIN) {
        let line = line_of(document, document.len() - rest.len() + at);
        let wrong = |what: &str| (line, what.to_owned());
        let marker_end = rest[at..].find("-->").ok_or(wrong("a marker without an end"))? + at + 3;
        let group = rest[at + BEGIN.len()..marker_end - 3].trim();
        let table_end = rest.find(END).filter(|end| *end >= marker_end);
        let table_end = table_end.ok_or(wrong("a table of floors without its closing marker"))?;
        if !rows.iter().any(|row| row.group == group) {
            return Err((line, format!("no floors in the group {group}")));
        }
        out.push_str(&rest[..marker_end]);
        out.push_str("\n\n");
        out.push_str(&rows::markdown(rows, group));
        out.push('\n');
        out.push_str(END);
        rest = &rest[table_end + END.len()..];
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds;
    use super::*;

    const ROW: &str = "[[row]]\nname = \"fast\"\ngroup = \"volume\"\nunit = \"GB/s\"\nfloor = 2\n\
                       direction = \"at least\"\nmeasures = \"traceless volume bench\"\n";
    const TABLE: &str = "| row | floor | |\n|---|---|---|\n| fast | at least 2 GB/s |  |\n";

    fn document(table: &str) -> String {
        format!("# Title\n\n<!-- floors:volume -->\n\n{table}\n<!-- /floors -->\n\nEnd\n")
    }

    #[test]
    fn a_table_that_lags_behind_is_found_and_mended() {
        finds(check, &[(FLOORS, ROW), (TABLES, &document(TABLE))], &[]);
        finds(check, &[(FLOORS, ROW), (TABLES, "no table\n")], &[]);
        let old = document(&TABLE.replace('2', "1"));
        finds(check, &[(FLOORS, ROW), (TABLES, &old)], &[(TABLES, 7)]);

        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("bench")).expect("folder");
        std::fs::create_dir(folder.path().join("docs")).expect("folder");
        std::fs::write(folder.path().join(FLOORS), ROW).expect("file");
        std::fs::write(folder.path().join(TABLES), old).expect("file");
        fix(folder.path()).expect("mended");
        let fixed = std::fs::read_to_string(folder.path().join(TABLES)).expect("file");
        assert_eq!(fixed, document(TABLE));
    }

    #[test]
    fn a_wrong_marker_is_found() {
        for text in ["<!-- floors:volume -->\n", "<!-- floors:none -->\n<!-- /floors -->\n"] {
            finds(check, &[(FLOORS, ROW), (TABLES, &format!("\n{text}"))], &[(TABLES, 2)]);
        }
    }

    #[test]
    fn a_row_twice_is_found() {
        finds(check, &[(FLOORS, &format!("{ROW}{ROW}"))], &[(FLOORS, 1)]);
        finds(check, &[(FLOORS, "[[row]]\nname = \"x\"\n")], &[(FLOORS, 1)]);
    }
}
