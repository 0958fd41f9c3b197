//! The access-time map as blocks of the ORAM itself: a leaf holds the times of neighbouring blocks,
//! 4 bytes each, and is located by the time of its own last write, which is kept in memory.

use super::geometry::TIME_LEN;
use super::{MapPlace, Sq};
use crate::log::DUMMY;
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
    pub(super) fn time_index(&self, address: u64) -> Option<usize> {
        let nth = match self.geometry.map {
            MapPlace::Memory => Some(address),
            MapPlace::Disk => address.checked_sub(self.geometry.blocks),
        };
        nth.filter(|_| address != DUMMY).and_then(|n| usize::try_from(n).ok())
    }

    /// Notes that flush number `flush` carries the newest write of `address`.
    pub(super) fn note_time(&mut self, address: u64, flush: u64) {
        if let Some(nth) = self.time_index(address) {
            self.times.set(nth, Some(flush));
        }
    }

    /// The flush that will carry the next write.
    pub(super) fn now(&self) -> u64 {
        self.count / self.bucket()
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    /// As many leaves as are kept but for one: number 0, and changed leaves, which stay.
    fn but_for_one() -> Leaves {
        let mut leaves = Leaves::default();
        for leaf in 0..LEAVES_KEPT as u64 - 1 {
            leaves.insert(leaf, vec![0; 8]);
        }
        for leaf in 1..LEAVES_KEPT as u64 - 1 {
            leaves.set(leaf, 1, 5);
        }
        leaves
    }

    #[test]
    fn the_least_recently_used_leaf_gives_way() {
        let (one, next) = (LEAVES_KEPT as u64 - 1, LEAVES_KEPT as u64);
        let uses: [fn(&mut Leaves); 3] = [
            |leaves| assert!(leaves.touch(0)),
            |leaves| {
                leaves.set(0, 1, 5);
                leaves.written(0);
            },
            |_| {},
        ];
        for (use_it, stays) in uses.into_iter().zip([true, true, false]) {
            let mut leaves = but_for_one();
            leaves.insert(one, vec![0; 8]);
            use_it(&mut leaves);
            leaves.insert(next, vec![0; 8]);
            assert_eq!([leaves.get(0).is_some(), leaves.get(one).is_some()], [stays, !stays]);
        }
        // One that came last was used last, even if it has the lowest number.
        let mut leaves = but_for_one();
        leaves.kept.remove(&0);
        leaves.insert(one, vec![0; 8]);
        leaves.touch(one);
        leaves.insert(0, vec![0; 8]);
        leaves.insert(next, vec![0; 8]);
        assert!(leaves.get(0).is_some() && leaves.get(one).is_none());
    }

    #[test]
    fn a_leaf_that_was_changed_stays_until_it_is_written() {
        let mut leaves = but_for_one();
        assert!(leaves.is_dirty(1) && !leaves.is_dirty(0) && !leaves.is_dirty(1000));
        assert_eq!(leaves.dirty().count(), LEAVES_KEPT - 2);
        for leaf in 1000..1100 {
            leaves.insert(leaf, vec![0; 8]);
        }
        assert!((1..LEAVES_KEPT as u64 - 1).all(|leaf| leaves.get(leaf).is_some()));
        assert_eq!(leaves.kept.len(), LEAVES_KEPT);
        let written = leaves.written(1);
        assert_eq!((time_at(&written, 0), time_at(&written, 1)), (None, Some(5)));
        assert!(!leaves.is_dirty(1));
    }
}
