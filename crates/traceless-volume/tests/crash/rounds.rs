//! Random rounds, limited by number or by time: `cargo xtask crash`.

use crate::cases::Case;
use crate::check::Tally;
use crate::effort::Effort;
use crate::lives::Life;
use crate::subjects::{FAMILIES, Family};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Mutex;
use traceless_core::clock::{Clock, Monotonic};
use traceless_core::rng::{Rng, System};

/// One round in this many crashes a run at every point; the rest are lives with random crashes.
const LIVES_PER_RUN: u64 = 16;

/// Crashes in each life.
const CRASHES: u64 = 10;

/// Seconds between two progress lines.
const PRINT_EVERY: u64 = 5;

/// The rounds to run. A scheme and a seed determine a round.
pub struct Rounds {
    families: Vec<&'static Family>,
    /// Seed of each scheme's first round.
    first: u64,
    /// Rounds of each scheme.
    count: u64,
    seconds: u64,
    effort: Effort,
    prints: bool,
}

impl Rounds {
    /// Runs the same few rounds each time, unless the environment sets `TRACELESS_CRASH_` with
    /// `SCHEME`, `SEED` of the first round, `ROUNDS` of each scheme, or `SECONDS`.
    pub fn from_env(few: u64, quick: Effort, thorough: Effort) -> Self {
        let families = chosen_families();
        let (rounds, seconds) = (variable("ROUNDS"), variable("SECONDS"));
        if rounds.is_none() && seconds.is_none() {
            let (seconds, prints) = (u64::MAX, false);
            return Self { families, first: 0, count: few, seconds, effort: quick, prints };
        }
        let first = variable("SEED").unwrap_or_else(|| System.below(1 << 40));
        let (count, seconds) = (rounds.unwrap_or(u64::MAX), seconds.unwrap_or(u64::MAX));
        Self { families, first, count, seconds, effort: thorough, prints: true }
    }

    /// Runs the rounds on two threads. Panics at the first violation, with a command to reproduce
    /// it.
    pub fn run(&self) {
        let (clock, state) = (Monotonic::start(), Mutex::new(Progress::new(self.families.len())));
        let work = || {
            while let Some((nth, seed)) = self.next(&state, &clock) {
                let family = self.families[nth];
                let done = catch_unwind(AssertUnwindSafe(|| self.round(family, seed)));
                let done = done.unwrap_or_else(|_| Err("it panicked".into()));
                let mut state = state.lock().expect("nothing panics under this lock");
                match done {
                    Ok(tally) => state.tallies[nth] += tally,
                    Err(what) => state.violations.push(format!(
                        "{}, seed {seed}: {what}\nto see it again: \
                         cargo xtask crash --scheme {} --seed {seed} --rounds 1",
                        family.name, family.name
                    )),
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(work);
            work();
        });
        let state = state.into_inner().expect("nothing panics under this lock");
        for (family, tally) in self.families.iter().zip(&state.tallies) {
            println!("{}: {tally}", family.name);
        }
        assert!(state.violations.is_empty(), "{}", state.violations.join("\n\n"));
    }

    fn round(&self, family: &Family, seed: u64) -> Result<Tally, String> {
        if seed.is_multiple_of(LIVES_PER_RUN) {
            let case = Case::random(family, seed);
            return case
                .check((family.effort)(self.effort))
                .map_err(|what| format!("{case}:\n{what}"));
        }
        let mut life = Life::random(family, seed);
        let lived = life.live(CRASHES);
        lived.map_err(|what| format!("{:?}: {what}", life.world.subject.scheme))?;
        Ok(Tally { crashes: CRASHES, ..Tally::default() })
    }

    /// The family and the seed of the next round, if there is one.
    fn next(&self, state: &Mutex<Progress>, clock: &dyn Clock) -> Option<(usize, u64)> {
        let mut state = state.lock().expect("nothing panics under this lock");
        let seconds = clock.now() / 1_000_000_000;
        let (nth, round) = (state.next % self.families.len(), state.next / self.families.len());
        if !state.violations.is_empty() || round as u64 >= self.count || seconds >= self.seconds {
            return None;
        }
        state.next += 1;
        if self.prints && seconds >= state.printed + PRINT_EVERY {
            state.printed = seconds;
            let images: u64 = state.tallies.iter().map(Tally::images).sum();
            let crashes: u64 = state.tallies.iter().map(|t| t.crashes).sum();
            eprintln!("{seconds} s: {round} rounds, {images} crash images, {crashes} live crashes");
        }
        Some((nth, self.first + round as u64))
    }
}

/// All families, or the one that `TRACELESS_CRASH_SCHEME` names.
pub fn chosen_families() -> Vec<&'static Family> {
    let mut families: Vec<_> = FAMILIES.iter().collect();
    if let Some(name) = variable::<String>("SCHEME") {
        let names: Vec<_> = families.iter().map(|family| family.name).collect();
        families.retain(|family| family.name == name);
        assert!(!families.is_empty(), "{name} is not crashed; these are: {names:?}");
    }
    families
}

struct Progress {
    next: usize,
    tallies: Vec<Tally>,
    violations: Vec<String>,
    /// Time of the last progress line, in seconds.
    printed: u64,
}

impl Progress {
    fn new(families: usize) -> Self {
        Self { next: 0, tallies: vec![Tally::default(); families], violations: vec![], printed: 0 }
    }
}

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let name = format!("TRACELESS_CRASH_{name}");
    let text = std::env::var(&name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} cannot be {text}")))
}
