//! Level 0 in memory: the slot of each write, and the contents of writes that are not merged yet.

use crate::log::DUMMY;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Blocks with contents kept in memory until they are merged, at most. Further ones are read back
/// from the store.
pub(super) const CACHED_MAX: usize = 1 << 15;

/// Bytes of contents kept in memory, at most.
const CACHED_BYTES_MAX: usize = 1 << 27;

/// Blocks allocated at a time.
const SLAB: usize = 64;

const NOT_CACHED: u32 = u32::MAX;

/// Addresses of the buckets of level 0, and contents of the youngest writes.
pub(super) struct Recent {
    bucket: usize,
    /// Number of the oldest bucket kept.
    oldest: u64,
    /// For each complete bucket, the newest write of each address: address, slot in the bucket.
    complete: VecDeque<Vec<(u64, u32)>>,
    /// Addresses of the current bucket, in the order of the writes.
    current: Vec<u64>,
    contents: Contents,
}

impl Recent {
    pub fn new(bucket: u32, block_len: usize) -> Self {
        Self {
            bucket: bucket as usize,
            oldest: 0,
            complete: VecDeque::new(),
            current: Vec::with_capacity(bucket as usize),
            contents: Contents::new(block_len),
        }
    }

    /// Starts with an empty bucket number `bucket`.
    pub fn begin_at(&mut self, bucket: u64) {
        assert!(self.complete.is_empty() && self.current.is_empty(), "nothing was noted yet");
        self.oldest = bucket;
        self.contents.first = bucket * self.bucket as u64;
    }

    /// Notes the next write. Keeps its contents if they are given and there is room.
    pub fn push(&mut self, address: u64, contents: Option<&[u8]>) {
        self.current.push(address);
        self.contents.push(contents);
        if self.current.len() == self.bucket {
            self.complete_bucket();
        }
    }

    fn complete_bucket(&mut self) {
        let mut sorted: Vec<(u64, u32)> = Vec::with_capacity(self.bucket);
        sorted.extend(self.current.iter().zip(0..).map(|(&address, slot)| (address, slot)));
        // Of equal addresses the newest comes first, and is kept.
        sorted.sort_unstable_by_key(|&(address, slot)| (address, u32::MAX - slot));
        let first = (self.oldest + self.complete.len() as u64) * self.bucket as u64;
        let mut newest = None;
        sorted.retain(|&(address, slot)| {
            let stays = address != DUMMY && newest != Some(address);
            newest = Some(address);
            if !stays {
                // This write will not be merged.
                self.contents.release(first + u64::from(slot));
            }
            stays
        });
        self.complete.push_back(sorted);
        self.current.clear();
    }

    /// Slots in use of the current bucket.
    pub fn filled(&self) -> usize {
        self.current.len()
    }

    /// Addresses of the current bucket, in the order of the writes.
    pub fn current(&self) -> &[u64] {
        &self.current
    }

    /// The newest write of each address in a complete bucket: address, slot in the bucket.
    pub fn sorted(&self, bucket: u64) -> &[(u64, u32)] {
        &self.complete[(bucket - self.oldest) as usize]
    }

    /// The number of the newest write to `address` in `bucket`.
    pub fn find(&self, bucket: u64, address: u64) -> Option<u64> {
        let nth = usize::try_from(bucket.checked_sub(self.oldest)?).ok()?;
        let slot = match self.complete.get(nth) {
            Some(sorted) => {
                let at = sorted.binary_search_by_key(&address, |&(a, _)| a).ok()?;
                sorted[at].1 as usize
            }
            None if nth == self.complete.len() => {
                self.current.iter().rposition(|&a| a == address)?
            }
            None => return None,
        };
        Some(bucket * self.bucket as u64 + slot as u64)
    }

    /// The contents of a write, if they are kept.
    pub fn contents(&self, write: u64) -> Option<&[u8]> {
        self.contents.get(write)
    }

    /// Drops the contents of a write.
    pub fn release(&mut self, write: u64) {
        self.contents.release(write);
    }

