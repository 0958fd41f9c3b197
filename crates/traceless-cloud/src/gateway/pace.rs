//! How long queries wait, so that none of them waits for a whole round.
//!
//! A round is carried out beside the queries that come before the next, and usually takes longer
//! than they do. So each waits for its share of it: query n of N is not sent before n/N of the
//! time is over that a round takes. That is the longer of the last two and a little more: rounds
//! differ, and one that ends early costs less than one that is waited for. All of it is known to
//! the host.

use core::cell::Cell;
use core::num::NonZeroU64;
use core::time::Duration;
use traceless::clock::{Clock, Monotonic};

/// Nanoseconds by which the system may be late in waking whoever waits. Its default is about as
/// long as a wait.
const LATE_NS: NonZeroU64 = NonZeroU64::new(1000).expect("not zero");

/// The part of a round's time by which it is taken to be longer.
const SPARE: u64 = 16;

/// When a round began, and how long the last two took.
pub struct Pace {
    clock: Box<dyn Clock>,
    began: u64,
    rounds_ns: [u64; 2],
}

impl Pace {
    /// Nothing is known of rounds yet, so nobody waits.
    pub fn new() -> Self {
        Self { clock: Box::new(Monotonic::start()), began: 0, rounds_ns: [0; 2] }
    }

    /// A round begins.
    pub fn begin(&mut self) {
        self.began = self.clock.now();
    }

    /// How long a round took.
    pub fn took(&mut self, round: Duration) {
        let took = u64::try_from(round.as_nanos()).unwrap_or(u64::MAX);
        self.rounds_ns = [self.rounds_ns[1], took];
    }

    /// How far ahead query `number` of `queries` is.
    pub fn ahead(&self, number: usize, queries: usize) -> Duration {
        let [before, last] = self.rounds_ns;
        let round = before.max(last);
        let share = u128::from(round + round / SPARE) * number as u128 / queries as u128;
        let due = u128::from(self.began) + share;
        let ahead = due.saturating_sub(u128::from(self.clock.now()));
        Duration::from_nanos(u64::try_from(ahead).unwrap_or(u64::MAX))
    }
}

/// Lets this thread's waits end when they should.
pub fn wake_in_time() {
    std::thread_local!(static DONE: Cell<bool> = const { Cell::new(false) });
    if !DONE.replace(true) {
        // Where it is refused, waits are less even, and no longer.
        let _ = rustix::thread::set_current_timer_slack(Some(LATE_NS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use traceless::clock::SimulatedClock;

    #[test]
    fn each_query_waits_for_its_share() {
        let clock = Arc::new(SimulatedClock::default());
        let mut pace = Pace { clock: Box::new(clock.clone()), ..Pace::new() };
        pace.begin();
        assert_eq!(pace.ahead(639, 640), Duration::ZERO, "nothing is known yet");
        pace.took(Duration::from_nanos(6400));
        // Ten each, and a sixteenth of all.
        clock.advance(1000);
        pace.begin();
        let ahead: Vec<u128> = [0, 160, 320, 480].map(|i| pace.ahead(i, 640).as_nanos()).to_vec();
        assert_eq!(ahead, [0, 1700, 3400, 5100]);
        clock.advance(3500);
        let ahead: Vec<u128> = [0, 160, 320, 480].map(|i| pace.ahead(i, 640).as_nanos()).to_vec();
        assert_eq!(ahead, [0, 0, 0, 1600]);
        // A round that was shorter does not count before the next.
        pace.took(Duration::from_nanos(640));
        assert_eq!(pace.ahead(480, 640).as_nanos(), 1600);
        pace.took(Duration::from_nanos(640));
        assert!(pace.ahead(480, 640).is_zero());
    }

    #[test]
    fn a_thread_that_waits_is_woken_in_time() {
        use rustix::thread::{current_timer_slack, set_current_timer_slack};
        // In a thread of its own, which nothing was done for. The system may refuse it.
        let slack = std::thread::spawn(|| {
            set_current_timer_slack(NonZeroU64::new(50_000)).ok()?;
            wake_in_time();
            current_timer_slack().ok()
        });
        assert!(slack.join().unwrap().is_none_or(|slack| slack == LATE_NS.get()));
    }
}
