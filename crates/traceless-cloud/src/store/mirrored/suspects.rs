//! Which slots are read from the copy.

use super::super::{NodeVersion, SlotRead};
use crate::enclave::DamagedSlots;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Slots of queries that are remembered, of some hundred queries.
const READS_MAX: usize = 4096;
/// Nodes with damaged slots that are remembered.
const NODES_MAX: usize = 64;

type SlotName = (NodeVersion, u32);

/// Slots that were read for queries, with how often.
#[derive(Default)]
pub struct RecentReads {
    times: HashMap<SlotName, u32>,
    oldest: VecDeque<SlotName>,
}

impl RecentReads {
    /// Takes note of reads. Returns the numbers of the reads that went to the store the last time,
    /// and are to go to the copy this time.
    pub fn note(&mut self, reads: &[SlotRead<'_>]) -> Vec<usize> {
        let mut again = Vec::new();
        for (number, read) in reads.iter().enumerate() {
            if read.version.attempt == 0 {
                continue;
            }
            let name = (read.version, read.slot);
            let times = self.times.entry(name).or_insert(0);
            *times += 1;
            match *times {
                1 => self.oldest.push_back(name),
                times if times % 2 == 0 => again.push(number),
                _ => {}
            }
        }
        while self.oldest.len() > READS_MAX {
            if let Some(name) = self.oldest.pop_front() {
                self.times.remove(&name);
            }
        }
        again
    }
}

/// What the enclave and comparisons have found in nodes.
#[derive(Default)]
pub struct DamagedNodes {
    /// Slots that are read from the copy.
    damaged: BTreeMap<NodeVersion, BTreeSet<u32>>,
    /// Slots in which both stores differ, and which the enclave has not judged.
    differing: BTreeMap<NodeVersion, Vec<u32>>,
}

impl DamagedNodes {
    /// The slots of a version that are read from the copy.
    pub fn slots(&self, version: NodeVersion) -> Vec<u32> {
        self.damaged.get(&version).into_iter().flatten().copied().collect()
    }

    /// Takes the slots in which a version differs from the copy's.
    pub fn set_differing(&mut self, version: NodeVersion, slots: Vec<u32>) {
        self.differing.insert(version, slots);
        shorten(&mut self.differing);
    }

    /// Takes the enclave's verdict about the bytes of a version that were read. Returns whether the
    /// copy's are damaged.
    pub fn judge(&mut self, version: NodeVersion, damaged: &DamagedSlots) -> bool {
        if !damaged.is_empty() {
            let known = self.damaged.entry(version).or_default();
            for slot in damaged {
                // A damaged slot of the copy is read from the store again.
                if !known.remove(slot) {
                    known.insert(*slot);
                }
            }
            shorten(&mut self.damaged);
        }
        let differing = self.differing.remove(&version).unwrap_or_default();
        differing.iter().any(|slot| !damaged.contains(slot))
    }
}

/// Forgets a node if there are too many.
fn shorten<T>(nodes: &mut BTreeMap<NodeVersion, T>) {
    if nodes.len() > NODES_MAX {
        nodes.pop_first();
    }
}
