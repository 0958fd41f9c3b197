//! `traceless audit tree`: schemes that lie in trees, at a fixed rate: each step accesses one path,
//! whether anybody asked for something or not.

mod mutants;
mod run;
mod schemes;
mod users;
mod watch;

use super::audited::{Audited, Progress, is_clean};
use super::{FAILED, Outcome, grouped, recorded};
use crate::args::audit::{AuditTreeArgs, Level, TREE_USERS};
use crate::parallel::{cores, in_parallel};
use crate::trace::Trace;
use mutants::{PLANTED, Planted};
use run::{Run, record_user, run_user};
use schemes::{SCHEMES, Scheme};
use traceless::Result;
use traceless_audit::{ALPHA, Claim, Verdict, cannot_be_told_apart, worst_of};
use users::{PAIRS, USERS};

/// How much is run.
#[derive(Clone, Copy, Debug)]
struct Size {
    blocks: u64,
    steps: u64,
}

fn size(level: Level) -> Size {
    match level {
        Level::Quick => Size { blocks: 512, steps: 8_000 },
        Level::Ci => Size { blocks: 2048, steps: 40_000 },
        Level::Release => Size { blocks: 8192, steps: 1_000_000 },
    }
}

/// What is run with planted faults: enough for all of them.
const PLANTED_SIZE: Size = Size { blocks: 512, steps: 40_000 };

pub fn run(args: &AuditTreeArgs) -> Outcome {
    if args.record.trace.trace.is_some() {
        return recorded(&args.record, |trace| record(args, trace));
    }
    match audited(args) {
        Ok(audited) => audited.outcome(args.json),
        Err(error) => Outcome::error(FAILED, &format!("the audit could not be run: {error}")),
    }
}

fn audited(args: &AuditTreeArgs) -> Result<Audited> {
    if args.self_test {
        return Ok(Audited::of_planted(planted(&Progress::new(PLANTED.len()))?));
    }
    let named = args.scheme.as_deref();
    let chosen: Vec<Scheme> = match named {
        Some(name) => Scheme::named(name).into_iter().collect(),
        None => SCHEMES.to_vec(),
    };
    let progress = Progress::new(chosen.len() + PLANTED.len());
    let claims = in_parallel(&chosen, cores(), |scheme| {
        let claims = claims_of(scheme, size(args.level), args.seed);
        progress.advance();
        claims
    });
    Ok(Audited {
        target: "tree",
        scheme: named.unwrap_or("all").to_owned(),
        level: args.level.name(),
        claims: claims.into_iter().collect::<Result<Vec<_>>>()?.concat(),
        planted: planted(&progress)?,
        not_hidden: "Not hidden: the number of steps; without a fixed rate, how many steps a \
                     request takes.",
    })
}

/// Users are in the order of their names on the command line.
fn record(args: &AuditTreeArgs, trace: &Trace) -> Result {
    let scheme = args.scheme.as_deref().and_then(Scheme::named).unwrap_or(SCHEMES[0]);
    let user = TREE_USERS.iter().position(|name| *name == args.user).expect("clap has checked");
    let Size { blocks, steps } = size(args.level);
    let steps = args.record.length.unwrap_or(steps);
    record_user(&scheme, USERS[user], (blocks, steps), args.seed, trace)
}

/// How often the self-test advances the progress.
pub fn self_test_steps() -> usize {
    SCHEMES.len() + PLANTED.len()
}

/// That nothing is found in any scheme without a fault.
pub fn clean(progress: &Progress) -> Result<Vec<Claim>> {
    let audit = |scheme: &Scheme| {
        let claims = claims_of(scheme, size(Level::Quick), 1)?;
        progress.advance();
        Ok(is_clean(scheme.name, &claims))
    };
    in_parallel(&SCHEMES, cores(), audit).into_iter().collect()
}

/// That each planted fault is found.
pub fn planted(progress: &Progress) -> Result<Vec<Claim>> {
    let audit = |planted: &Planted| {
        let claim = is_found(planted);
        progress.advance();
        claim
    };
    in_parallel(&PLANTED, cores(), audit).into_iter().collect()
}

/// All claims about a scheme. What is suspicious is run again with another seed.
fn claims_of(scheme: &Scheme, size: Size, seed: u64) -> Result<Vec<Claim>> {
    let claims = claims_once(scheme, size, seed)?;
    if !claims.iter().any(needs_another_run) {
        return Ok(claims);
    }
    let again = claims_once(scheme, size, seed.wrapping_add(0x5eed))?;
    Ok(repeated(claims, &again))
}

/// Below this a claim is suspicious. Twice in a row is seen once in 10^8 times.
const SUSPICIOUS: f64 = 1e-4;

fn is_suspicious(claim: &Claim) -> bool {
    claim.p.is_some_and(|p| p < SUSPICIOUS)
}

fn needs_another_run(claim: &Claim) -> bool {
    is_suspicious(claim) && claim.verdict == Verdict::Pass
}

/// What is suspicious in both of two runs does not hold.
fn repeated(mut claims: Vec<Claim>, again: &[Claim]) -> Vec<Claim> {
    for (claim, again) in claims.iter_mut().zip(again) {
        if is_suspicious(claim) && is_suspicious(again) {
            claim.verdict = Verdict::Leak;
            claim.evidence = format!("{}; and again: {}", claim.evidence, again.evidence);
        }
    }
    claims
}

