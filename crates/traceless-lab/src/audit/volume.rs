//! `traceless-lab audit volume`: the claims of a volume's scheme, checked on the bare scheme in
//! memory.

use super::claims::{self, ARRAY, PLANTED_SIZE, VolumeSize};
use super::report::Progress;
use super::suite::{self, AuditError, CaseKind, SelfTestCase, Suite};
use super::target::{AuditSubject, MutantKind};
use super::workload::{Pattern, writes};
use super::{Outcome, record_only, runner};
use crate::args::audit::{AuditVolumeArgs, Level, VOLUME_USERS};
use std::sync::LazyLock;
use traceless::{Hides, Result};
use traceless_audit::Picture;
use traceless_audit::{Claim, Statistic, Verdict};
use traceless_block::plain::PLAIN;
use traceless_block::registry;
use traceless_cli::trace::Trace;

/// A scheme by the name that the command line has for it.
#[derive(Clone, Copy, Debug)]
pub struct VolumeScheme {
    name: &'static str,
    pub subject: AuditSubject,
    /// The scheme in words, in claims about planted faults.
    words: &'static str,
    /// What an audit finds in it.
    finding: Finding,
}

/// What an audit finds in a scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Finding {
    /// Nothing.
    Nothing,
    /// Different traces.
    Leak,
    /// Slots that are not random.
    Uneven,
    /// Equal traces, and lost blocks.
    Loss,
}

/// The suite of volume schemes.
pub struct Volumes;

/// What a volume can be made with, and the array in which every access moves every block.
static HONEST: LazyLock<Vec<VolumeScheme>> = LazyLock::new(|| {
    let blocks = registry::KINDS.iter().map(|kind| (kind.name, AuditSubject::Block(kind)));
    let all = blocks.chain([("linear", AuditSubject::Linear)]);
    let honest = all.filter(|(_, subject)| subject.hides() != Hides::Nothing);
    let scheme =
        |(name, subject)| VolumeScheme { name, subject, words: name, finding: Finding::Nothing };
    honest.map(scheme).collect()
});

const fn planted(
    name: &'static str,
    subject: AuditSubject,
    words: &'static str,
    finding: Finding,
) -> SelfTestCase<Volumes> {
    let kind = match finding {
        Finding::Nothing => CaseKind::SoundTwin,
        Finding::Leak | Finding::Uneven | Finding::Loss => CaseKind::Fault(words),
    };
    SelfTestCase {
        scheme: VolumeScheme { name, subject, words, finding },
        kind,
        size: PLANTED_SIZE,
    }
}

const fn mutant(
    name: &'static str,
    kind: MutantKind,
    words: &'static str,
    finding: Finding,
) -> SelfTestCase<Volumes> {
    planted(name, AuditSubject::Mutant(kind), words, finding)
}

impl Suite for Volumes {
    type Scheme = VolumeScheme;
    type Size = VolumeSize;

    const TARGET: &'static str = "volume";
    const PLANTED: &'static [SelfTestCase<Self>] = &[
        planted("plain", AuditSubject::Block(&PLAIN), "plain", Finding::Leak),
        mutant(
            "mutant:skips-clean",
            MutantKind::SkipsClean,
            "skipped clean refreshes",
            Finding::Leak,
        ),
        mutant("mutant:coalesces", MutantKind::Coalesces, "coalesced duplicates", Finding::Leak),
        mutant(
            "mutant:literal-wrap",
            MutantKind::LiteralWrap,
            "the refresh range as printed",
            Finding::Loss,
        ),
        mutant("mutant:sound", MutantKind::Sound, "the mutants' sound twin", Finding::Nothing),
        planted("sq:paper-cadence", AuditSubject::SqPaper, "shared map blocks", Finding::Leak),
        mutant("mutant:skips-fakes", MutantKind::SkipsFakes, "skipped fakes", Finding::Leak),
        mutant(
            "mutant:keeps-older",
            MutantKind::KeepsOlder,
            "the duplicate rule as printed",
            Finding::Loss,
        ),
        mutant("mutant:sound-sq", MutantKind::SoundSq, "the sound twin of those", Finding::Nothing),
        mutant(
            "mutant:skips-unchanged",
            MutantKind::SkipsUnchanged,
            "discards that write only what changes",
            Finding::Leak,
        ),
        mutant(
            "mutant:notes-rewrites",
            MutantKind::NotesRewrites,
            "a write more for a discarded block",
            Finding::Leak,
        ),
        mutant(
            "mutant:sound-discards",
            MutantKind::SoundDiscards,
            "the sound twin of discards",
            Finding::Nothing,
        ),
        mutant(
            "mutant:skips-repeats",
            MutantKind::SkipsRepeats,
            "reads from memory of what was just read",
            Finding::Leak,
        ),
        mutant(
            "mutant:own-slot",
            MutantKind::OwnSlot,
            "a block's own slot among those drawn",
            Finding::Uneven,
        ),
        mutant(
            "mutant:prefers-free",
            MutantKind::PrefersFree,
            "free slots drawn more often",
            Finding::Uneven,
        ),
        mutant(
            "mutant:sound-random",
            MutantKind::SoundRandom,
            "the sound twin of random slots",
            Finding::Nothing,
        ),
    ];

    fn honest() -> &'static [VolumeScheme] {
        &HONEST
    }

    fn size(level: Level) -> VolumeSize {
        match level {
            Level::Quick => VolumeSize {
                blocks: 256,
                map_blocks: 1024,
                cycles: 4,
                writes_max: 1200,
                seeds: 1,
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
                openings: 200,
                many_openings: true,
                drawn_writes: 2_000_000,
            },
        }
    }

    fn not_hidden(schemes: &[&VolumeScheme]) -> &'static str {
        let [scheme] = schemes else { return "" };
        match scheme.subject.hides() {
            Hides::WritesOnly => "Not hidden by this scheme: reads, the number of writes, syncs.",
            Hides::ReadsAndWrites => "Not hidden by this scheme: the number of accesses, syncs.",
            Hides::Nothing => "This scheme claims to hide contents only.",
        }
    }

    fn name(scheme: &VolumeScheme) -> &'static str {
        scheme.name
    }

    fn work(scheme: &VolumeScheme, size: VolumeSize) -> u64 {
        claims::work(scheme.subject, size)
    }

    fn claims(
        scheme: &VolumeScheme,
        size: VolumeSize,
        seed: u64,
        progress: &Progress,
    ) -> std::result::Result<Vec<Claim>, AuditError> {
        Ok(claims::claims(scheme.subject, size, seed, progress)?)
    }

    /// The claim holds if the checks for this kind of fault fail.
    fn detection(case: &SelfTestCase<Self>, claims: &[Claim]) -> Claim {
        case.scheme.finding.claim(case.scheme.words, claims)
    }

    fn pictures(scheme: &VolumeScheme, seed: u64) -> std::result::Result<Vec<Picture>, AuditError> {
        Ok(claims::pictures(scheme.subject, seed)?)
    }
}

