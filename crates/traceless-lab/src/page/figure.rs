//! The numbers of a figure, from the report of its experiment: what is drawn, and what became of
//! the claims.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What the page has of one experiment.
#[derive(Default, Debug)]
pub struct FigureNumbers {
    pub charts: Vec<Chart>,
    pub claims: Vec<ClaimRow>,
    /// The reasons why claims could not be judged, each once.
    pub shortfalls: Vec<String>,
}

/// A metric of several variants with several workloads.
#[derive(Serialize, PartialEq, Debug)]
pub struct Chart {
    pub metric: String,
    pub variants: Vec<String>,
    pub workloads: Vec<String>,
    /// The numbers of each variant, one for each workload and at last the mean over them if there
    /// are two or more.
    pub values: Vec<Vec<Option<f64>>>,
    /// The paper's numbers.
    pub marks: Vec<Mark>,
    /// Whether a claim is about this metric.
    #[serde(skip)]
    pub claimed: bool,
}

/// A number of the paper, by the places of its variant and its workload.
#[derive(Serialize, PartialEq, Debug)]
pub struct Mark {
    pub variant: usize,
    pub workload: usize,
    pub paper: f64,
}

/// A claim of the paper beside a run.
#[derive(PartialEq, Debug)]
pub struct ClaimRow {
    pub text: String,
    pub here: Option<f64>,
    pub paper: Option<f64>,
    pub rule: String,
    /// `None` if it was not judged.
    pub holds: Option<bool>,
}

/// The report of an experiment, but for what the page does not show.
#[derive(Deserialize)]
struct ExperimentReport {
    workloads: Vec<String>,
    metrics: Vec<Metric>,
    verdicts: Vec<Verdict>,
}

#[derive(Deserialize)]
struct Metric {
    name: String,
    variants: Vec<VariantValues>,
}

#[derive(Deserialize)]
struct VariantValues {
    name: String,
    each: Vec<Option<f64>>,
    mean: Option<f64>,
}

#[derive(Deserialize)]
struct Verdict {
    text: String,
    metric: String,
    variant: Option<String>,
    workload: Option<String>,
    paper: Option<f64>,
    measured: Option<f64>,
    rule: String,
    too_short: Option<String>,
    reproduced: Option<bool>,
}

/// The report of the suite of volumes.
#[derive(Deserialize)]
struct SuiteReport {
    rows: Vec<SuiteRow>,
}

#[derive(Deserialize)]
struct SuiteRow {
    subject: String,
    workload: String,
    ratio: Option<f64>,
    paper: Vec<Published>,
}

#[derive(Deserialize)]
struct Published {
    place: String,
    ratio: f64,
}

/// The mean over all workloads, as a workload.
pub const MEAN: &str = "mean";
const RATIO: &str = "speed, of the plain encrypted volume's";

impl FigureNumbers {
    /// From the JSON of an experiment.
    pub fn of_experiment(report: &Value) -> Result<Self, String> {
        let report: ExperimentReport = read(report)?;
        let mut shortfalls: Vec<String> = vec![];
        for short in report.verdicts.iter().filter_map(|verdict| verdict.too_short.clone()) {
            if !shortfalls.contains(&short) {
                shortfalls.push(short);
            }
        }
        let charts = report.metrics.iter().map(|metric| report.chart(metric)).collect();
        let claims = report.verdicts.into_iter().map(ClaimRow::from).collect();
        Ok(Self { charts, claims, shortfalls })
    }

    /// From the JSON of the suite of volumes; only the paper's numbers at `place` count.
    pub fn of_suite(report: &Value, place: &str, shortfall: Option<&str>) -> Result<Self, String> {
        let SuiteReport { rows } = read(report)?;
        let names = |name: fn(&SuiteRow) -> &String| {
            let mut names: Vec<String> = vec![];
            for row in &rows {
                if !names.contains(name(row)) {
                    names.push(name(row).clone());
                }
            }
            names
        };
        let (variants, workloads) = (names(|row| &row.subject), names(|row| &row.workload));
        let mut values = vec![vec![None; workloads.len()]; variants.len()];
        let (mut marks, mut claims) = (vec![], vec![]);
        for row in &rows {
            let at = |names: &[String], name: &String| names.iter().position(|n| n == name);
            let (Some(variant), Some(workload)) =
                (at(&variants, &row.subject), at(&workloads, &row.workload))
            else {
                continue;
            };
            values[variant][workload] = row.ratio;
            // `Figure 7a` is in a file of `Figure 7a and 7b`.
            for published in row.paper.iter().filter(|paper| place.starts_with(&paper.place)) {
                let paper = published.ratio;
                marks.push(Mark { variant, workload, paper });
                claims.push(ClaimRow {
                    text: format!("{}, {}", row.subject, row.workload),
                    here: row.ratio,
                    paper: Some(paper),
                    rule: "-".to_owned(),
                    holds: None,
                });
            }
        }
        let metric = RATIO.to_owned();
        let chart = Chart { metric, variants, workloads, values, marks, claimed: true };
        let shortfalls = shortfall.map(str::to_owned).into_iter().collect();
        Ok(Self { charts: vec![chart], claims, shortfalls })
    }

    /// The charts to draw: of metrics that a claim is about, or else the first.
    pub fn drawn(&self) -> Vec<&Chart> {
        let claimed: Vec<&Chart> = self.charts.iter().filter(|chart| chart.claimed).collect();
        if claimed.is_empty() { self.charts.iter().take(1).collect() } else { claimed }
    }

    /// How many claims were judged to hold, and not to hold.
    pub fn judged(&self) -> [usize; 2] {
        let count = |holds| self.claims.iter().filter(|claim| claim.holds == Some(holds)).count();
        [count(true), count(false)]
    }
}