fn claims_once(scheme: &Scheme, size: Size, seed: u64) -> Result<Vec<Claim>> {
    let mut runs = vec![];
    for (nth, user) in (0..).zip(USERS) {
        runs.push(run_user(scheme, user, size.blocks, size.steps, seed.wrapping_mul(64) + nth)?);
    }
    let mut claims = vec![equal_templates(scheme, &runs)];
    let mut by_test: Vec<Vec<Claim>> = vec![];
    for (user, run) in USERS.iter().zip(&runs) {
        for (tree, draws) in run.drawn.iter().enumerate().filter(|(_, d)| !d.drawn.is_empty()) {
            for claim in draws.claims(&format!("{}, tree {tree}", user.name())) {
                let same = |other: &&mut Vec<Claim>| kind(&other[0]) == kind(&claim);
                match by_test.iter_mut().find(same) {
                    Some(others) => others.push(claim),
                    None => by_test.push(vec![claim]),
                }
            }
        }
    }
    let (mut alike, mut learned) = (vec![], vec![]);
    for (a, b) in PAIRS {
        let of = |user| &runs[USERS.iter().position(|u| *u == user).expect("listed")].drawn;
        for (tree, (a_draws, b_draws)) in of(a).iter().zip(of(b)).enumerate() {
            let what = format!("{} and {}, tree {tree}", a.name(), b.name());
            alike.push(a_draws.are_spread_as(b_draws, &what));
            learned.push(cannot_be_told_apart(a_draws, b_draws, &what));
        }
    }
    by_test.extend([alike, learned]);
    for tests in by_test {
        let name = format!("{}: {}", scheme.name, kind(&tests[0]));
        claims.extend(worst_of(name, tests));
    }
    Ok(claims)
}

/// What a claim says, without of whom.
fn kind(claim: &Claim) -> &str {
    claim.name.split(": ").next().unwrap_or(&claim.name)
}

/// That each step shows the same of every user, but for its path; and the same path where its
/// number tells it.
fn equal_templates(scheme: &Scheme, runs: &[Run]) -> Claim {
    let name = format!("{}: steps of all users look alike", scheme.name);
    let power = "one differing event is found";
    let mut steps = 0;
    for (user, run) in USERS.iter().zip(runs) {
        let first = |other: &Run| {
            let equal = run.templates.iter().zip(&other.templates).take_while(|(a, b)| a == b);
            let equal = equal.count();
            (equal < run.templates.len()).then_some(equal as u64)
        };
        let public = run.public.iter().zip(&runs[0].public).take_while(|(a, b)| a == b).count();
        let differs = if public < runs[0].public.len() {
            Some((public as u64, "has another path, where its number tells it"))
        } else if scheme.has_templates {
            first(&runs[0]).map(|step| (step, "does not look alike"))
        } else {
            None
        };
        if let Some((step, what)) = differs {
            let evidence =
                format!("step {step} of {} and of {} {what}", user.name(), USERS[0].name());
            return Claim::exact(name, Verdict::Leak, step, power, evidence);
        }
        steps += run.templates.len() as u64;
    }
    let evidence = format!("{} steps of {} users", grouped(steps), runs.len());
    Claim::exact(name, Verdict::Pass, steps, power, evidence)
}

/// That a planted fault is found, and nothing else.
fn is_found(planted: &Planted) -> Result<Claim> {
    let claims = claims_once(&planted.scheme, PLANTED_SIZE, 1)?;
    let found: Vec<_> = claims.iter().filter(|claim| claim.verdict != Verdict::Pass).collect();
    let name = if planted.is_sound {
        format!("the detector finds nothing in {}", planted.scheme.name)
    } else {
        format!("the detector catches {}: {}", planted.scheme.name, planted.fault)
    };
    let evidence = found.first().map_or_else(
        || format!("none of {} claims fails", claims.len()),
        |first| format!("{} of {} claims fail: {}", found.len(), claims.len(), first.evidence),
    );
    let is_right = found.is_empty() == planted.is_sound;
    let verdict = if is_right { Verdict::Pass } else { Verdict::Fault };
    let power = format!("each claim at {ALPHA:e}");
    Ok(Claim::exact(name, verdict, found.len() as u64, &power, evidence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::audit::TREE_SCHEMES;

    #[test]
    fn every_name_on_the_command_line_is_known() {
        for name in TREE_SCHEMES {
            assert_eq!(Scheme::named(name).map(|scheme| scheme.name), Some(name));
        }
        assert_eq!(TREE_SCHEMES.len(), SCHEMES.len() + PLANTED.len());
        assert!(Scheme::named("none").is_none());
    }

    #[test]
    fn what_is_suspicious_twice_does_not_hold() {
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
        let found = repeated(claims(&[2e-5, 2e-5, 0.5, 1e-9]), &claims(&[3e-5, 0.5, 3e-5, 0.5]));
        let verdicts: Vec<Verdict> = found.iter().map(|claim| claim.verdict).collect();
        assert_eq!(verdicts, [Verdict::Leak, Verdict::Pass, Verdict::Pass, Verdict::Leak]);
        assert_eq!(found[0].evidence, "seen; and again: seen");
    }
}
