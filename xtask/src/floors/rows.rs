//! The rows of `bench/floors.toml`.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// The file with the floors.
pub const FLOORS: &str = "bench/floors.toml";

/// Every group that may have rows.
pub const GROUPS: [&str; 9] =
    ["volume", "write-only", "tree", "audit", "sim", "pager", "cloud", "python", "size"];

/// Which side of the floor is good.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Serialize, Debug)]
pub enum Direction {
    #[serde(rename = "at least")]
    AtLeast,
    #[serde(rename = "at most")]
    AtMost,
}

/// One floor.
#[derive(Clone, PartialEq, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub name: String,
    pub group: String,
    pub unit: String,
    pub floor: f64,
    pub direction: Direction,
    /// The command that measures it.
    pub measures: String,
    /// What exactly is measured.
    pub note: Option<String>,
    /// For a floor that is not met: what was tried, and the limit found.
    pub unmet: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Floors {
    row: Vec<Row>,
}

impl Row {
    /// Whether a measured value is on the good side.
    pub fn is_met(&self, measured: f64) -> bool {
        match self.direction {
            Direction::AtLeast => measured >= self.floor,
            Direction::AtMost => measured <= self.floor,
        }
    }

    /// How far on the good side a measured value is, as a part of the floor.
    pub fn distance(&self, measured: f64) -> f64 {
        let above = (measured - self.floor) / self.floor;
        match self.direction {
            Direction::AtLeast => above,
            Direction::AtMost => -above,
        }
    }

    /// The floor in words: `at least 2 GB/s`.
    pub fn in_words(&self) -> String {
        let direction = match self.direction {
            Direction::AtLeast => "at least",
            Direction::AtMost => "at most",
        };
        // A ratio needs no unit.
        let unit = if self.unit == "ratio" { String::new() } else { format!(" {}", self.unit) };
        format!("{direction} {}{unit}", self.floor)
    }
}

/// Reads and checks the floors.
pub fn parse(text: &str) -> Result<Vec<Row>, String> {
    let floors: Floors =
        toml::from_str(text).map_err(|error| format!("cannot be read: {}", error.message()))?;
    for (index, row) in floors.row.iter().enumerate() {
        let name = &row.name;
        if !GROUPS.contains(&row.group.as_str()) {
            return Err(format!("the row {name} is in {}, which is no group", row.group));
        }
        if !row.floor.is_finite() || row.floor <= 0.0 {
            return Err(format!("the row {name} has the floor {}", row.floor));
        }
        if floors.row[..index].iter().any(|other| other.name == *name) {
            return Err(format!("the row {name} appears twice"));
        }
    }
    Ok(floors.row)
}

/// The rows of a group as a Markdown table.
pub fn markdown(rows: &[Row], group: &str) -> String {
    let mut out = "| row | floor | |\n|---|---|---|\n".to_owned();
    for row in rows.iter().filter(|row| row.group == group) {
        let unmet = row.unmet.as_ref().map(|why| format!("Not met: {why}"));
        let notes: Vec<&str> = row.note.iter().chain(&unmet).map(String::as_str).collect();
        writeln!(out, "| {} | {} | {} |", row.name, row.in_words(), notes.join(" "))
            .expect("a string takes every line");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(direction: Direction) -> Row {
        Row {
            name: "a".into(),
            group: "volume".into(),
            unit: "ratio".into(),
            floor: 2.0,
            direction,
            measures: "x".into(),
            note: None,
            unmet: None,
        }
    }

    #[test]
    fn both_directions_know_their_good_side() {
        let least = row(Direction::AtLeast);
        assert!(least.is_met(2.0) && least.is_met(3.0) && !least.is_met(1.9));
        assert!((least.distance(3.0) - 0.5).abs() < 1e-9);
        let most = row(Direction::AtMost);
        assert!(most.is_met(2.0) && !most.is_met(2.1) && !most.is_met(f64::NAN));
        assert!((most.distance(3.0) + 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_group_or_a_floor_that_makes_no_sense_is_refused() {
        let text = "[[row]]\nname = \"a\"\ngroup = \"G\"\nunit = \"u\"\nfloor = F\n\
                    direction = \"D\"\nmeasures = \"m\"\n";
        let row = |group: &str, floor: &str, direction: &str| {
            parse(&text.replace('G', group).replace('F', floor).replace('D', direction))
        };
        assert!(row("volume", "1", "at least").is_ok());
        assert!(row("other", "1", "at least").is_err());
        assert!(row("volume", "0", "at least").is_err());
        assert!(row("volume", "1", "about").is_err());
    }

    #[test]
    fn the_table_says_what_was_tried() {
        let row = Row {
            note: Some("One thread.".into()),
            unmet: Some("the disk is slow.".into()),
            ..row(Direction::AtMost)
        };
        let table = markdown(&[row], "volume");
        let last = table.lines().last().expect("a row");
        assert_eq!(last, "| a | at most 2 | One thread. Not met: the disk is slow. |");
    }

    #[test]
    fn the_floors_of_this_repository_can_be_read() {
        let text = include_str!("../../../bench/floors.toml");
        let rows = parse(text).expect("floors");
        assert!(rows.iter().any(|row| row.group == "volume"));
    }
}
