//! Summaries of times.
//!
//! ```
//! use traceless::stats::Histogram;
//! use traceless_sim::latency::Latency;
//!
//! let mut times = Histogram::default();
//! (1..=9).for_each(|cycles| times.record(cycles));
//! times.record(4000);
//! let summary = Latency::of(&times);
//! assert_eq!((summary.count, summary.p50, summary.max), (10, 5, 4000));
//! ```

use serde::Serialize;
use traceless::stats::Histogram;

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

impl Latency {
    /// The summary of these times.
    pub fn of(times: &Histogram) -> Self {
        Self {
            count: times.count(),
            mean: times.mean(),
            p50: times.within(50),
            p99: times.within(99),
            max: times.max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_percentiles_of_its_times() {
        let mut times = Histogram::default();
        assert_eq!(Latency::of(&times), Latency::default());
        (1..=200).for_each(|cycles| times.record(cycles % 10));
        let Latency { count, mean, p50, p99, max } = Latency::of(&times);
        assert_eq!((count, p50, p99, max), (200, 4, 9, 9));
        assert!((mean - 4.5).abs() < 1e-9);
    }
}
