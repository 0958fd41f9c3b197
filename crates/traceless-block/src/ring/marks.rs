//! Which slots were read since their bucket was written, and how many of each bucket.
//!
//! The marks are in memory while the ring is open. A close seals them in an area of their own, from
//! which the next opening takes them. After a crash they are not needed: every bucket is written
//! anew before any of its slots is read alone.

use super::entry::RingKeys;
use super::geometry::{MARKS_LEN, RingGeometry, RingLevel};
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Place, Result};
use traceless_core::rng::Rng;
use traceless_core::seal::{Nonce, Salt};
use traceless_core::store::{Area, Cursor, Run, Store};
use traceless_core::types::Slot;

const PARTS_PER_REQUEST: u64 = 256;

/// The marks of all levels.
pub(super) struct Marks(Vec<LevelMarks>);

/// The marks of a level.
struct LevelMarks {
    /// Words of `unread` for each bucket.
    words: usize,
    /// Slots that hold a dummy that was not read, one bit each.
    unread: Vec<u64>,
    /// Reads of each bucket.
    reads: Vec<u16>,
}

impl Marks {
    /// The marks of buckets that were never written: no slot was read, and none holds a block.
    pub fn new(geometry: &RingGeometry) -> Result<Self> {
        let of_level = |level: &RingLevel| {
            let (words, buckets) = (level.mark_words() as usize, level.buckets as usize);
            let unread = vec![0; buckets.checked_mul(words).ok_or(Error::Geometry("marks"))?];
            let mut marks = LevelMarks { words, unread, reads: vec![0; buckets] };
            for bucket in 0..level.buckets {
                marks.renew(bucket, level.slots());
            }
            Ok(marks)
        };
        geometry.levels.iter().map(of_level).collect::<Result<_>>().map(Self)
    }

    /// Number of slots of a bucket that were read one by one.
    pub fn reads(&self, level: usize, bucket: u64) -> u64 {
        self.0[level].reads[bucket as usize].into()
    }

    /// Counts the read of a slot with a block.
    pub fn note_read(&mut self, level: usize, bucket: u64) {
        self.0[level].reads[bucket as usize] += 1;
    }

    /// Draws an unread dummy of a bucket, and counts its read.
    pub fn draw(&mut self, level: usize, bucket: u64, rng: &mut dyn Rng) -> u64 {
        self.note_read(level, bucket);
        let words = self.0[level].of_mut(bucket);
        let unread: u32 = words.iter().map(|word| word.count_ones()).sum();
        let mut left = rng.below(unread.into()) as u32;
        for (nth, word) in words.iter_mut().enumerate() {
            if left >= word.count_ones() {
                left -= word.count_ones();
                continue;
            }
            let mut rest = *word;
            for _ in 0..left {
                rest &= rest - 1;
            }
            let bit = rest.trailing_zeros();
            *word &= !(1 << bit);
            return nth as u64 * 64 + u64::from(bit);
        }
        unreachable!("the slot is among those counted")
    }

    /// Begins a bucket of `slots` slots anew, with dummies in all of them.
    pub fn renew(&mut self, level: usize, bucket: u64, slots: u64) {
        self.0[level].renew(bucket, slots);
    }

    /// Takes note that a slot of a new bucket holds a block.
    pub fn fill(&mut self, level: usize, bucket: u64, slot: u64) {
        self.0[level].of_mut(bucket)[slot as usize / 64] &= !(1 << (slot % 64));
    }

    /// Writes the marks to their area.
    pub fn save(&self, keys: &RingKeys, salt: Salt, area: &Area, store: &dyn Store) -> Result {
        let bytes = self.to_bytes(area.slots() as usize * MARKS_LEN);
        let (mut run, mut cursor) = (Run::default(), Cursor::at_start(area.layout()));
        for first in (0..area.slots()).step_by(PARTS_PER_REQUEST as usize) {
            let count = PARTS_PER_REQUEST.min(area.slots() - first);
            run.clear();
            run.add_write(area, Slot(first), count, &cursor);
            for nth in 0..count {
                let part = first + nth;
                let (entry, body) = run.slot_mut(nth as usize);
                body.copy_from_slice(&bytes[part as usize * MARKS_LEN..][..MARKS_LEN]);
                let tag = salt.put(entry);
                keys.marks.seal_in_place(Nonce::new(part, salt), &[], body, tag);
            }
            run.write(store)?;
            run.advance(&mut cursor, count as usize - 1);
        }
        Ok(())
    }

