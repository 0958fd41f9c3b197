//! Arrays of labels: an exchange replaces one label, and touches all of them.

use traceless_sys::ct::{Line, Mask, Vector};

/// Number of labels in a block of 64 bytes, and the bits of an address that choose among them.
pub const FAN_OUT: usize = 16;
pub const FAN_OUT_BITS: u32 = FAN_OUT.trailing_zeros();

/// The map entry of a label; zero is the entry of a block that was never accessed.
#[inline(always)]
pub fn entry_of(label: u32) -> u32 {
    label.wrapping_add(1)
}

/// The label of a map entry, or `drawn` for a block that was never accessed.
#[inline(always)]
pub fn label_of(entry: u32, drawn: u32) -> u32 {
    Mask::nonzero(entry).select(entry.wrapping_sub(1), drawn)
}

/// Replaces the entry `index`, which is secret, by `new`, and returns the old one. Two entries lie
/// in a word, the first in its lower half.
#[inline(always)]
pub fn exchange<V: Vector>(v: V, entries: &mut [u64], index: u32, new: u32) -> u32 {
    let (lines, rest) = entries.as_chunks_mut();
    assert!(rest.is_empty(), "a map is made of whole blocks");
    let places = v.load(&PLACES);
    // Each lane collects its own entry; the lanes are combined once, at the end.
    let mut old = v.zero();
    let mut place = index;
    for line in lines {
        let mask = v.equal(v.splat(place), places);
        let here = v.load(line);
        old = v.gather(old, here, mask);
        v.store(v.select(mask, v.splat(new), here), line);
        place = place.wrapping_sub(FAN_OUT as u32);
    }
    let mut words: Line = [0; FAN_OUT / 2];
    v.store(old, &mut words);
    let pair = words.iter().fold(0, |all, word| all | word);
    (pair | pair >> 32) as u32
}

/// Packs entries for [`exchange`], and pads them with zeros.
pub fn pack(entries: &[u32], words: &mut [u64]) {
    words.fill(0);
    for (word, pair) in words.iter_mut().zip(entries.chunks(2)) {
        let high = pair.get(1).copied().unwrap_or_default();
        *word = u64::from(pair[0]) | u64::from(high) << 32;
    }
}

/// The numbers from 0 to 15, as entries.
const PLACES: Line = {
    let mut places = [0; FAN_OUT / 2];
    let mut i = 0;
    while i < places.len() {
        let first = 2 * i as u64;
        places[i] = first | ((first + 1) << 32);
        i += 1;
    }
    places
};

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_sys::ct::{Kernel, dispatch};

    struct Exchanges;

    impl Kernel for Exchanges {
        type Output = ();

        #[inline(always)]
        fn run<V: Vector>(self, v: V) {
            let mut packed = [9; 8];
            pack(&[5, 6, 7], &mut packed);
            assert_eq!([0, 1, 2, 3].map(|i| exchange(v, &mut packed, i, 0)), [5, 6, 7, 0]);
            let mut entries = [0; 24];
            for i in 0..48 {
                assert_eq!(exchange(v, &mut entries, i, 100 + i), 0);
            }
            assert_eq!(exchange(v, &mut entries, 17, 7), 117);
            assert_eq!(exchange(v, &mut entries, 17, 8), 7);
            assert_eq!(exchange(v, &mut entries, 47, 9), 147);
            assert_eq!((entries[8] as u32, entries[8] >> 32), (116, 8));
            assert_eq!((entries[9] as u32, entries[23] >> 32), (118, 9));
        }
    }

    #[test]
    fn exchanges_one_entry() {
        dispatch(Exchanges);
    }

    #[test]
    fn entries_stand_for_labels() {
        assert_eq!(label_of(entry_of(0), 9), 0);
        assert_eq!(label_of(entry_of(77), 9), 77);
        assert_eq!(label_of(0, 9), 9);
    }
}
