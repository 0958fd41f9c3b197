//! A ring of slots that takes writes in the order of their arrival. Each slot describes itself:
//! after a crash, the entries give the count of writes and the target of each write.

use alloc::boxed::Box;
use core::ops::Range;
use traceless_core::scheme::openings::Opening;
use traceless_core::seal::{Cipher, Nonce, Salt, Sealer, Secret, TAG_LEN};
use traceless_core::store::SlotLayout;

/// Bytes of an entry: count, opening, number of unsynced writes, salt, sealed address, its tag, the
/// body's tag.
pub(super) const ENTRY_LEN: usize = 64;

/// Number of slots with entries that fill one 4 KiB header.
pub(super) const STRIPE: u64 = 4096 / ENTRY_LEN as u64;

/// The address of a write that changes nothing.
pub(super) const DUMMY: u64 = u64::MAX;

const OPENING: Range<usize> = 8..12;
const UNSYNCED: Range<usize> = 12..16;
const SALT: Range<usize> = 16..24;
const ADDRESS: Range<usize> = 24..32;
const ADDRESS_TAG: Range<usize> = 32..32 + TAG_LEN;
const BODY_TAG: Range<usize> = 48..48 + TAG_LEN;

/// The layout of a log of `slots` slots.
pub(super) fn layout(slots: u64, body_len: usize) -> SlotLayout {
    SlotLayout { slots, body_len, entry_len: ENTRY_LEN, stripe_slots: STRIPE }
}

/// How a recovery treats a damaged live entry of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DamagePolicy {
    /// The recovery fails, since the current contents of the entry's block are unknown.
    Refuse,
    /// The recovery continues as if the slot of the entry had not been written.
    Accept,
}

/// The sealers of a log in one opening.
pub(super) struct LogKeys {
    head: Box<dyn Sealer>,
    body: Box<dyn Sealer>,
}

/// The plaintext part of an entry about its write.
#[derive(Clone, Copy)]
pub(super) struct Stamp {
    /// The number of the write.
    pub count: u64,
    /// Number of earlier writes that were not synced when this one was made. A later opening that
    /// finds fewer than the synced ones knows that writes were lost.
    pub unsynced: u64,
    /// The salt of the write's nonces.
    pub salt: Salt,
}

impl LogKeys {
    /// The sealers with the keys of addresses and of bodies.
    pub fn new(cipher: Cipher, head: &Secret, body: &Secret) -> Self {
        Self { head: cipher.sealer(head), body: cipher.sealer(body) }
    }

    /// Seals the write of `plain` to `address`.
    pub fn seal(
        &self,
        opening: &Opening,
        stamp: Stamp,
        address: u64,
        plain: &[u8],
        (entry, body): (&mut [u8], &mut [u8]),
    ) {
        self.seal_address(opening, stamp, address, entry);
        let nonce = Nonce::new(stamp.count, stamp.salt);
        self.body.seal(nonce, &address.to_le_bytes(), plain, body, &mut entry[BODY_TAG]);
    }

    /// Like [`LogKeys::seal`], with the plaintext in `body`.
    pub fn seal_in_place(
        &self,
        opening: &Opening,
        stamp: Stamp,
        address: u64,
        (entry, body): (&mut [u8], &mut [u8]),
    ) {
        self.seal_address(opening, stamp, address, entry);
        let nonce = Nonce::new(stamp.count, stamp.salt);
        self.body.seal_in_place(nonce, &address.to_le_bytes(), body, &mut entry[BODY_TAG]);
    }

    /// The part of [`LogKeys::seal`] that fills the entry, except for the body's tag.
    pub fn seal_address(&self, opening: &Opening, stamp: Stamp, address: u64, entry: &mut [u8]) {
        let Stamp { count, unsynced, salt } = stamp;
        let unsynced = u32::try_from(unsynced).expect("few writes wait for a sync").to_le_bytes();
        entry[..8].copy_from_slice(&count.to_le_bytes());
        entry[OPENING].copy_from_slice(&mark_of(opening));
        entry[UNSYNCED].copy_from_slice(&unsynced);
        entry[SALT].copy_from_slice(&salt.to_bytes());
        let (sealed, tag) = entry[ADDRESS.start..ADDRESS_TAG.end].split_at_mut(ADDRESS.len());
        self.head.seal(Nonce::new(count, salt), &unsynced, &address.to_le_bytes(), sealed, tag);
    }

