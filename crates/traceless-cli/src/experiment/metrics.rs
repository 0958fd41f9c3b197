//! Metrics of an experiment, from what its runs counted.

use super::sheet::{Mean, Metric, Sheet};
use crate::failure::Failure;
use serde_json::Value;

/// The place of a run among the runs of its experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub variant: usize,
    pub workload: usize,
    /// Which of the repeats: a seed, or a round.
    pub repeat: usize,
}

/// What all runs of an experiment counted.
pub struct Counts<'a> {
    sheet: &'a Sheet<'a>,
    /// Ordered by variant, workload and repeat.
    all: Vec<Value>,
}

/// A metric of a variant.
#[derive(Clone, PartialEq, Debug)]
pub struct Values {
    /// One for each workload: the typical value of its repeats.
    pub each: Vec<f64>,
    /// The mean over all workloads.
    pub mean: f64,
    /// How far the means of single repeats are apart; `None` for one repeat.
    pub spread: Option<f64>,
    /// The standard deviation of the means of single repeats; `None` for one repeat.
    pub deviation: Option<f64>,
}

impl<'a> Counts<'a> {
    /// Takes the counts of the runs at `places`, in the same order: by variant, workload and
    /// repeat.
    pub fn new(sheet: &'a Sheet<'a>, places: &[Place], all: Vec<Value>) -> Self {
        assert_eq!(all.len(), sheet.variants.len() * sheet.workloads.len() * sheet.repeats);
        let counts = Self { sheet, all };
        assert!(places.iter().enumerate().all(|(nth, &place)| counts.index(place) == nth));
        counts
    }

    /// What the run at a place counted.
    pub fn at(&self, place: Place) -> &Value {
        &self.all[self.index(place)]
    }

    fn index(&self, place: Place) -> usize {
        let Sheet { workloads, repeats, .. } = self.sheet;
        (place.variant * workloads.len() + place.workload) * repeats + place.repeat
    }

    /// A metric of a variant.
    pub fn values(&self, metric: &Metric, variant: usize) -> Result<Values, Failure> {
        let mut all = vec![vec![]; self.sheet.workloads.len()];
        let mut means = vec![];
        for repeat in 0..self.sheet.repeats {
            let mut each = vec![];
            for (workload, of_repeats) in all.iter_mut().enumerate() {
                let ratio = self.ratio(metric, Place { variant, workload, repeat })?;
                of_repeats.push(ratio.value());
                each.push(ratio);
            }
            means.push(mean(metric.mean, &each));
        }
        let each = all.iter().map(|of_repeats| (self.sheet.typical)(of_repeats)).collect();
        let least = means.iter().copied().fold(f64::INFINITY, f64::min);
        let most = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mean = (self.sheet.typical)(&means);
        let is_repeated = means.len() > 1;
        let deviation = is_repeated.then(|| deviation(&means, mean));
        Ok(Values { each, mean, spread: is_repeated.then_some(most - least), deviation })
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
        let variants = &self.sheet.variants;
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

    /// A count by its name. A part that the machine does not have counts 0.
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
        self.sheet.wrong(&format!("metric `{}`: no run counts `{name}`", metric.name))
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
