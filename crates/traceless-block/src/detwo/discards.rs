//! The discard map: a bit for each block that reads as zeros, in blocks of the same scheme behind
//! the user's.
//!
//! A discard writes the map blocks that cover its range, changed or not: ordinary writes, as many
//! as follow from the range. A write to a discarded block writes nothing more. It clears the bit in
//! memory only, and what decides afterwards is the order of last writes: a block is discarded if
//! its bit is set and its own last write is older than that of its map block.
//!
//! With the map of last writes in memory, an opening knows the last writes of one pass only. So
//! each map block is also written on schedule at least once a pass, which the number of writes
//! alone decides: then a last write that an opening does not know is older than every map block's.
//!
//! Refreshes could carry exact bits without further writes. But recovery makes refreshes again byte
//! for byte, and would need the bits of every moment.

use super::DetWo;
use super::geometry::DetWoGeometry;
use crate::log::DamagePolicy;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use traceless_core::error::{Error, Place, Result};
use traceless_core::types::Addr;

/// Map blocks read in one round trip by an opening.
const PARTS_PER_BATCH: u64 = 64;

/// The discard map in memory.
pub(super) struct DiscardMap {
    /// Blocks of the user; the first map block comes behind them.
    users: u64,
    /// Blocks that a map block covers.
    covers: u64,
    /// Writes from one on schedule to the next.
    period: u64,
    parts: Vec<DiscardPart>,
}

/// One map block.
#[derive(Clone, Default)]
struct DiscardPart {
    /// A bit for each block, or `None` if no bit is set.
    bits: Option<Box<[u8]>>,
    /// Present after an opening, until the bits are compared with the last writes of their blocks:
    /// one more than the count of the map block's own last write. Bits of blocks that were written
    /// later have no meaning.
    as_of: Option<u64>,
}

/// A map block that was lost to damage.
pub(super) struct LostPart {
    nth: u64,
    /// The place of its newest copy.
    pub place: Place,
}

impl DiscardMap {
    /// The map of a new scheme: no block is discarded.
    pub fn new(geometry: &DetWoGeometry) -> Result<Self> {
        let parts = usize::try_from(geometry.discard_blocks())
            .map_err(|_| Error::Geometry("a discard map larger than this machine's memory"))?;
        Ok(Self {
            users: geometry.blocks,
            covers: geometry.discard_covers(),
            period: geometry.discard_period(),
            parts: vec![DiscardPart::default(); parts],
        })
    }

    /// The map block that has its turn with write number `count`.
    pub fn due(&self, count: u64) -> Option<u64> {
        let is_due = self.until_due(count) == 0;
        is_due.then(|| count / self.period % self.parts.len() as u64)
    }

    /// Writes that can be made after `count` ones before a map block's turn.
    pub fn until_due(&self, count: u64) -> u64 {
        self.period - 1 - count % self.period
    }

    /// Whether `block` reads as zeros; `last` is one more than the count of its last write, or 0.
    pub fn is_discarded(&self, block: u64, last: u64) -> bool {
        if block >= self.users {
            return false;
        }
        let part = &self.parts[(block / self.covers) as usize];
        let (byte, bit) = place_of(block % self.covers);
        part.bits.as_ref().is_some_and(|bits| bits[byte] & bit != 0)
            && part.as_of.is_none_or(|as_of| last <= as_of)
    }

    /// Notes a write to `block`.
    pub fn note_write(&mut self, block: u64) {
        if block >= self.users {
            return;
        }
        let (byte, bit) = place_of(block % self.covers);
        if let Some(bits) = &mut self.parts[(block / self.covers) as usize].bits {
            bits[byte] &= !bit;
        }
    }

    /// The map blocks that cover `blocks`.
    fn parts_of(&self, blocks: &Range<u64>) -> Range<u64> {
        if blocks.is_empty() {
            return 0..0;
        }
        blocks.start / self.covers..blocks.end.div_ceil(self.covers)
    }

    /// The blocks that map block `nth` covers.
    fn covered(&self, nth: u64) -> Range<u64> {
        nth * self.covers..((nth + 1) * self.covers).min(self.users)
    }

