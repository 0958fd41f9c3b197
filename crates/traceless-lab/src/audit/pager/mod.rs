//! `traceless-lab audit pager`: what an adversary at the store learns of a program that pages.
//!
//! All users have the same number of faults, but at a constant rate: then the audit judges ticks,
//! which some users need all of, and some hardly any. Of write-only schemes the adversary observes
//! the writes, of trees all accesses.

mod run;
mod users;

use super::report::Progress;
use super::sampling::{UserDraws, claims_of_draws, pair_indices};
use super::suite::{self, AuditError, CaseKind, SelfTestCase, Suite};
use super::{Outcome, grouped};
use crate::args::audit::{AuditPagerArgs, Level};
use run::{PagerKind, PagerRun, Wrong};
use traceless_audit::{Claim, Verdict};
use traceless_audit::{Picture, UserPoints};
use users::{PAIRS, PagerUser, USERS};

/// Pages of a program: more than its frames, and enough leaves for the statistics.
const PAGES: u64 = 128;

/// A scheme, and the fault of its pager.
#[derive(Clone, Copy, Debug)]
pub struct PagerScheme {
    name: &'static str,
    /// The scheme in each of these forms.
    kinds: &'static [PagerKind],
    wrong: Wrong,
    /// Whether the store is accessed at a constant rate.
    is_fixed: bool,
}

/// The suite of page schemes.
pub struct Pagers;

impl Suite for Pagers {
    type Scheme = PagerScheme;
    /// Faults of each user.
    type Size = u64;

    const TARGET: &'static str = "pager";
    const PLANTED: &'static [SelfTestCase<Self>] = &[
        planted("plain", PagerKind::PLAIN, Wrong::Nothing, "each page has a place of its own"),
        planted(
            "opam",
            PagerKind::OPAM,
            Wrong::Nothing,
            "a page comes by the path by which it left",
        ),
        planted(
            "mutant:skips-clean",
            PagerKind::DETWO,
            Wrong::SkipsClean,
            "a page that did not change is not written",
        ),
        planted(
            "mutant:reads-ahead",
            PagerKind::DETWO,
            Wrong::ReadsAhead,
            "after two pages in order the next one comes, too",
        ),
        planted(
            "mutant:skips-unwritten",
            PagerKind::PATH,
            Wrong::SkipsUnwritten,
            "a page that was never written comes without an access",
        ),
        planted(
            "mutant:path-skips-clean",
            PagerKind::PATH,
            Wrong::SkipsClean,
            "a page that did not change goes nowhere, and takes no path",
        ),
        planted_at_rate(
            "mutant:idle-stops",
            PagerKind::DETWO,
            Wrong::SkipsIdle,
            "a tick without a fault writes nothing",
        ),
        planted_at_rate(
            "mutant:path-idle-stops",
            PagerKind::FUSED,
            Wrong::SkipsIdle,
            "a tick without a fault takes no path",
        ),
        planted_at_rate(
            "mutant:lone-pages",
            PagerKind::PATH,
            Wrong::SkipsDummies,
            "a page that comes alone takes one path in place of two",
        ),
    ];

    fn honest() -> &'static [PagerScheme] {
        const {
            &[
                scheme(
                    "detwo",
                    &[
                        PagerKind::DetWo(1, 1),
                        PagerKind::DetWo(3, 1),
                        PagerKind::DetWo(15, 1),
                        PagerKind::DetWo(1, 3),
                    ],
                ),
                scheme("eager", &[PagerKind::Eager(1), PagerKind::Eager(3), PagerKind::Eager(15)]),
                scheme("path", &[PagerKind::Path]),
                scheme("path-fused", &[PagerKind::FusedPath]),
                scheme("ring", &[PagerKind::Ring]),
                fixed("detwo-fixed", PagerKind::DETWO),
                fixed("eager-fixed", &[PagerKind::Eager(3)]),
                fixed("path-fixed", PagerKind::PATH),
                fixed("path-fused-fixed", PagerKind::FUSED),
                fixed("ring-fixed", &[PagerKind::Ring]),
            ]
        }
    }

    fn size(level: Level) -> u64 {
        match level {
            Level::Quick => 1_500,
            Level::Ci => 8_000,
            Level::Release => 1_800_000,
        }
    }

    fn not_hidden(_: &[&PagerScheme]) -> &'static str {
        "Not hidden: the number of faults, and when they come, but at a constant rate; of \
         write-only schemes, all that is read; from a kernel that \
         delivers page faults, anything."
    }

    fn name(scheme: &PagerScheme) -> &'static str {
        scheme.name
    }

    fn title(scheme: &PagerScheme) -> String {
        format!("pager {}", scheme.name)
    }

    fn work(scheme: &PagerScheme, faults: u64) -> u64 {
        (scheme.kinds.len() * USERS.len()) as u64 * faults
    }

    fn claims(
        scheme: &PagerScheme,
        faults: u64,
        seed: u64,
        progress: &Progress,
    ) -> Result<Vec<Claim>, AuditError> {
        /// Faults of write-only schemes at most: exact comparison needs fewer faults than
        /// statistics.
        const EQUAL_MAX: u64 = 300_000;
        let mut claims = vec![];
        for &kind in scheme.kinds {
            let work = faults;
            let faults = if kind.is_tree() { faults } else { faults.min(EQUAL_MAX) };
            let users = (0..).zip(USERS);
            let runs = users.map(|(nth, user)| {
                let seed = seed.wrapping_mul(64) + nth;
                run::run(scheme, kind, user, faults, seed).inspect(|_| progress.advance(work))
            });
            let runs = runs.collect::<Result<Vec<PagerRun>, AuditError>>()?;
            let name = name_of(scheme, kind);
            claims.push(pages_come_back(&name, &runs));
            if kind.is_tree() {
                claims.push(faults_look_alike(&name, "faults of all users look alike", &runs));
                claims.extend(of_paths(&name, &runs));
            } else {
                claims.push(faults_look_alike(&name, "all users write the same", &runs));
            }
        }
        Ok(claims)
    }

    /// The paths of two users, for schemes in trees.
    fn pictures(scheme: &PagerScheme, seed: u64) -> Result<Vec<Picture>, AuditError> {
        let points_of = |user: PagerUser| -> Result<UserPoints, AuditError> {
            let run = run::run(scheme, scheme.kinds[0], user, Self::size(Level::Quick), seed)?;
            let points = (0..).zip(run.drawn.drawn).collect();
            Ok(UserPoints { name: user.name().to_owned(), points })
        };
        let users = [points_of(PagerUser::Few)?, points_of(PagerUser::Random)?];
        if users[0].points.is_empty() {
            return Ok(vec![]);
        }
        let title = format!("{}: the paths of two users", scheme.name);
        Ok(vec![Picture { title, across: "path", up: "leaf", users }])
    }
}