    /// Forgets the buckets before `oldest`.
    pub fn forget_before(&mut self, oldest: u64) {
        while self.oldest < oldest && !self.complete.is_empty() {
            self.complete.pop_front();
            self.oldest += 1;
        }
        self.contents.forget_before(self.oldest * self.bucket as u64);
    }

    /// Bytes that the kept contents take.
    pub fn memory(&self) -> usize {
        self.contents.slabs.len() * SLAB * self.contents.block_len
    }
}

/// Contents of a range of writes.
struct Contents {
    block_len: usize,
    first: u64,
    /// The place of each write's contents, for writes from `first` on.
    places: VecDeque<u32>,
    free: Vec<u32>,
    slabs: Vec<Vec<u8>>,
}

impl Contents {
    fn new(block_len: usize) -> Self {
        Self { block_len, first: 0, places: VecDeque::new(), free: vec![], slabs: vec![] }
    }

    fn push(&mut self, contents: Option<&[u8]>) {
        let place = contents.and_then(|contents| {
            let place = self.take_place()?;
            self.block_mut(place).copy_from_slice(contents);
            Some(place)
        });
        self.places.push_back(place.unwrap_or(NOT_CACHED));
    }

    fn take_place(&mut self) -> Option<u32> {
        let most = CACHED_MAX.min(CACHED_BYTES_MAX / self.block_len);
        if self.free.is_empty() && self.slabs.len() * SLAB < most {
            let first = (self.slabs.len() * SLAB) as u32;
            self.slabs.push(vec![0; SLAB * self.block_len]);
            self.free.extend((first..first + SLAB as u32).rev());
        }
        self.free.pop()
    }

    fn block_mut(&mut self, place: u32) -> &mut [u8] {
        let at = place as usize % SLAB * self.block_len;
        &mut self.slabs[place as usize / SLAB][at..at + self.block_len]
    }

    fn get(&self, write: u64) -> Option<&[u8]> {
        let nth = usize::try_from(write.checked_sub(self.first)?).ok()?;
        let place = *self.places.get(nth).filter(|&&p| p != NOT_CACHED)? as usize;
        let at = place % SLAB * self.block_len;
        Some(&self.slabs[place / SLAB][at..at + self.block_len])
    }

    fn release(&mut self, write: u64) {
        let nth = write.checked_sub(self.first).and_then(|n| usize::try_from(n).ok());
        if let Some(place) = nth.and_then(|n| self.places.get_mut(n)) {
            let place = core::mem::replace(place, NOT_CACHED);
            self.free.extend((place != NOT_CACHED).then_some(place));
        }
    }

    fn forget_before(&mut self, write: u64) {
        while self.first < write && !self.places.is_empty() {
            self.release(self.first);
            self.places.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_write_of_an_address_is_found() {
        let mut recent = Recent::new(4, 2);
        for (i, address) in [7, 3, 7, u64::MAX, 3, 9].into_iter().enumerate() {
            recent.push(address, Some(&[i as u8; 2]));
        }
        assert_eq!(recent.sorted(0), [(3, 1), (7, 2)]);
        assert_eq!(recent.find(0, 7), Some(2));
        assert_eq!(recent.find(0, 9), None);
        assert_eq!(recent.find(1, 9), Some(5));
        assert_eq!(recent.find(2, 9), None);
        assert_eq!(recent.contents(0), None, "a newer write of the same bucket has replaced it");
        assert_eq!(recent.contents(2), Some(&[2; 2][..]));
        recent.release(2);
        assert_eq!(recent.contents(2), None);
        recent.forget_before(1);
        assert_eq!(recent.contents(1), None);
        assert_eq!(recent.contents(5), Some(&[5; 2][..]));
        assert_eq!(recent.find(0, 7), None);
    }

    #[test]
    fn contents_are_kept_up_to_a_limit_of_bytes() {
        // So large that the limit is one slab.
        let block_len = CACHED_BYTES_MAX / SLAB;
        let mut contents = Contents::new(block_len);
        let block = vec![7; block_len];
        for _ in 0..=SLAB {
            contents.push(Some(&block));
        }
        assert!((0..SLAB as u64).all(|write| contents.get(write) == Some(&block[..])));
        assert_eq!(contents.get(SLAB as u64), None);
        assert_eq!(contents.slabs.len(), 1);
    }
}
