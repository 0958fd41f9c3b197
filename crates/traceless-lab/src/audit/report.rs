//! The result of an audit, and whether the audit finds planted faults.

use super::{CLEAN, FAILED, FOUND, Outcome, json, write_page};
use std::fmt::Display;
use std::sync::Mutex;
use traceless_audit::{ALPHA, Claim, Page, Picture, Report, Verdict};
use traceless_cli::args::ProgressHow;
use traceless_cli::args::audit::OutputArgs;
use traceless_cli::output::Meter;

/// The result of one audit.
pub struct AuditResult {
    /// The kind of scheme that the claims are about.
    pub target: &'static str,
    pub scheme: String,
    pub level: &'static str,
    pub claims: Vec<Claim>,
    /// One claim for each planted fault, that it is found, and for each sound twin, that nothing
    /// is.
    pub planted: Vec<Claim>,
    /// What the claims do not cover: a sentence, or empty.
    pub not_hidden: &'static str,
    /// What the adversary observes of users, if a page is requested.
    pub pictures: Vec<Picture>,
}

impl AuditResult {
    /// A result with claims about planted faults only.
    pub fn of_planted(planted: Vec<Claim>) -> Self {
        Self {
            target: "self-test",
            scheme: "planted faults".to_owned(),
            level: "self-test",
            claims: vec![],
            planted,
            not_hidden: "",
            pictures: vec![],
        }
    }

