//! Distributions of times.

use serde::Serialize;

/// A summary of how long operations of one kind took, in cycles.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Latency {
    /// The number of operations.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// The median; up to a sixteenth too high.
    pub p50: u64,
    /// The 99th percentile; up to a sixteenth too high.
    pub p99: u64,
    /// The longest time.
    pub max: u64,
}

/// Buckets for the times between two powers of two.
const PARTS: u64 = 16;
const PART_BITS: u32 = PARTS.ilog2();

/// A histogram of times, each to a sixteenth of its value.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Histogram {
    /// The counts of all buckets up to that of the longest time.
    buckets: Vec<u64>,
    count: u64,
    sum: u64,
    max: u64,
}

impl Histogram {
    /// Adds an operation that took so many cycles.
    #[inline]
    pub fn record(&mut self, cycles: u64) {
        let bucket = bucket(cycles);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum += cycles;
        self.max = self.max.max(cycles);
    }

    /// Adds all operations of `other`.
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

    /// The summary of the times so far.
    pub fn latency(&self) -> Latency {
        Latency {
            count: self.count,
            mean: self.sum as f64 / self.count.max(1) as f64,
            p50: self.percentile(50),
            p99: self.percentile(99),
            max: self.max,
        }
    }

    /// The time that `percent` of the operations do not exceed, or a little more.
    fn percentile(&self, percent: u64) -> u64 {
        let rank = (self.count * percent).div_ceil(100);
        let mut count_up_to = 0;
        let bucket = self.buckets.iter().position(|count| {
            count_up_to += count;
            count_up_to >= rank
        });
        bucket.map_or(0, |bucket| bucket_end(bucket).min(self.max))
    }
}

/// The bucket of a time. Small times have a bucket each.
fn bucket(cycles: u64) -> usize {
    let shift = (cycles | PARTS).ilog2() - PART_BITS;
    (u64::from(shift) * PARTS + (cycles >> shift)) as usize
}

/// The longest time in a bucket.
fn bucket_end(bucket: usize) -> u64 {
    let shift = (bucket as u64 / PARTS).saturating_sub(1);
    let first = bucket as u64 - shift * PARTS;
    (first << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless::rng::{Rng, SeededRng};

    #[test]
    fn buckets_are_adjacent() {
        let mut next = 0;
        for nth in 0..bucket(u64::MAX) {
            assert_eq!((bucket(next), bucket(bucket_end(nth))), (nth, nth));
            assert!(bucket_end(nth) - next <= next / PARTS, "no wider than a sixteenth");
            next = bucket_end(nth) + 1;
        }
        assert_eq!(bucket_end(bucket(u64::MAX)), u64::MAX);
    }

    #[test]
    fn percentiles_are_exact_to_a_sixteenth() {
        let mut rng = SeededRng::new(1);
        for most in [1, 12, 900, 1 << 20, 1 << 40] {
            let (mut times, mut all) = (Histogram::default(), vec![]);
            for _ in 0..1000 {
                let cycles = rng.below(most) * rng.below(3);
                times.record(cycles);
                all.push(cycles);
            }
            all.sort_unstable();
            let Latency { count, mean, p50, p99, max } = times.latency();
            assert_eq!((count, max), (1000, all[999]));
            let sum: u64 = all.iter().sum();
            assert!((mean - sum as f64 / 1000.0).abs() < 1e-9 * mean.max(1.0));
            for (percentile, exact) in [(p50, all[499]), (p99, all[989])] {
                assert!(
                    (exact..=exact + exact / PARTS).contains(&percentile),
                    "{percentile} for {exact}"
                );
            }
        }
        assert_eq!(Histogram::default().latency(), Latency::default());
    }

    #[test]
    fn merged_histograms_equal_one_of_all_values() {
        let (mut few, mut many, mut all) =
            (Histogram::default(), Histogram::default(), Histogram::default());
        for nth in 0..1000 {
            let part = if nth < 10 { &mut few } else { &mut many };
            part.record(nth * nth);
            all.record(nth * nth);
        }
        for (mut one, other) in [(few.clone(), &many), (many.clone(), &few)] {
            one.merge(other);
            assert_eq!(one.latency(), all.latency());
        }
        many.merge(&Histogram::default());
        assert_ne!(many.latency(), all.latency());
    }
}
