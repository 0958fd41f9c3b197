//! The sealed entry of a lane slot, and the keys of one hidden volume.
//!
//! An entry is a salt, a sealed head and two tags, and nothing else: without the volume's key it is
//! as random as what fills the lane otherwise. The slot is the version of both seals, and the salt
//! is drawn for each entry, so the entries of a volume can be found before anything else about the
//! lane is known. The head names the write; a body is bound to that, and thus to one lap.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use traceless_core::seal::{Cipher, KeyDeriver, Nonce, Prf, Salt, Sealer, Secret, TAG_LEN};
use traceless_core::store::SlotLayout;

/// Bytes of an entry: salt, sealed head, its tag, the body's tag.
pub(super) const ENTRY_LEN: usize = 64;

/// Number of slots with entries that fill one 4 KiB header.
pub(super) const STRIPE: u64 = 4096 / ENTRY_LEN as u64;

/// The address of the block that describes the volume.
pub(super) const RECORD: u64 = (1 << 48) - 2;

/// The address of an entry without contents.
pub(super) const BEACON: u64 = (1 << 48) - 1;

/// The cipher of the lane. It is fixed, since an entry is tried before any other choice is known.
const CIPHER: Cipher = Cipher::AesGcm;

/// Slots that share a key: it stays within the limits of the cipher for 65536 laps.
const ZONE: u64 = 1 << 16;

const SALT: Range<usize> = 0..Salt::LEN;
const HEAD: Range<usize> = Salt::LEN..Salt::LEN + HEAD_LEN;
const HEAD_LEN: usize = 24;
const HEAD_TAG: Range<usize> = HEAD.end..HEAD.end + TAG_LEN;
const BODY_TAG: Range<usize> = HEAD_TAG.end..HEAD_TAG.end + TAG_LEN;

const ADDRESS: Range<usize> = 0..6;
const LAP: Range<usize> = 6..10;
const OPENING: Range<usize> = 10..12;
const LAG: Range<usize> = 12..15;
const SUM: Range<usize> = 15..24;

/// The layout of a lane.
pub(super) fn layout(slots: u64, body_len: usize) -> SlotLayout {
    SlotLayout { slots, body_len, entry_len: ENTRY_LEN, stripe_slots: STRIPE }
}

/// What an entry says about its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LaneHead {
    /// The block of the volume, [`RECORD`] or [`BEACON`].
    pub address: u64,
    /// Laps of the lane before the one that wrote it.
    pub lap: u32,
    /// Number of the opening, its low half word.
    pub opening: u16,
    /// Lane writes that were not synced when it was made.
    pub lag: u32,
    /// The volume's [`LaneSum`] when the last sync before it began.
    pub sum: LaneSum,
}

/// The sum of a keyed function over all (block, write) of a volume's map, modulo 2^72. Two maps of
/// one volume that differ have different sums, but for a chance of one in 2^72.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct LaneSum(u128);

impl LaneSum {
    const MASK: u128 = (1 << 72) - 1;

    pub fn add(&mut self, term: u128) {
        self.0 = self.0.wrapping_add(term) & Self::MASK;
    }

    pub fn remove(&mut self, term: u128) {
        self.0 = self.0.wrapping_sub(term) & Self::MASK;
    }
}

/// The sealers of a zone.
struct ZoneKeys {
    head: Box<dyn Sealer>,
    body: Box<dyn Sealer>,
}

/// The keys of one hidden volume.
pub(super) struct LaneKeys {
    zones: Vec<ZoneKeys>,
    sums: Prf,
}

impl LaneKeys {
    /// The keys for a lane of `slots` slots.
    pub fn new(secret: &Secret, slots: u64) -> Self {
        let deriver = KeyDeriver::new(secret);
        let zone = |zone: u64| {
            let key =
                |part: &[u8]| CIPHER.sealer(&deriver.derive(&[b"lane", part, &zone.to_le_bytes()]));
            ZoneKeys { head: key(b"head"), body: key(b"body") }
        };
        Self {
            zones: (0..slots.div_ceil(ZONE)).map(zone).collect(),
            sums: Prf::new(&deriver.derive(&[b"lane", b"sum"])),
        }
    }

    /// The contribution of `address` to the volume's sum, with its contents of write `p`.
    pub fn term(&self, address: u64, p: u64) -> u128 {
        self.sums.at(u128::from(address) << 64 | u128::from(p))
    }

