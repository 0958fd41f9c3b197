//! A level from 1 on: a ring of generations, each sorted by address.

use super::MapPlace;
use super::geometry::{CHUNK, SqGeometry};
use super::index::AddressIndex;
use super::keys::{SqKeyRing, level_version};
use super::schedule::Schedule;
use crate::log;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Place, Result};
use traceless_core::store::{Area, Cursor};
use traceless_core::types::Slot;

/// A level between the log and the last.
pub(super) struct Level {
    /// Its number, from 1 on.
    pub number: usize,
    pub area: Area,
    pub cursor: Cursor,
    /// Slots of a generation.
    pub generation_len: u64,
    /// Upper bound of the addresses.
    universe: u64,
    all_in_memory: bool,
    /// Number of the oldest generation in `generations`.
    oldest: u64,
    generations: VecDeque<Generation>,
    /// Slots with damaged entries that were accepted as lost.
    lost: BTreeSet<u64>,
}

/// The addresses of a generation that are kept in memory.
pub(super) enum Generation {
    /// All addresses.
    Index(AddressIndex),
    /// The first address of each chunk, and the newest address.
    Fences {
        /// First address of each chunk that has one.
        first: AddressIndex,
        /// The largest address so far.
        newest: Option<u64>,
        /// Number of slots so far.
        len: u64,
    },
}

impl Generation {
    fn push(&mut self, address: u64) {
        match self {
            Self::Index(index) => {
                if address != log::DUMMY {
                    index.push(address);
                }
            }
            Self::Fences { first, newest, len } => {
                if address != log::DUMMY {
                    if len.is_multiple_of(CHUNK) {
                        first.push(address);
                    }
                    *newest = Some(address);
                }
                *len += 1;
            }
        }
    }

    /// The largest address in the generation.
    pub fn newest(&self) -> Option<u64> {
        match self {
            Self::Index(index) => index.newest(),
            Self::Fences { newest, .. } => *newest,
        }
    }
}

impl Level {
    pub fn new(number: usize, area: Area, generation_len: u64, geometry: &SqGeometry) -> Self {
        Self {
            number,
            cursor: Cursor::at_start(area.layout()),
            area,
            generation_len,
            universe: geometry.addresses(),
            all_in_memory: geometry.map == MapPlace::Memory,
            oldest: 0,
            generations: VecDeque::new(),
            lost: BTreeSet::new(),
        }
    }

    /// The place in the ring of slot number `slot`.
    pub fn slot(&self, slot: u64) -> Slot {
        Slot(slot % self.area.slots())
    }

    /// Starts tracking at generation `oldest`, with no generations yet.
    pub fn begin_at(&mut self, oldest: u64) {
        self.oldest = oldest;
        self.generations.clear();
    }

    /// Adds the next slot of the youngest generation, which is `generation`.
    pub fn push(&mut self, generation: u64, address: u64) {
        if generation == self.oldest + self.generations.len() as u64 {
            let (len, universe) = (self.generation_len, self.universe);
            self.generations.push_back(if self.all_in_memory {
                Generation::Index(AddressIndex::new(len, universe))
            } else {
                let first = AddressIndex::new(len.div_ceil(CHUNK), universe);
                Generation::Fences { first, newest: None, len: 0 }
            });
        }
        self.generations[(generation - self.oldest) as usize].push(address);
    }

    /// Accepts slot number `slot` as lost: its address is unknown.
    pub fn note_lost(&mut self, slot: u64) {
        self.lost.insert(slot);
    }

    pub fn is_lost(&self, slot: u64) -> bool {
        self.lost.contains(&slot)
    }

    /// The address to index for a lost slot, the next one of `generation`: it keeps the order of
    /// addresses and must not be taken for the block's real address.
    pub fn placeholder_address(&self, generation: u64) -> u64 {
        let newest = self.generation(generation).and_then(Generation::newest);
        // Behind the largest possible address there were only dummies.
        Some(newest.map_or(0, |newest| newest + 1))
            .filter(|&a| a < self.universe)
            .unwrap_or(log::DUMMY)
    }

