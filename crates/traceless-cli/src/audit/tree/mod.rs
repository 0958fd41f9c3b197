//! `traceless audit tree`: schemes that lie in trees, at a fixed rate: each step accesses one path,
//! whether anybody asked for something or not.

mod mutants;
mod run;
mod schemes;
mod users;
mod watch;

use super::{CLEAN, FAILED, FOUND, Outcome, claim_line, grouped, json};
use crate::args::audit::{AuditTreeArgs, Level};
use mutants::{PLANTED, Planted};
use run::{Run, run};
use schemes::{SCHEMES, Scheme};
use traceless::Result;
use traceless_audit::{ALPHA, Claim, Report, Verdict, cannot_be_told_apart, worst_of};
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

pub fn run_command(args: &AuditTreeArgs) -> Outcome {
    match report(args) {
        Ok(report) => outcome(args, &report),
        Err(error) => Outcome::error(FAILED, &format!("the audit could not be run: {error}")),
    }
}

fn report(args: &AuditTreeArgs) -> Result<Report> {
    let (size, mut claims) = (size(args.level), vec![]);
    let named = args.scheme.as_deref();
    let chosen: Vec<Scheme> = match named {
        _ if args.self_test => vec![],
        Some(name) => Scheme::named(name).into_iter().collect(),
        None => SCHEMES.to_vec(),
    };
    for scheme in &chosen {
        claims.extend(claims_of(scheme, size, args.seed)?);
    }
    for planted in &PLANTED {
        claims.push(is_found(planted)?);
    }
    let target = if args.self_test { "self-test" } else { "tree" };
    let level = format!("{:?}", args.level).to_lowercase();
    Ok(Report::new(target, named.unwrap_or("all"), &level, claims))
}

fn outcome(args: &AuditTreeArgs, report: &Report) -> Outcome {
    let out = if args.json { json(report) } else { text(report) };
    let code = if report.verdict == Verdict::Pass { CLEAN } else { FOUND };
    let missed = report.claims.iter().find(|c| c.verdict == Verdict::Fault && c.p.is_none());
    let mut outcome = Outcome::new(code, out);
    if let Some(missed) = missed.filter(|claim| claim.name.starts_with(DETECTOR)) {
        outcome.code = FAILED;
        outcome.err = format!(
            "traceless: a planted fault was missed, so nothing that this audit says counts; it is \
             not true that {}: {}\n",
            missed.name, missed.evidence
        );
    }
    outcome
}

fn text(report: &Report) -> String {
    let claims: String = report.claims.iter().map(claim_line).collect();
    let verdict = report.verdict.word();
    format!(
        "{}, level {}\n\n{claims}\nNot hidden: the number of steps; without a fixed rate, how many \
         steps a request takes.\nverdict: {verdict}\n",
        report.scheme, report.level
    )
}

/// All claims about a scheme. What is suspicious is run again with another seed, and does not hold
/// if it is so again.
fn claims_of(scheme: &Scheme, size: Size, seed: u64) -> Result<Vec<Claim>> {
    /// Below this a claim is suspicious. Twice in a row is seen once in 10^8 times.
    const SUSPICIOUS: f64 = 1e-4;
    let is_suspicious = |claim: &Claim| claim.p.is_some_and(|p| p < SUSPICIOUS);
    let mut claims = claims_once(scheme, size, seed)?;
    if claims.iter().any(|claim| is_suspicious(claim) && claim.verdict == Verdict::Pass) {
        let again = claims_once(scheme, size, seed.wrapping_add(0x5eed))?;
        for (claim, again) in claims.iter_mut().zip(&again) {
            if is_suspicious(claim) && is_suspicious(again) {
                claim.verdict = Verdict::Leak;
                claim.evidence = format!("{}; and again: {}", claim.evidence, again.evidence);
            }
        }
    }
    Ok(claims)
}

fn claims_once(scheme: &Scheme, size: Size, seed: u64) -> Result<Vec<Claim>> {
    let mut runs = vec![];
    for (nth, user) in (0..).zip(USERS) {
        runs.push(run(scheme, user, size.blocks, size.steps, seed.wrapping_mul(64) + nth)?);
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

const DETECTOR: &str = "the detector";

/// That a planted fault is found, and nothing else.
fn is_found(planted: &Planted) -> Result<Claim> {
    let claims = claims_once(&planted.scheme, PLANTED_SIZE, 1)?;
    let found: Vec<_> = claims.iter().filter(|claim| claim.verdict != Verdict::Pass).collect();
    let name = if planted.is_sound {
        format!("{DETECTOR} finds nothing in {}", planted.scheme.name)
    } else {
        format!("{DETECTOR} catches {}: {}", planted.scheme.name, planted.fault)
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
