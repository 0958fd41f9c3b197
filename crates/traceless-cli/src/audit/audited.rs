//! What an audit found, and whether it finds what was planted.

use super::{CLEAN, FAILED, FOUND, Outcome, claim_line, json};
use indicatif::{ProgressBar, ProgressStyle};
use traceless_audit::{Claim, Report, Verdict};

/// All that one audit has to say.
pub struct Audited {
    /// Whose claims these are.
    pub target: &'static str,
    pub scheme: String,
    pub level: &'static str,
    pub claims: Vec<Claim>,
    /// Of each planted fault that it is found, and of each sound twin that nothing is.
    pub planted: Vec<Claim>,
    /// What the claims do not cover, a sentence or nothing.
    pub not_hidden: &'static str,
}

impl Audited {
    /// What is planted, and nothing else.
    pub fn of_planted(planted: Vec<Claim>) -> Self {
        Self {
            target: "self-test",
            scheme: "planted faults".to_owned(),
            level: "self-test",
            claims: vec![],
            planted,
            not_hidden: "",
        }
    }

    /// For people, or programs; and the exit code.
    pub fn outcome(self, as_json: bool) -> Outcome {
        let missed = self.planted.iter().find(|claim| claim.verdict != Verdict::Pass).cloned();
        let claims = [self.claims, self.planted].concat();
        let report = Report::new(self.target, &self.scheme, self.level, claims);
        let out = if as_json { json(&report) } else { text(&report, self.not_hidden) };
        let code = if report.verdict == Verdict::Pass { CLEAN } else { FOUND };
        let mut outcome = Outcome::new(code, out);
        if let Some(missed) = missed {
            outcome.code = FAILED;
            outcome.err = format!(
                "traceless: a planted fault was missed, so nothing that this audit says counts; it \
                 is not true that {}: {}\n",
                missed.name, missed.evidence
            );
        }
        outcome
    }
}

fn text(report: &Report, not_hidden: &str) -> String {
    let claims: String = report.claims.iter().map(claim_line).collect();
    let (scheme, level, verdict) = (&report.scheme, &report.level, report.verdict.word());
    let end = if not_hidden.is_empty() { "" } else { "\n" };
    format!("scheme {scheme}, level {level}\n\n{claims}\n{not_hidden}{end}verdict: {verdict}\n")
}

/// That nothing is found in `scheme`, whose claims are `claims`.
pub fn is_clean(scheme: &str, claims: &[Claim]) -> Claim {
    let name = format!("nothing is found in {scheme}");
    let power = "as each claim's";
    let fails = claims.iter().find(|claim| claim.verdict != Verdict::Pass);
    let all = claims.len() as u64;
    match fails {
        None => {
            let evidence = format!("none of {all} claims fails");
            Claim::exact(name, Verdict::Pass, all, power, evidence)
        }
        Some(fails) => {
            let evidence = format!("{}: {}", fails.name, fails.evidence);
            Claim::exact(name, fails.verdict, all, power, evidence)
        }
    }
}

/// A bar on the terminal, if there is one, while runs are made.
pub struct Progress(ProgressBar);

impl Progress {
    pub fn new(steps: usize) -> Self {
        let bar = ProgressBar::new(steps as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} checks, {elapsed}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// One step is done.
    pub fn advance(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(verdict: Verdict) -> Claim {
        Claim::exact("the claim", verdict, 7, "none", "what was seen")
    }

    fn audited(claims: &[Verdict], planted: &[Verdict]) -> Outcome {
        let claims = claims.iter().copied().map(claim).collect();
        let planted = planted.iter().copied().map(claim).collect();
        let (scheme, level) = ("all".to_owned(), "quick");
        Audited { target: "t", scheme, level, claims, planted, not_hidden: "" }.outcome(false)
    }

    #[test]
    fn a_missed_fault_is_worse_than_a_leak() {
        use Verdict::{Fault, Leak, Pass};
        assert_eq!(audited(&[Pass, Pass], &[Pass]).code, CLEAN);
        assert_eq!(audited(&[Pass, Leak], &[Pass]).code, FOUND);
        assert_eq!(audited(&[Fault], &[]).code, FOUND);
        let missed = audited(&[Leak], &[Pass, Fault]);
        assert_eq!(missed.code, FAILED);
        assert!(missed.err.ends_with("not true that the claim: what was seen\n"), "{}", missed.err);
        assert!(missed.out.ends_with("verdict: leak\n"), "{}", missed.out);
    }

    #[test]
    fn a_scheme_is_as_clean_as_its_worst_claim() {
        let pass = is_clean("s", &[claim(Verdict::Pass), claim(Verdict::Pass)]);
        assert_eq!((pass.verdict, &*pass.evidence), (Verdict::Pass, "none of 2 claims fails"));
        let leaks = is_clean("s", &[claim(Verdict::Pass), claim(Verdict::Leak)]);
        let said = "the claim: what was seen";
        assert_eq!((leaks.verdict, &*leaks.evidence), (Verdict::Leak, said));
    }
}
