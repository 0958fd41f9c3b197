//! Labels computed from counters, which take less room than the labels would.

use super::labels::{BAD_FANOUT, FANOUT_MAX, Labels, LeafDraw};
use traceless_core::error::{Error, Result};
use traceless_core::seal::{Prf, Secret};
use traceless_core::types::{Addr, Leaf};

/// Bits of an individual counter in the paper: 32 counters and the group counter fill 64 bytes.
pub const COUNTER_BITS: u32 = 14;

/// Bits of an individual counter, at most.
pub const COUNTER_BITS_MAX: u32 = 32;

/// Remaps of a group, at most: its counter has 64 bits.
pub const GROUP_REMAPS_MAX: u64 = u64::MAX;

const GROUP_COUNTER_LEN: usize = 8;

/// A group counter of 64 bits and a small counter for each child. The label of a block is a
/// pseudorandom function of both counters and its address, modulo the number of leaves; together
/// the counters only grow, so no input is used twice. A block that was never accessed also has a
/// label, so nothing need be initialised.
///
/// Paper: unified-oram, section 5.
pub struct CompressedLabels {
    prf: Prf,
    fanout: u64,
    bits: u32,
    remaps_max: u64,
    starts_at_random: bool,
}

impl CompressedLabels {
    /// Groups of `fanout` children with counters of `bits` bits each. The key must never have been
    /// used for another tree, nor for an earlier state of this one.
    pub fn new(key: &Secret, fanout: u64, bits: u32) -> Result<Self> {
        if !(2..=FANOUT_MAX).contains(&fanout) {
            return Err(BAD_FANOUT);
        }
        if !(1..=COUNTER_BITS_MAX).contains(&bits) {
            return Err(Error::Geometry("a counter has 1 to 32 bits"));
        }
        let (prf, remaps_max) = (Prf::new(key), GROUP_REMAPS_MAX);
        Ok(Self { prf, fanout, bits, remaps_max, starts_at_random: false })
    }

    /// Groups with as many children as a block of `block_len` bytes has room for.
    pub fn in_block(key: &Secret, block_len: usize, bits: u32) -> Result<Self> {
        let room = block_len.saturating_sub(GROUP_COUNTER_LEN) as u64 * 8;
        Self::new(key, room / u64::from(bits.max(1)), bits)
    }

    /// One counter of 64 bits for each child, and no groups: for a map in trusted memory that need
    /// not be small.
    pub fn flat(key: &Secret) -> Self {
        let (prf, remaps_max) = (Prf::new(key), GROUP_REMAPS_MAX);
        Self { prf, fanout: 1, bits: 0, remaps_max, starts_at_random: false }
    }

    /// Limits each group to `remaps` remaps, as hardware with smaller group counters does; then its
    /// labels are spent.
    #[must_use]
    pub fn with_remaps_max(mut self, remaps: u64) -> Self {
        self.remaps_max = remaps;
        self
    }

    /// Starts groups at random points of their lives, as in a map that has been in use for long:
    /// the first label of a group's first child counts as any number of renewals, and the first
    /// labels of its siblings as any number up to that one, until the group is remapped as a whole.
    /// So groups are remapped at different times, from the beginning on. Counters still only grow,
    /// and no input is used twice.
    #[must_use]
    pub fn starting_at_random(mut self) -> Self {
        self.starts_at_random = true;
        self
    }

    /// The byte where counter number `nth` begins, and its shift and mask in the eight bytes from
    /// there.
    fn place(&self, nth: usize) -> (usize, u32, u64) {
        let bit = nth * self.bits as usize;
        (GROUP_COUNTER_LEN + bit / 8, (bit % 8) as u32, (1 << self.bits) - 1)
    }

    fn counter(&self, entries: &[u8], nth: usize) -> u64 {
        let (at, shift, mask) = self.place(nth);
        window(entries, at) >> shift & mask
    }

    fn set_counter(&self, entries: &mut [u8], nth: usize, count: u64) {
        let (at, shift, mask) = self.place(nth);
        let bits = window(entries, at) & !(mask << shift) | count << shift;
        let end = entries.len().min(at + 8);
        entries[at..end].copy_from_slice(&bits.to_le_bytes()[..end - at]);
    }
}

/// Up to eight bytes from `at` on, as a number.
fn window(entries: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    let there = &entries[at..entries.len().min(at + 8)];
    bytes[..there.len()].copy_from_slice(there);
    u64::from_le_bytes(bytes)
}

fn group_counter(entries: &[u8]) -> u64 {
    window(&entries[..GROUP_COUNTER_LEN], 0)
}

impl Labels for CompressedLabels {
    fn fanout(&self) -> u64 {
        self.fanout
    }

    fn entries_len(&self) -> usize {
        GROUP_COUNTER_LEN + (self.fanout as usize * self.bits as usize).div_ceil(8)
    }

    fn check(&self, _: u64, _: u64) -> Result {
        Ok(())
    }

    fn leaf(&self, entries: &[u8], nth: usize, addr: Addr, draw: &mut LeafDraw) -> Leaf {
        let group = u128::from(group_counter(entries));
        let addr = u32::try_from(addr.0).expect("checked by the scheme");
        let input = group << 64 | u128::from(self.counter(entries, nth)) << 32 | u128::from(addr);
        Leaf((self.prf.at(input) % u128::from(draw.leaves())) as u64)
    }

    fn is_spent(&self, entries: &[u8], nth: usize) -> bool {
        self.counter(entries, nth) + 1 == 1 << self.bits
    }

    fn renew(&self, entries: &mut [u8], nth: usize, draw: &mut LeafDraw) {
        let count = match self.counter(entries, nth) {
            0 if self.starts_at_random && group_counter(entries) == 0 => {
                let most = match self.counter(entries, 0) {
                    0 => (1 << self.bits) - 1,
                    first => first,
                };
                1 + draw.below(most)
            }
            count => count + 1,
        };
        self.set_counter(entries, nth, count);
    }

