//! Metrics of an experiment, from what its runs counted.

use super::file::{Experiment, Mean, Metric};
use super::plan::{Place, Run};
use crate::args::Level;
use crate::failure::Failure;
use serde_json::Value;

/// What all runs of an experiment counted.
pub struct Counts<'a> {
    experiment: &'a Experiment,
    workloads: usize,
    seeds: usize,
    /// By variant, workload and seed.
    all: Vec<Value>,
}

/// A metric of a variant.
#[derive(Clone, PartialEq, Debug)]
pub struct Values {
    /// One for each workload: the mean over seeds.
    pub each: Vec<f64>,
    /// Over all workloads.
    pub mean: f64,
    /// How far the means of single seeds are apart.
    pub spread: f64,
    /// Their standard deviation.
    pub deviation: f64,
}

impl<'a> Counts<'a> {
    /// `counts` are those of `runs`, in their order.
    pub fn new(experiment: &'a Experiment, level: Level, runs: &[Run], counts: Vec<Value>) -> Self {
        let workloads = experiment.workloads(level).len();
        let seeds = experiment.extent(level).seeds.len();
        assert_eq!(counts.len(), experiment.variants.len() * workloads * seeds);
        let counts = Self { experiment, workloads, seeds, all: counts };
        assert!(runs.iter().enumerate().all(|(nth, run)| counts.index(run.place) == nth));
        counts
    }

    /// What the run at a place counted.
    pub fn at(&self, place: Place) -> &Value {
        &self.all[self.index(place)]
    }

    fn index(&self, place: Place) -> usize {
        (place.variant * self.workloads + place.workload) * self.seeds + place.seed
    }

    /// A metric of a variant.
    pub fn values(&self, metric: &Metric, variant: usize) -> Result<Values, Failure> {
        let mut sums = vec![0.0; self.workloads];
        let mut means = vec![];
        for seed in 0..self.seeds {
            let mut each = vec![];
            for (workload, sum) in sums.iter_mut().enumerate() {
                let ratio = self.ratio(metric, Place { variant, workload, seed })?;
                *sum += ratio.value();
                each.push(ratio);
            }
            means.push(mean(metric.mean, &each));
        }
        let each = sums.into_iter().map(|sum| sum / self.seeds as f64).collect();
        let least = means.iter().copied().fold(f64::INFINITY, f64::min);
        let most = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        let deviation = deviation(&means, mean);
        Ok(Values { each, mean, spread: most - least, deviation })
    }

    fn ratio(&self, metric: &Metric, place: Place) -> Result<Ratio, Failure> {
        let Ratio { above, below } = self.compared(metric, place)?;
        Ok(Ratio { above: above * metric.times, below })
    }

    fn compared(&self, metric: &Metric, place: Place) -> Result<Ratio, Failure> {
        let own = self.own(metric, place)?;
        let (other, is_speed_up) = match (&metric.relative_to, &metric.speed_up_over) {
            (Some(other), _) => (other, false),
            (_, Some(other)) => (other, true),
            (None, None) => return Ok(own),
        };
        let variants = &self.experiment.variants;
        let other = variants[place.variant].relative_to.get(other).unwrap_or(other);
        let variant = variants.iter().position(|v| v.name == *other);
        let variant = variant.expect("its name was checked");
        let other = self.own(metric, Place { variant, ..place })?;
        let (above, below) = if is_speed_up { (other, own) } else { (own, other) };
        Ok(Ratio { above: above.value(), below: below.value() })
    }

    fn own(&self, metric: &Metric, place: Place) -> Result<Ratio, Failure> {
        let sum = |names: &[String]| -> Result<f64, Failure> {
            let numbers = names.iter().map(|name| self.number(metric, name, place));
            Ok(numbers.collect::<Result<Vec<f64>, _>>()?.into_iter().sum())
        };
        let below = if metric.per.is_empty() { 1.0 } else { sum(&metric.per)? };
        Ok(Ratio { above: sum(&metric.of)?, below })
    }

    /// A count by its name. A part that the machine does not have counted nothing.
    fn number(&self, metric: &Metric, name: &str, place: Place) -> Result<f64, Failure> {
        let mut value = self.at(place);
        for part in name.split('.') {
            let of_list = || value.get(part.parse::<usize>().ok()?);
            value = match value.get(part).or_else(of_list) {
                Some(Value::Null) => return Ok(0.0),
                Some(value) => value,
                None => return Err(self.nothing(metric, name)),
            };
        }
        value.as_f64().ok_or_else(|| self.nothing(metric, name))
    }

    fn nothing(&self, metric: &Metric, name: &str) -> Failure {
        self.experiment.wrong(&format!("metric `{}`: no run counts `{name}`", metric.name))
    }
}

#[derive(Clone, Copy)]
struct Ratio {
    above: f64,
    below: f64,
}

impl Ratio {
    fn value(self) -> f64 {
        self.above / self.below
    }
}

/// The standard deviation of a sample; none is seen in a single one.
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
        Mean::Total => sum(|r| r.above) / sum(|r| r.below),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(kind: Mean, expected: f64) {
        let each = [Ratio { above: 1.0, below: 1.0 }, Ratio { above: 16.0, below: 4.0 }];
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
