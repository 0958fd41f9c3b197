//! The access-time map as blocks of the ORAM itself: a leaf holds the times of neighbouring blocks,
//! 4 bytes each, and is located by the time of its own last write, which is kept in memory.

use super::geometry::TIME_LEN;
use super::{Sq, geometry::MapPlace};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::Result;

/// Leaves that the writer keeps in memory, at most, except for dirty ones.
const LEAVES_KEPT: usize = 64;

/// The leaves that the writer keeps in memory, in their newest state.
#[derive(Default)]
pub(super) struct Leaves {
    kept: BTreeMap<u64, KeptLeaf>,
    clock: u64,
}

struct KeptLeaf {
    contents: Vec<u8>,
    used: u64,
    /// Whether it was changed since it was last written.
    dirty: bool,
}

impl Leaves {
    pub fn get(&self, leaf: u64) -> Option<&[u8]> {
        self.kept.get(&leaf).map(|kept| &kept.contents[..])
    }

    /// Marks a kept leaf as recently used; returns whether the leaf is kept.
    fn touch(&mut self, leaf: u64) -> bool {
        self.clock += 1;
        let used = self.clock;
        self.kept.get_mut(&leaf).map(|kept| kept.used = used).is_some()
    }

    pub fn insert(&mut self, leaf: u64, contents: Vec<u8>) {
        while self.kept.len() >= LEAVES_KEPT {
            let clean = self.kept.iter().filter(|(_, kept)| !kept.dirty);
            let Some((&oldest, _)) = clean.min_by_key(|(_, kept)| kept.used) else { break };
            self.kept.remove(&oldest);
        }
        self.clock += 1;
        self.kept.insert(leaf, KeptLeaf { contents, used: self.clock, dirty: false });
    }

    /// Sets a time in a leaf that is kept.
    pub fn set(&mut self, leaf: u64, nth: usize, flush: u64) {
        self.clock += 1;
        let kept = self.kept.get_mut(&leaf).expect("it was fetched");
        kept.used = self.clock;
        kept.dirty = true;
        let at = nth * TIME_LEN;
        kept.contents[at..at + TIME_LEN].copy_from_slice(&(flush as u32 + 1).to_le_bytes());
    }

    /// Marks a kept leaf as written, and returns its contents.
    pub fn written(&mut self, leaf: u64) -> Vec<u8> {
        let kept = self.kept.get_mut(&leaf).expect("it was fetched");
        kept.dirty = false;
        kept.contents.clone()
    }

    pub fn is_dirty(&self, leaf: u64) -> bool {
        self.kept.get(&leaf).is_some_and(|kept| kept.dirty)
    }

    /// The leaves that were changed since they were last written.
    pub fn dirty(&self) -> impl Iterator<Item = u64> {
        self.kept.iter().filter(|(_, kept)| kept.dirty).map(|(&leaf, _)| leaf)
    }
}

/// The flush that carried block number `nth` of a leaf. Stored plus one, with 0 for none.
pub(super) fn time_at(leaf: &[u8], nth: usize) -> Option<u64> {
    let at = nth * TIME_LEN;
    let time = u32::from_le_bytes(leaf[at..at + TIME_LEN].try_into().expect("4 bytes"));
    u64::from(time).checked_sub(1)
}

impl Sq {
    /// The leaf that holds the time of `address`, and the index in that leaf.
    pub(super) fn leaf_of(&self, address: u64) -> (u64, usize) {
        let fan = self.geometry.leaf_fan();
        (address / fan, (address % fan) as usize)
    }

    /// Makes sure that the writer has a leaf in memory.
    pub(super) fn fetch_leaf(&mut self, leaf: u64) -> Result {
        if self.leaves.touch(leaf) {
            return Ok(());
        }
        let mut contents = vec![0; self.geometry.block_len];
        let time = self.times.get(leaf as usize, self.now());
        self.read_leaf(leaf, time, &mut contents)?;
        self.leaves.insert(leaf, contents);
        Ok(())
    }

    /// The index of the time of `address` in memory, if that time is kept in memory.
    pub(super) fn timed(&self, address: u64) -> Option<usize> {
        let nth = match self.geometry.map {
            MapPlace::Memory => Some(address),
            MapPlace::Disk => address.checked_sub(self.geometry.blocks),
        };
        nth.and_then(|n| usize::try_from(n).ok()).filter(|&n| n < self.times.len())
    }

    /// Notes that flush number `flush` carries the newest write of `address`.
    pub(super) fn note_time(&mut self, address: u64, flush: u64) {
        if let Some(nth) = self.timed(address) {
            self.times.set(nth, Some(flush));
        }
    }

    /// The flush that will carry the next write.
    pub(super) fn now(&self) -> u64 {
        self.count / self.bucket()
    }
}
