//! `traceless audit tree`: schemes that lie in trees, at a fixed rate: each step accesses one path,
//! whether anybody asked for something or not.

pub mod mutants;
mod run;
pub mod schemes;
mod users;
mod watch;

use super::audited::{Audited, Progress, is_clean, is_found, with_repeats};
use super::drawn::{OfUser, claims_of_draws};
use super::page::{Picture, Seen};
use super::{FAILED, Outcome, grouped, recorded};
use crate::args::audit::{AuditTreeArgs, Level, TREE_USERS};
use crate::parallel::{cores, in_parallel};
use crate::trace::Trace;
use mutants::{PLANTED, Planted};
use run::{Asks, Run, run_user, show_user};
use schemes::{SCHEMES, Scheme};
use std::sync::Arc;
use traceless::Result;
use traceless::trace::{Asked, Op, Witness};
use traceless_audit::{Claim, Verdict};
use users::{PAIRS, USERS, User};
use watch::LINE_LEN;

/// How much is run.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    blocks: u64,
    steps: u64,
}

fn size(level: Level) -> Size {
    match level {
        Level::Quick => Size { blocks: 512, steps: 8_000 },
        Level::Ci => Size { blocks: 2048, steps: 40_000 },
        Level::Release => Size { blocks: 8192, steps: 2_000_000 },
    }
}

pub fn run(args: &AuditTreeArgs) -> Outcome {
    if args.record.trace.trace.is_some() {
        return recorded(&args.record, |trace| record(args, trace));
    }
    match audited(args) {
        Ok(audited) => audited.outcome(&args.run.shown),
        Err(error) => Outcome::error(FAILED, &format!("the audit could not be run: {error}")),
    }
}

fn audited(args: &AuditTreeArgs) -> Result<Audited> {
    if args.run.self_test {
        return Ok(Audited::of_planted(planted(&Progress::new(PLANTED.len()))?));
    }
    let named = args.scheme.as_deref();
    let chosen: Vec<Scheme> = match named {
        Some(name) => Scheme::named(name).into_iter().collect(),
        None => SCHEMES.to_vec(),
    };
    let progress = Progress::new(chosen.len() + PLANTED.len());
    let claims = in_parallel(&chosen, cores(), |scheme| {
        let claims = claims_of(scheme, size(args.run.level), args.run.seed);
        progress.advance();
        claims
    });
    Ok(Audited {
        target: "tree",
        scheme: named.unwrap_or("all").to_owned(),
        level: args.run.level.name(),
        claims: claims.into_iter().collect::<Result<Vec<_>>>()?.concat(),
        planted: planted(&progress)?,
        not_hidden: "Not hidden: the number of steps; without a fixed rate, how many steps a \
                     request takes.",
        pictures: pictures(&chosen, args)?,
    })
}

/// Whoever asks for one block and whoever asks for any; and whoever asks for nothing.
fn pictures(schemes: &[Scheme], args: &AuditTreeArgs) -> Result<Vec<Picture>> {
    /// Steps of each user, enough to see how leaves are spread.
    const STEPS: u64 = 20_000;
    const SHOWN: [(User, User); 2] = [(User::OneBlock, User::Random), (User::Idle, User::Random)];
    if args.run.shown.html.is_none() {
        return Ok(vec![]);
    }
    let blocks = size(Level::Quick).blocks;
    let mut pictures = vec![];
    for (scheme, (a, b)) in schemes.iter().flat_map(|scheme| SHOWN.map(|pair| (scheme, pair))) {
        let seen = |user: User, seed| -> Result<Seen> {
            let run = run_user(scheme, user, blocks, STEPS, seed)?;
            Ok(Seen { name: user.name().to_owned(), points: run.shown })
        };
        let users = [seen(a, args.run.seed)?, seen(b, args.run.seed.wrapping_add(1))?];
        let title = format!("{}: the leaves of two users", scheme.name);
        pictures.push(Picture { title, across: "step", up: "leaf", users });
    }
    Ok(pictures)
}

/// Users are in the order of their names on the command line.
fn record(args: &AuditTreeArgs, trace: &Trace) -> Result {
    let Some(witness) = trace.witness() else { return Ok(()) };
    let scheme = args.scheme.as_deref().and_then(Scheme::named).unwrap_or(SCHEMES[0]);
    let user = TREE_USERS.iter().position(|name| *name == args.user).expect("clap has checked");
    let Size { blocks, steps } = size(args.run.level);
    let steps = args.record.length.unwrap_or(steps);
    // What was asked for with a step comes before what it showed.
    let mut seen = 0;
    let note = |asks| {
        match asks {
            Asks::For(addr) => {
                let (at, len) = (addr * LINE_LEN, LINE_LEN as u32);
                trace.note(Asked { seen, op: Op::Read, at, len });
            }
            Asks::ForNothing => trace.note(Asked { seen, op: Op::Sync, at: 0, len: 0 }),
            Asks::AsBefore => {}
        }
        seen = trace.seen();
    };
    show_user(&scheme, USERS[user], (blocks, steps), args.run.seed, witness, note)
}

/// Lets `witness` see what a Path ORAM shows in so many steps.
pub fn show_path(steps: u64, witness: Arc<dyn Witness>) -> Result {
    let Size { blocks, .. } = size(Level::Release);
    show_user(&SCHEMES[0], User::Random, (blocks, steps), 1, witness, |_| {})
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
        let claims = claims_once(&planted.scheme, planted.size, 1)?;
        progress.advance();
        Ok(is_found(planted.scheme.name, planted.fault, &claims))
    };
    in_parallel(&PLANTED, cores(), audit).into_iter().collect()
}

/// All claims about a scheme.
fn claims_of(scheme: &Scheme, size: Size, seed: u64) -> Result<Vec<Claim>> {
    with_repeats(seed, |seed| claims_once(scheme, size, seed))
}

fn claims_once(scheme: &Scheme, size: Size, seed: u64) -> Result<Vec<Claim>> {
    let mut runs = vec![];
    for (nth, user) in (0..).zip(USERS) {
        runs.push(run_user(scheme, user, size.blocks, size.steps, seed.wrapping_mul(64) + nth)?);
    }
    let mut claims = vec![equal_templates(scheme, &runs)];
    let users = USERS.iter().zip(&runs);
    let users: Vec<_> =
        users.map(|(user, run)| OfUser { name: user.name(), drawn: &run.drawn }).collect();
    let nth = |user| USERS.iter().position(|other| *other == user).expect("listed");
    let pairs = PAIRS.map(|(a, b)| (nth(a), nth(b)));
    claims.extend(claims_of_draws(scheme.name, &users, &pairs));
    Ok(claims)
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
}
