//! A ring of slots that takes writes in the order in which they come. Each slot describes itself:
//! after a crash the count of writes, and what each of them wrote, is read off the entries.

use crate::scheme::openings::Opening;
use crate::seal::{Aead, Sealer, TAG_LEN};
use crate::store::Layout;

/// Bytes of an entry: count, opening, sealed address, its tag, the body's tag, synced count.
pub(super) const ENTRY_LEN: usize = 64;

/// Slots whose entries fill one 4 KiB header.
pub(super) const STRIPE: u64 = 4096 / ENTRY_LEN as u64;

/// The address of a write that changes nothing.
pub(super) const DUMMY: u64 = u64::MAX;

const BODY_TAG: core::ops::Range<usize> = 40..40 + TAG_LEN;

/// How a log of `slots` slots lies.
pub(super) fn layout(slots: u64, body_len: usize) -> Layout {
    Layout { slots, body_len, entry_len: ENTRY_LEN, stripe_slots: STRIPE }
}

/// The sealers of a log in one opening.
pub(super) struct LogKeys {
    pub head: Aead,
    pub body: Aead,
}

impl LogKeys {
    /// Seals write number `count`, of `plain` to `address`, when `synced` writes were synced: a
    /// later opening that finds less than those knows that something is gone.
    pub fn seal(
        &self,
        opening: &Opening,
        (count, synced): (u64, u64),
        address: u64,
        plain: &[u8],
        (entry, body): (&mut [u8], &mut [u8]),
    ) {
        self.seal_address(opening, (count, synced), address, entry);
        self.body.seal(count, &address.to_le_bytes(), plain, body, &mut entry[BODY_TAG]);
    }

    /// As [`LogKeys::seal`], of what stands in `body`.
    pub fn seal_in_place(
        &self,
        opening: &Opening,
        (count, synced): (u64, u64),
        address: u64,
        (entry, body): (&mut [u8], &mut [u8]),
    ) {
        self.seal_address(opening, (count, synced), address, entry);
        self.body.seal_in_place(count, &address.to_le_bytes(), body, &mut entry[BODY_TAG]);
    }

    /// The part of [`LogKeys::seal`] that fills the entry, but for the body's tag.
    pub fn seal_address(
        &self,
        opening: &Opening,
        (count, synced): (u64, u64),
        address: u64,
        entry: &mut [u8],
    ) {
        let (address, synced) = (address.to_le_bytes(), synced.to_le_bytes());
        entry[..8].copy_from_slice(&count.to_le_bytes());
        entry[8..16].copy_from_slice(&opening.number.to_le_bytes());
        entry[56..].copy_from_slice(&synced);
        let (head, tags) = entry[16..].split_at_mut(8);
        self.head.seal(count, &synced, &address, head, &mut tags[..TAG_LEN]);
    }

    /// The count and the address of an entry, if it was sealed in `opening`, which must be the one
    /// that made the write it claims to be. Tails of forks and of lost openings were not.
    pub fn open_entry(&self, opening: &Opening, entry: &[u8]) -> Option<(u64, u64)> {
        let count = entry_count(entry);
        if opening.number.to_le_bytes() != entry[8..16] || count < opening.start {
            return None;
        }
        let mut home = [0; 8];
        self.head.open(count, &entry[56..], &entry[16..24], &entry[24..40], &mut home).ok()?;
        Some((count, u64::from_le_bytes(home)))
    }

    /// Opens the body of write number `count`, which must be of `address`. Whether it did.
    pub fn open_body(
        &self,
        count: u64,
        address: u64,
        entry: &[u8],
        sealed: &[u8],
        into: &mut [u8],
    ) -> bool {
        self.body.open(count, &address.to_le_bytes(), sealed, &entry[BODY_TAG], into).is_ok()
    }
}

/// The tag of the body, in its entry.
pub(super) fn body_tag(entry: &mut [u8]) -> &mut [u8] {
    &mut entry[BODY_TAG]
}

/// The count that an entry claims.
pub(super) fn entry_count(entry: &[u8]) -> u64 {
    u64::from_le_bytes(entry[..8].try_into().expect("8 bytes"))
}

/// The writes that were synced when an entry was made. It must have been opened.
pub(super) fn entry_synced(entry: &[u8]) -> u64 {
    u64::from_le_bytes(entry[56..].try_into().expect("8 bytes"))
}
