//! Metrics of an experiment, from what its runs counted.
//!
//! ```
//! use serde_json::json;
//! use traceless_sim::experiment::metrics::{RunCounts, RunIndex};
//! use traceless_sim::experiment::spec::{Claim, Metric};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let claims: [Claim; 0] = [];
//! let metric = "name = 'speed-up'\nof = ['cycles']\nspeed-up-over = 'path'";
//! let metrics: [Metric; 1] = [toml::from_str(metric)?];
//! // The `spec` of the experiment has the variants `path` and `ring`, and one workload.
//! # use std::collections::BTreeMap;
//! # use std::path::Path;
//! # use traceless_sim::experiment::Level;
//! # use traceless_sim::experiment::spec::{Spec, VariantMetrics, median};
//! # let same = BTreeMap::new();
//! # let variants = ["path", "ring"].map(|name| VariantMetrics { name, relative_to: &same });
//! # let (workloads, shortfalls) = (["mcf".to_owned()], claims.iter().map(|_| None).collect());
//! # let spec = Spec {
//! #     path: Path::new("own/fig1.toml"),
//! #     schema: "example.v1",
//! #     title: "Ring ORAM",
//! #     paper: "none",
//! #     place: "Figure 1",
//! #     remarks: &[],
//! #     level: Level::Full,
//! #     extent: "one run".to_owned(),
//! #     extent_json: serde_json::Map::new(),
//! #     workloads: &workloads,
//! #     repeats: 1,
//! #     average: median,
//! #     variants: variants.to_vec(),
//! #     metrics: &metrics,
//! #     claims: &claims,
//! #     shortfalls,
//! # };
//! let runs = [0, 1].map(|variant| RunIndex { variant, workload: 0, repeat: 0 });
//! let counts = RunCounts::new(&spec, &runs, vec![json!({"cycles": 800}), json!({"cycles": 400})]);
//! // The variant 1 takes half of the cycles of the variant 0, which is called `path`.
//! assert_eq!(counts.values(&metrics[0], 1)?.mean, 2.0);
//! # Ok(())
//! # }
//! ```

use super::spec::{Mean, Metric, Spec};
use super::{Error, Result};
use serde_json::Value;

/// The index of a run among the runs of its experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunIndex {
    /// Index of the variant.
    pub variant: usize,
    /// Index of the workload.
    pub workload: usize,
    /// Which of the repeats: a seed, or a round.
    pub repeat: usize,
}

/// What all runs of an experiment counted.
pub struct RunCounts<'a> {
    spec: &'a Spec<'a>,
    /// Ordered by variant, workload and repeat.
    all: Vec<Value>,
}

/// A metric of a variant.
#[derive(Clone, PartialEq, Debug)]
pub struct Values {
    /// One for each workload: the average value of its repeats.
    pub each: Vec<f64>,
    /// The mean over all workloads.
    pub mean: f64,
    /// How far the means of single repeats are apart; `None` for one repeat.
    pub spread: Option<f64>,
    /// The standard deviation of the means of single repeats; `None` for one repeat.
    pub deviation: Option<f64>,
}

impl<'a> RunCounts<'a> {
    /// Takes the counts of the runs at `indices`, in the same order: by variant, workload and
    /// repeat.
    pub fn new(spec: &'a Spec<'a>, indices: &[RunIndex], all: Vec<Value>) -> Self {
        assert_eq!(all.len(), spec.variants.len() * spec.workloads.len() * spec.repeats);
        let counts = Self { spec, all };
        assert!(indices.iter().enumerate().all(|(nth, &index)| counts.offset(index) == nth));
        counts
    }

    /// What the run at an index counted.
    pub fn at(&self, index: RunIndex) -> &Value {
        &self.all[self.offset(index)]
    }

    fn offset(&self, index: RunIndex) -> usize {
        let Spec { workloads, repeats, .. } = self.spec;
        (index.variant * workloads.len() + index.workload) * repeats + index.repeat
    }

    /// A metric of a variant.
    pub fn values(&self, metric: &Metric, variant: usize) -> Result<Values> {
        let mut all = vec![vec![]; self.spec.workloads.len()];
        let mut means = vec![];
        for repeat in 0..self.spec.repeats {
            let mut each = vec![];
            for (workload, repeats) in all.iter_mut().enumerate() {
                let ratio = self.ratio(metric, RunIndex { variant, workload, repeat })?;
                repeats.push(ratio.value());
                each.push(ratio);
            }
            means.push(mean(metric.mean, &each));
        }
        let each = all.iter().map(|repeats| (self.spec.average)(repeats)).collect();
        let least = means.iter().copied().fold(f64::INFINITY, f64::min);
        let most = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mean = (self.spec.average)(&means);
        let is_repeated = means.len() > 1;
        let deviation = is_repeated.then(|| deviation(&means, mean));
        Ok(Values { each, mean, spread: is_repeated.then_some(most - least), deviation })
    }