    /// The bits of map block `nth` with `blocks` discarded, too.
    fn contents(&self, nth: u64, blocks: &Range<u64>, into: &mut [u8]) {
        match &self.parts[nth as usize].bits {
            Some(bits) => into.copy_from_slice(bits),
            None => into.fill(0),
        }
        let covered = self.covered(nth);
        let first = blocks.start.max(covered.start) - covered.start;
        let end = blocks.end.min(covered.end).saturating_sub(covered.start);
        set_bits(into, first..end);
    }

    /// Takes over what was written to map block `nth`.
    fn put(&mut self, nth: u64, contents: &[u8], as_of: Option<u64>) {
        let bits = contents.iter().any(|&byte| byte != 0).then(|| contents.into());
        self.parts[nth as usize] = DiscardPart { bits, as_of };
    }

    fn address(&self, nth: u64) -> u64 {
        self.users + nth
    }
}

fn place_of(nth: u64) -> (usize, u8) {
    ((nth / 8) as usize, 1 << (nth % 8))
}

fn set_bits(bits: &mut [u8], range: Range<u64>) {
    let mut at = range.start;
    while at < range.end {
        let (byte, bit) = place_of(at);
        if bit == 1 && range.end - at >= 8 {
            bits[byte] = 0xff;
            at += 8;
        } else {
            bits[byte] |= bit;
            at += 1;
        }
    }
}

impl DetWo {
    /// Makes `blocks` read as zeros, by writes to the map blocks that cover them.
    pub(super) fn discard_by_map(&mut self, blocks: &Range<u64>) -> Result {
        let mut left = self.discard_map().parts_of(blocks);
        while !left.is_empty() {
            let n = self.begin_chunk(left.end - left.start)? as u64;
            self.write_parts(left.start..left.start + n, blocks)?;
            left.start += n;
        }
        Ok(())
    }

    /// Writes the map block that has its turn, if one has.
    pub(super) fn write_due_part(&mut self) -> Result {
        let Some(nth) = self.discards.as_ref().and_then(|map| map.due(self.count)) else {
            return Ok(());
        };
        self.chunk_len(1)?;
        self.write_parts(nth..nth + 1, &(0..0))
    }

    /// Writes map blocks, with `blocks` discarded, too, as one chunk.
    fn write_parts(&mut self, parts: Range<u64>, blocks: &Range<u64>) -> Result {
        for nth in parts.clone() {
            self.settle_part(nth)?;
        }
        let (map, len) = (self.discard_map(), self.geometry.block_len);
        let mut data = vec![0; (parts.end - parts.start) as usize * len];
        for (nth, contents) in parts.clone().zip(data.chunks_exact_mut(len)) {
            map.contents(nth, blocks, contents);
        }
        let homes: Vec<u64> = parts.clone().map(|nth| map.address(nth)).collect();
        self.write_chunk(&homes, &data)?;
        let map = self.discards.as_mut().expect("what was written is a part of it");
        for (nth, contents) in parts.zip(data.chunks_exact(len)) {
            map.put(nth, contents, None);
        }
        Ok(())
    }

    /// Clears the bits of map block `nth` that have no meaning, if none of them was compared since
    /// the opening. What it reads follows from `nth` alone.
    fn settle_part(&mut self, nth: u64) -> Result {
        let map = self.discard_map();
        let Some(as_of) = map.parts[nth as usize].as_of else { return Ok(()) };
        let covered = map.covered(nth);
        let mut lasts = Vec::new();
        self.entries_of(0, covered.clone(), &mut lasts)?;
        let map = self.discards.as_mut().expect("it has the part");
        for (block, last) in covered.zip(lasts) {
            if last > as_of {
                map.note_write(block);
            }
        }
        map.parts[nth as usize].as_of = None;
        Ok(())
    }

    /// Writes map blocks again that were lost.
    pub(super) fn replace_parts(&mut self, lost: &[LostPart]) -> Result {
        for &LostPart { nth, .. } in lost {
            self.begin_chunk(1)?;
            self.write_parts(nth..nth + 1, &(0..0))?;
        }
        Ok(())
    }

