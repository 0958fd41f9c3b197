//! Slots that hold blocks in the order of their addresses and are rewritten in a cyclic order: the
//! main area of `detwo`, the last level of `sq`. The block of a slot, and its version, follow from
//! counts. Its entry is a salt, a tag, and the number of the refresh that wrote it: an opening that
//! finds fewer writes than were made meets numbers that it does not expect.

use alloc::boxed::Box;
use alloc::vec;
use traceless_core::error::Result;
use traceless_core::scheme::openings;
use traceless_core::seal::{Cipher, Nonce, Salt, Sealer, Secret, TAG_LEN};
use traceless_core::store::{Area, Run, SlotLayout, Store};
use traceless_core::types::Slot;

/// Bytes of an entry: salt, tag, number of the refresh.
pub(super) const ENTRY_LEN: usize = 32;

/// Number of slots with entries that fill one 4 KiB header.
pub(super) const STRIPE: u64 = 4096 / ENTRY_LEN as u64;

/// Bytes of an entry's salt and tag.
const SEAL_LEN: usize = Salt::LEN + TAG_LEN;

/// The layout of `slots` slots.
pub(super) fn layout(slots: u64, body_len: usize) -> SlotLayout {
    SlotLayout { slots, body_len, entry_len: ENTRY_LEN, stripe_slots: STRIPE }
}

/// The sealer of these slots in one opening.
pub(super) struct RefreshKey(Box<dyn Sealer>);

impl RefreshKey {
    pub fn new(cipher: Cipher, key: &Secret) -> Self {
        Self(cipher.sealer(key))
    }

    /// Seals the contents of `body` as refresh number `refresh`.
    pub fn seal_in_place(&self, refresh: u64, salt: Salt, (entry, body): (&mut [u8], &mut [u8])) {
        name_refresh(refresh, entry);
        let tag = &mut salt.put(&mut entry[..SEAL_LEN])[..TAG_LEN];
        self.0.seal_in_place(Nonce::new(refresh, salt), &[], body, tag);
    }

    /// Opens refresh number `refresh`; returns whether it verified.
    pub fn open(&self, refresh: u64, entry: &[u8], sealed: &[u8], into: &mut [u8]) -> bool {
        let (salt, tag) = Salt::split(&entry[..SEAL_LEN]);
        self.0.open(Nonce::new(refresh, salt), &[], sealed, tag, into).is_ok()
    }
}

/// Slots examined in each of two places.
const TAIL_SLOTS: u64 = 64;

/// Whether one of the slots for the refreshes from number `begin` on holds that refresh, or one of
/// a later lap of the ring; `opens` returns whether a slot opens as some refresh. The stripe that
/// is being written has lost the entries of the lap before, so the search covers two places, a
/// stripe apart.
pub(super) fn holds_after(
    area: &Area,
    store: &dyn Store,
    begin: u64,
    mut opens: impl FnMut(u64, &[u8], &[u8], &mut [u8]) -> bool,
) -> Result<bool> {
    let ring_slots = area.slots();
    let mut plain = vec![0; area.layout().body_len];
    let mut run = Run::default();
    for first in [begin, begin + STRIPE] {
        run.clear();
        run.add(area, Slot(first % ring_slots), TAIL_SLOTS.min(ring_slots));
        run.read(store)?;
        for (r, nth) in (first..).zip(0..run.slots()) {
            let (entry, sealed) = run.slot(nth);
            if unknown_in(r, entry, ring_slots).any(|r| opens(r, entry, sealed, &mut plain)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The refreshes that a slot may hold if refresh `r`, the first one not known to be made, goes
/// there: `r` itself, and the refresh that the entry names if that is one of a later lap of the
/// ring.
fn unknown_in(r: u64, entry: &[u8], ring_slots: u64) -> impl Iterator<Item = u64> {
    let named = u64::from_le_bytes(*entry[SEAL_LEN..].first_chunk().expect("8 bytes"));
    let is_later = named > r && (named - r).is_multiple_of(ring_slots);
    core::iter::once(r).chain(is_later.then_some(named))
}

/// Writes the number of the refresh into an entry.
fn name_refresh(refresh: u64, entry: &mut [u8]) {
    entry[SEAL_LEN..].copy_from_slice(&refresh.to_le_bytes());
}

/// Fills the slot of refresh `refresh`, as [`openings::fill_lost`] does for a lost block.
pub(super) fn fill_lost(key: &Secret, refresh: u64, (entry, body): (&mut [u8], &mut [u8])) {
    name_refresh(refresh, entry);
    openings::fill_lost(key, &mut entry[..SEAL_LEN], body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_names_its_refresh() {
        let key = RefreshKey::new(Cipher::default(), &Secret::from_bytes([1; 32]));
        let (mut entry, mut body) = ([0; ENTRY_LEN], [7; 64]);
        key.seal_in_place(25, Salt(9), (&mut entry, &mut body));
        for (r, ring_slots, found) in [
            (5, 10, &[5, 25][..]),
            (15, 10, &[15, 25]),
            (25, 10, &[25]),
            (35, 10, &[35]),
            (6, 10, &[6]),
        ] {
            assert!(unknown_in(r, &entry, ring_slots).eq(found.iter().copied()), "{r}");
        }
    }

    #[test]
    fn a_slot_opens_as_its_refresh_only_and_a_lost_one_as_none() {
        for cipher in Cipher::ALL {
            let key = RefreshKey::new(cipher, &Secret::from_bytes([1; 32]));
            let (mut entry, mut body, mut out) = ([0; ENTRY_LEN], [7; 64], [0; 64]);
            key.seal_in_place(5, Salt(9), (&mut entry, &mut body));
            assert!(key.open(5, &entry, &body, &mut out));
            assert_eq!(out, [7; 64]);
            assert!(!key.open(6, &entry, &body, &mut out));
            for at in 0..SEAL_LEN {
                let mut flipped = entry;
                flipped[at] ^= 1;
                assert!(!key.open(5, &flipped, &body, &mut out), "{cipher}, byte {at}");
            }
            fill_lost(&Secret::from_bytes([2; 32]), 5, (&mut entry, &mut body));
            assert!(!key.open(5, &entry, &body, &mut out));
        }
    }

    #[test]
    fn the_entry_of_a_lost_one_names_its_refresh_like_any_other() {
        let key = RefreshKey::new(Cipher::default(), &Secret::from_bytes([1; 32]));
        let (mut whole, mut lost, mut body) = ([0; ENTRY_LEN], [0; ENTRY_LEN], [7; 64]);
        key.seal_in_place(5, Salt(9), (&mut whole, &mut body));
        fill_lost(&Secret::from_bytes([2; 32]), 5, (&mut lost, &mut body));
        assert_eq!(whole[SEAL_LEN..], lost[SEAL_LEN..]);
        assert_ne!(whole[..SEAL_LEN], lost[..SEAL_LEN]);
    }
}