    fn renew_group(&self, entries: &mut [u8]) -> Result {
        let remaps = group_counter(entries);
        if remaps >= self.remaps_max {
            return Err(Error::LabelsSpent);
        }
        entries.fill(0);
        entries[..GROUP_COUNTER_LEN].copy_from_slice(&(remaps + 1).to_le_bytes());
        Ok(())
    }

    fn rekeyed(&self, key: &Secret) -> Option<Self> {
        Some(Self { prf: Prf::new(key), ..*self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec;
    use alloc::vec::Vec;
    use traceless_core::rng::SeededRng;

    fn key() -> Secret {
        Secret::from_bytes([5; 32])
    }

    #[test]
    fn thirty_two_labels_fit_a_block_of_64_bytes() {
        let labels = CompressedLabels::in_block(&key(), 64, COUNTER_BITS).unwrap();
        assert_eq!((labels.fanout(), labels.entries_len()), (32, 64));
    }

    #[test]
    fn counters_do_not_touch_each_other() {
        for bits in [1, 3, 8, 14, 31, 32] {
            let labels = CompressedLabels::new(&key(), 9, bits).unwrap();
            let mut entries = vec![0; labels.entries_len()];
            let value = |nth: u64| (0x9e37_79b9 * (nth + 1)) & ((1 << bits) - 1);
            (0..9).rev().for_each(|nth| labels.set_counter(&mut entries, nth, value(nth as u64)));
            for nth in 0..9 {
                assert_eq!(labels.counter(&entries, nth), value(nth as u64), "{bits} bits");
            }
            assert_eq!(group_counter(&entries), 0);
        }
    }

    /// Every label comes from another input, over several remaps of the group.
    #[test]
    fn no_label_is_used_twice() {
        let labels = CompressedLabels::new(&key(), 4, 2).unwrap();
        let mut draw = LeafDraw::new(Box::new(SeededRng::new(1)), 1 << 32);
        let mut entries = vec![0; labels.entries_len()];
        let mut seen: Vec<Leaf> = Vec::new();
        for _ in 0..10 {
            for _ in 0..4 {
                seen.push(labels.leaf(&entries, 2, Addr(6), &mut draw));
                if labels.is_spent(&entries, 2) {
                    labels.renew_group(&mut entries).unwrap();
                } else {
                    labels.renew(&mut entries, 2, &mut draw);
                }
            }
            assert_eq!(labels.counter(&entries, 2), 0, "four labels, then the group's turn");
            seen.push(labels.leaf(&entries, 1, Addr(5), &mut draw));
        }
        seen.sort_unstable();
        assert!(seen.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn groups_may_start_at_random_and_no_label_is_used_twice() {
        let labels = CompressedLabels::new(&key(), 4, 3).unwrap().starting_at_random();
        let mut draw = LeafDraw::new(Box::new(SeededRng::new(1)), 1 << 32);
        let (mut first, mut third) = ([0; 8], [0; 8]);
        for _ in 0..2000 {
            let mut entries = vec![0; labels.entries_len()];
            let mut leaves = vec![labels.leaf(&entries, 2, Addr(6), &mut draw)];
            for nth in 0..4 {
                labels.renew(&mut entries, nth, &mut draw);
            }
            let counters: Vec<_> = (0..4).map(|nth| labels.counter(&entries, nth)).collect();
            assert!(counters.iter().all(|counter| (1..=counters[0]).contains(counter)));
            first[counters[0] as usize] += 1;
            third[counters[2] as usize] += 1;
            while !labels.is_spent(&entries, 2) {
                leaves.push(labels.leaf(&entries, 2, Addr(6), &mut draw));
                labels.renew(&mut entries, 2, &mut draw);
            }
            leaves.push(labels.leaf(&entries, 2, Addr(6), &mut draw));
            labels.renew_group(&mut entries).unwrap();
            leaves.push(labels.leaf(&entries, 2, Addr(6), &mut draw));
            labels.renew(&mut entries, 2, &mut draw);
            assert_eq!(labels.counter(&entries, 2), 1, "a group that was remapped starts at zero");
            leaves.sort_unstable();
            assert!(leaves.windows(2).all(|pair| pair[0] != pair[1]));
        }
        assert_eq!((first[0], third[0]), (0, 0));
        assert!(first[1..].iter().all(|count| (200..400).contains(count)), "{first:?}");
        // 1/7 (1 + 1/2 + ... + 1/7) of them are 1, and 1/49 are 7.
        assert!((650..850).contains(&third[1]) && (20..70).contains(&third[7]), "{third:?}");
    }

    #[test]
    fn a_spent_key_is_an_error() {
        let labels = CompressedLabels::flat(&key());
        let mut entries = vec![0; labels.entries_len()];
        assert!(labels.is_spent(&entries, 0));
        labels.renew_group(&mut entries).unwrap();
        assert_eq!(group_counter(&entries), 1);
        entries[..GROUP_COUNTER_LEN].copy_from_slice(&GROUP_REMAPS_MAX.to_le_bytes());
        assert!(matches!(labels.renew_group(&mut entries), Err(Error::LabelsSpent)));
    }

    #[test]
    fn impossible_counters_are_refused() {
        assert!(CompressedLabels::new(&key(), 1, 14).is_err());
        assert!(CompressedLabels::new(&key(), 2, 0).is_err());
        assert!(CompressedLabels::new(&key(), 2, 33).is_err());
        assert!(CompressedLabels::in_block(&key(), 9, 0).is_err());
        assert!(CompressedLabels::in_block(&key(), 4, 14).is_err());
    }
}
