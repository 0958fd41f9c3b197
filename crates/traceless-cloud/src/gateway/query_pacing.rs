//! How queries are delayed, so that none waits for a whole round.
//!
//! A round runs beside the queries that precede the next round, and usually takes longer than they
//! do. So each query waits for its share of the round: query n of N is not sent before n/N of the
//! round's expected time is over. The expected time is the longer of the last two rounds plus a
//! margin: rounds differ, and a round that ends early costs less than one that queries wait for.
//! The host knows all these times.

use core::cell::Cell;
use core::num::NonZeroU64;
use core::time::Duration;
use traceless_core::clock::{Clock, Monotonic};

/// Nanoseconds by which the system may wake a waiting thread late. The system's default is about as
/// long as a wait.
const LATE_NS: NonZeroU64 = NonZeroU64::new(1000).expect("not zero");

/// The margin is a `SPARE`th of a round's time.
const SPARE: u64 = 16;

/// When the round began, and how long the last two rounds took.
pub struct QueryPacing {
    clock: Box<dyn Clock>,
    began: u64,
    rounds_ns: [u64; 2],
}

impl QueryPacing {
    /// No round was measured yet, so queries do not wait.
    pub fn new() -> Self {
        Self { clock: Box::new(Monotonic::start()), began: 0, rounds_ns: [0; 2] }
    }

    /// Notes that a round begins.
    pub fn begin(&mut self) {
        self.began = self.clock.now();
    }

    /// Notes how long a round took.
    pub fn took(&mut self, round: Duration) {
        let took = u64::try_from(round.as_nanos()).unwrap_or(u64::MAX);
        self.rounds_ns = [self.rounds_ns[1], took];
    }

    /// How long query `number` of `queries` has to wait.
    pub fn ahead(&self, number: usize, queries: usize) -> Duration {
        let [before, last] = self.rounds_ns;
        let round = before.max(last);
        let share = u128::from(round + round / SPARE) * number as u128 / queries as u128;
        let due = u128::from(self.began) + share;
        let ahead = due.saturating_sub(u128::from(self.clock.now()));
        Duration::from_nanos(u64::try_from(ahead).unwrap_or(u64::MAX))
    }
}

/// Makes the waits of this thread end on time.
pub fn reduce_timer_slack() {
    std::thread_local!(static DONE: Cell<bool> = const { Cell::new(false) });
    if !DONE.replace(true) {
        // If the system refuses, waits vary more, but are no longer.
        let _ = rustix::thread::set_current_timer_slack(Some(LATE_NS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use traceless_core::clock::SimulatedClock;

    #[test]
    fn each_query_waits_for_its_share_of_a_round() {
        let clock = Arc::new(SimulatedClock::default());
        let mut pace = QueryPacing { clock: Box::new(clock.clone()), ..QueryPacing::new() };
        pace.begin();
        assert_eq!(pace.ahead(639, 640), Duration::ZERO, "nothing is known yet");
        pace.took(Duration::from_nanos(6400));
        // Ten each, plus a sixteenth of the round.
        clock.advance(1000);
        pace.begin();
        let ahead: Vec<u128> = [0, 160, 320, 480].map(|i| pace.ahead(i, 640).as_nanos()).to_vec();
        assert_eq!(ahead, [0, 1700, 3400, 5100]);
        clock.advance(3500);
        let ahead: Vec<u128> = [0, 160, 320, 480].map(|i| pace.ahead(i, 640).as_nanos()).to_vec();
        assert_eq!(ahead, [0, 0, 0, 1600]);
        // One shorter round does not count yet: the longer of the last two does.
        pace.took(Duration::from_nanos(640));
        assert_eq!(pace.ahead(480, 640).as_nanos(), 1600);
        pace.took(Duration::from_nanos(640));
        assert!(pace.ahead(480, 640).is_zero());
    }

    #[test]
    fn waiting_threads_have_little_timer_slack() {
        use rustix::thread::{current_timer_slack, set_current_timer_slack};
        // The test uses a fresh thread. The system may refuse the setting.
        let slack = std::thread::spawn(|| {
            set_current_timer_slack(NonZeroU64::new(50_000)).ok()?;
            reduce_timer_slack();
            current_timer_slack().ok()
        });
        assert!(slack.join().unwrap().is_none_or(|slack| slack == LATE_NS.get()));
    }
}
