//! A level from 1 on: a ring of generations, each sorted by address.

use super::geometry::{CHUNK, MapPlace, SqGeometry};
use super::index::AddressIndex;
use super::keys::{SqKeyRing, level_version};
use super::schedule::Schedule;
use crate::error::{Error, Place, Result};
use crate::scheme::log;
use crate::store::{Area, Cursor};
use crate::types::Slot;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

/// A level between the log and the last.
pub(super) struct Level {
    /// Its number, from 1 on.
    pub number: usize,
    pub area: Area,
    pub cursor: Cursor,
    /// Slots of a generation.
    pub generation_len: u64,
    /// Addresses are below it.
    universe: u64,
    all_in_memory: bool,
    /// Number of the oldest generation that is kept track of.
    oldest: u64,
    generations: VecDeque<Generation>,
    /// Slots whose entries are damaged and were accepted as lost.
    lost: BTreeSet<u64>,
}

/// What is known in memory of a generation's addresses.
pub(super) enum Generation {
    /// All of them.
    Index(AddressIndex),
    /// The first of each chunk, and the newest.
    Fences {
        /// First address of each chunk that has one.
        first: AddressIndex,
        /// The largest address so far.
        newest: Option<u64>,
        /// Slots so far.
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

    /// The largest address in it.
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

    /// Keeps track of generations from `oldest` on, none of which is there yet.
    pub fn begin_at(&mut self, oldest: u64) {
        self.oldest = oldest;
        self.generations.clear();
    }

    /// Notes the next slot of the youngest generation, which is `generation`.
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

    /// Accepts that nobody knows what slot number `slot` holds.
    pub fn note_lost(&mut self, slot: u64) {
        self.lost.insert(slot);
    }

    pub fn is_lost(&self, slot: u64) -> bool {
        self.lost.contains(&slot)
    }

    /// What stands for the address of a lost slot, the next one of `generation`: it holds its place
    /// in the order, and nobody may take it for a block's.
    pub fn stand_in(&self, generation: u64) -> u64 {
        let newest = self.generation(generation).and_then(Generation::newest);
        // Behind the largest address of all there were dummies only.
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

    /// A generation that is kept track of. None if it has not begun.
    pub fn generation(&self, generation: u64) -> Option<&Generation> {
        let nth = generation.checked_sub(self.oldest)?;
        self.generations.get(usize::try_from(nth).ok()?)
    }

    /// Bytes that the maps of its generations take.
    pub fn memory(&self) -> usize {
        let bytes = |generation: &Generation| match generation {
            Generation::Index(index) => index.memory(),
            Generation::Fences { first, .. } => first.memory(),
        };
        self.generations.iter().map(bytes).sum()
    }

    /// The addresses of `count` slots from number `first` on; none where an entry is damaged.
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

    /// The addresses in the entries of slots from number `first` on; none where one is damaged.
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

    /// The address that stands in the entry of slot number `slot`; none if it is damaged.
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
