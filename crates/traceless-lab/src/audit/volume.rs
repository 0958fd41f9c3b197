//! `traceless-lab audit volume`: the claims of a volume's scheme, checked on the bare scheme in
//! memory.

use super::audited::{AuditResult, Progress, is_clean, told, with_repeats};
use super::claims::{self, ExpectedFinding, PLANTED, VolumeSize};
use super::target::{AuditSubject, honest};
use super::workload::{Pattern, writes};
use super::{FAILED, Outcome, recorded, runner};
use crate::args::audit::{AuditVolumeArgs, Level, VOLUME_USERS};
use traceless::{Hides, Result};
use traceless_audit::Claim;
use traceless_cli::trace::Trace;
use traceless_sim::parallel::{cores, in_parallel};

fn size(level: Level, seed: u64) -> VolumeSize {
    match level {
        Level::Quick => VolumeSize {
            blocks: 256,
            map_blocks: 1024,
            cycles: 4,
            writes_max: 1200,
            seeds: 1,
            seed,
            openings: 6,
            many_openings: false,
            drawn_writes: 20_000,
        },
        Level::Ci => VolumeSize {
            blocks: 1024,
            map_blocks: 4096,
            cycles: 4,
            writes_max: 8000,
            seeds: 2,
            seed,
            openings: 40,
            many_openings: false,
            drawn_writes: 60_000,
        },
        Level::Release => VolumeSize {
            blocks: 4096,
            map_blocks: 16384,
            cycles: 4,
            writes_max: u64::MAX,
            seeds: 4,
            seed,
            openings: 200,
            many_openings: true,
            drawn_writes: 2_000_000,
        },
    }
}

pub fn run(args: &AuditVolumeArgs) -> Outcome {
    let Some(subject) = AuditSubject::named(&args.scheme) else {
        return Outcome::error(FAILED, &format!("there is no scheme {} here", args.scheme));
    };
    if args.record.trace.trace.is_some() {
        return recorded(&args.record, |trace| record(args, subject, trace));
    }
    told(audited(args, subject), &args.run.shown)
}

fn audited(args: &AuditVolumeArgs, subject: AuditSubject) -> Result<AuditResult> {
    if args.run.self_test {
        return Ok(AuditResult::of_planted(planted(&Progress::new(PLANTED.len()))?));
    }
    let progress = Progress::new(claims::steps(subject) + PLANTED.len());
    Ok(AuditResult {
        target: "volume",
        scheme: args.scheme.clone(),
        level: args.run.level.name(),
        claims: claims_of(subject, args.run.level, args.run.seed, &mut || progress.advance())?,
        planted: planted(&progress)?,
        not_hidden: not_hidden(subject),
        pictures: if args.run.shown.html.is_some() { claims::pictures(subject)? } else { vec![] },
    })
}

/// The patterns that can be recorded, in the order of their names in `VOLUME_USERS`.
const USERS: [Pattern; VOLUME_USERS.len()] = [
    Pattern::Same,
    Pattern::Random,
    Pattern::Sequential,
    Pattern::Reverse,
    Pattern::Hot,
    Pattern::Cold,
    Pattern::Twice,
];

/// Recorded writes at most, unless the command line gives their number.
const RECORDED_MAX: u64 = 1 << 16;

fn record(args: &AuditVolumeArgs, subject: AuditSubject, trace: &Trace) -> Result {
    let VolumeSize { blocks, map_blocks, writes_max, .. } = size(args.run.level, args.run.seed);
    let targets = subject.targets(blocks, map_blocks)?;
    let user = VOLUME_USERS.iter().position(|name| *name == args.user).expect("clap has checked");
    let length = args.record.length.unwrap_or(writes_max.min(RECORDED_MAX));
    runner::record(&targets[0], writes(USERS[user]), length, args.run.seed, trace)
}

/// How often the self-test advances the progress.
pub fn self_test_steps() -> usize {
    honest().len() + PLANTED.len()
}

/// One claim for each scheme without a fault: the audit finds nothing in it.
pub fn clean(progress: &Progress) -> Result<Vec<Claim>> {
    let audit = |&(subject, name): &(AuditSubject, &str)| {
        let claims = claims_of(subject, Level::Quick, 1, &mut || {})?;
        progress.advance();
        Ok(is_clean(name, &claims))
    };
    in_parallel(&honest(), cores(), audit).into_iter().collect()
}

/// All claims about a scheme. Suspicious ones are run a second time.
pub fn claims_of(
    subject: AuditSubject,
    level: Level,
    seed: u64,
    done: &mut dyn FnMut(),
) -> Result<Vec<Claim>> {
    with_repeats(seed, |seed| claims::claims(subject, size(level, seed), done))
}

/// One claim for each planted fault: the audit finds it.
pub fn planted(progress: &Progress) -> Result<Vec<Claim>> {
    let audit = |&(subject, name, expected): &(AuditSubject, &str, ExpectedFinding)| {
        let claim = claims::planted(subject, name, expected);
        progress.advance();
        claim
    };
    in_parallel(&PLANTED, cores(), audit).into_iter().collect()
}

fn not_hidden(subject: AuditSubject) -> &'static str {
    match subject.hides() {
        Hides::WritesOnly => "Not hidden by this scheme: reads, the number of writes, syncs.",
        Hides::ReadsAndWrites => "Not hidden by this scheme: the number of accesses, syncs.",
        Hides::Nothing => "This scheme claims to hide contents only.",
    }
}

#[cfg(test)]
mod tests {
    use super::super::claims::PLANTED;
    use super::super::tests::outcome;
    use super::super::{CLEAN, FOUND};
    use super::*;
    use crate::args::audit::volume_schemes;
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
            // Claims about each user alone, about two users with secrets, and about both together;
            // each with the map in memory, and on the store.
            assert_eq!(judged.len(), 2 * (9 + 11 + 11 + 2), "{report:#}");
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
    fn every_level_has_a_size_for_every_scheme() {
        for level in [Level::Quick, Level::Ci, Level::Release] {
            let VolumeSize { blocks, map_blocks, .. } = size(level, 1);
            for name in volume_schemes() {
                let subject = AuditSubject::named(name).unwrap();
                let many = claims::targets_of_many_openings(subject);
                for targets in [subject.targets(blocks, map_blocks), many] {
                    let error = targets.err();
                    assert!(error.is_none(), "{name} at level {}: {error:?}", level.name());
                }
            }
        }
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