    /// Reads the map at an opening. Returns the map blocks that are damaged: no block that they
    /// cover is discarded then, so **blocks may read as they were earlier**.
    pub(super) fn load_discards(&mut self, policy: DamagePolicy) -> Result<Vec<LostPart>> {
        let Some(mut map) = self.discards.take() else { return Ok(vec![]) };
        let (len, mut lost) = (self.geometry.block_len, vec![]);
        let all = map.parts.len() as u64;
        let mut bytes = vec![0; PARTS_PER_BATCH.min(all) as usize * len];
        for first in (0..all).step_by(PARTS_PER_BATCH as usize) {
            let parts = first..(first + PARTS_PER_BATCH).min(all);
            let addrs: Vec<Addr> = parts.clone().map(|nth| Addr(map.address(nth))).collect();
            let bytes = &mut bytes[..addrs.len() * len];
            let read = self.read_tier(0, &addrs, bytes);
            if let Err(Error::Tampered { .. }) = read
                && policy == DamagePolicy::Accept
            {
                let blocks = addrs.iter().zip(bytes.chunks_exact_mut(len));
                for (nth, (addr, into)) in parts.clone().zip(blocks) {
                    match self.read_tier(0, &[*addr], into) {
                        Err(Error::Tampered { place }) => {
                            lost.push(LostPart { nth, place });
                            into.fill(0);
                        }
                        other => other?,
                    }
                }
            } else {
                read?;
            }
            let mut lasts = Vec::new();
            self.entries_of(0, addrs.iter().map(|addr| addr.0), &mut lasts)?;
            for ((nth, contents), last) in parts.zip(bytes.chunks_exact(len)).zip(lasts) {
                // Only damage that was accepted takes the last write of a map block.
                let known = if last == 0 { &vec![0; len][..] } else { contents };
                map.put(nth, known, Some(last));
            }
        }
        self.discards = Some(map);
        if self.is_last_tier(0) {
            (0..all).try_for_each(|nth| self.settle_part(nth))?;
        }
        Ok(lost)
    }

    fn discard_map(&self) -> &DiscardMap {
        self.discards.as_ref().expect("the geometry has discards")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detwo::Refresh;

    fn geometry(blocks: u64, block_len: usize, k: &str) -> DetWoGeometry {
        let refresh = Refresh::parse(k).unwrap();
        DetWoGeometry::new(blocks, block_len, refresh, 0).unwrap().with_discards().unwrap()
    }

    /// Of any pass of writes, each map block has a turn in it.
    #[test]
    fn every_map_block_is_written_in_every_pass() {
        for (blocks, len, k) in [(40, 64, "1"), (2000, 64, "3"), (5000, 64, "1/3"), (24, 512, "7")]
        {
            let geometry = geometry(blocks, len, k);
            let map = DiscardMap::new(&geometry).unwrap();
            let all = map.parts.len() as u64;
            let pass = geometry.refresh.writes_for(blocks + all);
            let mut last = vec![0; all as usize];
            for count in 0..5 * pass {
                if let Some(nth) = map.due(count) {
                    last[nth as usize] = count + 1;
                }
                let oldest = (count + 1).saturating_sub(pass);
                let late = last.iter().find(|&&last| last <= oldest);
                assert!(oldest == 0 || late.is_none(), "{blocks} {k}: {count}");
                assert!(map.due(count).is_none() || map.due(count + 1).is_none(), "users write");
            }
        }
    }

    #[test]
    fn bits_are_set_one_by_one_and_by_bytes() {
        for range in [0..0, 0..1, 3..5, 7..9, 0..64, 5..61, 8..16, 63..64] {
            let mut bits = [0; 8];
            set_bits(&mut bits, range.clone());
            for nth in 0..64 {
                let (byte, bit) = place_of(nth);
                assert_eq!(bits[byte] & bit != 0, range.contains(&nth), "{range:?} {nth}");
            }
        }
    }

    #[test]
    fn a_bit_counts_until_a_later_write() {
        let mut map = DiscardMap::new(&geometry(600, 64, "1")).unwrap();
        assert_eq!(map.parts.len(), 2);
        let mut contents = [0; 64];
        map.contents(0, &(500..520), &mut contents);
        map.put(0, &contents, Some(9));
        assert!(map.is_discarded(500, 8) && map.is_discarded(511, 0));
        assert!(!map.is_discarded(500, 10) && !map.is_discarded(499, 0));
        assert!(!map.is_discarded(512, 0), "of the other map block");
        map.note_write(500);
        assert!(!map.is_discarded(500, 0) && map.is_discarded(501, 0));
    }
}
