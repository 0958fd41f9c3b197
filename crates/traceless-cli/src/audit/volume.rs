//! `traceless audit volume`: the claims of a volume's scheme, checked on the bare scheme in memory.

use super::claims::{self, PLANTED, Size};
use super::target::Subject;
use super::{CLEAN, FAILED, FOUND, Outcome, claim_line, json};
use crate::args::audit::{AuditVolumeArgs, Level};
use indicatif::{ProgressBar, ProgressStyle};
use traceless::Hides;
use traceless_audit::{Claim, Report, Verdict};

/// Its word on the command line and in reports.
fn level_name(level: Level) -> &'static str {
    match level {
        Level::Quick => "quick",
        Level::Ci => "ci",
        Level::Release => "release",
    }
}

fn size(level: Level) -> Size {
    match level {
        Level::Quick => Size {
            blocks: 256,
            map_blocks: 1024,
            cycles: 4,
            writes_max: 1200,
            seeds: 1,
            openings: 6,
            many_openings: false,
            drawn_writes: 20_000,
        },
        Level::Ci => Size {
            blocks: 1024,
            map_blocks: 4096,
            cycles: 4,
            writes_max: 8000,
            seeds: 2,
            openings: 40,
            many_openings: false,
            drawn_writes: 60_000,
        },
        Level::Release => Size {
            blocks: 4096,
            map_blocks: 16384,
            cycles: 4,
            writes_max: u64::MAX,
            seeds: 4,
            openings: 200,
            many_openings: true,
            drawn_writes: 400_000,
        },
    }
}

pub fn run(args: &AuditVolumeArgs) -> Outcome {
    let Some(subject) = Subject::named(&args.scheme) else {
        return Outcome::error(FAILED, &format!("there is no scheme {} here", args.scheme));
    };
    let progress = Progress::new(if args.self_test { 0 } else { claims::steps(subject) });
    let audited =
        if args.self_test { Ok(vec![]) } else { progress.audit(subject, size(args.level)) };
    let (mut claims, planted) = match (audited, progress.planted()) {
        (Ok(claims), Ok(planted)) => (claims, planted),
        (Err(error), _) | (_, Err(error)) => {
            return Outcome::error(FAILED, &format!("the audit could not be run: {error}"));
        }
    };
    let missed = planted.iter().find(|claim| claim.verdict != Verdict::Pass).cloned();
    claims.extend(planted);
    let report = if args.self_test {
        Report::new("self-test", "planted faults", "self-test", claims)
    } else {
        Report::new("volume", &args.scheme, level_name(args.level), claims)
    };
    let out = if args.json { json(&report) } else { text(&report, subject, args.self_test) };
    let mut outcome =
        Outcome::new(if report.verdict == Verdict::Pass { CLEAN } else { FOUND }, out);
    if let Some(missed) = missed {
        outcome.code = FAILED;
        let claim = format!("{}: {}", missed.name, missed.evidence);
        outcome.err = format!(
            "traceless: a planted fault was missed, so nothing that this audit says counts; it is \
             not true that {claim}\n"
        );
    }
    outcome
}

/// A bar on the terminal, if there is one, while runs are made.
struct Progress(ProgressBar);

