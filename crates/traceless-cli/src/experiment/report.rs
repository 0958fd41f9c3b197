//! The outcome of an experiment, as JSON and as tables.

use super::metrics::{Counts, Values};
use super::sheet::{Metric, Sheet, VariantMetrics};
use super::text_table::TextTable;
use super::verdict::{Verdict, verdicts};
use crate::failure::Failure;
use crate::output::{say, shortened};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

#[derive(Serialize)]
pub struct Report {
    schema: &'static str,
    pub title: String,
    paper: String,
    place: String,
    remarks: Vec<String>,
    level: &'static str,
    #[serde(flatten)]
    extent: Map<String, Value>,
    #[serde(skip)]
    extent_in_words: String,
    pub workloads: Vec<String>,
    pub metrics: Vec<MetricReport>,
    pub verdicts: Vec<Verdict>,
}

/// A metric of all variants.
#[derive(Serialize)]
pub struct MetricReport {
    pub name: String,
    pub variants: Vec<Of>,
}

/// A metric of one variant.
#[derive(Serialize)]
pub struct Of {
    pub name: String,
    /// One for each workload, in their order.
    pub each: Vec<f64>,
    pub mean: f64,
    /// How far the means of single repeats are apart; `None` for one repeat.
    pub spread: Option<f64>,
    /// The standard deviation of the means of single repeats; `None` for one repeat.
    pub deviation: Option<f64>,
}

impl Report {
    pub fn new(sheet: &Sheet<'_>, counts: &Counts<'_>) -> Result<Self, Failure> {
        let metrics = sheet.metrics.iter().map(|metric| measured(sheet, counts, metric));
        let metrics = metrics.collect::<Result<Vec<_>, _>>()?;
        let values = |metric: &str, variant: &str| {
            let mut of = metrics.iter().filter(|m| m.name == metric).flat_map(|m| &m.variants);
            let of = of.find(|of| of.name == variant);
            let of = of.expect("names in claims were checked");
            let Of { each, mean, spread, deviation, .. } = of;
            Values { each: each.clone(), mean: *mean, spread: *spread, deviation: *deviation }
        };
        let verdicts = (sheet.claims.iter().zip(&sheet.shortfalls))
            .flat_map(|(claim, short)| verdicts(sheet.workloads, claim, short.as_ref(), &values))
            .collect();
        Ok(Self {
            schema: sheet.schema,
            title: sheet.title.to_owned(),
            paper: sheet.paper.to_owned(),
            place: sheet.place.to_owned(),
            remarks: sheet.remarks.to_vec(),
            level: sheet.level.name(),
            extent: sheet.extent_told.clone(),
            extent_in_words: sheet.extent.clone(),
            workloads: sheet.workloads.to_vec(),
            metrics,
            verdicts,
        })
    }

    /// Prints the report as text.
    pub fn print(&self) {
        say(&format!("{}, {}: {}", self.paper, self.place, self.title));
        say(&format!("{}: {}", self.level, self.extent_in_words));
        for metric in &self.metrics {
            let header = [metric.name.clone()].into_iter();
            let header = header.chain(metric.variants.iter().map(|of| of.name.clone()));
            let mut table = TextTable::new(header.collect());
            for (nth, workload) in self.workloads.iter().enumerate() {
                let cells = metric.variants.iter().map(|of| shortened(of.each[nth]));
                table.add_row([workload.clone()].into_iter().chain(cells));
            }
            if self.workloads.len() > 1 {
                let means = metric.variants.iter().map(|of| shortened(of.mean));
                table.add_row(["mean".to_owned()].into_iter().chain(means));
            }
            say(&format!("\n{table}"));
        }
        if !self.verdicts.is_empty() {
            say(&format!("\n{}", self.beside_the_paper()));
            for what in self.shortfalls() {
                say(&format!("too short to judge: {what}"));
            }
        }
        if !self.remarks.is_empty() {
            say(&format!("\n{}", self.remarks.join("\n")));
        }
    }

    /// The reasons why claims could not be judged, each once.
    pub fn shortfalls(&self) -> BTreeSet<&str> {
        self.verdicts.iter().filter_map(|verdict| verdict.too_short.as_deref()).collect()
    }

    fn beside_the_paper(&self) -> TextTable {
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

fn measured(
    sheet: &Sheet<'_>,
    counts: &Counts<'_>,
    metric: &Metric,
) -> Result<MetricReport, Failure> {
    let of = |(nth, variant): (usize, &VariantMetrics<'_>)| {
        let Values { each, mean, spread, deviation } = counts.values(metric, nth)?;
        Ok(Of { name: variant.name.to_owned(), each, mean, spread, deviation })
    };
    let variants = sheet.variants.iter().enumerate().map(of).collect::<Result<_, Failure>>()?;
    Ok(MetricReport { name: metric.name.clone(), variants })
}
