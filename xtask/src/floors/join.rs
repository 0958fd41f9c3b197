//! Joins floors with their measurements.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::rows::Row;

/// The report of the measuring command. Fields that are not needed here are ignored.
#[derive(Deserialize)]
struct Report {
    schema: String,
    rows: Vec<Measurement>,
}

#[derive(Deserialize)]
struct Measurement {
    name: String,
    unit: String,
    /// `None` if it could not be measured here; then `why` has the reason.
    measured: Option<f64>,
    /// The spread of the repetitions, as a part of the measured value.
    spread: Option<f64>,
    why: Option<String>,
    absolute: Option<Absolute>,
}

/// The two values of a ratio to a control, on the machine where they were measured.
#[derive(Clone, Deserialize, Serialize)]
struct Absolute {
    unit: String,
    measured: f64,
    control: f64,
}

/// The outcome of a group.
#[derive(Serialize)]
pub struct Joined {
    group: String,
    rows: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    name: String,
    unit: String,
    floor: f64,
    measured: Option<f64>,
    spread: Option<f64>,
    met: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    absolute: Option<Absolute>,
    #[serde(skip)]
    in_words: String,
    #[serde(skip)]
    distance: Option<f64>,
}

/// Joins each floor with its measurement. A floor without one is an error.
pub fn join(group: &str, floors: &[&Row], reported: &str) -> Result<Joined, String> {
    let report: Report = serde_json::from_str(reported)
        .map_err(|error| format!("the report of {group} cannot be read: {error}"))?;
    let schema = format!("traceless.{group}.bench.v1");
    if report.schema != schema {
        return Err(format!("the report has the schema {}, not {schema}", report.schema));
    }
    let mut rows = Vec::new();
    for floor in floors {
        let name = &floor.name;
        let mut found = report.rows.iter().filter(|measurement| measurement.name == *name);
        let measurement =
            found.next().ok_or(format!("{} did not report the row {name}", floor.measures))?;
        if found.next().is_some() {
            return Err(format!("{} reported the row {name} twice", floor.measures));
        }
        if measurement.unit != floor.unit {
            return Err(format!("{name} was measured in {}, not {}", measurement.unit, floor.unit));
        }
        let Measurement { measured, spread, why, absolute, .. } = measurement;
        if measured.is_none() == why.is_none() {
            return Err(format!("{name} needs a measured value or a reason why there is none"));
        }
        rows.push(Line {
            name: name.clone(),
            unit: floor.unit.clone(),
            floor: floor.floor,
            measured: *measured,
            spread: *spread,
            met: measured.is_some_and(|measured| floor.is_met(measured)),
            why: why.clone(),
            absolute: absolute.clone(),
            in_words: floor.in_words(),
            distance: measured.map(|measured| floor.distance(measured)),
        });
    }
    Ok(Joined { group: group.to_owned(), rows })
}

impl Absolute {
    fn in_words(&self) -> String {
        let Self { unit, measured, control } = self;
        format!("{measured:.3} {unit}, its control {control:.3}")
    }
}

