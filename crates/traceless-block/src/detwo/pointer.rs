//! The authors' self-invalidating pointers: the holding slot of a block's last write, the first bit
//! in which that write differed from the main copy, and the bit's new value. Once a refresh has
//! carried the write to the main area the bits agree, so the pointer needs no update.

/// The holding slot of a block's last write, and a mark that shows whether a refresh has carried
/// the write to the main area since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pointer {
    /// Slot in the holding area.
    pub slot: u64,
    /// A bit of the main copy once it is as new as the write. `None` if there was no main copy to
    /// compare with: then the pointer is blind.
    mark: Option<Bit>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bit {
    index: u64,
    value: bool,
}

impl Pointer {
    /// Points to `slot`, where `new` is written while `main` is the main copy, or `None` if that
    /// copy does not open. For equal contents the pointer is stale at once, which is harmless.
    pub fn new(slot: u64, new: &[u8], main: Option<&[u8]>) -> Self {
        let mark = main.map(|main| {
            let index = first_difference(new, main).unwrap_or(0);
            Bit { index, value: bit(new, index) }
        });
        Self { slot, mark }
    }

    /// Whether `main`, the current main copy, is at least as new as the write.
    pub fn is_stale(&self, main: &[u8]) -> bool {
        self.mark.is_some_and(|mark| bit(main, mark.index) == mark.value)
    }

    /// Whether the pointer can never look stale.
    pub fn is_blind(&self) -> bool {
        self.mark.is_none()
    }

    /// The map entry of a block of `len` bytes, never 0.
    pub fn encode(self, len: usize) -> u64 {
        let (index, low) = match self.mark {
            Some(mark) => (mark.index, u64::from(mark.value)),
            None => (0, BLIND),
        };
        (self.slot + 1) << (LOW_BITS + index_bits(len)) | index << LOW_BITS | low
    }

    /// The pointer in a map entry; 0 means none.
    pub fn decode(entry: u64, len: usize) -> Option<Self> {
        let slot = (entry >> (LOW_BITS + index_bits(len))).checked_sub(1)?;
        let index = entry >> LOW_BITS & ((1 << index_bits(len)) - 1);
        let mark = (entry & BLIND == 0).then_some(Bit { index, value: entry & 1 == 1 });
        Some(Self { slot, mark })
    }

    /// Whether every pointer fits an entry, in a holding area of `slots` slots of `len` bytes.
    pub fn fits(slots: u64, len: usize) -> bool {
        slots >> (u64::BITS - LOW_BITS - index_bits(len)) == 0
    }
}

/// Bits of an entry below the index: the value, and whether the pointer is blind.
const LOW_BITS: u32 = 2;
const BLIND: u64 = 2;

/// Bits that number the bits of a block of `len` bytes, a power of two.
fn index_bits(len: usize) -> u32 {
    (len * 8).trailing_zeros()
}

