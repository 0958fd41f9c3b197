//! Which slots are read from the copy.

use super::super::{NodeVersion, SlotRead};
use crate::enclave::DamagedSlots;
use std::collections::{HashMap, VecDeque};

/// Slots of queries that are remembered, of some hundred queries.
const READS_MAX: usize = 4096;
/// Nodes that are remembered with damaged slots, or with slots that differ from the copy's.
const NODES_MAX: usize = 1024;

type SlotName = (NodeVersion, u32);

/// Where the bytes of a slot are taken from that is read again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotSource {
    /// The store, as the first time.
    Store,
    /// The copy.
    Copy,
    /// The copy and the store in turn, for slots of a query in which both differ: each of both may
    /// have damage.
    Mixed {
        /// Whether the first of these slots comes from the copy.
        copy_first: bool,
    },
}

/// Where a slot is read each time. A block is lost if two readings one after the other find the
/// same damage, so no source comes twice in a row.
const SOURCES: [SlotSource; 5] = [
    SlotSource::Store,
    SlotSource::Copy,
    SlotSource::Store,
    SlotSource::Mixed { copy_first: true },
    SlotSource::Mixed { copy_first: false },
];

/// Slots that were read for queries, with how often.
#[derive(Default)]
pub struct RecentReads {
    times: HashMap<SlotName, u32>,
    oldest: VecDeque<SlotName>,
}

impl RecentReads {
    /// Takes note of reads. Returns the numbers of the reads with bytes that do not come from the
    /// store alone this time.
    pub fn note(&mut self, reads: &[SlotRead<'_>]) -> Vec<(usize, SlotSource)> {
        let mut again = Vec::new();
        for (number, read) in reads.iter().enumerate() {
            if read.version.attempt == 0 {
                continue;
            }
            let name = (read.version, read.slot);
            let times = self.times.entry(name).or_insert_with(|| {
                self.oldest.push_back(name);
                0
            });
            match SOURCES[*times as usize % SOURCES.len()] {
                SlotSource::Store => {}
                source => again.push((number, source)),
            }
            *times += 1;
        }
        while self.oldest.len() > READS_MAX {
            if let Some(name) = self.oldest.pop_front() {
                self.times.remove(&name);
            }
        }
        again
    }

    /// Takes back the note of reads that failed: they are made again.
    pub fn take_back(&mut self, reads: &[SlotRead<'_>]) {
        for read in reads {
            if let Some(times) = self.times.get_mut(&(read.version, read.slot)) {
                *times = times.saturating_sub(1);
            }
        }
    }
}

/// What the enclave and comparisons have found in nodes.
#[derive(Default)]
pub struct DamagedNodes {
    /// Slots that are read from the copy.
    damaged: NodeSlots,
    /// Slots in which both stores differ, and which the enclave has not judged.
    differing: NodeSlots,
}

impl DamagedNodes {
    /// The slots of a version that are read from the copy.
    pub fn slots(&self, version: NodeVersion) -> DamagedSlots {
        self.damaged.get(version).cloned().unwrap_or_default()
    }

    /// Takes slots that cannot be read from the store.
    pub fn add_unreadable(&mut self, version: NodeVersion, mut slots: DamagedSlots) {
        slots.append(&mut self.slots(version));
        self.damaged.insert(version, slots);
    }

    /// Takes the slots in which a version differs from the copy's.
    pub fn set_differing(&mut self, version: NodeVersion, slots: DamagedSlots) {
        self.differing.insert(version, slots);
    }

    /// Forgets what was found in a version that is written again. Returns whether anything was.
    pub fn forget(&mut self, version: NodeVersion) -> bool {
        let found = [self.damaged.remove(version), self.differing.remove(version)];
        found.iter().any(Option::is_some)
    }

    /// Takes the enclave's verdict about the bytes of a version that were read. Returns whether the
    /// copy's are damaged.
    pub fn judge(&mut self, version: NodeVersion, damaged: &DamagedSlots) -> bool {
        if !damaged.is_empty() {
            // A damaged slot of the copy is read from the store again.
            let known = self.slots(version);
            self.damaged.insert(version, known.symmetric_difference(damaged).copied().collect());
        }
        let differing = self.differing.remove(version).unwrap_or_default();
        !differing.is_subset(damaged)
    }
}

/// Slots of versions of nodes, of one version of a node at a time, the oldest first.
#[derive(Default)]
struct NodeSlots(VecDeque<(NodeVersion, DamagedSlots)>);

impl NodeSlots {
    fn get(&self, version: NodeVersion) -> Option<&DamagedSlots> {
        self.0.iter().find(|(known, _)| *known == version).map(|(_, slots)| slots)
    }

    fn insert(&mut self, version: NodeVersion, slots: DamagedSlots) {
        self.0.retain(|(known, _)| known.node != version.node);
        self.0.push_back((version, slots));
        if self.0.len() > NODES_MAX {
            self.0.pop_front();
        }
    }

    fn remove(&mut self, version: NodeVersion) -> Option<DamagedSlots> {
        let at = self.0.iter().position(|(known, _)| *known == version)?;
        self.0.remove(at).map(|(_, slots)| slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Node;

    fn version(node: u32, attempt: u64) -> NodeVersion {
        NodeVersion { node: Node(node), attempt }
    }

    /// New damage is read from the copy, however much was damaged before.
    #[test]
    fn the_newest_damage_is_remembered() {
        let mut nodes = DamagedNodes::default();
        let slots = DamagedSlots::from([3, 5]);
        for node in (1..=NODES_MAX as u32).rev() {
            nodes.judge(version(node, 7), &slots);
        }
        nodes.judge(version(0, 7), &slots);
        assert_eq!(nodes.slots(version(0, 7)), slots);
        assert_eq!(nodes.slots(version(NODES_MAX as u32, 7)), DamagedSlots::new(), "the oldest");
        // A new version of a node is sound.
        nodes.judge(version(0, 8), &DamagedSlots::from([1]));
        assert_eq!(nodes.slots(version(0, 7)), DamagedSlots::new());
        assert_eq!(nodes.slots(version(0, 8)), DamagedSlots::from([1]));
    }

    #[test]
    fn reads_of_a_slot_go_to_the_store_and_the_copy_in_turn() {
        let mut reads = RecentReads::default();
        let mut note = |attempt| {
            let mut bytes = [[0; 2]; 2];
            let [first, second] = bytes.each_mut();
            let read = |slot, into| SlotRead { version: version(1, attempt), slot, into };
            reads.note(&[read(4, &mut first[..]), read(5, &mut second[..])])
        };
        let both = |source| vec![(0, source), (1, source)];
        for _ in 0..2 {
            assert_eq!(note(9), []);
            assert_eq!(note(9), both(SlotSource::Copy));
            assert_eq!(note(9), []);
            assert_eq!(note(9), both(SlotSource::Mixed { copy_first: true }));
            assert_eq!(note(9), both(SlotSource::Mixed { copy_first: false }));
        }
        for _ in 0..3 {
            assert_eq!(note(0), [], "what was never written has no damage");
        }
        assert_eq!(note(10), []);
    }
}
