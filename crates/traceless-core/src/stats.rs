//! Histograms of counts and times: sixteen buckets for each doubling, so that every value is known
//! to a sixteenth of itself.
//!
//! Values below 16 have a bucket each. A bucket above them is as wide as a sixteenth of the power
//! of two below it.
//!
//! ```
//! use traceless_core::stats::Histogram;
//!
//! let mut times = Histogram::default();
//! (1..=1000).for_each(|time| times.record(time));
//! assert_eq!((times.count(), times.max()), (1000, 1000));
//! assert_eq!(times.mean(), 500.5);
//! // 99 of 100 values do not exceed 990; the answer is at most a sixteenth higher.
//! assert!((990..=990 + 990 / 16).contains(&times.within(99)));
//! ```

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets for the values between two powers of two.
pub const STEPS: u64 = 16;
const STEP_BITS: u32 = STEPS.ilog2();

/// The bucket of a value.
#[inline]
pub fn bucket_of(value: u64) -> usize {
    let shift = (value | STEPS).ilog2() - STEP_BITS;
    (u64::from(shift) * STEPS + (value >> shift)) as usize
}

/// The smallest value of a bucket, and how many values the bucket has.
fn range_of(bucket: usize) -> (u64, u64) {
    let shift = (bucket as u64 / STEPS).saturating_sub(1);
    let step = bucket as u64 - shift * STEPS;
    (step << shift, 1 << shift)
}

/// The largest value of a bucket.
pub fn largest_of(bucket: usize) -> u64 {
    let (smallest, width) = range_of(bucket);
    smallest + (width - 1)
}

/// The value in the middle of a bucket.
pub fn middle_of(bucket: usize) -> u64 {
    let (smallest, width) = range_of(bucket);
    smallest + width / 2
}

/// The bucket of the smallest value that `per_cent` of all values do not exceed, if there is any
/// value. `counts` are the counts of all buckets in order, `total` is their sum.
fn bucket_within(
    mut counts: impl Iterator<Item = u64>,
    total: u64,
    per_cent: u64,
) -> Option<usize> {
    let rank = (u128::from(total) * u128::from(per_cent)).div_ceil(100).max(1);
    let mut below = 0;
    counts.position(|count| {
        below += u128::from(count);
        below >= rank
    })
}

/// A histogram that grows up to the bucket of its largest value. It also has the exact number,
/// sum and maximum of its values.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u64,
    max: u64,
}

impl Histogram {
    /// Counts a value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        let bucket = bucket_of(value);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum += value;
        self.max = self.max.max(value);
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.buckets.len() > self.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += more;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean of the values; 0 of none.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }

    /// The largest value; 0 of none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The value that `per_cent` of the values do not exceed, at most a sixteenth too high; 0 of
    /// none.
    pub fn within(&self, per_cent: u64) -> u64 {
        let bucket = bucket_within(self.buckets.iter().copied(), self.count, per_cent);
        bucket.map_or(0, |bucket| largest_of(bucket).min(self.max))
    }
}

/// A histogram of a fixed number of buckets, the last of which also counts all larger values. One
/// thread counts, or any number of them by [`record_beside`](Self::record_beside); other threads
/// read at any time. It may lie in memory that several processes map, and zeros are a histogram
/// without values.
#[repr(transparent)]
pub struct AtomicHistogram<const BUCKETS: usize>([AtomicU64; BUCKETS]);

impl<const BUCKETS: usize> Default for AtomicHistogram<BUCKETS> {
    fn default() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<const BUCKETS: usize> AtomicHistogram<BUCKETS> {
    /// Counts a value. Of two threads that count at once one may be lost.
    #[inline]
    pub fn record(&self, value: u64) {
        let count = &self.0[bucket_of(value).min(BUCKETS - 1)];
        count.store(count.load(Relaxed) + 1, Relaxed);
    }

    /// Counts a value, at the same time as other threads.
    #[inline]
    pub fn record_beside(&self, value: u64) {
        self.0[bucket_of(value).min(BUCKETS - 1)].fetch_add(1, Relaxed);
    }

    /// The largest value of each bucket that is not empty, and how many values it has.
    pub fn classes(&self) -> Vec<(u64, u64)> {
        let all = self.counts().enumerate().map(|(bucket, count)| (largest_of(bucket), count));
        all.filter(|(_, count)| *count > 0).collect()
    }

    fn counts(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|count| count.load(Relaxed))
    }