    pub fn forget_before(&mut self, oldest: u64) {
        while self.oldest < oldest && !self.generations.is_empty() {
            self.generations.pop_front();
            self.oldest += 1;
        }
        self.lost = self.lost.split_off(&(self.oldest * self.generation_len));
    }

    /// A tracked generation. `None` if it has not begun.
    pub fn generation(&self, generation: u64) -> Option<&Generation> {
        let nth = generation.checked_sub(self.oldest)?;
        self.generations.get(usize::try_from(nth).ok()?)
    }

    /// Bytes that the maps of the generations take.
    pub fn memory(&self) -> usize {
        let bytes = |generation: &Generation| match generation {
            Generation::Index(index) => index.memory(),
            Generation::Fences { first, .. } => first.memory(),
        };
        self.generations.iter().map(bytes).sum()
    }

    /// The addresses of `count` slots from number `first` on; `None` where an entry is damaged.
    pub fn read_addresses(
        &self,
        (keys, schedule): (&SqKeyRing, &Schedule),
        first: u64,
        count: u64,
        out: &mut Vec<Option<u64>>,
    ) -> Result {
        let entry_len = self.area.layout().entry_len;
        let mut entries = vec![0; count as usize * entry_len];
        self.area.read_entries(self.slot(first), count, &mut entries)?;
        out.clear();
        out.extend(self.open_entries((keys, schedule), first, &entries));
        Ok(())
    }

    /// The addresses in the entries of slots from number `first` on; `None` where an entry is
    /// damaged.
    pub fn open_entries<'a>(
        &'a self,
        (keys, schedule): (&'a SqKeyRing, &'a Schedule),
        first: u64,
        entries: &'a [u8],
    ) -> impl Iterator<Item = Option<u64>> + 'a {
        let entries = entries.chunks_exact(self.area.layout().entry_len);
        (first..)
            .zip(entries)
            .map(move |(slot, entry)| self.open_entry((keys, schedule), slot, entry))
    }

    /// The address in the entry of slot number `slot`; `None` if the entry is damaged.
    pub fn open_entry(
        &self,
        (keys, schedule): (&SqKeyRing, &Schedule),
        slot: u64,
        entry: &[u8],
    ) -> Option<u64> {
        let (opening, keys) = keys.at_slot(schedule, self.number, slot);
        let version = level_version(self.number, slot);
        let (found, address) = keys.levels.open_entry(opening, entry)?;
        (found == version).then_some(address)
    }

    pub fn tampered(&self, slot: u64, block: Option<u64>) -> Error {
        let place = Place { area: self.area.name(), slot: self.slot(slot).0, block };
        Error::Tampered { place }
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use alloc::sync::Arc;
    use traceless_core::store::MemStore;

    fn level(map: MapPlace) -> Level {
        let geometry = SqGeometry::with_shape(200, 128, 4, 4, 2).unwrap();
        let geometry = SqGeometry { map, ..geometry };
        let layout = geometry.ring(1);
        let area = Area::new(Arc::new(MemStore::new(layout.len())), 0, layout, "level 1");
        Level::new(1, area, 16, &geometry)
    }

    #[test]
    fn what_stands_for_a_lost_slot_is_no_address_of_a_block() {
        for map in [MapPlace::Memory, MapPlace::Disk] {
            let mut level = level(map);
            assert_eq!(level.placeholder_address(0), 0);
            level.push(0, 7);
            assert_eq!(level.placeholder_address(0), 8);
            // Behind the largest address of all there can be a dummy only.
            level.push(0, level.universe - 2);
            assert_eq!(level.placeholder_address(0), level.universe - 1);
            level.push(0, level.universe - 1);
            assert_eq!(level.placeholder_address(0), log::DUMMY);
        }
    }

    #[test]
    fn lost_slots_are_forgotten_with_their_generation() {
        let mut level = level(MapPlace::Memory);
        for generation in 0..3 {
            level.push(generation, 7);
        }
        for slot in [0, 15, 16, 17, 31, 32] {
            level.note_lost(slot);
        }
        level.forget_before(1);
        assert_eq!(level.lost, BTreeSet::from([16, 17, 31, 32]));
        level.forget_before(2);
        assert_eq!(level.lost, BTreeSet::from([32]));
    }
}
