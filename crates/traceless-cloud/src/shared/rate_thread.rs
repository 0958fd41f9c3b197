//! The thread that sends dummy queries at ticks no client uses, for a constant rate.

use super::SharedGateway;
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use traceless_core::clock::{Clock, Monotonic};

/// Sends queries at a constant rate until it is dropped.
pub struct RateThread {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RateThread {
    /// Starts ticks at a rate of `per_second`.
    pub fn start(front: &Arc<SharedGateway>, per_second: u32) -> Result<Self> {
        let timer = Arc::new(Monotonic::start());
        front.run(|gateway| gateway.start_constant_rate(per_second, timer.clone()))?;
        let ended = Arc::new(AtomicBool::new(false));
        let (front, is_ended) = (front.clone(), ended.clone());
        let thread = std::thread::spawn(move || {
            while !is_ended.load(Ordering::Relaxed) && front.fill_tick(&timer) {}
        });
        Ok(Self { ended, thread: Some(thread) })
    }
}

impl Drop for RateThread {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl SharedGateway {
    /// Waits until the use of the next tick must be decided, and fills the tick if no request uses
    /// it. Returns false, which ends the thread, once another gateway has the store.
    fn fill_tick(&self, timer: &Monotonic) -> bool {
        let Some(at) = self.lock().next_tick() else { return false };
        std::thread::sleep(Duration::from_nanos(at.saturating_sub(timer.now())));
        let turn = self.turns.wait();
        let mut gateway = self.lock();
        // A request may have used the tick meanwhile.
        if gateway.next_tick().is_none_or(|at| at > timer.now()) {
            return true;
        }
        let filled = gateway.fill_tick();
        self.metrics.observe(&gateway);
        drop((gateway, turn));
        self.tick_passed.notify_all();
        match filled {
            Ok(()) => {
                self.metrics.succeeded();
                true
            }
            Err(error) => {
                self.metrics.failed(&error);
                !matches!(error, Error::Fenced { .. })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::testing::in_memory;
    use crate::shared::{Metrics, Wall};

    const TICKS_PER_SECOND: u32 = 400;
    const PERIODS: u64 = 160;

    /// Runs a gateway at a constant rate for a while. Returns how many ticks there was time for,
    /// how many queries it sent, how many ticks were used, and how many were late.
    fn count_ticks(work: impl Fn(&SharedGateway)) -> (u64, u64, u64, u64) {
        let front = Arc::new(SharedGateway::new(in_memory(900, 3), Arc::default(), Arc::new(Wall)));
        let clock = Monotonic::start();
        let _rate_thread = RateThread::start(&front, TICKS_PER_SECOND).unwrap();
        let period = 1_000_000_000 / u64::from(TICKS_PER_SECOND);
        while clock.now() < PERIODS * period {
            work(&front);
        }
        let counts = front.inspect(crate::gateway::Gateway::counts);
        assert_eq!(counts.ticks_used + counts.ticks_unused, counts.queries);
        (clock.now() / period, counts.queries, counts.ticks_used, counts.ticks_late)
    }

    #[test]
    fn ticks_are_filled_with_and_without_requests() {
        let (most, idle, used, late) = count_ticks(|_| std::thread::yield_now());
        // A slow machine makes ticks late, never early.
        assert!(idle <= most && idle + 20 * (late + 1) > PERIODS / 2, "{idle} {late}");
        assert_eq!(used, 0);
        let cached = |front: &SharedGateway| front.run(|gateway| gateway.put(1, &[1; 64])).unwrap();
        let (most, hits, used, late) = count_ticks(cached);
        assert!(hits <= most && hits + 20 * (late + 1) > PERIODS / 2, "{hits} {late}");
        // Once a round the block is requested as if it were not at the gateway.
        let round = in_memory(900, 3).params().round_blocks as u64;
        assert!((1..=2 + hits / round).contains(&used), "{used} of {hits}");
        let next = std::sync::atomic::AtomicU64::new(0);
        let misses = |front: &SharedGateway| {
            let id = next.fetch_add(1, Ordering::Relaxed) % 900;
            front.run(|gateway| gateway.get(id)).unwrap();
        };
        let (most, sent, used, _) = count_ticks(misses);
        assert!(sent <= most && used > sent / 8, "{sent} {used}");
        let metrics = Metrics::default();
        assert!(metrics.text().contains("traceless_asking 0"));
    }
}
