//! What came of an experiment, as JSON and as tables.

use super::file::{Experiment, Metric};
use super::metrics::{Counts, Values};
use super::verdict::{Verdict, verdicts};
use crate::args::Level;
use crate::failure::Failure;
use crate::numbers::shortened;
use crate::output::{new_table, say};
use serde::Serialize;
use std::collections::BTreeSet;

#[derive(Serialize)]
pub struct Report {
    schema: &'static str,
    pub title: String,
    paper: String,
    place: String,
    remarks: Vec<String>,
    level: &'static str,
    /// Timed of each workload, and those before them.
    records: u64,
    warm_up: u64,
    /// Whether only those count that miss the last cache.
    in_misses: bool,
    pub workloads: Vec<String>,
    pub metrics: Vec<Measured>,
    pub verdicts: Vec<Verdict>,
}

/// A metric of all variants.
#[derive(Serialize)]
pub struct Measured {
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
    /// How far the means of single seeds are apart.
    pub spread: f64,
    /// Their standard deviation.
    pub deviation: f64,
}

impl Report {
    pub fn new(
        experiment: &Experiment,
        level: Level,
        counts: &Counts<'_>,
    ) -> Result<Self, Failure> {
        let metrics = experiment.metrics.iter().map(|metric| measured(experiment, counts, metric));
        let metrics = metrics.collect::<Result<Vec<_>, _>>()?;
        let values = |metric: &str, variant: &str| {
            let mut of = metrics.iter().filter(|m| m.name == metric).flat_map(|m| &m.variants);
            let of = of.find(|of| of.name == variant);
            let of = of.expect("names in claims were checked");
            let Of { each, mean, spread, deviation, .. } = of;
            Values { each: each.clone(), mean: *mean, spread: *spread, deviation: *deviation }
        };
        let verdicts = experiment
            .claims
            .iter()
            .flat_map(|claim| verdicts(experiment, level, claim, &values))
            .collect();
        Ok(Self {
            schema: "traceless.sim.run.v1",
            title: experiment.title.clone(),
            paper: experiment.paper.clone(),
            place: experiment.place.clone(),
            remarks: experiment.remarks.clone(),
            level: level.name(),
            records: experiment.extent(level).records,
            warm_up: experiment.extent(level).warm_up,
            in_misses: experiment.extent(level).in_misses,
            workloads: experiment.workloads(level).to_vec(),
            metrics,
            verdicts,
        })
    }

    /// Prints it for people.
    pub fn print(&self) {
        say(&format!("{}, {}: {}", self.paper, self.place, self.title));
        let Self { level, records, warm_up, .. } = self;
        let what = if self.in_misses { "misses of the last cache" } else { "records" };
        say(&format!("{level}: {records} {what} of each workload, after {warm_up} to warm up"));
        for metric in &self.metrics {
            let header = [metric.name.clone()].into_iter();
            let header = header.chain(metric.variants.iter().map(|of| of.name.clone()));
            let mut table = new_table(header.collect());
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

    /// What was too little for some claim to be judged by, each once.
    pub fn shortfalls(&self) -> BTreeSet<&str> {
        self.verdicts.iter().filter_map(|verdict| verdict.too_short.as_deref()).collect()
    }

    fn beside_the_paper(&self) -> comfy_table::Table {
        let header = ["claim", "here", "paper", "deviation", "rule", "verdict"];
        let mut table = new_table(header.map(str::to_owned).to_vec());
        for verdict in &self.verdicts {
            let Verdict { text, variant, workload, measured, paper, rule, reproduced, .. } =
                verdict;
            let claim = workload.as_ref().map_or(text.clone(), |name| format!("{text}, {name}"));
            let number = |value: Option<f64>| value.map_or("-".to_owned(), shortened);
            // Of an order it is counted who is not in it.
            let here = match variant {
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
    experiment: &Experiment,
    counts: &Counts<'_>,
    metric: &Metric,
) -> Result<Measured, Failure> {
    let of = |(nth, variant): (usize, &super::file::Variant)| {
        let Values { each, mean, spread, deviation } = counts.values(metric, nth)?;
        Ok(Of { name: variant.name.clone(), each, mean, spread, deviation })
    };
    let variants =
        experiment.variants.iter().enumerate().map(of).collect::<Result<_, Failure>>()?;
    Ok(Measured { name: metric.name.clone(), variants })
}
