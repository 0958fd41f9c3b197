//! Finds blocks without the access-time map, by a search in every generation, the newest first.
//! This rebuilds a lost leaf of the map.

use super::Sq;
use super::geometry::{CHUNK, TIME_LEN};
use super::level::Generation;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use traceless_core::error::{Error, Result};

impl Sq {
    /// Reads a leaf of the map, or rebuilds it if it is lost.
    pub(super) fn read_leaf(&self, leaf: u64, time: Option<u64>, into: &mut [u8]) -> Result {
        match self.read_one(self.geometry.blocks + leaf, time, into) {
            Err(Error::Tampered { .. }) => self.remake_leaf(leaf, into),
            other => other,
        }
    }

    pub(super) fn remake_leaf(&self, leaf: u64, into: &mut [u8]) -> Result {
        let first = leaf * self.geometry.leaf_fan();
        let end = (first + self.geometry.leaf_fan()).min(self.geometry.blocks);
        into.fill(0);
        for (time, slot) in self.search(first..end)?.iter().zip(into.chunks_exact_mut(TIME_LEN)) {
            let time = time.map_or(0, |flush| flush as u32 + 1);
            slot.copy_from_slice(&time.to_le_bytes());
        }
        Ok(())
    }

    /// A flush number that locates the newest copy of each of `addresses`; `None` if that copy is
    /// in the last level. A damaged entry is an error, since it might hide a newer copy.
    fn search(&self, addresses: Range<u64>) -> Result<Vec<Option<u64>>> {
        let mut times = vec![None; (addresses.end - addresses.start) as usize];
        let mut note = |address: u64, flush: u64| {
            if addresses.contains(&address) {
                let time: &mut Option<u64> = &mut times[(address - addresses.start) as usize];
                *time = time.or(Some(flush));
            }
        };
        let now = self.now();
        self.recent.current().iter().for_each(|&address| note(address, now));
        for bucket in (self.schedule.oldest(0, self.flushes)..now).rev() {
            self.recent.sorted(bucket).iter().for_each(|&(address, _)| note(address, bucket));
        }
        for level in 1..self.schedule.last() {
            let width = self.schedule.width(level);
            let whole = self.schedule.delivered(level, self.flushes) / width;
            for generation in (self.schedule.oldest(level, self.flushes)..whole).rev() {
                for address in self.addresses_in(level, generation, &addresses)? {
                    note(address, generation * width);
                }
            }
        }
        Ok(times)
    }

    /// The ones of `addresses` that a generation holds, and perhaps further addresses.
    fn addresses_in(
        &self,
        level: usize,
        generation: u64,
        addresses: &Range<u64>,
    ) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        let place = &self.levels[level - 1];
        let begin = generation * place.generation_len;
        match self.generation(level, generation) {
            Generation::Index(_) => unreachable!("with the map in memory there are no leaves"),
            Generation::Fences { first, .. } => {
                let from = first.seek(addresses.start).rank.saturating_sub(1);
                let mut entries = Vec::new();
                for chunk in from..first.seek(addresses.end).rank {
                    let slot = begin + chunk * CHUNK;
                    let count = CHUNK.min(place.generation_len - chunk * CHUNK);
                    let context = (&self.keys, &self.schedule);
                    place.read_addresses(context, slot, count, &mut entries)?;
                    for (slot, address) in (slot..).zip(&entries) {
                        match address {
                            Some(address) => found.push(*address),
                            None if place.is_lost(slot) => {}
                            None => return Err(place.tampered(slot, None)),
                        }
                    }
                }
            }
        }
        Ok(found)
    }
}