fn bit(bytes: &[u8], index: u64) -> bool {
    bytes[(index / 8) as usize] >> (index % 8) & 1 == 1
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<u64> {
    let at = a.iter().zip(b).position(|(a, b)| a != b)?;
    Some(at as u64 * 8 + u64::from((a[at] ^ b[at]).trailing_zeros()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detwo::Refresh;
    use alloc::vec;
    use alloc::vec::Vec;
    use traceless_core::rng::{Rng, SeededRng};

    #[test]
    fn pointers_fit_their_entries() {
        for len in [64, 512, 4096, 1 << 20] {
            let last = (1 << (62 - index_bits(len))) - 1;
            assert!(Pointer::fits(last, len) && !Pointer::fits(last + 1, len));
            for slot in [0, 1, 77, last - 1] {
                for index in [0, 1, 13, len * 8 - 1] {
                    let main = vec![0xff; len];
                    let mut new = main.clone();
                    new[index / 8] ^= 1 << (index % 8);
                    for main in [Some(&main[..]), Some(&new[..]), None] {
                        let pointer = Pointer::new(slot, &new, main);
                        assert_ne!(pointer.encode(len), 0);
                        assert_eq!(Pointer::decode(pointer.encode(len), len), Some(pointer));
                    }
                    assert!(!Pointer::new(slot, &new, Some(&main)).is_stale(&main));
                    assert!(Pointer::new(slot, &new, Some(&main)).is_stale(&new));
                    assert!(Pointer::new(slot, &new, Some(&new)).is_stale(&new));
                    assert!(!Pointer::new(slot, &new, None).is_stale(&new));
                    assert!(Pointer::new(slot, &new, None).is_blind());
                    assert!(!Pointer::new(slot, &new, Some(&main)).is_blind());
                }
            }
        }
        assert_eq!(Pointer::decode(0, 4096), None);
    }

    /// The format of docs/format.md: later versions must read entries of earlier ones.
    #[test]
    fn an_entry_has_slot_and_number_and_value_of_the_marked_bit() {
        let (zeros, mut marked) = ([0; 64], [0; 64]);
        marked[5] = 0b1001_0000;
        let entry = |new: &[u8], main| Pointer::new(6, new, main).encode(64);
        assert_eq!(entry(&marked, Some(&zeros)), 7 << 11 | (5 * 8 + 4) << 2 | 1);
        assert_eq!(entry(&zeros, Some(&marked)), 7 << 11 | (5 * 8 + 4) << 2);
        assert_eq!(entry(&zeros, Some(&zeros)), 7 << 11, "no bit differs");
        assert_eq!(entry(&marked, None), 7 << 11 | 2, "blind");
    }

    /// The rule of a reader: whether a pointer is stale.
    type Judge = fn(&Pointer, &[u8]) -> bool;
    /// The rule of a writer: the pointer to a slot, for new contents and the main copy.
    type Maker = fn(u64, &[u8], &[u8]) -> Pointer;

    /// Main and holding area as plain arrays, without ciphers and slack. Data have few values, so
    /// that equal contents are rewritten often. Returns the number of wrong reads.
    fn wrong_reads(blocks: u64, refresh: (u32, u32), judge: Judge, make: Maker) -> u64 {
        let k = Refresh::new(refresh.0, refresh.1).unwrap();
        let (n, slots) = (blocks as usize, k.writes_for(blocks));
        let mut rng = SeededRng::new(blocks);
        let (mut main, mut held) = (vec![[0u8; 1]; n], vec![[0u8; 1]; slots as usize]);
        let mut pointers: Vec<Option<Pointer>> = vec![None; n];
        let mut truth = main.clone();
        let mut wrong = 0;
        for count in 0..1500 {
            let a = rng.below(blocks) as usize;
            let new = [rng.below(16) as u8];
            let slot = count % slots;
            pointers[a] = Some(make(slot, &new, &main[a]));
            held[slot as usize] = new;
            truth[a] = new;
            let read = |main: &[[u8; 1]], b: usize| match &pointers[b] {
                Some(p) if !judge(p, &main[b]) => held[p.slot as usize],
                _ => main[b],
            };
            for r in k.after(count)..k.after(count + 1) {
                let b = (r % blocks) as usize;
                main[b] = read(&main, b);
            }
            wrong += (0..n).filter(|&b| read(&main, b) != truth[b]).count() as u64;
        }
        wrong
    }

    #[test]
    fn a_pointer_invalidates_itself_and_nothing_less_does() {
        let honest: Maker = |slot, new, main| Pointer::new(slot, new, Some(main));
        let fixed: Maker = |slot, new, _| {
            let mark = Some(Bit { index: 3, value: bit(new, 3) });
            Pointer { slot, mark }
        };
        for (blocks, refresh) in [(48, (3, 1)), (64, (1, 1)), (49, (7, 2)), (16, (1, 3))] {
            let wrong = |judge, make| wrong_reads(blocks, refresh, judge, make);
            assert_eq!(wrong(Pointer::is_stale, honest), 0, "{blocks} blocks");
            assert!(wrong(|_, _| false, honest) > 0, "the bit is not compared: always live");
            assert!(wrong(|_, _| true, honest) > 0, "the bit is not compared: always stale");
            assert!(wrong(Pointer::is_stale, fixed) > 0, "the bit need not differ");
        }
    }
}