impl Finding {
    /// The claim that `claims`, which are about the scheme `words`, have this finding.
    fn claim(self, words: &str, claims: &[Claim]) -> Claim {
        let failing: Vec<_> = claims.iter().filter(|c| c.verdict != Verdict::Pass).collect();
        let leaks = failing.iter().any(|c| c.verdict == Verdict::Leak);
        let loss = failing.iter().find(|c| c.name == ARRAY);
        let uneven = failing.iter().find(|c| c.p.is_some());
        let (verb, is_right, example) = match self {
            Self::Nothing => ("finds nothing in", failing.is_empty(), None),
            Self::Leak => ("catches", leaks, None),
            Self::Uneven => ("catches", uneven.is_some(), uneven),
            Self::Loss => ("catches", !leaks && loss.is_some(), loss),
        };
        let evidence = match example.or(failing.first()) {
            None => format!("none of {} checks found anything", claims.len()),
            Some(example) => {
                let check = example.name.rsplit(": ").next().unwrap_or_default();
                let (n, all) = (failing.len(), claims.len());
                format!("{n} of {all} checks found it, such as \"{check}\": {}", example.evidence)
            }
        };
        let verdict = if is_right { Verdict::Pass } else { Verdict::Fault };
        let name = format!("the detector {verb} {words}");
        Claim {
            statistic: Statistic::Count(failing.len() as u64),
            ..Claim::exact(name, verdict, 0, "no chance in it", evidence)
        }
    }
}