    /// Seals the head of an entry. Returns the place for the body's tag, filled with nothing yet.
    pub fn seal_head<'a>(
        &self,
        slot: u64,
        salt: Salt,
        head: LaneHead,
        entry: &'a mut [u8],
    ) -> &'a mut [u8] {
        let mut plain = [0; HEAD_LEN];
        plain[ADDRESS].copy_from_slice(&head.address.to_le_bytes()[..ADDRESS.len()]);
        plain[LAP].copy_from_slice(&head.lap.to_le_bytes());
        plain[OPENING].copy_from_slice(&head.opening.to_le_bytes());
        plain[LAG].copy_from_slice(&head.lag.to_le_bytes()[..LAG.len()]);
        plain[SUM].copy_from_slice(&head.sum.0.to_le_bytes()[..SUM.len()]);
        entry[SALT].copy_from_slice(&salt.to_bytes());
        let (sealed, tag) = entry[HEAD.start..HEAD_TAG.end].split_at_mut(HEAD_LEN);
        self.zone(slot).head.seal(Nonce::new(slot, salt), &[], &plain, sealed, tag);
        &mut entry[BODY_TAG]
    }

    /// Seals the contents of write `p` to `slot`: `body` in place, and its entry.
    pub fn seal(
        &self,
        (slot, p): (u64, u64),
        salt: Salt,
        head: LaneHead,
        (entry, body): (&mut [u8], &mut [u8]),
    ) {
        let tag = self.seal_head(slot, salt, head, entry);
        let bound = bound_of(head.address, p);
        self.zone(slot).body.seal_in_place(Nonce::new(slot, salt), &bound, body, tag);
    }

    /// The head of the entry of `slot`, if it is this volume's.
    pub fn open_head(&self, slot: u64, entry: &[u8]) -> Option<LaneHead> {
        let mut plain = [0; HEAD_LEN];
        let nonce = nonce_of(slot, entry);
        self.zone(slot).head.open(nonce, &[], &entry[HEAD], &entry[HEAD_TAG], &mut plain).ok()?;
        Some(LaneHead {
            address: number(&plain[ADDRESS]) as u64,
            lap: number(&plain[LAP]) as u32,
            opening: number(&plain[OPENING]) as u16,
            lag: number(&plain[LAG]) as u32,
            sum: LaneSum(number(&plain[SUM])),
        })
    }

    /// Opens the body of write `p`; returns whether it verified.
    pub fn open_body(
        &self,
        (slot, p): (u64, u64),
        address: u64,
        (entry, sealed): (&[u8], &[u8]),
        into: &mut [u8],
    ) -> bool {
        let (nonce, bound) = (nonce_of(slot, entry), bound_of(address, p));
        self.zone(slot).body.open(nonce, &bound, sealed, &entry[BODY_TAG], into).is_ok()
    }

    fn zone(&self, slot: u64) -> &ZoneKeys {
        &self.zones[(slot / ZONE) as usize]
    }
}

fn nonce_of(slot: u64, entry: &[u8]) -> Nonce {
    Nonce::new(slot, Salt::split(&entry[SALT]).0)
}

fn bound_of(address: u64, p: u64) -> [u8; 16] {
    let mut bound = [0; 16];
    bound[..8].copy_from_slice(&address.to_le_bytes());
    bound[8..].copy_from_slice(&p.to_le_bytes());
    bound
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u128::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_opens_at_its_place_with_every_bit_alone() {
        let keys = LaneKeys::new(&Secret::from_bytes([1; 32]), 200_000);
        let mut sum = LaneSum::default();
        sum.add(keys.term(7, 9));
        let head = LaneHead { address: RECORD, lap: 1 << 31, opening: 65535, lag: 65536, sum };
        let (mut entry, mut body, mut plain) = ([0; ENTRY_LEN], [5; 64], [0; 64]);
        keys.seal((150_000, 77), Salt(3), head, (&mut entry, &mut body));
        assert_eq!(keys.open_head(150_000, &entry), Some(head));
        assert_eq!(keys.open_head(150_001, &entry), None);
        let opens = |entry: &[u8], p, address, plain: &mut [u8]| {
            keys.open_body((150_000, p), address, (entry, &body), plain)
        };
        assert!(opens(&entry, 77, RECORD, &mut plain) && plain == [5; 64]);
        assert!(!opens(&entry, 78, RECORD, &mut plain), "the write is bound");
        assert!(!opens(&entry, 77, 7, &mut plain));
        for bit in 0..ENTRY_LEN * 8 {
            let mut flipped = entry;
            flipped[bit / 8] ^= 1 << (bit % 8);
            let is_whole = keys.open_head(150_000, &flipped).is_some()
                && opens(&flipped, 77, RECORD, &mut plain);
            assert!(!is_whole, "bit {bit}");
        }
        let foreign = LaneKeys::new(&Secret::from_bytes([2; 32]), 200_000);
        assert_eq!(foreign.open_head(150_000, &entry), None);
    }

    #[test]
    fn a_sum_is_of_a_set() {
        let keys = LaneKeys::new(&Secret::from_bytes([1; 32]), 10);
        let (mut one, mut two) = (LaneSum::default(), LaneSum::default());
        for p in 0..100 {
            one.add(keys.term(p % 7, p));
            two.add(keys.term((99 - p) % 7, 99 - p));
        }
        assert_eq!(one, two);
        one.remove(keys.term(3, 3));
        assert_ne!(one, two);
        two.remove(keys.term(3, 3));
        assert_eq!(one, two);
    }
}
