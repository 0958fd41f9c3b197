//! `traceless audit timing`: does the time of an operation tell of a secret, on this machine?
//!
//! Only what claims so is measured: the client for watched memory, and what compares secrets. Two
//! users take turns in an order that a coin decides, and pairs of times are judged.

mod subjects;

use super::audited::{Audited, Progress, is_clean, is_found, with_repeats};
use super::page::{Picture, Seen};
use super::{FAILED, Outcome};
use crate::args::audit::{AuditTimingArgs, Level};
use subjects::{PLANTED, Planted, SUBJECTS, Subject, Timed};
use traceless::Result;
use traceless::clock::{Clock, Monotonic};
use traceless::rng::{Rng, Seeded};
use traceless_audit::{Claim, Times, worst_of};

fn pairs(level: Level) -> u64 {
    match level {
        Level::Quick => 4_000,
        Level::Ci => 20_000,
        Level::Release => 400_000,
    }
}

/// Pairs by which each planted fault is found.
const PLANTED_PAIRS: u64 = 8_000;

pub fn run(args: &AuditTimingArgs) -> Outcome {
    match audited(args) {
        Ok(audited) => audited.outcome(&args.run.shown),
        Err(error) => Outcome::error(FAILED, &format!("the audit could not be run: {error}")),
    }
}

fn audited(args: &AuditTimingArgs) -> Result<Audited> {
    if args.run.self_test {
        return Ok(Audited::of_planted(planted(&Progress::new(PLANTED.len()))?));
    }
    let named = args.scheme.as_deref();
    let all = SUBJECTS.iter().chain(PLANTED.iter().map(|planted| &planted.subject));
    let chosen: Vec<&Subject> = match named {
        Some(name) => all.filter(|subject| subject.name == name).collect(),
        None => SUBJECTS.iter().collect(),
    };
    let progress = Progress::new(chosen.len() + PLANTED.len());
    let (mut claims, mut pictures) = (vec![], vec![]);
    for subject in chosen {
        if args.run.shown.html.is_some() {
            pictures.push(picture(subject, args.run.seed)?);
        }
        claims.extend(claims_of(subject, pairs(args.run.level), args.run.seed)?);
        progress.advance();
    }
    Ok(Audited {
        target: "timing",
        scheme: named.unwrap_or("all").to_owned(),
        level: args.run.level.name(),
        claims,
        planted: planted(&progress)?,
        not_hidden: "Seen on this machine, by this clock, as things are now: no proof for another. \
                     Not hidden: whether something is read or written, and how much.",
        pictures,
    })
}

/// The times of the first two users.
fn picture(subject: &Subject, seed: u64) -> Result<Picture> {
    let (what, choose) = subject.pairs[0];
    let times = measure(
        &mut *(subject.build)(seed)?,
        &Monotonic::start(),
        choose,
        pairs(Level::Quick),
        seed,
    )?;
    let mut sorted = [&times.a[..], &times.b].concat();
    sorted.sort_unstable();
    // Outliers would make all others one line.
    let most = sorted[sorted.len() * 99 / 100];
    let users = [("first", &times.a), ("second", &times.b)].map(|(name, times)| {
        let usual = times.iter().filter(|time| **time <= most);
        let points = (0..).zip(usual.copied()).collect();
        Seen { name: name.to_owned(), points }
    });
    let title = format!("{}: {what}", subject.name);
    Ok(Picture { title, across: "turn", up: "nanoseconds", users })
}

/// How often the self-test advances the progress.
pub fn self_test_steps() -> usize {
    SUBJECTS.len() + PLANTED.len()
}

/// That nothing is found in what claims to take the same time.
///
/// One after the other: what else runs on a machine adds to times.
pub fn clean(progress: &Progress) -> Result<Vec<Claim>> {
    let audit = |subject: &Subject| {
        let claims = claims_of(subject, pairs(Level::Quick), 1)?;
        progress.advance();
        Ok(is_clean(&format!("the time of {}", subject.name), &claims))
    };
    SUBJECTS.iter().map(audit).collect()
}

/// That each planted fault is found.
pub fn planted(progress: &Progress) -> Result<Vec<Claim>> {
    let audit = |planted: &Planted| {
        let claims = claims_once(&planted.subject, PLANTED_PAIRS, 1)?;
        progress.advance();
        Ok(is_found(planted.subject.name, Some(planted.fault), &claims))
    };
    PLANTED.iter().map(audit).collect()
}