    fn ratio(&self, metric: &Metric, index: RunIndex) -> Result<Ratio> {
        let Ratio { numerator, denominator } = self.relative_ratio(metric, index)?;
        Ok(Ratio { numerator: numerator * metric.times, denominator })
    }

    fn relative_ratio(&self, metric: &Metric, index: RunIndex) -> Result<Ratio> {
        let own = self.own_ratio(metric, index)?;
        let (other, is_speed_up) = match (&metric.relative_to, &metric.speed_up_over) {
            (Some(other), _) => (other, false),
            (_, Some(other)) => (other, true),
            (None, None) => return Ok(own),
        };
        let variants = &self.spec.variants;
        let other = variants[index.variant].relative_to.get(other).unwrap_or(other);
        let variant = variants.iter().position(|v| v.name == *other);
        let variant = variant.expect("its name was checked");
        let other = self.own_ratio(metric, RunIndex { variant, ..index })?;
        let (numerator, denominator) = if is_speed_up { (other, own) } else { (own, other) };
        Ok(Ratio { numerator: numerator.value(), denominator: denominator.value() })
    }

    fn own_ratio(&self, metric: &Metric, index: RunIndex) -> Result<Ratio> {
        let sum = |names: &[String]| -> Result<f64> {
            let numbers = names.iter().map(|name| self.number(metric, name, index));
            Ok(numbers.collect::<Result<Vec<f64>>>()?.into_iter().sum())
        };
        let denominator = if metric.per.is_empty() { 1.0 } else { sum(&metric.per)? };
        Ok(Ratio { numerator: sum(&metric.of)?, denominator })
    }

    /// A count by its name. A part that the machine does not have counts 0.
    fn number(&self, metric: &Metric, name: &str, index: RunIndex) -> Result<f64> {
        let mut value = self.at(index);
        for part in name.split('.') {
            let of_list = || value.get(part.parse::<usize>().ok()?);
            value = match value.get(part).or_else(of_list) {
                Some(Value::Null) => return Ok(0.0),
                Some(value) => value,
                None => return Err(self.unknown_count(metric, name)),
            };
        }
        value.as_f64().ok_or_else(|| self.unknown_count(metric, name))
    }

    fn unknown_count(&self, metric: &Metric, name: &str) -> Error {
        self.spec.invalid(&format!("metric `{}`: no run counts `{name}`", metric.name))
    }
}

#[derive(Clone, Copy)]
struct Ratio {
    numerator: f64,
    denominator: f64,
}

impl Ratio {
    fn value(self) -> f64 {
        self.numerator / self.denominator
    }
}

/// The standard deviation of a sample; 0 for a single value.
fn deviation(of: &[f64], mean: f64) -> f64 {
    let squares: f64 = of.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (of.len() - 1).max(1) as f64).sqrt()
}

fn mean(kind: Mean, each: &[Ratio]) -> f64 {
    let sum = |of: fn(&Ratio) -> f64| each.iter().map(of).sum::<f64>();
    let count = each.len() as f64;
    match kind {
        Mean::Arithmetic => sum(|r| r.value()) / count,
        Mean::Geometric => (sum(|r| r.value().ln()) / count).exp(),
        Mean::Total => sum(|r| r.numerator) / sum(|r| r.denominator),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(kind: Mean, expected: f64) {
        let each = [
            Ratio { numerator: 1.0, denominator: 1.0 },
            Ratio { numerator: 16.0, denominator: 4.0 },
        ];
        assert!((mean(kind, &each) - expected).abs() < 1e-12, "{kind:?}");
    }

    #[test]
    fn means_are_what_their_names_say() {
        is(Mean::Arithmetic, 2.5);
        is(Mean::Geometric, 2.0);
        is(Mean::Total, 17.0 / 5.0);
    }

    #[test]
    fn a_deviation_is_that_of_a_sample() {
        for (of, mean, is) in
            [(&[3.0][..], 3.0, 0.0_f64), (&[2.0, 4.0], 3.0, 2.0), (&[1.0, 1.0, 4.0], 2.0, 3.0)]
        {
            assert!((deviation(of, mean) - is.sqrt()).abs() < 1e-12);
        }
    }
}
