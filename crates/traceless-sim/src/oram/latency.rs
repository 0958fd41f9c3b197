//! How long operations take.

use crate::times::{Latency, Times};
use serde::Serialize;
use traceless::controller::StepKind;

/// Levels of the position map that reads are told apart by; more count as the last.
pub const READ_LEVELS: usize = 5;

/// How long all of them took. A request takes from the time when it comes from the last cache to
/// the time when its line is in the processor, a path access from its begin to its end.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Latencies {
    /// Lines read.
    pub reads: Latency,
    /// Those of them that took no path access: the block was in the stash, or in the tree top
    /// where that is searched first.
    pub reads_at_hand: Latency,
    /// Those that did, by how many accesses to the position map came before that to the block,
    /// from none on: then the PLB, or what is in its place, had the label.
    pub reads_by_map: [Latency; READ_LEVELS],
    /// Lines that came back, until they are in the processor's part of the memory.
    pub write_backs: Latency,
    /// Path accesses.
    pub paths: PathLatencies,
}

impl Latencies {
    /// Of a memory that hides nothing: reads, those of them that became part of a request that
    /// waited, and writes.
    pub fn straight(reads: &Times, merged: &Times, writes: &Times) -> Self {
        let mut all = reads.clone();
        all.join(merged);
        let mut reads_by_map = [Latency::default(); READ_LEVELS];
        reads_by_map[0] = reads.latency();
        Self {
            reads: all.latency(),
            reads_at_hand: merged.latency(),
            reads_by_map,
            write_backs: writes.latency(),
            paths: PathLatencies::default(),
        }
    }
}

/// Those of path accesses, by what they were for.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct PathLatencies {
    /// A block that a program uses.
    pub data: Latency,
    /// A block of the position map.
    pub map: Latency,
    /// Nothing.
    pub dummy: Latency,
    /// They only emptied a stash.
    pub eviction: Latency,
    /// In place of dummies.
    pub early: Latency,
}

/// What is measured while a scheme runs.
#[derive(Default)]
pub struct LatencyProbe {
    at_hand: Times,
    by_map: [Times; READ_LEVELS],
    reads: Times,
    write_backs: Times,
    data: Times,
    map: Times,
    dummy: Times,
    eviction: Times,
    early: Times,
}

impl LatencyProbe {
    /// A line was read, after so many accesses to the map, or without any path access.
    pub fn read(&mut self, map: Option<usize>, cycles: u64) {
        self.reads.add(cycles);
        match map {
            None => self.at_hand.add(cycles),
            Some(levels) => self.by_map[levels.min(READ_LEVELS - 1)].add(cycles),
        }
    }

    /// A line came back.
    pub fn write_back(&mut self, cycles: u64) {
        self.write_backs.add(cycles);
    }

    /// A path access ended.
    pub fn path(&mut self, kind: StepKind, is_early: bool, cycles: u64) {
        let times = match kind {
            StepKind::Dummy => &mut self.dummy,
            StepKind::Eviction => &mut self.eviction,
            _ if is_early => &mut self.early,
            StepKind::Data => &mut self.data,
            StepKind::PosMap(_) => &mut self.map,
        };
        times.add(cycles);
    }

    /// What all of it came to.
    pub fn latencies(&self) -> Latencies {
        let Self { at_hand, by_map, reads, write_backs, .. } = self;
        let mut reads_by_map = [Latency::default(); READ_LEVELS];
        for (latency, times) in reads_by_map.iter_mut().zip(by_map) {
            *latency = times.latency();
        }
        Latencies {
            reads: reads.latency(),
            reads_at_hand: at_hand.latency(),
            reads_by_map,
            write_backs: write_backs.latency(),
            paths: PathLatencies {
                data: self.data.latency(),
                map: self.map.latency(),
                dummy: self.dummy.latency(),
                eviction: self.eviction.latency(),
                early: self.early.latency(),
            },
        }
    }
}
