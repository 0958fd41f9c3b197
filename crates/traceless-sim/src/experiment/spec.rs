//! What all experiment files have, simulated or measured: the metrics made of the counts of runs,
//! and what the paper says of them.
//!
//! A metric and a claim are read from an experiment's file, and refused if a name is unknown:
//!
//! ```
//! use std::collections::BTreeMap;
//! use traceless_sim::experiment::spec::{Claim, Metric, VariantMetrics, check};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let metric = "name = 'speed-up'\nof = ['cycles']\nspeed-up-over = 'path'";
//! let claim = "text = 'faster'\nmetric = 'speed-up'\nvariant = 'rnig'\nrule = { at-least = 1.5 }";
//! let (metric, mut claim): (Metric, Claim) = (toml::from_str(metric)?, toml::from_str(claim)?);
//! let same = BTreeMap::new();
//! let variants = ["path", "ring"].map(|name| VariantMetrics { name, relative_to: &same });
//! let (workloads, metrics) = (["mcf".to_owned()], [metric]);
//!
//! let refused = check(&variants, &workloads, &metrics, std::slice::from_ref(&claim));
//! assert_eq!(refused, Err("claim: variant: there is no `rnig`".to_owned()));
//! claim.variant = Some("ring".to_owned());
//! assert_eq!(check(&variants, &workloads, &metrics, &[claim]), Ok(()));
//! # Ok(())
//! # }
//! ```

use super::toml_file::{check_known, check_unique};
use super::{Error, Level};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// An experiment at one level, for judging it: which variants are compared, with what, and how.
pub struct Spec<'a> {
    /// The experiment's file.
    pub path: &'a Path,
    /// The schema of the report.
    pub schema: &'static str,
    /// What the report is about.
    pub title: &'a str,
    /// The paper.
    pub paper: &'a str,
    /// The figure or table in the paper.
    pub place: &'a str,
    /// What a reader of the results should know.
    pub remarks: &'a [String],
    /// How much of the experiment is run.
    pub level: Level,
    /// How much that is, in words.
    pub extent: String,
    /// How much that is, as fields of the report.
    pub extent_json: Map<String, Value>,
    /// Names of the workloads.
    pub workloads: &'a [String],
    /// How often each variant runs each workload.
    pub repeats: usize,
    /// Makes one number of the numbers of the repeats.
    pub average: fn(&[f64]) -> f64,
    /// The variants that are compared.
    pub variants: Vec<VariantMetrics<'a>>,
    /// The numbers that they are compared by.
    pub metrics: &'a [Metric],
    /// What the paper claims.
    pub claims: &'a [Claim],
    /// What each claim lacks to be judged, if anything.
    pub shortfalls: Vec<Option<String>>,
}

/// A variant, as far as metrics depend on it.
#[derive(Clone, Copy)]
pub struct VariantMetrics<'a> {
    /// Its name.
    pub name: &'a str,
    /// For a metric relative to the key's variant, the variant that this one is compared with
    /// instead.
    pub relative_to: &'a BTreeMap<String, String>,
}

impl Spec<'_> {
    /// An error in the experiment's file.
    pub fn invalid(&self, what: &dyn std::fmt::Display) -> Error {
        Error::invalid(self.path, what)
    }

    /// The base name of files about the experiment: its folder's name and its own.
    pub fn file_name(&self) -> String {
        super::toml_file::file_name(self.path)
    }
}