impl ExperimentReport {
    fn chart(&self, metric: &Metric) -> Chart {
        let mut workloads = self.workloads.clone();
        let has_mean = workloads.len() > 1;
        workloads.extend(has_mean.then(|| MEAN.to_owned()));
        let values = metric.variants.iter().map(|variant| {
            let mean = has_mean.then_some(variant.mean);
            variant.each.iter().copied().chain(mean).collect()
        });
        let about = || self.verdicts.iter().filter(|verdict| verdict.metric == metric.name);
        let places: BTreeMap<&str, usize> =
            metric.variants.iter().enumerate().map(|(at, v)| (v.name.as_str(), at)).collect();
        let mark = |verdict: &Verdict| {
            let variant = *places.get(verdict.variant.as_deref()?)?;
            let workload = match &verdict.workload {
                Some(name) => workloads.iter().position(|other| other == name)?,
                None => workloads.len() - 1,
            };
            Some(Mark { variant, workload, paper: verdict.paper? })
        };
        let mut marks: Vec<Mark> = vec![];
        for mark in about().filter_map(mark) {
            if !marks.contains(&mark) {
                marks.push(mark);
            }
        }
        Chart {
            metric: metric.name.clone(),
            variants: metric.variants.iter().map(|variant| variant.name.clone()).collect(),
            values: values.collect(),
            claimed: about().next().is_some(),
            marks,
            workloads,
        }
    }
}

impl From<Verdict> for ClaimRow {
    fn from(verdict: Verdict) -> Self {
        let Verdict { text, variant, workload, paper, measured, rule, reproduced, .. } = verdict;
        let names: Vec<String> = [variant, workload].into_iter().flatten().collect();
        let text = if names.is_empty() { text } else { format!("{text} ({})", names.join(", ")) };
        Self { text, here: measured, paper, rule, holds: reproduced }
    }
}

fn read<T: serde::de::DeserializeOwned>(report: &Value) -> Result<T, String> {
    T::deserialize(report).map_err(|e| format!("the report is none: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn verdict(variant: &Value, workload: &Value, paper: &Value, short: &Value) -> Value {
        json!({
            "text": "it gains", "metric": "speed", "variant": variant, "workload": workload,
            "paper": paper, "measured": 2.0, "rule": "± 1",
            "reproduced": if short.is_null() { json!(true) } else { Value::Null },
            "too_short": short,
        })
    }

    #[test]
    fn a_report_becomes_charts_and_claims() {
        let variant = |name: &str| json!({ "name": name, "each": [1.0, null], "mean": 1.5 });
        let report = json!({
            "title": "t", "workloads": ["mcf", "lbm"],
            "metrics": [
                { "name": "speed", "variants": [variant("a"), variant("b")] },
                { "name": "other", "variants": [variant("a")] },
            ],
            "verdicts": [
                verdict(&json!("b"), &json!("lbm"), &json!(3.0), &json!("100 of 200 records")),
                verdict(&json!("a"), &Value::Null, &json!(1.25), &json!("100 of 200 records")),
                verdict(&Value::Null, &Value::Null, &Value::Null, &Value::Null),
            ],
        });
        let numbers = FigureNumbers::of_experiment(&report).unwrap();
        let [chart] = &numbers.drawn()[..] else { panic!("{numbers:?}") };
        assert_eq!(chart.workloads, ["mcf", "lbm", MEAN]);
        assert_eq!(chart.values[1], [Some(1.0), None, Some(1.5)]);
        let mark = |variant, workload, paper| Mark { variant, workload, paper };
        assert_eq!(chart.marks, [mark(1, 1, 3.0), mark(0, 2, 1.25)]);
        assert_eq!(numbers.charts.len(), 2);
        assert_eq!(numbers.shortfalls, ["100 of 200 records"]);
        assert_eq!(numbers.judged(), [1, 0]);
        assert_eq!(numbers.claims[0].text, "it gains (b, lbm)");
        assert_eq!((numbers.claims[0].holds, numbers.claims[2].holds), (None, Some(true)));
        assert!(FigureNumbers::of_experiment(&json!({})).is_err());
    }

    #[test]
    fn one_workload_has_no_mean_and_an_unclaimed_metric_is_drawn_if_no_other_is() {
        let report = json!({
            "workloads": ["mcf"], "verdicts": [],
            "metrics": [{
                "name": "x", "variants": [{ "name": "a", "each": [1.0], "mean": 1.0 }],
            }],
        });
        let numbers = FigureNumbers::of_experiment(&report).unwrap();
        assert_eq!(numbers.drawn()[0].workloads, ["mcf"]);
    }

    #[test]
    fn the_suites_rows_are_beside_the_numbers_of_their_place() {
        let row = |subject: &str, ratio: f64| {
            json!({
                "subject": subject, "workload": "read", "ratio": ratio,
                "paper": [
                    { "place": "Table 1", "ratio": 0.25 }, { "place": "Table 2", "ratio": 0.5 },
                ],
            })
        };
        let report = json!({ "rows": [row("plain", 1.0), row("sq", 0.75)] });
        let numbers = FigureNumbers::of_suite(&report, "Table 2", Some("a quarter")).unwrap();
        let chart = &numbers.charts[0];
        assert_eq!(chart.values, [[Some(1.0)], [Some(0.75)]]);
        assert_eq!(chart.marks[1], Mark { variant: 1, workload: 0, paper: 0.5 });
        assert_eq!(numbers.claims[1].text, "sq, read");
        assert_eq!((numbers.judged(), numbers.shortfalls.len()), ([0, 0], 1));
    }
}