impl Joined {
    /// One JSON object.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings are always JSON")
    }

    /// A table for people.
    pub fn table(&self) -> String {
        let head = ["row", "measured", "floor", "distance", "spread", "met", "on this machine"];
        let mut cells = vec![head.map(str::to_owned)];
        cells.extend(self.rows.iter().map(|line| {
            [
                line.name.clone(),
                line.measured.map_or("not measured".to_owned(), |value| format!("{value:.3}")),
                line.in_words.clone(),
                line.distance.map_or(String::new(), |value| format!("{:+.1} %", value * 100.0)),
                line.spread.map_or(String::new(), |value| format!("{:.1} %", value * 100.0)),
                match &line.why {
                    None => if line.met { "yes" } else { "NO" }.to_owned(),
                    Some(why) => why.clone(),
                },
                line.absolute.as_ref().map_or(String::new(), Absolute::in_words),
            ]
        }));
        let mut widths = [0; 7];
        for row in &cells {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.len().max(*width);
            }
        }
        let mut out = format!("floors of the group {}\n", self.group);
        for row in &cells {
            let padded: Vec<String> =
                row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            writeln!(out, "{}", padded.join("  ").trim_end()).expect("a string takes every line");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{Direction, Row};
    use super::*;

    fn floor(name: &str, floor: f64, direction: Direction) -> Row {
        Row {
            name: name.into(),
            group: "volume".into(),
            unit: "GB/s".into(),
            floor,
            direction,
            measures: "the bench".into(),
            note: None,
            unmet: None,
        }
    }

    fn report(rows: &str) -> String {
        let head = r#""schema": "traceless.volume.bench.v1", "machine": {"cpus": 2}"#;
        format!("{{{head}, \"rows\": [{rows}]}}")
    }

    const FAST: &str = r#"{"name": "fast", "unit": "GB/s", "measured": 2.1, "spread": 0.05}"#;
    const SMALL: &str = r#"{"name": "small", "unit": "GB/s", "measured": 1.5, "spread": 0.0}"#;

    #[test]
    fn each_floor_finds_its_measurement() {
        let fast = floor("fast", 2.0, Direction::AtLeast);
        let small = floor("small", 1.0, Direction::AtMost);
        let joined = join("volume", &[&fast, &small], &report(&format!("{SMALL}, {FAST}")));
        let joined = joined.expect("joined");
        let expected = r#"{"group":"volume","rows":[{"name":"fast","unit":"GB/s","floor":2.0,"#
            .to_owned()
            + r#""measured":2.1,"spread":0.05,"met":true},{"name":"small","unit":"GB/s","#
            + r#""floor":1.0,"measured":1.5,"spread":0.0,"met":false}]}"#;
        assert_eq!(joined.json(), expected);
        let table = joined.table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[2], "fast   2.100     at least 2 GB/s  +5.0 %    5.0 %   yes");
        assert_eq!(lines[3], "small  1.500     at most 1 GB/s   -50.0 %   0.0 %   NO");
    }

    #[test]
    fn a_ratio_to_controls_says_what_it_is_made_of() {
        let fast = floor("fast", 2.0, Direction::AtLeast);
        let absolute = r#""absolute": {"unit": "us", "measured": 4.2, "control": 2.0}}"#;
        let row = FAST.replace('}', &format!(", {absolute}"));
        let joined = join("volume", &[&fast], &report(&row)).expect("joined");
        let absolute = r#""absolute":{"unit":"us","measured":4.2,"control":2.0}}"#;
        assert!(joined.json().contains(absolute), "{}", joined.json());
        assert!(joined.table().contains("4.200 us, its control 2.000"), "{}", joined.table());
    }

    #[test]
    fn a_row_that_cannot_be_measured_says_why_and_is_not_met() {
        let fast = floor("fast", 2.0, Direction::AtLeast);
        let nothing =
            r#"{"name": "fast", "unit": "GB/s", "measured": null, "spread": null, "why": "no"}"#;
        let joined = join("volume", &[&fast], &report(nothing)).expect("joined");
        let expected = r#"{"group":"volume","rows":[{"name":"fast","unit":"GB/s","floor":2.0,"#
            .to_owned()
            + r#""measured":null,"spread":null,"met":false,"why":"no"}]}"#;
        assert_eq!(joined.json(), expected);
        assert!(joined.table().contains("not measured"), "{}", joined.table());
        let both = nothing.replacen("null", "2.1", 1);
        assert!(join("volume", &[&fast], &report(&both)).is_err());
    }

    #[test]
    fn a_row_that_was_not_reported_is_an_error() {
        let floors =
            [floor("fast", 2.0, Direction::AtLeast), floor("gone", 1.0, Direction::AtMost)];
        let floors: Vec<&Row> = floors.iter().collect();
        let error = join("volume", &floors, &report(FAST)).err().expect("an error");
        assert_eq!(error, "the bench did not report the row gone");
    }

    #[test]
    fn a_report_that_does_not_fit_is_an_error() {
        let fast = floor("fast", 2.0, Direction::AtLeast);
        let cases = [
            report(&format!("{FAST}, {FAST}")),
            report(&FAST.replace("GB/s", "MB/s")),
            report(&FAST.replace("2.1", "null")),
            report(FAST).replace("bench.v1", "bench.v2"),
            "no JSON".to_owned(),
        ];
        for case in cases {
            assert!(join("volume", &[&fast], &case).is_err(), "{case}");
        }
    }
}