    /// The output as text or JSON, and the exit code.
    ///
    /// If `output` names a page, the page is written as well.
    pub fn outcome(self, output: &OutputArgs) -> Outcome {
        let missed = self.planted.iter().find(|claim| claim.verdict != Verdict::Pass).cloned();
        let claims = [self.claims, self.planted].concat();
        let report = Report::new(self.target, &self.scheme, self.level, claims);
        if let Some(path) = &output.html {
            let Report { target, scheme, level, verdict, claims, .. } = &report;
            let about = format!("Scheme {scheme}, level {level}. {}", self.not_hidden);
            let (title, verdict, pictures) = (target, *verdict, &self.pictures);
            let page = Page { title, verdict, about: &about, claims, pictures };
            if let Err(outcome) = write_page(&page, path) {
                return outcome;
            }
        }
        let out = if output.json { json(&report) } else { text(&report, self.not_hidden) };
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
    let claims: String = report.claims.iter().map(Claim::text).collect();
    let (scheme, level, verdict) = (&report.scheme, &report.level, report.verdict.word());
    let end = if not_hidden.is_empty() { "" } else { "\n" };
    format!("scheme {scheme}, level {level}\n\n{claims}\n{not_hidden}{end}verdict: {verdict}\n")
}

/// The outcome of an audit, or the reason why it could not run.
pub fn to_outcome(audit: Result<AuditResult, impl Display>, output: &OutputArgs) -> Outcome {
    match audit {
        Ok(result) => result.outcome(output),
        Err(error) => Outcome::error(FAILED, &format!("the audit could not be run: {error}")),
    }
}

/// The claim that none of `claims`, which are about `scheme`, fails.
pub fn clean_claim(scheme: &str, claims: &[Claim]) -> Claim {
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

/// The claim that `claims` find the fault planted in `scheme`, or nothing in a sound twin.
pub fn detection_claim(scheme: &str, fault: Option<&str>, claims: &[Claim]) -> Claim {
    let failing: Vec<_> = claims.iter().filter(|claim| claim.verdict != Verdict::Pass).collect();
    let name = match fault {
        None => format!("the detector finds nothing in {scheme}"),
        Some(fault) => format!("the detector catches {scheme}: {fault}"),
    };
    let evidence = failing.first().map_or_else(
        || format!("none of {} claims fails", claims.len()),
        |first| format!("{} of {} claims fail: {}", failing.len(), claims.len(), first.evidence),
    );
    let is_right = failing.is_empty() == fault.is_none();
    let verdict = if is_right { Verdict::Pass } else { Verdict::Fault };
    let power = format!("each claim at {ALPHA:e}");
    Claim::exact(name, verdict, failing.len() as u64, &power, evidence)
}

/// The claims of a run that draws from `seed`. If a claim is suspicious, a second run has another
/// seed, and a claim that is suspicious in both does not hold.
pub fn with_second_run<E>(
    seed: u64,
    mut run: impl FnMut(u64) -> Result<Vec<Claim>, E>,
) -> Result<Vec<Claim>, E> {
    let claims = run(seed)?;
    if !claims.iter().any(needs_another_run) {
        return Ok(claims);
    }
    let second = run(seed.wrapping_add(0x5eed))?;
    Ok(confirm_suspicions(claims, &second))
}

/// A claim with a probability below this is suspicious. Twice in a row that has probability 10^-8.
const SUSPICIOUS: f64 = 1e-4;

fn is_suspicious(claim: &Claim) -> bool {
    claim.p.is_some_and(|p| p < SUSPICIOUS)
}

fn needs_another_run(claim: &Claim) -> bool {
    is_suspicious(claim) && claim.verdict == Verdict::Pass
}

/// Marks each claim that is suspicious in both runs as a leak.
fn confirm_suspicions(mut claims: Vec<Claim>, second: &[Claim]) -> Vec<Claim> {
    for (claim, second) in claims.iter_mut().zip(second) {
        if is_suspicious(claim) && is_suspicious(second) {
            claim.verdict = Verdict::Leak;
            claim.evidence = format!("{}; and again: {}", claim.evidence, second.evidence);
        }
    }
    claims
}

/// A progress bar on the terminal, if there is one.
pub struct Progress {
    state: Mutex<WorkState>,
}

struct WorkState {
    done: u64,
    all: u64,
    meter: Meter,
}

impl Progress {
    /// The progress of `work`, in any unit, none of it done.
    pub fn new(work: u64) -> Self {
        Self::shown(work, ProgressHow::Auto)
    }

    /// A progress that is not shown, for a part of some work.
    pub fn unseen() -> Self {
        Self::shown(0, ProgressHow::None)
    }

    fn shown(all: u64, how: ProgressHow) -> Self {
        let meter = Meter::new("checks", how);
        Self { state: Mutex::new(WorkState { done: 0, all, meter }) }
    }

    /// Adds work that is to be done.
    pub fn extend(&self, work: u64) {
        self.state.lock().expect("held briefly").all += work;
    }

    /// Counts work that was done.
    pub fn advance(&self, work: u64) {
        let WorkState { done, all, meter } = &mut *self.state.lock().expect("held briefly");
        *done += work;
        meter.update(*done, *all);
    }

    /// The work that was done, and all work.
    #[cfg(test)]
    pub fn work(&self) -> (u64, u64) {
        let state = self.state.lock().expect("held briefly");
        (state.done, state.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(verdict: Verdict) -> Claim {
        Claim::exact("the claim", verdict, 7, "none", "what was seen")
    }

    fn outcome_of(claims: &[Verdict], planted: &[Verdict]) -> Outcome {
        let claims = claims.iter().copied().map(claim).collect();
        let planted = planted.iter().copied().map(claim).collect();
        let (scheme, level) = ("all".to_owned(), "quick");
        let (target, not_hidden, pictures) = ("t", "", vec![]);
        AuditResult { target, scheme, level, claims, planted, not_hidden, pictures }
            .outcome(&OutputArgs::default())
    }

    #[test]
    fn a_missed_fault_is_worse_than_a_leak() {
        use Verdict::{Fault, Leak, Pass};
        assert_eq!(outcome_of(&[Pass, Pass], &[Pass]).code, CLEAN);
        assert_eq!(outcome_of(&[Pass, Leak], &[Pass]).code, FOUND);
        assert_eq!(outcome_of(&[Fault], &[]).code, FOUND);
        let missed = outcome_of(&[Leak], &[Pass, Fault]);
        assert_eq!(missed.code, FAILED);
        assert!(missed.err.ends_with("not true that the claim: what was seen\n"), "{}", missed.err);
        assert!(missed.out.ends_with("verdict: leak\n"), "{}", missed.out);
    }

    #[test]
    fn a_schemes_verdict_is_that_of_its_worst_claim() {
        let pass = clean_claim("s", &[claim(Verdict::Pass), claim(Verdict::Pass)]);
        assert_eq!((pass.verdict, &*pass.evidence), (Verdict::Pass, "none of 2 claims fails"));
        let leaks = clean_claim("s", &[claim(Verdict::Pass), claim(Verdict::Leak)]);
        let evidence = "the claim: what was seen";
        assert_eq!((leaks.verdict, &*leaks.evidence), (Verdict::Leak, evidence));
    }

    #[test]
    fn claims_suspicious_in_both_runs_do_not_hold() {
        let claims = |ps: &[f64]| -> Vec<Claim> {
            let claim = |&p: &f64| {
                let verdict = if p < ALPHA { Verdict::Leak } else { Verdict::Pass };
                Claim { p: Some(p), ..Claim::exact("c", verdict, 0, "none", "seen") }
            };
            ps.iter().map(claim).collect()
        };
        assert!(claims(&[0.5, 2e-4]).iter().all(|claim| !needs_another_run(claim)));
        assert!(needs_another_run(&claims(&[2e-5])[0]));
        assert!(!needs_another_run(&claims(&[1e-9])[0]), "that is a leak at once");
        let exact = Claim::exact("c", Verdict::Pass, 0, "none", "");
        assert!(!needs_another_run(&exact), "nothing in it is chance");
        let failing =
            confirm_suspicions(claims(&[2e-5, 2e-5, 0.5, 1e-9]), &claims(&[3e-5, 0.5, 3e-5, 0.5]));
        let verdicts: Vec<Verdict> = failing.iter().map(|claim| claim.verdict).collect();
        assert_eq!(verdicts, [Verdict::Leak, Verdict::Pass, Verdict::Pass, Verdict::Leak]);
        assert_eq!(failing[0].evidence, "seen; and again: seen");
    }
}