    /// The sum of `of` over all values, each of them taken for the middle of its bucket.
    pub fn sum(&self, of: impl Fn(u64) -> u64) -> u64 {
        let each = self.counts().enumerate().filter(|&(_, count)| count > 0);
        each.map(|(bucket, count)| count * of(middle_of(bucket))).sum()
    }

    /// The value that `per_cent` of the values do not exceed: the middle of its bucket, 0 of no
    /// values.
    pub fn within(&self, per_cent: u64) -> u64 {
        // Copied first: the buckets may change between two readings.
        let counts: Vec<u64> = self.counts().collect();
        let total = counts.iter().sum();
        bucket_within(counts.into_iter(), total, per_cent).map_or(0, middle_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Rng, SeededRng};
    use alloc::vec;

    #[test]
    fn buckets_follow_each_other() {
        let mut next = 0;
        for nth in 0..bucket_of(u64::MAX) {
            assert_eq!((bucket_of(next), bucket_of(largest_of(nth))), (nth, nth));
            assert_eq!(bucket_of(middle_of(nth)), nth);
            assert!(largest_of(nth) - next <= next / STEPS, "no wider than a sixteenth");
            next = largest_of(nth) + 1;
        }
        assert_eq!(largest_of(bucket_of(u64::MAX)), u64::MAX);
    }

    #[test]
    fn quantiles_are_right_to_a_sixteenth() {
        let mut rng = SeededRng::new(1);
        for most in [1, 12, 900, 1 << 20, 1 << 40] {
            let (mut histogram, mut all) = (Histogram::default(), vec![]);
            let atomic = AtomicHistogram::<640>::default();
            for _ in 0..1000 {
                let value = rng.below(most) * rng.below(3);
                histogram.record(value);
                atomic.record(value);
                all.push(value);
            }
            all.sort_unstable();
            assert_eq!((histogram.count(), histogram.max()), (1000, all[999]));
            let sum: u64 = all.iter().sum();
            let mean = histogram.mean();
            assert!((mean - sum as f64 / 1000.0).abs() < 1e-9 * mean.max(1.0));
            assert!(atomic.sum(|value| value).abs_diff(sum) <= sum / STEPS);
            for (per_cent, exact) in [(0, all[0]), (50, all[499]), (99, all[989]), (100, all[999])]
            {
                let (found, error) = (histogram.within(per_cent), exact / STEPS);
                assert!((exact..=exact + error).contains(&found), "{found} for {exact}");
                assert!(atomic.within(per_cent).abs_diff(exact) <= error);
            }
        }
    }

    #[test]
    fn an_empty_histogram_has_zeros() {
        let histogram = Histogram::default();
        assert_eq!((histogram.count(), histogram.max(), histogram.within(50)), (0, 0, 0));
        assert!(histogram.mean().abs() < f64::EPSILON);
        let atomic = AtomicHistogram::<16>::default();
        assert_eq!((atomic.within(50), atomic.sum(|value| value)), (0, 0));
    }

    #[test]
    fn the_last_bucket_counts_larger_values() {
        let atomic = AtomicHistogram::<32>::default();
        for value in [7, 1000, u64::MAX] {
            atomic.record(value);
        }
        assert_eq!((atomic.within(0), atomic.within(50), atomic.within(100)), (7, 31, 31));
        assert_eq!(atomic.sum(|value| value), 7 + 2 * 31);
        assert_eq!(atomic.sum(|_| 1), 3);
    }

    #[test]
    fn a_merged_histogram_is_that_of_all_values() {
        let [mut few, mut many, mut all] = [(); 3].map(|()| Histogram::default());
        for nth in 0..1000 {
            let part = if nth < 10 { &mut few } else { &mut many };
            part.record(nth * nth);
            all.record(nth * nth);
        }
        for (mut one, other) in [(few.clone(), &many), (many.clone(), &few)] {
            one.merge(other);
            assert_eq!(one, all);
        }
        many.merge(&Histogram::default());
        assert_ne!(many, all);
    }
}
