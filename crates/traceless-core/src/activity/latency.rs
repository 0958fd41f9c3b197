//! How long requests take: a histogram that any number of threads count into.

use crate::stats::AtomicHistogram;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of latencies in nanoseconds, each known to a sixteenth of itself. Zeros are a histogram
/// without latencies.
#[derive(Default)]
#[repr(C)]
pub struct LatencyHistogram {
    /// The last bucket also counts what takes longer than a quarter of an hour.
    buckets: AtomicHistogram<592>,
    sum: AtomicU64,
}

impl LatencyHistogram {
    /// Counts a latency.
    pub fn record(&self, ns: u64) {
        self.buckets.record_beside(ns);
        self.sum.fetch_add(ns, Relaxed);
    }

    /// The sum of all latencies.
    pub fn sum(&self) -> u64 {
        self.sum.load(Relaxed)
    }

    /// The largest latency of each bucket that is not empty, and how many it has.
    pub fn counts(&self) -> Vec<(u64, u64)> {
        self.buckets.classes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_counted_by_many_threads() {
        let histogram = LatencyHistogram::default();
        // So many that the threads meet: one that loses counts is noticed.
        let all_here = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    all_here.wait();
                    (0..500_000).for_each(|_| histogram.record(1_000_000));
                });
            }
        });
        histogram.record(u64::MAX >> 8);
        let counts = histogram.counts();
        assert_eq!((counts.len(), counts[0].1, counts[1].1), (2, 2_000_000, 1));
        assert!((1_000_000..=1_062_500).contains(&counts[0].0), "{counts:?}");
        assert!(counts[1].0 > 900 * 1_000_000_000, "a quarter of an hour");
        assert_eq!(histogram.sum(), 2_000_000_000_000 + (u64::MAX >> 8));
    }
}
