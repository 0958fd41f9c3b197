//! The thread that makes the ticks of a constant rate.

use super::SharedGateway;
use crate::error::{Error, Result};
use crate::gateway::Gateway;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;
use traceless_core::clock::{Clock, Monotonic};

/// Sends queries at a constant rate until it is dropped.
pub struct RateThread {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RateThread {
    /// Starts ticks with `together` queries each, `per_second` queries in a second.
    pub fn start(front: &Arc<SharedGateway>, per_second: u32, together: usize) -> Result<Self> {
        let timer = Arc::new(Monotonic::start());
        let start = |gateway: &mut Gateway| {
            gateway.start_constant_rate_together(per_second, together, timer.clone())
        };
        front.run(start)?;
        let ended = Arc::new(AtomicBool::new(false));
        let (front, is_ended) = (front.clone(), ended.clone());
        front.ticks.serve();
        let thread = std::thread::spawn(move || {
            let _served = ServedQueue(&front);
            while !is_ended.load(Ordering::Relaxed) && front.pass_tick(&timer) {}
        });
        Ok(Self { ended, thread: Some(thread) })
    }
}

/// Ends the steps that wait for ticks when the thread ends, also if it panics.
struct ServedQueue<'a>(&'a SharedGateway);

impl Drop for ServedQueue<'_> {
    fn drop(&mut self) {
        self.0.ticks.close();
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
    /// Uses the next tick for an access that waits, or else for a dummy query, which is decided as
    /// late as possible. Returns false, which ends the thread, once another gateway has the store.
    fn pass_tick(&self, timer: &Monotonic) -> bool {
        let Some(at) = self.lock().next_tick() else { return false };
        self.ticks.wait_for_access(Duration::from_nanos(at.saturating_sub(timer.now())));
        let turn = self.turns.wait();
        let gateway = self.lock_for_tick();
        // An operation that has the gateway for itself may have used the tick meanwhile.
        let is_early = gateway.next_tick().is_none_or(|at| at > timer.now());
        if is_early && !self.ticks.is_any_waiting() {
            return true;
        }
        let (gateway, passed) = self.make_tick(gateway, false);
        self.publish_written(&gateway);
        self.metrics.observe(&gateway);
        drop((gateway, turn));
        self.ticks.note_tick(&passed);
        self.note(&passed);
        !matches!(passed, Err(Error::Fenced { .. }))
    }

    /// Uses the next tick, of which the caller has its turn. Clients have the gateway while its
    /// queries wait and are under way, unless the caller keeps it, or messages of a round follow.
    pub(super) fn make_tick<'a>(
        &'a self,
        mut gateway: MutexGuard<'a, Gateway>,
        is_kept: bool,
    ) -> (MutexGuard<'a, Gateway>, Result) {
        let mut tick =
            match gateway.begin_tick(|gateway, count| self.ticks.next_accesses(gateway, count)) {
                Ok(tick) => tick,
                Err(error) => {
                    gateway.end_failed_tick();
                    return (gateway, Err(error));
                }
            };
        // What was written down with the tick's queries can be answered.
        self.publish_written(&gateway);
        let kept = (is_kept || tick.sends_round).then_some(gateway);
        tick.wait();
        let replies = self.hosts.query_many(&tick.requests);
        let mut gateway = kept.unwrap_or_else(|| self.lock_for_tick());
        let passed = gateway.end_tick(&tick, replies).map(|is_answered| {
            if is_answered {
                self.ticks.end_accesses(gateway.take_tick_answers());
            }
        });
        (gateway, passed)
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
        let _rate_thread = RateThread::start(&front, TICKS_PER_SECOND, 1).unwrap();
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
