//! Cover writes: public writes at a fixed rate, so that hidden volumes get slots while the
//! public one is not written to, and so that nothing shows whether they need any.

use super::DeniableVolume;
use crate::error::Result;
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use traceless_core::clock::Clock;

/// Nanoseconds between two groups of cover writes, each with a sync.
const PERIOD: u64 = 1_000_000_000;

/// Cover writes of an open image, until they are stopped.
pub struct Cover {
    per_second: u32,
    stopped: Mutex<bool>,
    rung: Condvar,
}

impl Cover {
    /// `per_second` public writes a second.
    pub fn new(per_second: u32) -> Self {
        Self { per_second, stopped: Mutex::new(false), rung: Condvar::new() }
    }

    /// Makes the writes until [`stop`](Self::stop) is called. What is late is made up for.
    pub fn run(&self, volume: &DeniableVolume, clock: &dyn Clock) -> Result {
        self.run_for(u64::MAX, volume, clock)
    }

    /// As [`run`](Self::run), for so many seconds at most. A session of that length in which
    /// nothing else is written looks the same.
    pub fn run_for(&self, seconds: u64, volume: &DeniableVolume, clock: &dyn Clock) -> Result {
        let mut due = clock.now();
        for _ in 0..seconds {
            due += PERIOD;
            if self.is_stopped_before(due, clock) {
                break;
            }
            volume.cover(self.per_second)?;
        }
        Ok(())
    }

    /// Ends [`run`](Self::run).
    pub fn stop(&self) {
        *self.stopped.lock().expect("nothing panics under this lock") = true;
        self.rung.notify_all();
    }

    fn is_stopped_before(&self, due: u64, clock: &dyn Clock) -> bool {
        let mut stopped = self.stopped.lock().expect("nothing panics under this lock");
        loop {
            let left = due.saturating_sub(clock.now());
            if *stopped || left == 0 {
                return *stopped;
            }
            let waited = self.rung.wait_timeout(stopped, Duration::from_nanos(left));
            stopped = waited.expect("nothing panics under this lock").0;
        }
    }
}
