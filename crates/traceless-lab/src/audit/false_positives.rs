//! How often is there a false alarm? Honest schemes are audited at level quick; each seed audits
//! one of them in turn: all schemes in trees, processors, pagers and volumes, but not the schemes
//! of the timing audit, because no seed repeats a time. And are probabilities uniform over seeds,
//! as they must be?

use super::report::Progress;
use super::suite::{AuditError, Suite, claims_of};
use super::{CLEAN, FAILED, FOUND, Outcome, json};
use super::{pager::Pagers, sim::Processors, tree::Trees, volume::Volumes};
use crate::args::audit::{AuditAlarmsArgs, Level};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use traceless_audit::{Claim, Distance, Verdict};
use traceless_sim::parallel::{cores, in_parallel};

/// A thousand seeds may raise this many alarms without doubt in the audit.
const ALARMS_MAX: usize = 1;

/// A test is not trusted if the number of its small probabilities is this improbable.
const TOO_SMALL: f64 = 1e-4;

pub fn run(args: &AuditAlarmsArgs) -> Outcome {
    let seeds = args.first..args.first.saturating_add(args.seeds);
    let results = match audit_seeds(seeds, args.file.as_deref()) {
        Err(error) => return Outcome::error(FAILED, &format!("nothing can be said: {error}")),
        Ok(results) => AlarmReport::of(&results),
    };
    let is_sound = results.alarms.len() <= ALARMS_MAX && results.tests.iter().all(Test::is_sound);
    let out = if args.json { json(&results) } else { results.text() };
    Outcome::new(if is_sound { CLEAN } else { FOUND }, out)
}

/// The number of false alarms of `seeds` seeds.
pub fn count(seeds: u64) -> Result<usize, AuditError> {
    Ok(AlarmReport::of(&audit_seeds(1..1 + seeds, None)?).alarms.len())
}

/// The result of the audit of one seed.
#[derive(Clone, Serialize, Deserialize)]
struct SeedVerdict {
    seed: u64,
    target: String,
    scheme: String,
    /// Claims that do not hold, with their evidence.
    alarms: Vec<String>,
    /// The name of each test, and its probability.
    p: Vec<(String, f64)>,
}

/// A scheme of a suite, and its audit with a given seed.
struct Subject {
    target: &'static str,
    scheme: &'static str,
    claims: Box<dyn Fn(u64) -> Result<Vec<Claim>, AuditError> + Send + Sync>,
}

fn subjects() -> Vec<Subject> {
    let suites = of_suite::<Trees>().chain(of_suite::<Processors>()).chain(of_suite::<Pagers>());
    suites.chain(of_suite::<Volumes>()).collect()
}

fn of_suite<S: Suite>() -> impl Iterator<Item = Subject> {
    S::honest().iter().map(|scheme| Subject {
        target: S::TARGET,
        scheme: S::name(scheme),
        claims: Box::new(|seed| {
            claims_of::<S>(scheme, S::size(Level::Quick), seed, &Progress::unseen())
        }),
    })
}

/// Audits each of `seeds` that is not yet in `file`, and appends its result there.
fn audit_seeds(seeds: Range<u64>, file: Option<&Path>) -> Result<Vec<SeedVerdict>, AuditError> {
    let (stored, file) = match file {
        None => (vec![], None),
        Some(path) => {
            (read_stored(path)?, Some(OpenOptions::new().append(true).create(true).open(path)?))
        }
    };
    let mut results: Vec<SeedVerdict> =
        stored.into_iter().filter(|j| seeds.contains(&j.seed)).collect();
    let remaining: Vec<u64> =
        seeds.filter(|seed| results.iter().all(|j| j.seed != *seed)).collect();
    let (subjects, file) = (subjects(), Mutex::new(file));
    let progress = Progress::new(remaining.len() as u64);
    let audit = |seed: &u64| -> Result<SeedVerdict, AuditError> {
        let verdict = judge(&subjects[(seed % subjects.len() as u64) as usize], *seed)?;
        if let Some(file) = &mut *file.lock().expect("no writer panics") {
            append_line(file, &verdict)?;
        }
        progress.advance(1);
        Ok(verdict)
    };
    let verdicts = in_parallel(&remaining, cores(), audit).into_iter();
    results.extend(verdicts.collect::<Result<Vec<_>, _>>()?);
    Ok(results)
}

fn judge(subject: &Subject, seed: u64) -> Result<SeedVerdict, AuditError> {
    let claims = (subject.claims)(seed)?;
    let alarms = claims.iter().filter(|claim| claim.verdict != Verdict::Pass);
    let alarms = alarms.map(|claim| format!("{}: {}", claim.name, claim.evidence)).collect();
    let prefix = format!("{}: ", subject.scheme);
    let test = |claim: &Claim| {
        let name = claim.name.strip_prefix(&prefix).unwrap_or(&claim.name);
        Some((name.split(": ").next()?.to_owned(), claim.p?))
    };
    let p = claims.iter().filter_map(test).collect();
    let (target, scheme) = (subject.target.to_owned(), subject.scheme.to_owned());
    Ok(SeedVerdict { seed, target, scheme, alarms, p })
}

/// The results in the file. A last line that was cut short is removed, so its seed is audited
/// again.
fn read_stored(path: &Path) -> Result<Vec<SeedVerdict>, AuditError> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        read => read?,
    };
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    if whole.len() < text.len() {
        OpenOptions::new().write(true).open(path)?.set_len(whole.len() as u64)?;
    }
    whole.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn append_line(file: &mut File, verdict: &SeedVerdict) -> Result<(), AuditError> {
    let line = serde_json::to_string(verdict)? + "\n";
    Ok(file.write_all(line.as_bytes())?)
}