impl Progress {
    fn new(steps: u64) -> Self {
        let bar = ProgressBar::new(steps + PLANTED.len() as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} checks, {elapsed}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    fn audit(&self, subject: Subject, size: Size) -> traceless::Result<Vec<Claim>> {
        claims::claims(subject, size, &mut || self.0.inc(1))
    }

    fn planted(&self) -> traceless::Result<Vec<Claim>> {
        let audit = |&(subject, name, expected)| {
            self.0.inc(1);
            claims::planted(subject, name, expected)
        };
        PLANTED.iter().map(audit).collect()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn text(report: &Report, subject: Subject, self_test: bool) -> String {
    let scope = match subject.hides() {
        _ if self_test => "",
        Hides::WritesOnly => "Not hidden by this scheme: reads, the number of writes, syncs.\n",
        Hides::ReadsAndWrites => "Not hidden by this scheme: the number of accesses, syncs.\n",
        Hides::Nothing => "This scheme claims to hide contents only.\n",
    };
    let claims: String = report.claims.iter().map(claim_line).collect();
    let (scheme, level, verdict) = (&report.scheme, &report.level, report.verdict.word());
    format!("scheme {scheme}, level {level}\n\n{claims}\n{scope}verdict: {verdict}\n")
}

#[cfg(test)]
mod tests {
    use super::super::claims::PLANTED;
    use super::super::tests::outcome;
    use super::super::{CLEAN, FOUND};
    use serde_json::Value;

    fn report(line: &[&str]) -> (u8, Value) {
        let found = outcome(&[line, &["--json"]].concat());
        assert!(found.err.is_empty(), "{}", found.err);
        (found.code, serde_json::from_str(&found.out).unwrap())
    }

    #[test]
    fn detwo_passes_with_every_claim() {
        let (code, report) = report(&["volume", "--scheme", "detwo", "--level", "quick"]);
        assert_eq!(code, CLEAN, "{report:#}");
        assert_eq!(report["schema"], "traceless.audit.v1");
        assert_eq!(report["verdict"], "pass");
        assert_eq!((&report["target"], &report["level"]), (&"volume".into(), &"quick".into()));
        let claims = report["claims"].as_array().unwrap();
        assert_eq!(claims.len(), 12 + 2 + PLANTED.len());
        for claim in claims {
            assert_eq!(claim["verdict"], "pass");
            assert_eq!(claim["p"], Value::Null);
            assert!(claim["power"].as_str().unwrap().starts_with("exact: "));
        }
    }

    #[test]
    fn random_slots_pass_with_statistics() {
        for scheme in ["hive", "datalair"] {
            let (code, report) = report(&["volume", "--scheme", scheme, "--level", "quick"]);
            assert_eq!(code, CLEAN, "{report:#}");
            let claims = report["claims"].as_array().unwrap();
            let judged: Vec<f64> = claims.iter().filter_map(|c| c["p"].as_f64()).collect();
            assert_eq!(judged.len(), 2 * (4 + 5 + 5 + 1), "{report:#}");
            assert!(judged.iter().all(|&p| (0.0..=1.0).contains(&p)));
        }
    }

    #[test]
    fn plain_leaks_with_evidence() {
        let (code, report) = report(&["volume", "--scheme", "plain", "--level", "quick"]);
        assert_eq!((code, &report["verdict"]), (FOUND, &"leak".into()));
        let first = &report["claims"][0];
        assert_eq!(first["verdict"], "leak");
        assert!(first["evidence"].as_str().unwrap().contains(": A has a write of "), "{first}");
        let text = outcome(&["volume", "--scheme", "plain", "--level", "quick"]).out;
        assert!(text.ends_with("verdict: leak\n"), "{text}");
    }

    #[test]
    fn mutants_can_be_shown() {
        for (name, verdict) in [
            ("mutant:skips-clean", "leak"),
            ("mutant:coalesces", "leak"),
            ("mutant:literal-wrap", "fault"),
            ("mutant:skips-fakes", "leak"),
            ("mutant:keeps-older", "fault"),
            ("sq:paper-cadence", "leak"),
            ("mutant:own-slot", "leak"),
            ("mutant:prefers-free", "leak"),
        ] {
            let (code, report) = report(&["volume", "--scheme", name, "--level", "quick"]);
            assert_eq!((code, &report["verdict"]), (FOUND, &verdict.into()), "{name}");
        }
    }

    #[test]
    fn the_self_test_needs_no_scheme() {
        let found = outcome(&["volume", "--self-test"]);
        assert_eq!(found.code, CLEAN, "{}", found.out);
        assert_eq!(
            found.out.matches("pass   the detector").count(),
            PLANTED.len(),
            "{}",
            found.out
        );
    }
}