fn claims_of(subject: &Subject, pairs: u64, seed: u64) -> Result<Vec<Claim>> {
    with_repeats(seed, |seed| claims_once(subject, pairs, seed))
}

fn claims_once(subject: &Subject, pairs: u64, seed: u64) -> Result<Vec<Claim>> {
    let mut by_test: Vec<Vec<Claim>> = vec![];
    for (what, choose) in subject.pairs {
        let mut timed = (subject.build)(seed)?;
        let taken = measure(&mut *timed, &Monotonic::start(), *choose, pairs, seed)?;
        for (nth, claim) in taken.claims(what).into_iter().enumerate() {
            by_test.resize_with(by_test.len().max(nth + 1), Vec::new);
            by_test[nth].push(claim);
        }
    }
    let claim = |tests: Vec<Claim>| {
        let kind = tests[0].name.split(": ").next().unwrap_or_default();
        worst_of(format!("{}: {kind}", subject.name), tests)
    };
    Ok(by_test.into_iter().filter_map(claim).collect())
}

/// What the first user, or the second, asks for as the `i`-th thing.
pub type Choose = fn(is_second: bool, i: u64, rng: &mut dyn Rng) -> u64;

/// What is asked for is chosen before anything is measured: a processor is still busy with that
/// choice, and with the branches it took, when the clock begins.
fn measure(
    timed: &mut dyn Timed,
    clock: &impl Clock,
    choose: Choose,
    pairs: u64,
    seed: u64,
) -> Result<Times> {
    /// Pairs that are not counted: a processor gets used to what it does.
    const WARM_UP: u64 = 500;
    let mut rng = Seeded::new(seed);
    let mut turns = vec![];
    for i in 0..WARM_UP + pairs {
        let asked = [false, true].map(|is_second| (is_second, choose(is_second, i, &mut rng)));
        let first = rng.below(2) as usize;
        turns.extend([asked[first], asked[1 - first]]);
    }
    let mut taken = Vec::with_capacity(turns.len());
    for (_, asked) in &turns {
        timed.prepare(*asked);
        settle();
        let begin = clock.now();
        timed.act(*asked)?;
        taken.push(clock.now() - begin);
    }
    let of = |second: bool| {
        let counted = turns.iter().zip(&taken).skip(2 * WARM_UP as usize);
        counted.filter(|((is_second, _), _)| *is_second == second).map(|(_, time)| *time).collect()
    };
    Ok(Times { a: of(false), b: of(true) })
}

/// Waits until what was written a moment ago takes no time any more to be read.
fn settle() {
    (0..16).for_each(|_| std::hint::spin_loop());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::audit::TIMED;
    use std::sync::Arc;
    use traceless::clock::Simulated;
    use traceless_audit::Verdict;

    #[test]
    fn every_name_on_the_command_line_is_known() {
        let all = SUBJECTS.iter().chain(PLANTED.iter().map(|planted| &planted.subject));
        assert!(all.map(|subject| subject.name).eq(TIMED));
    }

    #[test]
    fn planted_faults_are_found() {
        let claims = planted(&Progress::new(0)).unwrap();
        assert!(claims.iter().all(|claim| claim.verdict == Verdict::Pass), "{claims:?}");
    }

    #[test]
    fn the_second_user_is_the_second() {
        struct Slow(Arc<Simulated>, Vec<u64>);
        impl Timed for Slow {
            fn act(&mut self, asked: u64) -> Result {
                self.1.push(asked);
                self.0.advance(10 + asked);
                Ok(())
            }
        }
        let clock = Arc::new(Simulated::default());
        let mut slow = Slow(clock.clone(), vec![]);
        let second = |is_second, _, _: &mut dyn Rng| u64::from(is_second);
        let times = measure(&mut slow, &clock, second, 5, 1).unwrap();
        assert_eq!(times, Times { a: vec![10; 5], b: vec![11; 5] });
        assert_eq!(slow.1.iter().sum::<u64>() * 2, slow.1.len() as u64, "each has its turn");
        assert!(slow.1.windows(2).any(|two| two == [1, 1]), "in an order that changes");
    }
}