    /// Reads the marks that were saved last.
    pub fn load(&mut self, keys: &RingKeys, area: &Area, store: &dyn Store) -> Result {
        let mut bytes = Vec::with_capacity(area.slots() as usize * MARKS_LEN);
        let mut run = Run::default();
        for first in (0..area.slots()).step_by(PARTS_PER_REQUEST as usize) {
            let count = PARTS_PER_REQUEST.min(area.slots() - first);
            run.clear();
            run.add(area, Slot(first), count);
            run.read(store)?;
            for nth in 0..count {
                let (entry, body) = run.slot_mut(nth as usize);
                let (salt, tag) = Salt::split(entry);
                let nonce = Nonce::new(first + nth, salt);
                if keys.marks.open_in_place(nonce, &[], body, tag).is_err() {
                    let place = Place { area: area.name(), slot: first + nth, block: None };
                    return Err(Error::Tampered { place });
                }
                bytes.extend_from_slice(body);
            }
        }
        self.set(&bytes);
        Ok(())
    }

    fn to_bytes(&self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        for level in &self.0 {
            bytes.extend(level.reads.iter().flat_map(|reads| reads.to_le_bytes()));
            bytes.extend(level.unread.iter().flat_map(|word| word.to_le_bytes()));
        }
        bytes.resize(len, 0);
        bytes
    }

    fn set(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        for level in &mut self.0 {
            let (reads, behind) = rest.split_at(2 * level.reads.len());
            for (own, saved) in level.reads.iter_mut().zip(reads.chunks_exact(2)) {
                *own = u16::from_le_bytes(saved.try_into().expect("2 bytes"));
            }
            let (unread, behind) = behind.split_at(8 * level.unread.len());
            for (own, saved) in level.unread.iter_mut().zip(unread.chunks_exact(8)) {
                *own = u64::from_le_bytes(saved.try_into().expect("8 bytes"));
            }
            rest = behind;
        }
    }
}

impl LevelMarks {
    fn of_mut(&mut self, bucket: u64) -> &mut [u64] {
        &mut self.unread[bucket as usize * self.words..][..self.words]
    }

    fn renew(&mut self, bucket: u64, slots: u64) {
        self.reads[bucket as usize] = 0;
        for (nth, word) in (0..).zip(self.of_mut(bucket)) {
            let here = (slots - nth * 64).min(64);
            *word = u64::MAX >> (64 - here);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::rng::SeededRng;

    #[test]
    fn every_unread_dummy_is_drawn_once() {
        let geometry = RingGeometry::with_buckets(500, 64, 40, &[2, 8]).unwrap();
        let slots = geometry.levels[1].slots();
        let mut marks = Marks::new(&geometry).unwrap();
        let mut rng = SeededRng::new(1);
        for round in 0..3 {
            marks.renew(1, 5, slots);
            marks.fill(1, 5, 3);
            marks.fill(1, 5, 70);
            let mut drawn: Vec<_> = (2..slots).map(|_| marks.draw(1, 5, &mut rng)).collect();
            assert_eq!(marks.reads(1, 5), slots - 2);
            assert!(drawn.windows(2).any(|pair| pair[0] > pair[1]), "round {round}: in order");
            drawn.sort_unstable();
            let all: Vec<_> = (0..slots).filter(|slot| ![3, 70].contains(slot)).collect();
            assert_eq!(drawn, all);
        }
        let bytes = marks.to_bytes(geometry.marks_memory() as usize);
        let mut again = Marks::new(&geometry).unwrap();
        again.set(&bytes);
        assert_eq!(again.to_bytes(bytes.len()), bytes);
        assert_eq!((again.reads(1, 5), again.reads(1, 4)), (slots - 2, 0));
    }
}
