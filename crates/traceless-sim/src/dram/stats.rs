//! What each channel of a memory did.

use crate::workload::Op;
use serde::Serialize;
use traceless::stats::Histogram;

/// What a channel did.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub struct ChannelStats {
    /// Reads.
    pub reads: OpStats,
    /// Writes.
    pub writes: OpStats,
    /// Cycles of the processor in which a rank had a row open, of all ranks together.
    pub active: u64,
}

/// How long requests took, from arrival to the same time as [`OpStats::waited`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ChannelTimes {
    /// Reads, without the merged ones.
    pub reads: Histogram,
    /// Reads merged with a request that waited.
    pub merged_reads: Histogram,
    /// Writes, without the merged ones.
    pub writes: Histogram,
}

impl ChannelTimes {
    /// Adds the times of `other`.
    pub fn merge(&mut self, other: &Self) {
        let Self { reads, merged_reads, writes } = self;
        reads.merge(&other.reads);
        merged_reads.merge(&other.merged_reads);
        writes.merge(&other.writes);
    }
}

/// The requests of a kind that a channel served.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub struct OpStats {
    /// Requests served, without the merged ones.
    pub served: u64,
    /// Requests that were merged with one that waited.
    pub merged: u64,
    /// Rows opened for these requests.
    pub activations: u64,
    /// Cycles of the processor from arrival to the end of the data; for a write, to the time at
    /// which its row could be closed, less the delay of its data, as USIMM counts it.
    pub waited: u64,
}

impl ChannelStats {
    /// The statistics of an operation.
    pub fn of_mut(&mut self, op: Op) -> &mut OpStats {
        match op {
            Op::Read => &mut self.reads,
            Op::Write => &mut self.writes,
        }
    }
}

impl OpStats {
    /// Counts a request that took so many cycles.
    pub fn count(&mut self, cycles: u64) {
        self.served += 1;
        self.waited += cycles;
    }

    /// Cycles of the processor that a request took, on average.
    pub fn latency(&self) -> f64 {
        self.waited as f64 / self.served.max(1) as f64
    }

    /// Share of the requests that found their row open. Below 0 if rows were closed for other
    /// requests before they could be used.
    pub fn row_hits(&self) -> f64 {
        (self.served as f64 - self.activations as f64) / self.served.max(1) as f64
    }
}