/// Refuses names that refer to nothing, in the parts that all experiment files have.
pub fn check(
    variants: &[VariantMetrics<'_>],
    workloads: &[String],
    metrics: &[Metric],
    claims: &[Claim],
) -> Result<(), String> {
    let names: Vec<&str> = variants.iter().map(|variant| variant.name).collect();
    let metric_names: Vec<&str> = metrics.iter().map(|m| m.name.as_str()).collect();
    let workloads: Vec<&str> = workloads.iter().map(String::as_str).collect();
    check_unique("variant", &names)?;
    check_unique("metric", &metric_names)?;
    check_unique("workloads", &workloads)?;
    for (name, replacement) in variants.iter().flat_map(|variant| variant.relative_to) {
        check_known("variant: relative-to", &names, name)?;
        check_known("variant: relative-to", &names, replacement)?;
    }
    for metric in metrics {
        if metric.of.is_empty() || metric.relative_to.is_some() && metric.speed_up_over.is_some() {
            let name = &metric.name;
            return Err(format!("metric `{name}`: it is `of` something, and relative to one"));
        }
        for other in metric.relative_to.iter().chain(&metric.speed_up_over) {
            check_known("metric: relative-to, speed-up-over", &names, other)?;
        }
    }
    for claim in claims {
        check_known("claim: metric", &metric_names, &claim.metric)?;
        for name in claim.variant.iter().chain(claim.order()) {
            check_known("claim: variant", &names, name)?;
        }
        for name in claim.workload.iter().chain(claim.each()) {
            check_known("claim: workload", &workloads, name)?;
        }
        claim.check()?;
    }
    Ok(())
}

/// A number made of the counts of runs.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// Names of counts in the results, for example `paths.data`; they are added up.
    pub of: Vec<String>,
    /// Names of counts that add up to the divisor, if there is one.
    #[serde(default)]
    pub per: Vec<String>,
    /// The factor of the result: 100 for per cent.
    #[serde(default = "unscaled")]
    pub times: f64,
    /// The variant by which this variant's value is divided.
    pub relative_to: Option<String>,
    /// The variant that this one is compared with as a speed-up: its value divided by this
    /// variant's.
    pub speed_up_over: Option<String>,
    /// The mean over workloads.
    #[serde(default)]
    pub mean: Mean,
}

fn unscaled() -> f64 {
    1.0
}

/// A mean over workloads.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Mean {
    /// The sum of n values, divided by n.
    #[default]
    Arithmetic,
    /// The n-th root of the product of n values.
    Geometric,
    /// The counts of all workloads are added up first.
    Total,
}

/// A claim of the paper.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Claim {
    /// The claim in words.
    pub text: String,
    /// The metric that it is about.
    pub metric: String,
    /// The variant that the claim is about; none for a claim about an order.
    pub variant: Option<String>,
    /// The workload that the claim is about; the mean over all if there is none.
    pub workload: Option<String>,
    /// The paper's number, or one for each workload.
    pub paper: Option<PublishedValue>,
    /// Whether the number is the standard deviation between the means of single seeds.
    #[serde(default)]
    pub of_deviation: bool,
    /// When the claim counts as reproduced.
    pub rule: Rule,
    /// Whether the number follows from the machine alone, so that any run is long enough.
    #[serde(default)]
    pub at_any_size: bool,
}

/// What a paper says of a metric.
#[derive(Deserialize, Debug)]
#[serde(untagged)]
pub enum PublishedValue {
    /// One number.
    One(f64),
    /// A number for each workload.
    Each(BTreeMap<String, f64>),
}

/// When a claim counts as reproduced.
#[derive(Deserialize, Clone, PartialEq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// At most this far from the paper's number.
    Within(f64),
    /// At most this share of the paper's number away from it.
    WithinShare(f64),
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// These variants in descending order.
    Order(Vec<String>),
}

impl Claim {
    /// Whether the claim is about all workloads together.
    pub fn is_about_all(&self) -> bool {
        self.workload.is_none() && self.each().next().is_none()
    }

    fn order(&self) -> &[String] {
        if let Rule::Order(variants) = &self.rule { variants } else { &[] }
    }

    fn each(&self) -> impl Iterator<Item = &String> {
        let each =
            if let Some(PublishedValue::Each(each)) = &self.paper { Some(each) } else { None };
        each.into_iter().flat_map(BTreeMap::keys)
    }

    fn check(&self) -> Result<(), String> {
        let is_order = matches!(self.rule, Rule::Order(_));
        let what = if is_order == self.variant.is_some() {
            "`variant` says whose the number is, but for an order"
        } else if self.rule.compares() && self.paper.is_none() {
            "this rule takes a number in `paper`"
        } else if self.workload.is_some() && matches!(self.paper, Some(PublishedValue::Each(_))) {
            "either `workload`, or a number for each in `paper`"
        } else if self.of_deviation && (is_order || !self.is_about_all()) {
            "`of-deviation` is about the mean over all workloads"
        } else {
            return Ok(());
        };
        Err(format!("claim `{}`: {what}", self.text))
    }
}

impl Rule {
    /// Whether the rule compares with the paper's number.
    fn compares(&self) -> bool {
        matches!(self, Self::Within(_) | Self::WithinShare(_))
    }
}

/// The middle one of the values. Other load of the machine makes some rounds longer, which the
/// median ignores.
pub fn median(each: &[f64]) -> f64 {
    let mut sorted = each.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_value_in_the_middle() {
        assert!((median(&[9.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }
}
