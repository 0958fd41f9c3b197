//! Slots that hold blocks in the order of their addresses, and are written anew in turns: the main
//! area of `detwo`, the last level of `sq`. Which block a slot holds, and its version, follow from
//! counts, so its entry is a salt and a tag.

use super::openings;
use crate::seal::{Cipher, Nonce, Salt, Sealer, Secret, TAG_LEN};
use crate::store::Layout;
use alloc::boxed::Box;

/// Bytes of an entry: salt, tag, spare.
pub(super) const ENTRY_LEN: usize = 32;

/// Slots whose entries fill one 4 KiB header.
pub(super) const STRIPE: u64 = 4096 / ENTRY_LEN as u64;

/// Bytes of an entry that say something.
const USED_LEN: usize = Salt::LEN + TAG_LEN;

/// How `slots` such slots lie.
pub(super) fn layout(slots: u64, body_len: usize) -> Layout {
    Layout { slots, body_len, entry_len: ENTRY_LEN, stripe_slots: STRIPE }
}

/// The sealer of such slots in one opening.
pub(super) struct RefreshKey(Box<dyn Sealer>);

impl RefreshKey {
    pub fn new(cipher: Cipher, key: &Secret) -> Self {
        Self(cipher.sealer(key))
    }

    /// Seals what stands in `body` as refresh number `refresh`.
    pub fn seal_in_place(&self, refresh: u64, salt: Salt, (entry, body): (&mut [u8], &mut [u8])) {
        let tag = &mut salt.put(entry)[..TAG_LEN];
        self.0.seal_in_place(Nonce::new(refresh, salt), &[], body, tag);
    }

    /// Opens refresh number `refresh`. Whether it is that.
    pub fn open(&self, refresh: u64, entry: &[u8], sealed: &[u8], into: &mut [u8]) -> bool {
        let (salt, tag) = Salt::split(&entry[..USED_LEN]);
        self.0.open(Nonce::new(refresh, salt), &[], sealed, tag, into).is_ok()
    }
}

/// Fills the slot of a block that was lost, as [`openings::fill_lost`] does.
pub(super) fn fill_lost(key: &Secret, (entry, body): (&mut [u8], &mut [u8])) {
    openings::fill_lost(key, &mut entry[..USED_LEN], body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_opens_as_its_refresh_only_and_a_lost_one_as_none() {
        for cipher in Cipher::ALL {
            let key = RefreshKey::new(cipher, &Secret::from_bytes([1; 32]));
            let (mut entry, mut body, mut out) = ([0; ENTRY_LEN], [7; 64], [0; 64]);
            key.seal_in_place(5, Salt(9), (&mut entry, &mut body));
            assert!(key.open(5, &entry, &body, &mut out));
            assert_eq!(out, [7; 64]);
            assert!(!key.open(6, &entry, &body, &mut out));
            for at in 0..USED_LEN {
                let mut flipped = entry;
                flipped[at] ^= 1;
                assert!(!key.open(5, &flipped, &body, &mut out), "{cipher}, byte {at}");
            }
            // The spare bytes are those of any other.
            let whole = entry;
            fill_lost(&Secret::from_bytes([2; 32]), (&mut entry, &mut body));
            assert!(!key.open(5, &entry, &body, &mut out));
            assert_eq!(whole[USED_LEN..], entry[USED_LEN..]);
        }
    }
}