    /// The count and the address of an entry, if it was sealed in `opening`, which must be the
    /// opening responsible for this count. Entries at the tail of forks and lost openings are
    /// refused.
    pub fn open_entry(&self, opening: &Opening, entry: &[u8]) -> Option<(u64, u64)> {
        let count = entry_count(entry);
        if mark_of(opening) != entry[OPENING] || count < opening.start {
            return None;
        }
        let mut address = [0; 8];
        let (nonce, bound) = (nonce_of(entry), &entry[UNSYNCED]);
        let opened =
            self.head.open(nonce, bound, &entry[ADDRESS], &entry[ADDRESS_TAG], &mut address);
        opened.ok()?;
        Some((count, u64::from_le_bytes(address)))
    }

    /// Opens the body of write number `count` to `address`; returns whether it verified.
    pub fn open_body(
        &self,
        count: u64,
        address: u64,
        entry: &[u8],
        sealed: &[u8],
        into: &mut [u8],
    ) -> bool {
        let nonce = Nonce { version: count, ..nonce_of(entry) };
        let bound = address.to_le_bytes();
        self.body.open(nonce, &bound, sealed, &entry[BODY_TAG], into).is_ok()
    }
}

/// A short mark that distinguishes openings. It proves nothing; the entry's tag does.
fn mark_of(opening: &Opening) -> [u8; 4] {
    (opening.number as u32).to_le_bytes()
}

/// The nonce that an entry claims.
fn nonce_of(entry: &[u8]) -> Nonce {
    Nonce::new(entry_count(entry), Salt::split(&entry[SALT]).0)
}

/// The tag of the body, in its entry.
pub(super) fn body_tag(entry: &mut [u8]) -> &mut [u8] {
    &mut entry[BODY_TAG]
}

/// The count that an entry claims.
pub(super) fn entry_count(entry: &[u8]) -> u64 {
    u64::from_le_bytes(entry[..8].try_into().expect("8 bytes"))
}

/// The number of writes that were synced when an entry was made. The entry must have been opened.
pub(super) fn entry_synced(entry: &[u8]) -> u64 {
    let unsynced = u32::from_le_bytes(entry[UNSYNCED].try_into().expect("4 bytes"));
    entry_count(entry).saturating_sub(u64::from(unsynced))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two openings with the same keys, which never exist, would not open each other's entries.
    #[test]
    fn an_entry_opens_in_its_opening_with_every_bit_alone() {
        let opening = Opening { number: 3, id: [1; 16], start: 10 };
        let secrets = [1, 2].map(|byte| Secret::from_bytes([byte; 32]));
        let keys = LogKeys::new(Cipher::default(), &secrets[0], &secrets[1]);
        let (mut entry, mut body, mut plain) = ([0; ENTRY_LEN], [0; 64], [0; 64]);
        let stamp = Stamp { count: 12, unsynced: 5, salt: Salt(5) };
        keys.seal(&opening, stamp, 77, &[9; 64], (&mut entry, &mut body));
        assert_eq!(keys.open_entry(&opening, &entry), Some((12, 77)));
        assert_eq!(entry_synced(&entry), 7);
        for (number, start, opens) in [(4, 10, false), (3, 13, false), (3, 12, true)] {
            let other = Opening { number, start, ..opening };
            assert_eq!(keys.open_entry(&other, &entry).is_some(), opens, "{number} {start}");
        }
        assert!(keys.open_body(12, 77, &entry, &body, &mut plain) && plain == [9; 64]);
        assert!(!keys.open_body(13, 77, &entry, &body, &mut plain));
        assert!(!keys.open_body(12, 78, &entry, &body, &mut plain));
        for bit in 0..ENTRY_LEN * 8 {
            entry[bit / 8] ^= 1 << (bit % 8);
            let is_known = keys.open_entry(&opening, &entry).is_some();
            let is_whole = keys.open_body(12, 77, &entry, &body, &mut plain);
            assert!(!is_known || !is_whole, "bit {bit}");
            assert_eq!(is_known, bit / 8 >= BODY_TAG.start, "bit {bit}");
            entry[bit / 8] ^= 1 << (bit % 8);
        }
        let whole = entry;
        body_tag(&mut entry).fill(0);
        assert_ne!(entry, whole);
        assert_eq!(keys.open_entry(&opening, &entry), Some((12, 77)), "all but the body's tag");
        assert!(!keys.open_body(12, 77, &entry, &body, &mut plain));
        body_tag(&mut entry).copy_from_slice(&whole[BODY_TAG]);
        assert_eq!(entry, whole);
        let (mut again, mut same) = ([0; ENTRY_LEN], [9; 64]);
        keys.seal_in_place(&opening, stamp, 77, (&mut again, &mut same));
        assert!(again == entry && same == body);
    }
}
