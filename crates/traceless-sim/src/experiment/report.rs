//! The outcome of an experiment, as JSON and as tables.

use super::Result;
use super::metrics::{RunCounts, Values};
use super::spec::{Metric, Spec, VariantMetrics};
use super::text_table::{TextTable, shortened};
use super::verdict::{Verdict, verdicts};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;

/// The outcome of an experiment.
#[derive(Serialize)]
pub struct Report {
    schema: &'static str,
    /// What the report is about.
    pub title: String,
    paper: String,
    place: String,
    remarks: Vec<String>,
    level: &'static str,
    #[serde(flatten)]
    extent: Map<String, Value>,
    #[serde(skip)]
    extent_in_words: String,
    /// Names of the workloads.
    pub workloads: Vec<String>,
    /// The metrics, in the order of the experiment's file.
    pub metrics: Vec<MetricReport>,
    /// What became of the paper's claims.
    pub verdicts: Vec<Verdict>,
}

/// A metric of all variants.
#[derive(Serialize)]
pub struct MetricReport {
    /// The name of the metric.
    pub name: String,
    /// The metric of each variant.
    pub variants: Vec<VariantReport>,
}

/// A metric of one variant.
#[derive(Serialize)]
pub struct VariantReport {
    /// The name of the variant.
    pub name: String,
    /// One for each workload, in their order.
    pub each: Vec<f64>,
    /// The mean over all workloads.
    pub mean: f64,
    /// How far the means of single repeats are apart; `None` for one repeat.
    pub spread: Option<f64>,
    /// The standard deviation of the means of single repeats; `None` for one repeat.
    pub deviation: Option<f64>,
}

impl Report {
    /// The metrics and verdicts of an experiment after all of its runs.
    pub(super) fn new(spec: &Spec<'_>, counts: &RunCounts<'_>) -> Result<Self> {
        let metrics = spec.metrics.iter().map(|metric| metric_report(spec, counts, metric));
        let metrics = metrics.collect::<Result<Vec<_>>>()?;
        let values = |metric: &str, variant: &str| {
            let mut of = metrics.iter().filter(|m| m.name == metric).flat_map(|m| &m.variants);
            let of = of.find(|of| of.name == variant);
            let of = of.expect("names in claims were checked");
            let VariantReport { each, mean, spread, deviation, .. } = of;
            Values { each: each.clone(), mean: *mean, spread: *spread, deviation: *deviation }
        };
        let verdicts = (spec.claims.iter().zip(&spec.shortfalls))
            .flat_map(|(claim, short)| verdicts(spec.workloads, claim, short.as_ref(), &values))
            .collect();
        Ok(Self {
            schema: spec.schema,
            title: spec.title.to_owned(),
            paper: spec.paper.to_owned(),
            place: spec.place.to_owned(),
            remarks: spec.remarks.to_vec(),
            level: spec.level.name(),
            extent: spec.extent_json.clone(),
            extent_in_words: spec.extent.clone(),
            workloads: spec.workloads.to_vec(),
            metrics,
            verdicts,
        })
    }

    /// The reasons why claims could not be judged, each once.
    pub(super) fn shortfalls(&self) -> BTreeSet<&str> {
        self.verdicts.iter().filter_map(|verdict| verdict.too_short.as_deref()).collect()
    }

    fn claims_table(&self) -> TextTable {
        let header = ["claim", "here", "paper", "deviation", "rule", "verdict"];
        let mut table = TextTable::new(header.map(str::to_owned).to_vec());
        for verdict in &self.verdicts {
            let Verdict { text, variant, workload, measured, paper, rule, reproduced, .. } =
                verdict;
            let claim = workload.as_ref().map_or(text.clone(), |name| format!("{text}, {name}"));
            let number = |value: Option<f64>| value.map_or("-".to_owned(), shortened);
            // For a claim about an order, `measured` is the number of variants that are out of
            // place.
            let here = match variant {
                Some(_) if measured.is_nan() => "-".to_owned(),
                Some(_) => shortened(*measured),
                None => format!("{measured} misplaced"),
            };
            table.add_row([
                claim,
                here,
                number(*paper),
                paper.map_or("-".to_owned(), |paper| format!("{:+.3}", measured - paper)),
                rule.clone(),
                match reproduced {
                    Some(true) => "reproduced",
                    Some(false) => "NOT reproduced",
                    None => "too short to judge",
                }
                .to_owned(),
            ]);
        }
        table
    }
}

fn metric_report(spec: &Spec<'_>, counts: &RunCounts<'_>, metric: &Metric) -> Result<MetricReport> {
    let of = |(nth, variant): (usize, &VariantMetrics<'_>)| {
        let Values { each, mean, spread, deviation } = counts.values(metric, nth)?;
        Ok(VariantReport { name: variant.name.to_owned(), each, mean, spread, deviation })
    };
    let variants = spec.variants.iter().enumerate().map(of).collect::<Result<_>>()?;
    Ok(MetricReport { name: metric.name.clone(), variants })
}

/// Text for people to read.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, {}: {}", self.paper, self.place, self.title)?;
        write!(f, "{}: {}", self.level, self.extent_in_words)?;
        for metric in &self.metrics {
            write!(f, "\n\n{}", metric.table(&self.workloads))?;
        }
        if !self.verdicts.is_empty() {
            write!(f, "\n\n{}", self.claims_table())?;
            for what in self.shortfalls() {
                write!(f, "\ntoo short to judge: {what}")?;
            }
        }
        if !self.remarks.is_empty() {
            write!(f, "\n\n{}", self.remarks.join("\n"))?;
        }
        Ok(())
    }
}

impl MetricReport {
    fn table(&self, workloads: &[String]) -> TextTable {
        let header = [self.name.clone()].into_iter();
        let header = header.chain(self.variants.iter().map(|of| of.name.clone()));
        let mut table = TextTable::new(header.collect());
        for (nth, workload) in workloads.iter().enumerate() {
            let cells = self.variants.iter().map(|of| shortened(of.each[nth]));
            table.add_row([workload.clone()].into_iter().chain(cells));
        }
        if workloads.len() > 1 {
            let means = self.variants.iter().map(|of| shortened(of.mean));
            table.add_row(["mean".to_owned()].into_iter().chain(means));
        }
        table
    }
}
