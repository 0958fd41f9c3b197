//! Audits, and the verdict on each scheme.

use super::catalog::{AuditGroup, Catalog};
use super::job::{JobProgram, NoResult, Outcome, PageJob};
use super::wants;
use crate::args::ReportArgs;
use serde_json::Value;
use std::collections::BTreeSet;

/// The verdict on a scheme.
#[derive(Debug)]
pub struct AuditRow {
    pub target: String,
    pub scheme: String,
    /// `pass`, `leak` and so on; or the reason why it could not be run.
    pub verdict: Result<String, String>,
    pub expects_leak: bool,
    pub why: String,
    pub claims: usize,
    /// The first claim that fails, with its evidence; of a leak the evidence.
    pub finding: Option<String>,
}

/// A job by its name, and its outcome or the reason why there is none.
type Named<'a> = (&'a str, &'a Result<Outcome, NoResult>);

/// The audit that takes one scheme at a time; the rest take all schemes at once.
const ONE_BY_ONE: &str = "volume";
/// How claims about planted faults begin.
const CATCHES: &str = "the detector catches ";
const DETECTOR: &str = "the detector ";

impl AuditRow {
    /// Whether the audit found what it should: `None` if it could not be run.
    pub fn is_expected(&self) -> Option<bool> {
        let verdict = self.verdict.as_ref().ok()?;
        Some(if self.expects_leak { verdict == "leak" } else { verdict == "pass" })
    }
}

/// The audits that are wanted.
pub fn jobs(catalog: &Catalog, args: &ReportArgs) -> Vec<PageJob> {
    let level = if args.full { "release" } else { "quick" };
    let sound = catalog.audits.iter().filter(|group| !group.leaks);
    let job = |group: &AuditGroup, scheme: Option<&str>| {
        let mut words = vec!["audit", &group.target, "--level", level, "--json"];
        words.extend(scheme.map(|name| ["--scheme", name]).into_iter().flatten());
        PageJob {
            id: id(&group.target, scheme),
            program: JobProgram::Lab,
            words: words.into_iter().map(str::to_owned).collect(),
            places: vec![],
            input: Value::Null,
            // 1 is a finding.
            codes: &[0, 1],
            minutes: group.minutes,
        }
    };
    let of_group = |group: &AuditGroup| {
        if group.target == ONE_BY_ONE {
            group.schemes.iter().map(|scheme| job(group, Some(scheme))).collect()
        } else {
            vec![job(group, None)]
        }
    };
    sound.flat_map(of_group).filter(|job| wants(args, &job.id)).collect()
}

fn id(target: &str, scheme: Option<&str>) -> String {
    let scheme = scheme.map_or(String::new(), |name| format!("/{name}"));
    format!("audit/{target}{scheme}")
}

/// A row for each scheme of the audits that were made, and for the planted faults of each target.
pub fn rows(catalog: &Catalog, outcomes: &[Named<'_>]) -> Vec<AuditRow> {
    let mut rows = vec![];
    let targets: BTreeSet<&str> = catalog.audits.iter().map(|g| g.target.as_str()).collect();
    for target in targets {
        // The planted faults are the same in each audit of a target.
        let first = outcomes.iter().find(|(id, _)| {
            id.strip_prefix("audit/").is_some_and(|id| id.split('/').next() == Some(target))
        });
        let Some((_, planted)) = first else { continue };
        for group in catalog.audits.iter().filter(|group| group.target == target) {
            for scheme in &group.schemes {
                if group.leaks {
                    rows.push(leak_row(group, scheme, planted));
                    continue;
                }
                let by_one = (target == ONE_BY_ONE).then_some(scheme.as_str());
                let id = id(target, by_one);
                let made = outcomes.iter().find(|(other, _)| *other == id);
                rows.extend(made.map(|(_, outcome)| scheme_row(group, scheme, outcome)));
            }
        }
        rows.push(planted_row(target, planted));
    }
    rows
}

fn claims(outcome: &Result<Outcome, NoResult>) -> Result<&[Value], String> {
    let outcome = outcome.as_ref().map_err(NoResult::to_string)?;
    let claims = outcome.report["claims"].as_array();
    claims.map(Vec::as_slice).ok_or_else(|| "the report has no claims".to_owned())
}

fn text<'a>(claim: &'a Value, key: &str) -> &'a str {
    claim[key].as_str().unwrap_or_default()
}

/// The row of some claims, of which the worst counts.
fn row(target: &str, scheme: &str, claims: &Result<Vec<&Value>, String>) -> AuditRow {
    let fails = claims
        .as_ref()
        .ok()
        .and_then(|claims| claims.iter().find(|claim| text(claim, "verdict") != "pass").copied());
    let count = claims.as_ref().map_or(0, Vec::len);
    let verdict = match claims {
        Err(why) => Err(why.clone()),
        Ok(claims) if claims.is_empty() => Err("no claim is about it".to_owned()),
        Ok(_) => Ok(fails.map_or("pass", |claim| text(claim, "verdict")).to_owned()),
    };
    AuditRow {
        target: target.to_owned(),
        scheme: scheme.to_owned(),
        verdict,
        expects_leak: false,
        why: String::new(),
        claims: count,
        finding: fails.map(|claim| format!("{}: {}", text(claim, "name"), text(claim, "evidence"))),
    }
}

