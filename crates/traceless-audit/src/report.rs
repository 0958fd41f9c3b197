//! The verdict, for people and programs.

use crate::compare::Comparison;
use serde::{Deserialize, Serialize};

/// Name and version of the report's format.
pub const SCHEMA: &str = "traceless.audit.v1";

/// The result of a claim or of an audit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// No leak and no fault was found.
    Pass,
    /// Two users are distinguishable.
    Leak,
    /// There is no leak, but the scheme does not do its work: blocks are lost, or writes left out.
    Fault,
    /// No leak was found, but the observations are too few for a verdict.
    Unknown,
}

impl Verdict {
    /// The word for the verdict in reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Leak => "leak",
            Self::Fault => "fault",
            Self::Unknown => "unknown",
        }
    }
}

/// The number that a claim was judged by.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Statistic {
    /// A count: of events compared, for an exact test that passes; otherwise where it fails.
    Count(u64),
    /// Any other number.
    Value(f64),
}

/// One claim, and its verdict.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// The claim as a sentence.
    pub name: String,
    /// Whether it holds.
    pub verdict: Verdict,
    /// The number that the claim was judged by.
    pub statistic: Statistic,
    /// The probability of a result at least as extreme if the claim is true; none for an exact
    /// test.
    pub p: Option<f64>,
    /// The size of a leak that the test finds.
    pub power: String,
    /// The observations behind the verdict.
    pub evidence: String,
}

/// The claims of one audit.
///
/// ```
/// use traceless_audit::{Claim, Compare, Report, Verdict, compare};
/// use traceless_core::trace::{Event, Op, Surface};
///
/// let write = |at| Event { time: 0, surface: Surface::Storage, op: Op::Write, at, len: 4096 };
/// let claim = |name, a, b| Claim::equal_traces(name, &compare([a], [b], Compare::default()));
/// let claims = vec![
///     claim("one user twice", write(0), write(0)),
///     claim("two users", write(0), write(8192)),
/// ];
/// let report = Report::new("a volume", "plain", "quick", claims);
/// assert_eq!(report.claims[0].verdict, Verdict::Pass);
/// assert_eq!(report.verdict, Verdict::Leak);
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The audited product.
    pub target: String,
    /// The scheme that was run.
    pub scheme: String,
    /// The extent of the runs.
    pub level: String,
    /// The worst of all claims: a leak, then a fault, then too few observations.
    pub verdict: Verdict,
    /// The claims.
    pub claims: Vec<Claim>,
}

impl Claim {
    /// The claim as text, and below it the evidence.
    pub fn text(&self) -> String {
        format!("{:<6} {}\n       {}\n", self.verdict.word(), self.name, self.evidence)
    }

    /// A claim that was checked without chance.
    pub fn exact(
        name: impl Into<String>,
        verdict: Verdict,
        count: u64,
        power: &str,
        evidence: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            verdict,
            statistic: Statistic::Count(count),
            p: None,
            power: format!("exact: {power}"),
            evidence: evidence.into(),
        }
    }

    /// The claim that two traces are equal. Traces without a write are no evidence, so they fail.
    pub fn equal_traces(name: impl Into<String>, found: &Comparison) -> Self {
        let power = "one differing event is found";
        if let Some(difference) = &found.first_difference {
            let evidence = difference.message.clone();
            return Self::exact(name, Verdict::Leak, difference.index, power, evidence);
        }
        let (events, writes) = (found.counts_a.events(), found.counts_a.writes);
        let verdict = if writes > 0 { Verdict::Pass } else { Verdict::Fault };
        let evidence = format!("{events} events equal, {writes} of them writes");
        Self::exact(name, verdict, events, power, evidence)
    }
}

impl Report {
    /// A report with the verdict that follows from the claims.
    pub fn new(target: &str, scheme: &str, level: &str, claims: Vec<Claim>) -> Self {
        let has = |verdict| claims.iter().any(|claim| claim.verdict == verdict);
        let verdict =
            [Verdict::Leak, Verdict::Fault, Verdict::Unknown].into_iter().find(|v| has(*v));
        Self {
            schema: SCHEMA.to_owned(),
            target: target.to_owned(),
            scheme: scheme.to_owned(),
            level: level.to_owned(),
            verdict: verdict.unwrap_or(Verdict::Pass),
            claims,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Compare, compare};
    use crate::normal::tests::{sync, write};

    fn claim(a: &[traceless_core::trace::Event], b: &[traceless_core::trace::Event]) -> Claim {
        Claim::equal_traces("equal", &compare(a.to_vec(), b.to_vec(), Compare::default()))
    }

    #[test]
    fn a_comparison_becomes_a_claim() {
        let trace = [write(0, 4), sync(), write(4, 4)];
        let equal = claim(&trace, &trace);
        assert_eq!((equal.verdict, equal.statistic), (Verdict::Pass, Statistic::Count(3)));
        assert_eq!(equal.evidence, "3 events equal, 2 of them writes");
        assert_eq!(equal.p, None);
        let other = claim(&trace, &trace[..2]);
        assert_eq!((other.verdict, other.statistic), (Verdict::Leak, Statistic::Count(2)));
        assert_eq!(claim(&[sync()], &[sync()]).verdict, Verdict::Fault, "nothing was written");
    }

    #[test]
    fn the_worst_claim_is_the_verdict_of_a_report() {
        let claims = |verdicts: &[Verdict]| {
            let claim = |&v: &Verdict| Claim::exact("c", v, 0, "none", "");
            Report::new("t", "s", "l", verdicts.iter().map(claim).collect()).verdict
        };
        assert_eq!(claims(&[]), Verdict::Pass);
        assert_eq!(claims(&[Verdict::Pass, Verdict::Fault]), Verdict::Fault);
        assert_eq!(claims(&[Verdict::Fault, Verdict::Leak, Verdict::Pass]), Verdict::Leak);
    }

    #[test]
    fn the_verdict_is_the_worst_of_all_claims() {
        use Verdict::{Fault, Leak, Pass, Unknown};
        let cases: [(&[Verdict], Verdict); 5] = [
            (&[], Pass),
            (&[Pass, Pass], Pass),
            (&[Unknown, Pass], Unknown),
            (&[Pass, Fault, Unknown], Fault),
            (&[Unknown, Fault, Leak], Leak),
        ];
        for (verdicts, worst) in cases {
            let claims = verdicts.iter().map(|&v| Claim::exact("a claim", v, 0, "none", ""));
            assert_eq!(Report::new("a", "b", "c", claims.collect()).verdict, worst);
        }
    }
}