pub fn run(args: &AuditVolumeArgs) -> Outcome {
    if args.record.trace.trace.is_some() {
        return record_only(&args.record, |trace| record(args, trace));
    }
    suite::run::<Volumes>(&args.run, Some(&args.scheme))
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

fn record(args: &AuditVolumeArgs, trace: &Trace) -> Result {
    let scheme = suite::find_scheme::<Volumes>(&args.scheme).expect("clap has checked");
    let VolumeSize { blocks, map_blocks, writes_max, .. } = Volumes::size(args.run.level);
    let targets = scheme.subject.targets(blocks, map_blocks)?;
    let user = VOLUME_USERS.iter().position(|name| *name == args.user).expect("clap has checked");
    let length = args.record.length.unwrap_or(writes_max.min(RECORDED_MAX));
    runner::record(&targets[0], writes(USERS[user]), length, args.run.seed, trace)
}

#[cfg(test)]
mod tests {
    use super::super::tests::outcome;
    use super::super::{CLEAN, FOUND};
    use super::*;
    use crate::args::audit::volume_schemes;
    use serde_json::Value;

    fn report(line: &[&str]) -> (u8, Value) {
        let outcome = outcome(&[line, &["--json"]].concat());
        assert!(outcome.err.is_empty(), "{}", outcome.err);
        (outcome.code, serde_json::from_str(&outcome.out).unwrap())
    }

    #[test]
    fn detwo_passes_with_every_claim() {
        let (code, report) = report(&["volume", "--scheme", "detwo", "--level", "quick"]);
        assert_eq!(code, CLEAN, "{report:#}");
        assert_eq!(report["schema"], "traceless.audit.v1");
        assert_eq!(report["verdict"], "pass");
        assert_eq!((&report["target"], &report["level"]), (&"volume".into(), &"quick".into()));
        let claims = report["claims"].as_array().unwrap();
        assert_eq!(claims.len(), 14 + 2 + Volumes::PLANTED.len());
        for claim in claims {
            assert_eq!(claim["verdict"], "pass");
            assert_eq!(claim["p"], Value::Null);
            assert!(claim["power"].as_str().unwrap().starts_with("exact: "));
        }
    }

    /// The arguments of an audit without the planted faults.
    fn audit_alone(scheme: &str) -> [&str; 6] {
        ["volume", "--scheme", scheme, "--level", "quick", "--schemes-only"]
    }

    #[test]
    fn random_slots_pass_with_statistics() {
        for scheme in ["hive", "datalair"] {
            let (code, report) = report(&audit_alone(scheme));
            assert_eq!(code, CLEAN, "{report:#}");
            let claims = report["claims"].as_array().unwrap();
            let p_values: Vec<f64> = claims.iter().filter_map(|c| c["p"].as_f64()).collect();
            // Claims about each user alone, about two users with secrets, and about both together;
            // each with the map in memory, and on the store.
            assert_eq!(p_values.len(), 2 * (9 + 11 + 11 + 2), "{report:#}");
            assert!(p_values.iter().all(|&p| (0.0..=1.0).contains(&p)));
        }
    }

    #[test]
    fn a_ring_passes_with_reads() {
        let (code, report) = report(&audit_alone("ring"));
        assert_eq!(code, CLEAN, "{report:#}");
        let claims = report["claims"].as_array().unwrap();
        let p_values: Vec<f64> = claims.iter().filter_map(|c| c["p"].as_f64()).collect();
        // As of random slots, in rings of one, two and three levels.
        assert_eq!(p_values.len(), 3 * (9 + 11 + 11 + 2), "{report:#}");
    }

    #[test]
    fn plain_leaks_with_evidence() {
        let (code, report) = report(&audit_alone("plain"));
        assert_eq!((code, &report["verdict"]), (FOUND, &"leak".into()));
        let first = &report["claims"][0];
        assert_eq!(first["verdict"], "leak");
        assert!(first["evidence"].as_str().unwrap().contains(": A has a write of "), "{first}");
        let text = outcome(&audit_alone("plain")).out;
        assert!(text.ends_with("verdict: leak\n"), "{text}");
    }

    #[test]
    fn every_level_has_a_size_for_every_scheme() {
        for level in [Level::Quick, Level::Ci, Level::Release] {
            let VolumeSize { blocks, map_blocks, .. } = Volumes::size(level);
            for name in volume_schemes() {
                let VolumeScheme { subject, .. } = suite::find_scheme::<Volumes>(name).unwrap();
                let many = claims::targets_of_many_openings(*subject);
                for targets in [subject.targets(blocks, map_blocks), many] {
                    let error = targets.err();
                    assert!(error.is_none(), "{name} at level {}: {error:?}", level.name());
                }
            }
        }
    }

    #[test]
    fn mutants_can_be_audited_by_name() {
        for (name, verdict) in [
            ("mutant:skips-clean", "leak"),
            ("mutant:coalesces", "leak"),
            ("mutant:literal-wrap", "fault"),
            ("mutant:skips-fakes", "leak"),
            ("mutant:keeps-older", "fault"),
            ("sq:paper-cadence", "leak"),
            ("mutant:skips-unchanged", "leak"),
            ("mutant:notes-rewrites", "leak"),
            ("mutant:skips-repeats", "leak"),
            ("mutant:own-slot", "leak"),
            ("mutant:prefers-free", "leak"),
        ] {
            let (code, report) = report(&audit_alone(name));
            assert_eq!((code, &report["verdict"]), (FOUND, &verdict.into()), "{name}");
        }
    }

    #[test]
    fn the_self_test_needs_no_scheme() {
        let outcome = outcome(&["volume", "--self-test"]);
        assert_eq!(outcome.code, CLEAN, "{}", outcome.out);
        assert_eq!(
            outcome.out.matches("pass   the detector").count(),
            Volumes::PLANTED.len(),
            "{}",
            outcome.out
        );
    }

    #[test]
    fn planted_faults_are_found_and_a_blind_detector_is_noticed() {
        for claim in suite::planted_claims::<Volumes>(&Progress::unseen()).unwrap() {
            assert_eq!(claim.verdict, Verdict::Pass, "{claim:?}");
        }
        let claims_about = |subject| {
            claims::claims(subject, PLANTED_SIZE, 1, &Progress::unseen())
                .expect("a store in memory")
        };
        let blind = claims_about(AuditSubject::Mutant(MutantKind::Sound));
        assert_eq!(Finding::Leak.claim("blind", &blind).verdict, Verdict::Fault);
        let noisy = claims_about(AuditSubject::Block(&PLAIN));
        assert_eq!(Finding::Nothing.claim("noisy", &noisy).verdict, Verdict::Fault);
    }
}
