//! Numbers that were recorded earlier and are not measured for a page: other libraries, and floors.

use serde::Deserialize;
use std::path::Path;
use traceless_sim::experiment::toml_file::parse_file;
use traceless_sim::experiment::{Error, Result};

/// A table with the words above it.
#[derive(PartialEq, Debug)]
pub struct RecordedTable {
    pub caption: String,
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// A row of `bench/floors.toml`.
#[derive(Deserialize)]
pub struct Floor {
    pub name: String,
    pub group: String,
    pub unit: String,
    #[serde(rename = "floor")]
    value: f64,
    direction: String,
    pub note: String,
    /// What was measured, of a floor that is not met.
    pub unmet: Option<String>,
}

#[derive(Deserialize)]
struct Floors {
    row: Vec<Floor>,
}

impl Floor {
    pub fn bound(&self) -> String {
        let Self { direction, value, unit, .. } = self;
        let unit = if unit == "ratio" { "" } else { unit };
        format!("{direction} {value} {unit}").trim_end().to_owned()
    }
}

/// The heading of the numbers in `bench/peers/README.md`.
const NUMBERS: &str = "\n## Numbers\n";

/// The numbers of other libraries, and the words about the machine before them.
pub fn peers(root: &Path) -> Result<(String, Vec<RecordedTable>)> {
    let path = root.join("bench/peers/README.md");
    let text = std::fs::read_to_string(&path).map_err(|e| Error::invalid(&path, &e))?;
    let (_, numbers) = text
        .split_once(NUMBERS)
        .ok_or_else(|| Error::invalid(&path, &"it has no section Numbers"))?;
    let numbers = numbers.split("\n## ").next().unwrap_or(numbers);
    let machine = numbers.trim_start().split("\n\n").next().unwrap_or_default();
    Ok((machine.replace('\n', " "), tables(numbers)))
}

/// The floors.
pub fn floors(root: &Path) -> Result<Vec<Floor>> {
    let path = root.join("bench/floors.toml");
    let floors: Floors = parse_file(&path)?.try_into().map_err(|e| Error::invalid(&path, &e))?;
    Ok(floors.row)
}

/// The tables of a text in Markdown.
fn tables(text: &str) -> Vec<RecordedTable> {
    let parts: Vec<&str> = text.split("\n\n").map(str::trim).collect();
    let mut found = vec![];
    for (nth, part) in parts.iter().enumerate().filter(|(_, part)| part.starts_with('|')) {
        let mut rows = part.lines().map(|line| {
            let cells = line.trim().trim_matches('|').split('|');
            cells.map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
        });
        let Some(header) = rows.next() else { continue };
        let caption = if nth == 0 { "" } else { parts[nth - 1] };
        let caption = caption.trim_end_matches(':').replace('\n', " ");
        // The second line separates.
        found.push(RecordedTable { caption, header, rows: rows.skip(1).collect() });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::catalog::tests::checkout;
    use super::*;

    #[test]
    fn tables_have_their_captions() {
        let text = "words\n\n2^16\nblocks:\n\n| a | b |\n|---|---|\n| 1 | x |\n| 2 | |\n\nend\n";
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let table = RecordedTable {
            caption: "2^16 blocks".to_owned(),
            header: row(["a", "b"]),
            rows: vec![row(["1", "x"]), row(["2", ""])],
        };
        assert_eq!(tables(text), [table]);
    }

    #[test]
    fn the_recorded_numbers_are_there() {
        let (machine, tables) = peers(&checkout()).unwrap();
        assert!(machine.contains("rustc"), "{machine}");
        assert!(tables.len() >= 6 && tables.iter().all(|table| table.header.len() == 5));
        assert!(tables.iter().all(|t| t.rows.iter().all(|row| row.len() == t.header.len())));
        let floors = floors(&checkout()).unwrap();
        assert!(floors.len() > 50 && floors.iter().any(|floor| floor.unmet.is_some()));
        assert_eq!(floors[0].bound(), "at least 0.58");
    }
}