/// The results over all seeds.
#[derive(Serialize)]
struct AlarmReport {
    schema: &'static str,
    seeds: usize,
    alarms: Vec<String>,
    tests: Vec<Test>,
}

/// The probabilities of one test of one target.
#[derive(Serialize)]
struct Test {
    name: String,
    number: usize,
    least: f64,
    /// Shares of the probabilities below a hundredth, a tenth and a half.
    below: [f64; 3],
    /// The distance from a uniform distribution, and in `p` how probable that distance is.
    from_uniform: f64,
    p: f64,
    /// One-sided distance: too many small probabilities, which raise alarms.
    too_small: f64,
    p_too_small: f64,
}

impl Test {
    fn of(name: String, p: &[f64]) -> Self {
        let below = |most: f64| p.iter().filter(|p| **p < most).count() as f64 / p.len() as f64;
        let (uniform, small) = (Distance::from_uniform(p), Distance::below_uniform(p));
        Self {
            name,
            number: p.len(),
            least: p.iter().copied().fold(1.0, f64::min),
            below: [0.01, 0.1, 0.5].map(below),
            from_uniform: uniform.greatest,
            p: uniform.p,
            too_small: small.greatest,
            p_too_small: small.p,
        }
    }

    fn is_sound(&self) -> bool {
        self.p_too_small >= TOO_SMALL
    }
}

impl AlarmReport {
    fn of(verdicts: &[SeedVerdict]) -> Self {
        let alarm = |verdict: &SeedVerdict| {
            let SeedVerdict { seed, target, scheme, alarms, .. } = verdict;
            Some(format!("seed {seed}, {target} {scheme}: {}", alarms.first()?))
        };
        let mut by_test: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for SeedVerdict { target, p, .. } in verdicts {
            for (test, p) in p {
                by_test.entry(format!("{target}: {test}")).or_default().push(*p);
            }
        }
        Self {
            schema: "traceless.audit.alarms.v1",
            seeds: verdicts.len(),
            alarms: verdicts.iter().filter_map(alarm).collect(),
            tests: by_test.into_iter().map(|(name, p)| Test::of(name, &p)).collect(),
        }
    }

    fn text(&self) -> String {
        let mut out = format!("{} honest seeds, {} alarms\n", self.seeds, self.alarms.len());
        for alarm in &self.alarms {
            writeln!(out, "  {alarm}").expect("a string takes every line");
        }
        out += "\nprobabilities: how many, the least, shares below 0.01, 0.1 and 0.5, distance \
                from uniform\n(p), and of the small side alone (p)\n";
        for test in &self.tests {
            let [a, b, c] = test.below;
            writeln!(
                out,
                "{:<70} {:>5} {:.1e} {a:.3} {b:.3} {c:.3} {:.3} ({:.1e}) {:.3} ({:.1e})",
                test.name,
                test.number,
                test.least,
                test.from_uniform,
                test.p,
                test.too_small,
                test.p_too_small
            )
            .expect("a string takes every line");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(seed: u64, p: f64) -> SeedVerdict {
        let alarms = if p < 1e-7 { vec!["a leak".to_owned()] } else { vec![] };
        let (target, scheme) = ("tree".to_owned(), "path".to_owned());
        SeedVerdict { seed, target, scheme, alarms, p: vec![("leaves are uniform".to_owned(), p)] }
    }

    #[test]
    fn alarms_are_counted_and_too_many_small_probabilities_are_found() {
        let even: Vec<SeedVerdict> =
            (0..200).map(|i| verdict(i, (i as f64 + 0.5) / 200.0)).collect();
        let results = AlarmReport::of(&even);
        assert!(results.alarms.is_empty() && results.tests[0].is_sound());
        assert!((results.tests[0].below[2] - 0.5).abs() < 1e-9, "{}", results.text());
        let small: Vec<SeedVerdict> = (0..200).map(|i| verdict(i, i as f64 / 400.0)).collect();
        let results = AlarmReport::of(&small);
        assert_eq!(results.alarms, ["seed 0, tree path: a leak"]);
        assert!(!results.tests[0].is_sound(), "{}", results.text());
        let large: Vec<SeedVerdict> =
            (0..200).map(|i| verdict(i, 0.5 + i as f64 / 400.0)).collect();
        let results = AlarmReport::of(&large);
        assert!(results.tests[0].is_sound(), "too careful raises no alarm");
        assert!(results.tests[0].p < 1e-9, "but it shows: {}", results.text());
    }

    #[test]
    fn seeds_with_a_stored_verdict_are_not_audited_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seeds");
        let first = audit_seeds(0..2, Some(&path)).unwrap();
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(written.lines().count(), 2);
        // The last line is cut, as by a crash.
        std::fs::write(&path, &written[..written.len() - 3]).unwrap();
        assert_eq!(read_stored(&path).unwrap().len(), 1);
        let mut again = audit_seeds(0..2, Some(&path)).unwrap();
        again.sort_by_key(|verdict| verdict.seed);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
        for (a, b) in first.iter().zip(&again) {
            assert_eq!((&a.scheme, a.p.len()), (&b.scheme, b.p.len()));
            for ((test_a, p_a), (test_b, p_b)) in a.p.iter().zip(&b.p) {
                // Text rounds the last digit of a number.
                assert!(test_a == test_b && (p_a - p_b).abs() < 1e-12, "{p_a} {p_b}");
            }
        }
        std::fs::write(&path, "no line of ours\n").unwrap();
        assert!(audit_seeds(0..1, Some(&path)).is_err());
    }

    #[test]
    fn every_honest_scheme_is_a_subject() {
        let subjects = subjects();
        let mut names: Vec<_> = subjects.iter().map(|s| (s.target, s.scheme)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 12 + 16 + 10 + 6);
    }
}
