//! `traceless-lab audit deniable`: can an adversary that has the public key, every copy of an image
//! and the trace of its writes say whether hidden volumes are in use?
//!
//! Two users make the same public requests; one also uses hidden volumes. The bare scheme
//! runs in memory: what the public key lifts, the veil over the public volume's headers, is not
//! there.

mod faults;
mod user;

use super::Outcome;
use super::report::Progress;
use super::suite::{self, AuditError, CaseKind, SelfTestCase, Suite};
use super::workload::mix;
use crate::args::audit::{AuditDeniableArgs, Level};
use faults::LaneFault;
use traceless_audit::grouped;
use traceless_audit::{
    Claim, Compare, Picture, UserPoints, Verdict, compare, copies_are_indistinguishable,
};
use user::{DeniableUser, Observed};

/// Hidden volumes beside a public one, compared with none.
#[derive(Clone, Copy, Debug)]
pub struct DeniableScheme {
    name: &'static str,
    hidden: usize,
    fault: LaneFault,
}

/// How much an audit runs.
#[derive(Clone, Copy, Debug)]
pub struct DeniableSize {
    /// Disks of each user.
    disks: u64,
    /// Copies of each disk.
    copies: u64,
    /// Public writes from one copy to the next.
    writes: u64,
}

/// The suite of deniable images.
pub struct DeniableImages;

const fn hidden(name: &'static str, hidden: usize) -> DeniableScheme {
    DeniableScheme { name, hidden, fault: LaneFault::Nothing }
}

const fn planted(
    name: &'static str,
    fault: LaneFault,
    kind: CaseKind,
) -> SelfTestCase<DeniableImages> {
    let scheme = DeniableScheme { name, hidden: 3, fault };
    SelfTestCase { scheme, kind, size: DeniableSize { disks: 4, copies: 30, writes: 64 } }
}

impl Suite for DeniableImages {
    type Scheme = DeniableScheme;
    type Size = DeniableSize;

    const TARGET: &'static str = "deniable";
    const PLANTED: &'static [SelfTestCase<Self>] = &[
        planted("mutant:sound-lane", LaneFault::Nothing, CaseKind::SoundTwin),
        planted(
            "mutant:empty-zeros",
            LaneFault::EmptyZeros,
            CaseKind::Fault("slots without a hidden block are zeros"),
        ),
        planted(
            "mutant:weak-filler",
            LaneFault::WeakFiller,
            CaseKind::Fault("what fills such slots lacks a bit now and then"),
        ),
        planted(
            "mutant:skips-empty",
            LaneFault::SkipsEmpty,
            CaseKind::Fault("such slots are not written"),
        ),
        planted(
            "mutant:writes-at-once",
            LaneFault::WritesAtOnce,
            CaseKind::Fault("a hidden request makes a write"),
        ),
    ];

    fn honest() -> &'static [DeniableScheme] {
        const { &[hidden("hidden-1", 1), hidden("hidden-3", 3), hidden("hidden-15", 15)] }
    }

    fn size(level: Level) -> DeniableSize {
        match level {
            Level::Quick => DeniableSize { disks: 16, copies: 100, writes: 64 },
            Level::Ci => DeniableSize { disks: 24, copies: 100, writes: 64 },
            Level::Release => DeniableSize { disks: 100, copies: 100, writes: 200 },
        }
    }

    fn not_hidden(_: &[&DeniableScheme]) -> &'static str {
        "Not hidden: reads, the number of public writes, syncs."
    }

    fn name(scheme: &DeniableScheme) -> &'static str {
        scheme.name
    }

    fn work(_: &DeniableScheme, size: DeniableSize) -> u64 {
        2 * size.disks * size.copies
    }

    fn claims(
        scheme: &DeniableScheme,
        size: DeniableSize,
        seed: u64,
        progress: &Progress,
    ) -> Result<Vec<Claim>, AuditError> {
        let of_user = |hidden: usize| -> Result<Vec<Observed>, AuditError> {
            let disk = |nth| {
                let seeds = (mix(seed, nth), mix(mix(seed, nth), 1 + hidden as u64));
                let user = DeniableUser { hidden, fault: scheme.fault, seeds };
                let observed = user.observed(size)?;
                progress.advance(size.copies);
                Ok(observed)
            };
            (0..size.disks).map(disk).collect()
        };
        let (without, with) = (of_user(0)?, of_user(scheme.hidden)?);
        let what = format!("0 and {} hidden volumes", scheme.hidden);
        let mut claims = vec![equal_traces(scheme.name, &what, &without, &with)];
        let lost: u64 = with.iter().map(|user| user.lost).sum();
        let read: u64 = with.iter().map(|user| user.read).sum();
        claims.push(hidden_blocks_come_back(scheme.name, read, lost));
        let copies = [without, with].map(|of| of.into_iter().map(|o| o.copies).collect::<Vec<_>>());
        let learned = copies_are_indistinguishable(&copies[0], &copies[1], &what);
        claims.push(Claim { name: format!("{}: {}", scheme.name, learned.name), ..learned });
        Ok(claims)
    }

    /// The number of blocks that change from copy to copy.
    fn pictures(scheme: &DeniableScheme, seed: u64) -> Result<Vec<Picture>, AuditError> {
        let size = DeniableSize { disks: 1, copies: 40, writes: 64 };
        let points = |hidden: usize| -> Result<UserPoints, AuditError> {
            let seeds = (seed, mix(seed, 1 + hidden as u64));
            let user = DeniableUser { hidden, fault: scheme.fault, seeds };
            let points = (0..).zip(user.observed(size)?.changed).collect();
            Ok(UserPoints { name: format!("{hidden} hidden volumes"), points })
        };
        let users = [points(0)?, points(scheme.hidden)?];
        let title = format!("{}: blocks that change", scheme.name);
        Ok(vec![Picture { title, across: "copy", up: "blocks", users }])
    }
}