pub fn run(args: &AuditPagerArgs) -> Outcome {
    suite::run::<Pagers>(&args.run, args.scheme.as_deref())
}

impl PagerKind {
    const PLAIN: &'static [Self] = &[Self::Plain];
    const DETWO: &'static [Self] = &[Self::DetWo(3, 1)];
    const PATH: &'static [Self] = &[Self::Path];
    const FUSED: &'static [Self] = &[Self::FusedPath];
    const OPAM: &'static [Self] = &[Self::Opam];
}

const fn scheme(name: &'static str, kinds: &'static [PagerKind]) -> PagerScheme {
    PagerScheme { name, kinds, wrong: Wrong::Nothing, is_fixed: false }
}

const fn fixed(name: &'static str, kinds: &'static [PagerKind]) -> PagerScheme {
    PagerScheme { is_fixed: true, ..scheme(name, kinds) }
}

const fn planted(
    name: &'static str,
    kinds: &'static [PagerKind],
    wrong: Wrong,
    fault: &'static str,
) -> SelfTestCase<Pagers> {
    let scheme = PagerScheme { wrong, ..scheme(name, kinds) };
    SelfTestCase { scheme, kind: CaseKind::Fault(fault), size: 1_500 }
}

const fn planted_at_rate(
    name: &'static str,
    kinds: &'static [PagerKind],
    wrong: Wrong,
    fault: &'static str,
) -> SelfTestCase<Pagers> {
    let case = planted(name, kinds, wrong, fault);
    let scheme = PagerScheme { wrong, ..fixed(name, kinds) };
    SelfTestCase { scheme, ..case }
}

fn name_of(scheme: &PagerScheme, kind: PagerKind) -> String {
    let name = scheme.name;
    match kind {
        PagerKind::DetWo(k, 1) | PagerKind::Eager(k) => format!("{name} K = {k}"),
        PagerKind::DetWo(k, of) => format!("{name} K = {k}/{of}"),
        _ => name.to_owned(),
    }
}

/// The claims that paths are drawn anew, and that public paths follow from the number of the fault.
fn of_paths(name: &str, runs: &[PagerRun]) -> Vec<Claim> {
    let drawn: Vec<_> = runs.iter().map(|run| [run.drawn.clone()]).collect();
    let users = USERS.iter().zip(&drawn);
    let users: Vec<_> = users.map(|(user, draws)| UserDraws { name: user.name(), draws }).collect();
    let mut claims = claims_of_draws(name, &users, &pair_indices(&USERS, &PAIRS));
    if runs.iter().any(|run| !run.public.is_empty()) {
        claims.push(public_paths(name, runs));
    }
    claims
}

const ONE: &str = "one differing event is found";

/// The claim that each fault shows the same events for every user.
fn faults_look_alike(name: &str, what: &str, runs: &[PagerRun]) -> Claim {
    let of_users = runs.iter().map(|run| &run.faults[..]).collect::<Vec<_>>();
    all_equal(format!("{name}: {what}"), "fault", &of_users)
}

fn public_paths(name: &str, runs: &[PagerRun]) -> Claim {
    let of_users = runs.iter().map(|run| &run.public[..]).collect::<Vec<_>>();
    all_equal(format!("{name}: evictions follow from the number of faults"), "eviction", &of_users)
}

fn all_equal<T: PartialEq>(name: String, noun: &str, of_users: &[&[T]]) -> Claim {
    let first = of_users[0];
    for (user, of_user) in USERS.iter().zip(of_users) {
        let equal = first.iter().zip(*of_user).take_while(|(a, b)| a == b).count();
        if equal < first.len().max(of_user.len()) {
            let (a, b) = (user.name(), USERS[0].name());
            let evidence = format!("{noun} {equal} of {a} and of {b} differs");
            return Claim::exact(name, Verdict::Leak, equal as u64, ONE, evidence);
        }
    }
    let all = first.len() * of_users.len();
    let evidence = format!("{} {noun}s of {} users", grouped(all as u64), of_users.len());
    Claim::exact(name, Verdict::Pass, all as u64, ONE, evidence)
}

fn pages_come_back(name: &str, runs: &[PagerRun]) -> Claim {
    let wrong: u64 = runs.iter().map(|run| run.wrong).sum();
    let faults: usize = runs.iter().map(|run| run.faults.len()).sum();
    let verdict = if wrong == 0 { Verdict::Pass } else { Verdict::Fault };
    let evidence = format!("{wrong} of {} are others", grouped(faults as u64));
    let name = format!("{name}: pages come back as they went");
    Claim::exact(name, verdict, faults as u64, "one wrong byte is found", evidence)
}
