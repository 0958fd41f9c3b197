//! The metadata of a bucket: its blocks, their slots, and the slots that were read.

use crate::tree::{HEADER_LEN, Header};
use alloc::vec::Vec;
use traceless_core::rng::Rng;
use traceless_core::types::Addr;

/// A set of slots, one bit each.
pub type Slots = u128;

const READ_LEN: usize = size_of::<Slots>();

/// The metadata of a bucket. All slots without a block are dummies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Slots that were read since the bucket was written.
    pub read: Slots,
    /// The blocks, each with its slot, which is unread.
    pub blocks: Vec<(Header, u8)>,
}

impl Bucket {
    /// A bucket without blocks, with room for `z`.
    pub fn empty(z: u8) -> Self {
        Self { read: 0, blocks: Vec::with_capacity(z.into()) }
    }

    /// Bytes of the encoded metadata.
    pub const fn len(z: u8) -> usize {
        READ_LEN + z as usize * (HEADER_LEN + 1)
    }

    /// Decodes what [`store`](Self::store) wrote. All zeros decode as a bucket without blocks.
    pub fn load(&mut self, bytes: &[u8]) {
        let (read, blocks) = bytes.split_at(READ_LEN);
        self.read = Slots::from_le_bytes(read.try_into().expect("as many bytes"));
        let blocks = blocks.chunks_exact(HEADER_LEN + 1);
        let blocks = blocks.map(|block| (Header::from_bytes(&block[1..]), block[0]));
        self.blocks.clear();
        self.blocks.extend(blocks.take_while(|(header, _)| !header.is_empty()));
    }

    /// Whether this is valid metadata of a bucket with `slots` slots and at most `z` blocks, each
    /// with a header that `admits` accepts. A sealer without authentication may return anything.
    pub fn is_sound(&self, z: u8, slots: usize, admits: impl Fn(Header) -> bool) -> bool {
        let mut unread = all(slots) & !self.read;
        if self.unread(slots) < z.into() {
            return false;
        }
        self.blocks.iter().all(|&(header, slot)| {
            let is_free = usize::from(slot) < slots && unread >> slot & 1 == 1;
            if is_free {
                unread &= !(1 << slot);
            }
            is_free && admits(header)
        })
    }

    /// Encodes the metadata.
    pub fn store(&self, bytes: &mut [u8]) {
        let (read, blocks) = bytes.split_at_mut(READ_LEN);
        read.copy_from_slice(&self.read.to_le_bytes());
        blocks.fill(0);
        for (bytes, (header, slot)) in blocks.chunks_exact_mut(HEADER_LEN + 1).zip(&self.blocks) {
            bytes[0] = *slot;
            bytes[1..].copy_from_slice(&header.to_bytes());
        }
    }

    /// Removes a block from the metadata, if it is here, and returns its slot. The caller then
    /// reads the slot.
    pub fn take(&mut self, addr: Addr) -> Option<u8> {
        let nth = self.blocks.iter().position(|(header, _)| header.is_of(addr))?;
        Some(self.blocks.swap_remove(nth).1)
    }

    /// The unread slots that hold no block.
    pub fn dummies(&self, slots: usize) -> Slots {
        let used = self.blocks.iter().fold(self.read, |used, (_, slot)| used | 1 << slot);
        all(slots) & !used
    }

    /// Number of unread slots.
    pub fn unread(&self, slots: usize) -> usize {
        (all(slots) & !self.read).count_ones() as usize
    }
}

/// The first `slots` slots.
pub fn all(slots: usize) -> Slots {
    Slots::MAX >> (Slots::BITS as usize - slots)
}

/// Draws a random slot from the non-empty set `slots` and removes it.
///
/// Slots of blocks and slots of dummies are both drawn with this function, so reads of a bucket
/// look as if all its slots were dummies: uniform among the unread slots.
pub fn draw(slots: &mut Slots, rng: &mut dyn Rng) -> u8 {
    let mut rest = *slots;
    for _ in 0..rng.below(rest.count_ones().into()) {
        rest &= rest - 1;
    }
    let drawn = rest.trailing_zeros();
    *slots &= !(1 << drawn);
    drawn as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use traceless_core::rng::SeededRng;
    use traceless_core::types::Leaf;

    #[test]
    fn what_is_stored_is_loaded() {
        let block = |addr, slot| (Header::new(Addr(addr), Leaf(addr * 3)), slot);
        let bucket = Bucket { read: 0b1010 << 70, blocks: vec![block(0, 5), block(7, 127)] };
        let mut bytes = vec![0xff; Bucket::len(4)];
        bucket.store(&mut bytes);
        let mut loaded = Bucket::empty(4);
        loaded.load(&bytes);
        assert_eq!(loaded, bucket);
        loaded.load(&vec![0; Bucket::len(4)]);
        assert_eq!(loaded, Bucket::empty(4));
    }

    #[test]
    fn impossible_metadata_is_refused() {
        let block = |addr, slot| (Header::new(Addr(addr), Leaf(0)), slot);
        let is_sound = |read, blocks: &[(Header, u8)]| {
            let bucket = Bucket { read, blocks: blocks.to_vec() };
            bucket.is_sound(2, 5, |header| header.addr() < Addr(9))
        };
        assert!(is_sound(0b111, &[block(1, 3), block(2, 4)]));
        assert!(is_sound(1 << 100, &[]), "what is behind the slots does not matter");
        assert!(!is_sound(0b1111, &[]), "fewer slots are left than it may hold blocks");
        assert!(!is_sound(0b1, &[block(1, 0)]), "a block in a slot that was read");
        assert!(!is_sound(0, &[block(1, 3), block(2, 3)]), "two in one slot");
        assert!(!is_sound(0, &[block(1, 5)]), "a slot that is none");
        assert!(!is_sound(0, &[block(1, 255)]), "a slot that is no bit either");
        assert!(!is_sound(0, &[block(9, 1)]), "a block that is refused");
    }

    #[test]
    fn blocks_and_dummies_are_distinguished() {
        let block = |addr, slot| (Header::new(Addr(addr), Leaf(0)), slot);
        let mut bucket = Bucket { read: 0b100, blocks: vec![block(8, 0), block(9, 3)] };
        assert_eq!((bucket.dummies(5), bucket.unread(5)), (0b10010, 4));
        assert_eq!((bucket.take(Addr(8)), bucket.take(Addr(8))), (Some(0), None));
        assert_eq!((bucket.dummies(5), bucket.unread(5)), (0b10011, 4));
        assert_eq!(all(128), Slots::MAX);
    }

    #[test]
    fn every_slot_is_drawn_once_and_first_equally_often() {
        let mut rng = SeededRng::new(1);
        let mut first = [0; 5];
        for _ in 0..5000 {
            let mut slots: Slots = 0b1_0111_0010;
            let drawn: Vec<u8> = (0..5).map(|_| draw(&mut slots, &mut rng)).collect();
            let mut sorted = drawn.clone();
            sorted.sort_unstable();
            assert_eq!((slots, &sorted[..]), (0, &[1, 4, 5, 6, 8][..]));
            first[sorted.iter().position(|slot| *slot == drawn[0]).unwrap()] += 1;
        }
        assert!(first.iter().all(|&n| (900..1100).contains(&n)), "{first:?}");
    }
}
