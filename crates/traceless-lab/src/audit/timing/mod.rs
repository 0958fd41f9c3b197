//! `traceless-lab audit timing`: does the time of an operation depend on a secret, on this machine?
//!
//! It measures only code that claims constant time: the client for watched memory, and comparisons
//! of secrets. Two users take turns in an order that a coin decides, and the audit judges pairs of
//! times.

mod subjects;

use super::Outcome;
use super::report::Progress;
use super::suite::{self, AuditError, Suite};
use crate::args::audit::{AuditTimingArgs, Level};
use subjects::{PLANTED, SUBJECTS, TimedOperation, TimingCase, TimingSubject};
use traceless::clock::{Clock, Monotonic};
use traceless::rng::{Rng, SeededRng};
use traceless_audit::{Claim, Times, worst_of};
use traceless_audit::{Picture, UserPoints};

/// The suite of timed operations. One runs at a time, because other load on the machine adds to
/// times.
pub struct Timings;

impl Suite for Timings {
    type Scheme = TimingSubject;
    /// Pairs of times.
    type Size = u64;

    const TARGET: &'static str = "timing";
    const PLANTED: &'static [TimingCase] = &PLANTED;

    fn honest() -> &'static [TimingSubject] {
        &SUBJECTS
    }

    fn size(level: Level) -> u64 {
        match level {
            Level::Quick => 4_000,
            Level::Ci => 20_000,
            Level::Release => 400_000,
        }
    }

    fn not_hidden(_: &[&TimingSubject]) -> &'static str {
        "Seen on this machine, by this clock, as things are now: no \
         proof for another. Not hidden: whether something is read or \
         written, and how much."
    }

    fn name(subject: &TimingSubject) -> &'static str {
        subject.name
    }

    fn title(subject: &TimingSubject) -> String {
        format!("the time of {}", subject.name)
    }

    fn at_once() -> usize {
        1
    }

    fn work(subject: &TimingSubject, pairs: u64) -> u64 {
        subject.pairs.len() as u64 * pairs
    }

    fn claims(
        subject: &TimingSubject,
        pairs: u64,
        seed: u64,
        progress: &Progress,
    ) -> Result<Vec<Claim>, AuditError> {
        let mut by_test: Vec<Vec<Claim>> = vec![];
        for (what, choose) in subject.pairs {
            let mut operation = (subject.build)(seed)?;
            let times = measure(&mut *operation, &Monotonic::start(), *choose, pairs, seed)?;
            for (nth, claim) in times.claims(what).into_iter().enumerate() {
                by_test.resize_with(by_test.len().max(nth + 1), Vec::new);
                by_test[nth].push(claim);
            }
            progress.advance(pairs);
        }
        let claim = |tests: Vec<Claim>| {
            let kind = tests[0].name.split(": ").next().unwrap_or_default();
            worst_of(format!("{}: {kind}", subject.name), tests)
        };
        Ok(by_test.into_iter().filter_map(claim).collect())
    }

    /// The times of the first two users.
    fn pictures(subject: &TimingSubject, seed: u64) -> Result<Vec<Picture>, AuditError> {
        let (what, choose) = subject.pairs[0];
        let (mut operation, pairs) = ((subject.build)(seed)?, Self::size(Level::Quick));
        let Times { a, b } = measure(&mut *operation, &Monotonic::start(), choose, pairs, seed)?;
        let mut sorted = [&a[..], &b].concat();
        sorted.sort_unstable();
        // Outliers would compress all other points into one line.
        let most = sorted[sorted.len() * 99 / 100];
        let users = [("first", &a), ("second", &b)].map(|(name, times)| {
            let typical = times.iter().filter(|time| **time <= most);
            let points = (0..).zip(typical.copied()).collect();
            UserPoints { name: name.to_owned(), points }
        });
        let title = format!("{}: {what}", subject.name);
        Ok(vec![Picture { title, across: "turn", up: "nanoseconds", users }])
    }
}

pub fn run(args: &AuditTimingArgs) -> Outcome {
    suite::run::<Timings>(&args.run, args.scheme.as_deref())
}

/// The `i`-th request of the first user, or the second.
pub type Choose = fn(is_second: bool, i: u64, rng: &mut dyn Rng) -> u64;

/// Times the requests of two users. All are chosen before the first measurement: otherwise the
/// processor still works on the choice and its branches when the clock starts.
fn measure(
    operation: &mut dyn TimedOperation,
    clock: &impl Clock,
    choose: Choose,
    pairs: u64,
    seed: u64,
) -> traceless::Result<Times> {
    /// Pairs that do not count, while caches and branch predictors warm up.
    const WARM_UP: u64 = 500;
    let mut rng = SeededRng::new(seed);
    let mut turns = vec![];
    for i in 0..WARM_UP + pairs {
        let requests = [false, true].map(|is_second| (is_second, choose(is_second, i, &mut rng)));
        let first = rng.below(2) as usize;
        turns.extend([requests[first], requests[1 - first]]);
    }
    let mut times = Vec::with_capacity(turns.len());
    for (_, request) in &turns {
        operation.prepare(*request);
        wait_for_stores();
        let begin = clock.now();
        operation.serve(*request)?;
        times.push(clock.now() - begin);
    }
    let of = |second: bool| {
        let counted = turns.iter().zip(&times).skip(2 * WARM_UP as usize);
        counted.filter(|((is_second, _), _)| *is_second == second).map(|(_, time)| *time).collect()
    };
    Ok(Times { a: of(false), b: of(true) })
}

/// Waits until a preceding store no longer delays a read of the same bytes.
fn wait_for_stores() {
    (0..16).for_each(|_| std::hint::spin_loop());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use traceless::clock::SimulatedClock;
    use traceless_audit::Verdict;

    #[test]
    fn planted_faults_are_found() {
        let claims = suite::planted_claims::<Timings>(&Progress::unseen()).unwrap();
        assert!(claims.iter().all(|claim| claim.verdict == Verdict::Pass), "{claims:?}");
    }

    #[test]
    fn times_belong_to_the_user_of_the_request() {
        struct Slow(Arc<SimulatedClock>, Vec<u64>);
        impl TimedOperation for Slow {
            fn serve(&mut self, request: u64) -> traceless::Result {
                self.1.push(request);
                self.0.advance(10 + request);
                Ok(())
            }
        }
        let clock = Arc::new(SimulatedClock::default());
        let mut slow = Slow(clock.clone(), vec![]);
        let second = |is_second, _, _: &mut dyn Rng| u64::from(is_second);
        let times = measure(&mut slow, &clock, second, 5, 1).unwrap();
        assert_eq!(times, Times { a: vec![10; 5], b: vec![11; 5] });
        assert_eq!(slow.1.iter().sum::<u64>() * 2, slow.1.len() as u64, "each has its turn");
        assert!(slow.1.windows(2).any(|two| two == [1, 1]), "in an order that changes");
    }
}
