//! Labels by number: every one is looked at, one is exchanged.

use traceless_sys::ct::{Mask, hide_all};

/// Labels in a block of 64 bytes, and how many bits of an address choose among them.
pub const FAN_OUT: usize = 16;
pub const FAN_OUT_BITS: u32 = FAN_OUT.trailing_zeros();

/// What stands for a label in a map: zero is that of a block never accessed.
#[inline(always)]
pub fn entry_of(label: u32) -> u32 {
    label.wrapping_add(1)
}

/// The label that an entry stands for, or `drawn` for a block never accessed.
#[inline(always)]
pub fn label_of(entry: u32, drawn: u32) -> u32 {
    Mask::nonzero(entry).select(entry.wrapping_sub(1), drawn)
}

/// Puts `new` in place of the entry `index`, which is secret, and returns the old one.
#[inline(always)]
pub fn exchange(entries: &mut [u32], index: u32, new: u32) -> u32 {
    let mut old = 0;
    let (chunks, rest) = entries.as_chunks_mut::<FAN_OUT>();
    debug_assert!(rest.is_empty(), "a map is made of whole blocks");
    let mut first = 0_u32;
    for chunk in chunks {
        old |= exchange_in(chunk, index.wrapping_sub(first), new);
        first = first.wrapping_add(FAN_OUT as u32);
    }
    old
}

/// The same among 16. No entry, where `index` is none of them.
#[inline(always)]
fn exchange_in(entries: &mut [u32; FAN_OUT], index: u32, new: u32) -> u32 {
    let mut masks = [0_u32; FAN_OUT];
    for (i, mask) in masks.iter_mut().enumerate() {
        *mask = u32::from(index == i as u32).wrapping_neg();
    }
    hide_all(&mut masks);
    let mut old = 0;
    for (entry, mask) in entries.iter_mut().zip(masks) {
        old |= *entry & mask;
        *entry = (new & mask) | (*entry & !mask);
    }
    old
}

/// [`exchange`] among the 16 entries of a block.
#[inline(always)]
pub fn exchange_in_block(block: &mut [u64; FAN_OUT / 2], index: u32, new: u32) -> u32 {
    let mut entries = [0; FAN_OUT];
    for (pair, word) in entries.as_chunks_mut::<2>().0.iter_mut().zip(&*block) {
        *pair = [*word as u32, (*word >> 32) as u32];
    }
    let old = exchange_in(&mut entries, index, new);
    for (word, pair) in block.iter_mut().zip(entries.as_chunks::<2>().0) {
        *word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
    }
    old
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn exchanges_one_entry() {
        let mut entries: Vec<u32> = (100..148).collect();
        assert_eq!(exchange(&mut entries, 17, 7), 117);
        assert_eq!(exchange(&mut entries, 17, 8), 7);
        assert_eq!(exchange(&mut entries, 47, 9), 147);
        assert_eq!((entries[16], entries[17], entries[18], entries[47]), (116, 8, 118, 9));
        let mut block = [0; FAN_OUT / 2];
        for i in 0..FAN_OUT as u32 {
            assert_eq!(exchange_in_block(&mut block, i, i + 1), 0);
        }
        for i in 0..FAN_OUT as u32 {
            assert_eq!(exchange_in_block(&mut block, i, 0), i + 1);
        }
        assert_eq!(block, [0; FAN_OUT / 2]);
    }

    #[test]
    fn entries_stand_for_labels() {
        assert_eq!(label_of(entry_of(0), 9), 0);
        assert_eq!(label_of(entry_of(77), 9), 77);
        assert_eq!(label_of(0, 9), 9);
    }
}
