//! Entries, and the visit that an operation makes to a bucket or the stash.
//!
//! An entry is a header, a key and a value, each padded with zeros. The header has the value's
//! length in its lower half, and the key's length plus one in its upper half; a zero header marks
//! an unused entry. A visit reads and writes each word of each entry, independent of its operation
//! and result.

use super::{Answer, MapShape};
use alloc::vec;
use alloc::vec::Vec;
use subtle::Choice;
use traceless_sys::ct::{self, InMemory, Kernel, Mask, MovingBlock as _, Vector};

/// The state that an operation carries from visit to visit.
pub struct OperationState {
    /// Words of an entry's header and key.
    key_words: usize,
    /// Bytes of a value.
    value_len: usize,
    /// The entry with the requested key and, for an insertion, the new value.
    new: Vec<u64>,
    /// The entry that was found, or zeros.
    old: Vec<u64>,
    found: Mask,
    inserts: Mask,
    removes: Mask,
    /// Whether the new entry is in its place: any further entry with its key is an older copy.
    placed: Mask,
}

impl OperationState {
    /// State before the first operation.
    pub fn new(shape: MapShape) -> Self {
        Self {
            key_words: shape.key_words(),
            value_len: shape.value_len,
            new: vec![0; shape.entry_words()],
            old: vec![0; shape.entry_words()],
            found: Mask::NO,
            inserts: Mask::NO,
            removes: Mask::NO,
            placed: Mask::NO,
        }
    }

    /// Begins an operation on `key`, which is not too long.
    pub fn begin(&mut self, key: &[u8], inserts: Mask, removes: Mask) {
        self.new.fill(0);
        self.old.fill(0);
        self.new[0] = (key.len() as u64 + 1) << VALUE_LEN_BITS;
        ct::bytes_of_mut(&mut self.new[1..])[..key.len()].copy_from_slice(key);
        (self.inserts, self.removes) = (inserts, removes);
        (self.found, self.placed) = (Mask::NO, Mask::NO);
    }

    /// The header and key of the new entry. Only valid before `set_value`.
    pub fn key(&self) -> &[u64] {
        &self.new[..self.key_words]
    }

    /// Sets the new entry's value, which is not too long.
    pub fn set_value(&mut self, value: &[u8]) {
        self.new[0] |= value.len() as u64;
        let words = &mut self.new[self.key_words..];
        ct::bytes_of_mut(words)[..value.len()].copy_from_slice(value);
    }

    /// The result of the operation.
    pub fn answer(&self) -> Answer<'_> {
        Answer {
            found: Choice::from(self.found.bits() as u8 & 1),
            value: &ct::bytes_of(&self.old[self.key_words..])[..self.value_len],
            len: self.old[0] as u32,
        }
    }

    /// Whether an entry has the requested key.
    #[inline(always)]
    fn is_in(&self, entry: &[u64]) -> Mask {
        let mut differences = (entry[0] ^ self.new[0]) >> VALUE_LEN_BITS;
        for (a, b) in entry[1..self.key_words].iter().zip(&self.new[1..]) {
            differences |= a ^ b;
        }
        !Mask::any(differences)
    }
}

/// Bits of a header that hold the value's length.
const VALUE_LEN_BITS: u32 = 32;

/// Whether an entry is in use.
#[inline(always)]
fn is_used(entry: &[u64]) -> Mask {
    Mask::any(entry[0])
}

/// A visit to a bucket, or to the stash. Returns how many entries it then holds: that is secret.
pub struct Visit<'a> {
    pub entries: &'a mut [u64],
    pub carried: &'a mut OperationState,
    /// A new entry is added only if the bucket has fewer entries.
    pub limit: usize,
}

impl Kernel for Visit<'_> {
    type Output = u32;

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> u32 {
        let Self { entries, carried, limit } = self;
        let words = carried.new.len();
        let (mut found, mut load) = (Mask::NO, 0_u32);
        // An older copy is overwritten, or cleared if the new entry is already in its place.
        let overwrites = carried.inserts & !carried.placed;
        let clears = carried.removes | (carried.inserts & carried.placed);
        for entry in entries.chunks_exact_mut(words) {
            let hit = carried.is_in(entry);
            InMemory::new(v, &mut carried.old[..]).gather(entry, hit.bits());
            InMemory::new(v, &mut carried.new[..]).copy_into(entry, (hit & overwrites).bits());
            let stays = (!(hit & clears)).spread();
            for word in entry.iter_mut() {
                *word &= stays;
            }
            found = found | hit;
            load = load.wrapping_add(is_used(entry).keep(1));
        }
        carried.found = carried.found | found;
        carried.placed = carried.placed | (found & overwrites);

        let mut comes = carried.inserts & !carried.placed & Mask::below(load, limit as u32);
        load = load.wrapping_add(comes.keep(1));
        carried.placed = carried.placed | comes;
        for entry in entries.chunks_exact_mut(words) {
            let here = comes & !is_used(entry);
            InMemory::new(v, &mut carried.new[..]).copy_into(entry, here.bits());
            comes = comes & !here;
        }
        load
    }
}