fn scheme_row(group: &AuditGroup, scheme: &str, outcome: &Result<Outcome, NoResult>) -> AuditRow {
    let is_about = |claim: &&Value| {
        let name = text(claim, "name");
        if name.starts_with(DETECTOR) {
            return false;
        }
        let rest = name.strip_prefix(scheme);
        group.target == ONE_BY_ONE
            || rest.is_some_and(|rest| rest.starts_with(": ") || rest.starts_with(' '))
    };
    let claims = claims(outcome).map(|all| all.iter().filter(is_about).collect());
    row(&group.target, scheme, &claims)
}

/// The row of a planted leak: it leaks if the audit caught it.
fn leak_row(group: &AuditGroup, scheme: &str, outcome: &Result<Outcome, NoResult>) -> AuditRow {
    let fault = format!("{CATCHES}{}", group.fault.as_deref().unwrap_or(scheme));
    let is_about = |claim: &&Value| {
        let rest = text(claim, "name").strip_prefix(fault.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
    };
    let found = claims(outcome).map(|all| all.iter().filter(is_about).collect::<Vec<_>>());
    let evidence = found.as_ref().ok().and_then(|all| Some(text(all.first()?, "evidence")));
    let evidence = evidence.map(str::to_owned);
    let row = row(&group.target, scheme, &found);
    let caught = |verdict: String| if verdict == "pass" { "leak" } else { "pass" }.to_owned();
    AuditRow {
        verdict: row.verdict.map(caught),
        expects_leak: true,
        why: group.why.clone(),
        finding: evidence,
        ..row
    }
}

fn planted_row(target: &str, outcome: &Result<Outcome, NoResult>) -> AuditRow {
    let is_planted = |claim: &&Value| text(claim, "name").starts_with(DETECTOR);
    let planted = claims(outcome).map(|all| all.iter().filter(is_planted).collect());
    row(target, "planted faults, all found", &planted)
}

#[cfg(test)]
mod tests {
    use super::super::catalog::tests::checkout;
    use super::*;
    use clap::Parser;
    use serde_json::json;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ReportArgs,
    }

    fn args(words: &[&str]) -> ReportArgs {
        Line::parse_from(["report"].iter().chain(words)).args
    }

    fn outcome(claims: &[(&str, &str)]) -> Outcome {
        let mut all: Vec<Value> = vec![];
        for (name, verdict) in claims {
            all.push(json!({ "name": name, "verdict": verdict, "evidence": "seen" }));
        }
        Outcome { report: json!({ "claims": all }), seconds: 1.0, is_kept: false }
    }

    #[test]
    fn a_target_is_audited_once_and_volumes_one_by_one() {
        let catalog = Catalog::read(&checkout()).unwrap();
        let ids = |words: &[&str]| {
            jobs(&catalog, &args(words)).into_iter().map(|job| job.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(&["--only", "audit/tree,volume/sq"]), ["audit/volume/sq", "audit/tree"]);
        assert_eq!(ids(&[]).len(), 12);
        let lines = jobs(&catalog, &args(&["--full", "--only", "audit/tree"]));
        assert_eq!(lines[0].line(), "traceless-lab audit tree --level release --json");
    }

    #[test]
    fn each_scheme_has_the_worst_of_its_own_claims() {
        let catalog = Catalog::read(&checkout()).unwrap();
        let sim = outcome(&[
            ("ir-dwb: slots look alike", "pass"),
            ("ir-dwb:queue: slots look alike", "leak"),
            ("the detector catches fetch-slots: T grows", "pass"),
            ("the detector catches ir-stash:as-printed: hits", "fault"),
        ]);
        let rows = rows(&catalog, &[("audit/sim", &Ok(sim))]);
        let of = |scheme: &str| rows.iter().find(|row| row.scheme == scheme).unwrap();
        let verdict = |scheme: &str| of(scheme).verdict.as_deref().unwrap_or("none");
        assert_eq!([verdict("ir-dwb"), verdict("ir-dwb:queue")], ["pass", "leak"]);
        assert_eq!(of("ir-dwb:queue").is_expected(), Some(false));
        assert_eq!(of("ir-dwb:queue").claims, 1);
        assert_eq!([verdict("fetch-slots"), verdict("ir-stash:as-printed")], ["leak", "pass"]);
        assert_eq!(of("fetch-slots").is_expected(), Some(true));
        assert_eq!(of("ir-stash:as-printed").is_expected(), Some(false), "a missed fault");
        assert_eq!((verdict("bundled"), of("bundled").is_expected()), ("none", None));
        assert_eq!(verdict("planted faults, all found"), "fault");
        assert!(rows.iter().all(|row| row.target == "sim"));
    }

    #[test]
    fn volumes_have_audits_of_their_own() {
        let catalog = Catalog::read(&checkout()).unwrap();
        let claims = [("traces are equal", "pass"), ("the detector catches plain", "pass")];
        let (made, failed) = (Ok(outcome(&claims)), Err(NoResult::Failed("no memory".to_owned())));
        let rows = rows(&catalog, &[("audit/volume/detwo", &made), ("audit/volume/sq", &failed)]);
        let verdicts: Vec<_> =
            rows.iter().map(|row| (row.scheme.as_str(), row.is_expected(), row.claims)).collect();
        assert_eq!(
            verdicts,
            [
                ("detwo", Some(true), 1),
                ("sq", None, 0),
                ("plain", Some(true), 1),
                ("sq:paper-cadence", None, 0),
                ("planted faults, all found", Some(true), 1),
            ]
        );
    }
}
