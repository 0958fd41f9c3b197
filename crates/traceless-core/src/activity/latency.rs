//! How long requests take: a histogram that any number of threads count into.

use crate::stats::{bucket_of, largest_of};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets of the histogram; the last also counts what takes longer than a quarter of an hour.
const BUCKETS: usize = 592;

/// Counts of latencies in nanoseconds, each known to a sixteenth of itself. Zeros are a histogram
/// without latencies.
#[repr(C)]
pub struct LatencyHistogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self { buckets: core::array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }
}

impl LatencyHistogram {
    /// Counts a latency.
    pub fn record(&self, ns: u64) {
        self.buckets[bucket_of(ns).min(BUCKETS - 1)].fetch_add(1, Relaxed);
        self.sum.fetch_add(ns, Relaxed);
    }

    /// The sum of all latencies.
    pub fn sum(&self) -> u64 {
        self.sum.load(Relaxed)
    }

    /// The largest latency of each bucket that is not empty, and how many it has.
    pub fn counts(&self) -> Vec<(u64, u64)> {
        let all = self.buckets.iter().enumerate();
        let all = all.map(|(bucket, count)| (largest_of(bucket), count.load(Relaxed)));
        all.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_counted_by_many_threads() {
        let histogram = LatencyHistogram::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| histogram.record(1_000_000)));
            }
        });
        histogram.record(u64::MAX >> 8);
        let counts = histogram.counts();
        assert_eq!((counts.len(), counts[0].1, counts[1].1), (2, 40_000, 1));
        assert!((1_000_000..=1_062_500).contains(&counts[0].0), "{counts:?}");
        assert!(counts[1].0 > 900 * 1_000_000_000, "a quarter of an hour");
        assert_eq!(histogram.sum(), 40_000_000_000 + (u64::MAX >> 8));
    }
}
