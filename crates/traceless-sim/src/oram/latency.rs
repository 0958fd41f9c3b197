//! Latencies of requests and path accesses.

use crate::latency::Latency;
use serde::Serialize;
use traceless::controller::StepKind;
use traceless::stats::Histogram;

/// Classes of reads by their accesses to the position map; more accesses count as the last class.
pub const READ_LEVELS: usize = 5;

/// The latencies of a run. A request takes from its arrival from the last cache to the time when
/// its line is in the processor; a path access from its begin to its end.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Latencies {
    /// Lines read.
    pub reads: Latency,
    /// Reads that took no path access: the block was in the stash, or in the tree top if that is
    /// searched first.
    pub reads_at_hand: Latency,
    /// Reads that took path accesses, by the number of accesses to the position map before that to
    /// the block. With none, the PLB, or what takes its place, had the label.
    pub reads_by_map: [Latency; READ_LEVELS],
    /// Lines that came back, until they are in the processor's part of the memory.
    pub write_backs: Latency,
    /// Path accesses.
    pub paths: PathLatencies,
}

impl Latencies {
    /// The latencies of a memory without a scheme: its reads, its reads that were merged with a
    /// request that waited, and its writes.
    pub fn straight(reads: &Histogram, merged: &Histogram, writes: &Histogram) -> Self {
        let mut all = reads.clone();
        all.merge(merged);
        let mut reads_by_map = [Latency::default(); READ_LEVELS];
        reads_by_map[0] = Latency::of(reads);
        Self {
            reads: Latency::of(&all),
            reads_at_hand: Latency::of(merged),
            reads_by_map,
            write_backs: Latency::of(writes),
            paths: PathLatencies::default(),
        }
    }
}

/// Latencies of path accesses, by their purpose.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct PathLatencies {
    /// For a block of a program.
    pub data: Latency,
    /// For a block of the position map.
    pub map: Latency,
    /// Dummy accesses.
    pub dummy: Latency,
    /// Accesses that only emptied a stash.
    pub eviction: Latency,
    /// Early write-backs in place of dummies.
    pub early: Latency,
}

/// Collects the latencies while a scheme runs.
#[derive(Default)]
pub struct LatencyProbe {
    at_hand: Histogram,
    by_map: [Histogram; READ_LEVELS],
    reads: Histogram,
    write_backs: Histogram,
    data: Histogram,
    map: Histogram,
    dummy: Histogram,
    eviction: Histogram,
    early: Histogram,
}

impl LatencyProbe {
    /// Records a read after `map` accesses to the position map, or without any path access.
    pub fn read(&mut self, map: Option<usize>, cycles: u64) {
        self.reads.record(cycles);
        match map {
            None => self.at_hand.record(cycles),
            Some(levels) => self.by_map[levels.min(READ_LEVELS - 1)].record(cycles),
        }
    }

    /// Records a line that came back.
    pub fn write_back(&mut self, cycles: u64) {
        self.write_backs.record(cycles);
    }

    /// Records a path access that ended.
    pub fn path(&mut self, kind: StepKind, is_early: bool, cycles: u64) {
        let times = match kind {
            StepKind::Dummy => &mut self.dummy,
            StepKind::Eviction => &mut self.eviction,
            _ if is_early => &mut self.early,
            StepKind::Data => &mut self.data,
            StepKind::PosMap(_) => &mut self.map,
        };
        times.record(cycles);
    }

    /// The latencies collected so far.
    pub fn latencies(&self) -> Latencies {
        let Self { at_hand, by_map, reads, write_backs, .. } = self;
        let mut reads_by_map = [Latency::default(); READ_LEVELS];
        for (latency, times) in reads_by_map.iter_mut().zip(by_map) {
            *latency = Latency::of(times);
        }
        Latencies {
            reads: Latency::of(reads),
            reads_at_hand: Latency::of(at_hand),
            reads_by_map,
            write_backs: Latency::of(write_backs),
            paths: PathLatencies {
                data: Latency::of(&self.data),
                map: Latency::of(&self.map),
                dummy: Latency::of(&self.dummy),
                eviction: Latency::of(&self.eviction),
                early: Latency::of(&self.early),
            },
        }
    }
}
