//! Verdicts on a paper's claims.

use super::metrics::Values;
use super::spec::{Claim, PublishedValue, Rule};
use serde::Serialize;
use std::cmp::Ordering;

/// A claim and the measured number.
#[derive(Serialize, PartialEq, Debug)]
pub struct Verdict {
    /// The claim in words.
    pub text: String,
    /// The metric that it is about.
    pub metric: String,
    /// The variant that it is about; `None` for an order.
    pub variant: Option<String>,
    /// `None` for the mean over all workloads.
    pub workload: Option<String>,
    /// The paper's number.
    pub paper: Option<f64>,
    /// The measured number; for an order, how many variants are out of place.
    pub measured: f64,
    /// The rule, in words.
    pub rule: String,
    /// What the run has less of than level full, where that is too little to judge the claim.
    pub too_short: Option<String>,
    /// `None` if the run was too short.
    pub reproduced: Option<bool>,
}

/// The verdicts on a claim: one, or one for each workload that was run and that the paper has a
/// number for. `values` takes the names of a metric and of a variant.
pub fn verdicts(
    workloads: &[String],
    claim: &Claim,
    too_short: Option<&String>,
    values: &dyn Fn(&str, &str) -> Values,
) -> Vec<Verdict> {
    let verdict = |workload: Option<&String>, paper, measured: f64| Verdict {
        text: claim.text.clone(),
        metric: claim.metric.clone(),
        variant: claim.variant.clone(),
        workload: workload.cloned(),
        paper,
        measured,
        rule: claim.rule.description(),
        reproduced: too_short.is_none().then(|| claim.rule.holds(measured, paper)),
        too_short: too_short.cloned(),
    };
    // The value of one workload, `None` if it was not run, or the mean over all.
    let with = |values: &Values, workload: Option<&String>| match workload {
        Some(name) => workloads.iter().position(|other| other == name).map(|nth| values.each[nth]),
        None => Some(values.mean),
    };
    let workload = claim.workload.as_ref();
    if let Rule::Order(variants) = &claim.rule {
        let number = |variant: &String| with(&values(&claim.metric, variant), workload);
        let numbers: Option<Vec<f64>> = variants.iter().map(number).collect();
        let misplaced = numbers.map(|numbers| misplaced_count(&numbers) as f64);
        return misplaced.map(|count| verdict(workload, None, count)).into_iter().collect();
    }
    let variant = claim.variant.as_ref().expect("claims were checked");
    let values = values(&claim.metric, variant);
    match &claim.paper {
        Some(PublishedValue::Each(each)) => workloads
            .iter()
            .filter_map(|name| Some((name, *each.get(name)?, with(&values, Some(name))?)))
            .map(|(name, paper, measured)| verdict(Some(name), Some(paper), measured))
            .collect(),
        paper => {
            let paper =
                if let Some(PublishedValue::One(paper)) = paper { Some(*paper) } else { None };
            // A single repeat has no deviation: the claim is listed all the same, without a number.
            let deviation = values.deviation.unwrap_or(f64::NAN);
            let measured =
                if claim.of_deviation { Some(deviation) } else { with(&values, workload) };
            measured.map(|measured| verdict(workload, paper, measured)).into_iter().collect()
        }
    }
}

/// How many numbers are not greater than the next one. Equal numbers count, as they show no order.
fn misplaced_count(numbers: &[f64]) -> usize {
    numbers
        .windows(2)
        .filter(|pair| pair[0].partial_cmp(&pair[1]) != Some(Ordering::Greater))
        .count()
}

impl Rule {
    fn holds(&self, measured: f64, paper: Option<f64>) -> bool {
        match self {
            Self::Within(tolerance) => paper.is_some_and(|p| (measured - p).abs() <= *tolerance),
            Self::WithinShare(share) => {
                paper.is_some_and(|p| (measured - p).abs() <= share * p.abs())
            }
            Self::AtLeast(least) => measured >= *least,
            Self::AtMost(most) => measured <= *most,
            Self::Order(_) => measured == 0.0,
        }
    }

    fn description(&self) -> String {
        match self {
            Self::Within(tolerance) => format!("± {tolerance}"),
            Self::WithinShare(share) => format!("± {} %", share * 100.0),
            Self::AtLeast(least) => format!("at least {least}"),
            Self::AtMost(most) => format!("at most {most}"),
            Self::Order(variants) => variants.join(" > "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_hold_up_to_their_bounds() {
        let paper = Some(1.5);
        let within = Rule::Within(0.25);
        assert!(within.holds(1.75, paper) && within.holds(1.25, paper));
        assert!(!within.holds(1.76, paper) && !within.holds(1.24, paper));
        assert!(!within.holds(f64::NAN, paper) && !within.holds(1.5, None));
        let share = Rule::WithinShare(0.125);
        assert!(share.holds(1.125, Some(1.0)) && share.holds(-0.95, Some(-1.0)));
        assert!(!share.holds(1.2, Some(1.0)) && share.holds(0.0, Some(0.0)));
        assert!(Rule::AtLeast(2.0).holds(2.0, paper) && !Rule::AtLeast(2.0).holds(1.9, paper));
        assert!(Rule::AtMost(2.0).holds(2.0, paper) && !Rule::AtMost(2.0).holds(2.1, paper));
    }

    #[test]
    fn an_order_is_judged_by_the_workload_of_its_claim() {
        let workloads = ["one", "other"].map(str::to_owned);
        let values = |_: &str, variant: &str| {
            let each = if variant == "a" { vec![2.0, 1.0] } else { vec![1.0, 9.0] };
            Values { mean: each[0] + each[1], each, spread: None, deviation: None }
        };
        let judged = |workload: &str| {
            let text =
                format!("text = 'x'\nmetric = 'm'\nrule = {{ order = ['a', 'b'] }}\n{workload}");
            let claim: Claim = toml::from_str(&text).unwrap();
            let found = verdicts(&workloads, &claim, None, &values);
            found.into_iter().map(|v| (v.workload, v.reproduced)).collect::<Vec<_>>()
        };
        assert_eq!(judged("workload = 'one'"), [(Some("one".to_owned()), Some(true))]);
        assert_eq!(judged("workload = 'other'"), [(Some("other".to_owned()), Some(false))]);
        assert_eq!(judged(""), [(None, Some(false))], "the means are in no such order");
        assert_eq!(judged("workload = 'not run'"), []);
    }

    #[test]
    fn equal_numbers_are_misplaced() {
        assert_eq!(misplaced_count(&[3.0, 2.0, 1.0]), 0);
        assert_eq!(misplaced_count(&[2.0, 3.0, 1.0]), 1);
        assert_eq!(misplaced_count(&[1.0; 3]), 2);
        assert_eq!(misplaced_count(&[2.0, f64::NAN]), 1);
    }
}