pub fn run(args: &AuditDeniableArgs) -> Outcome {
    suite::run::<DeniableImages>(&args.run, args.scheme.as_deref())
}

/// The claim that the disks of both users see the same writes and syncs, in the same order.
fn equal_traces(scheme: &str, what: &str, a: &[Observed], b: &[Observed]) -> Claim {
    let events = |of: &[Observed]| of.iter().flat_map(|o| o.events.clone()).collect::<Vec<_>>();
    let how = Compare { exact_order: true, ..Compare::default() };
    let found = compare(events(a), events(b), how);
    Claim::equal_traces(format!("{scheme}: traces of writes are equal: {what}"), &found)
}

/// The claim that hidden volumes hold what was written: that they were in use.
fn hidden_blocks_come_back(scheme: &str, read: u64, lost: u64) -> Claim {
    let verdict = if lost == 0 && read > 0 { Verdict::Pass } else { Verdict::Fault };
    let name = format!("{scheme}: hidden blocks read as they were last written");
    let evidence = format!("{lost} of {} are others", grouped(read));
    Claim::exact(name, verdict, read, "one wrong byte is found", evidence)
}

#[cfg(test)]
mod tests {
    use super::super::tests::outcome;
    use super::super::{CLEAN, FOUND};
    use super::*;
    use traceless_audit::Statistic;

    #[test]
    fn three_hidden_volumes_are_not_noticed() {
        let scheme = suite::find_scheme::<DeniableImages>("hidden-3").unwrap();
        let size = DeniableImages::size(Level::Quick);
        let claims = DeniableImages::claims(scheme, size, 1, &Progress::unseen()).unwrap();
        for claim in &claims {
            assert_eq!(claim.verdict, Verdict::Pass, "{claim:?}");
        }
        let Statistic::Value(advantage) = claims[2].statistic else { panic!("{claims:?}") };
        assert!(advantage <= 0.02 && claims[2].power.contains("0.0"), "{:?}", claims[2]);
    }

    #[test]
    fn planted_faults_are_found() {
        for claim in suite::planted_claims::<DeniableImages>(&Progress::unseen()).unwrap() {
            assert_eq!(claim.verdict, Verdict::Pass, "{claim:?}");
        }
    }

    /// Two of the faults leave the trace as it was, and only learning finds them.
    #[test]
    fn contents_alone_are_learned() {
        for case in DeniableImages::PLANTED {
            let claims = DeniableImages::claims(&case.scheme, case.size, 1, &Progress::unseen());
            let claims = claims.unwrap();
            let of_contents =
                matches!(case.scheme.fault, LaneFault::EmptyZeros | LaneFault::WeakFiller);
            if of_contents {
                let verdicts = [claims[0].verdict, claims[2].verdict];
                assert_eq!(verdicts, [Verdict::Pass, Verdict::Leak], "{}", case.scheme.name);
            }
        }
    }

    #[test]
    fn faults_can_be_audited_by_name() {
        let audit = |name| {
            outcome(&["deniable", "--scheme", name, "--level", "quick", "--schemes-only"]).code
        };
        assert_eq!(audit("hidden-1"), CLEAN);
        assert_eq!(audit("mutant:skips-empty"), FOUND);
    }
}
