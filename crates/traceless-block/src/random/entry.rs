//! The sealed data: the entry of a slot, and its record in the journal.
//!
//! A record contains the slot's entry and body byte for byte, so that a write that a crash
//! interrupted is finished by copying; it also contains, sealed, the data that only recovery needs.

use crate::log::DUMMY;
use alloc::boxed::Box;
use core::ops::Range;
use traceless_core::seal::{Nonce, Salt, Sealer, TAG_LEN};

/// Bytes of an entry: version, sealed address and birth, their tag, the body's tag, salt.
pub(super) const ENTRY_LEN: usize = 64;

/// Number of slots with entries that fill one 4 KiB header.
pub(super) const STRIPE: u64 = 4096 / ENTRY_LEN as u64;

/// Bytes of a record's entry: the slot's, then sealed slot, synced count and fingerprint, and a
/// tag.
pub(super) const RECORD_LEN: usize = 128;

/// Number of records with entries that fill one 4 KiB header.
pub(super) const RECORD_STRIPE: u64 = 4096 / RECORD_LEN as u64;

/// The slot number in a record of a block in the stash.
pub(super) const STASHED: u64 = u64::MAX;

const HEAD: Range<usize> = 8..24;
const HEAD_TAG: Range<usize> = 24..24 + TAG_LEN;
const BODY_TAG: Range<usize> = 40..40 + TAG_LEN;
const SALT: Range<usize> = 56..ENTRY_LEN;
const NOTE: Range<usize> = 64..96;
const NOTE_TAG: Range<usize> = 96..96 + TAG_LEN;

/// The sealers of one tier in one opening.
pub(super) struct RandomTierKeys {
    pub head: Box<dyn Sealer>,
    pub body: Box<dyn Sealer>,
    pub note: Box<dyn Sealer>,
}

/// The part of an entry that identifies its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// The block's address, or `DUMMY`.
    pub address: u64,
    /// The number of these contents of the block: unique, and larger than all earlier ones.
    pub birth: u64,
}

impl Head {
    /// The head of a dummy body.
    pub const DUMMY: Self = Self { address: DUMMY, birth: 0 };
}

/// The part of a record beside its slot's entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Note {
    /// The slot that the record is for, or `STASHED`.
    pub slot: u64,
    /// Number of writes that were synced when the record was made.
    pub synced: u64,
    /// The fingerprint of the tier after this record.
    pub fingerprint: u128,
}

impl RandomTierKeys {
    /// Seals the contents of `slot` under a version: `body` in place, and its entry.
    pub fn seal(
        &self,
        (version, salt): (u64, Salt),
        slot: u64,
        head: Head,
        entry: &mut [u8],
        body: &mut [u8],
    ) {
        self.seal_head((version, salt), slot, head, entry);
        let nonce = Nonce::new(version, salt);
        let bound = bound_of(slot, head.address);
        self.body.seal_in_place(nonce, &bound, body, &mut entry[BODY_TAG]);
    }

    /// Seals only the entry, for a body that is lost. Returns the place for the body's tag.
    pub fn seal_head<'a>(
        &self,
        (version, salt): (u64, Salt),
        slot: u64,
        head: Head,
        entry: &'a mut [u8],
    ) -> &'a mut [u8] {
        entry[..ENTRY_LEN].fill(0);
        entry[..8].copy_from_slice(&version.to_le_bytes());
        entry[SALT].copy_from_slice(&salt.to_bytes());
        let plain = bound_of(head.address, head.birth);
        let (sealed, tag) = entry[HEAD.start..HEAD_TAG.end].split_at_mut(HEAD.len());
        let nonce = Nonce::new(version, salt);
        self.head.seal(nonce, &slot.to_le_bytes(), &plain, sealed, tag);
        &mut entry[BODY_TAG]
    }

    /// The head of the entry of `slot`, if it verifies under these keys.
    pub fn open_head(&self, slot: u64, entry: &[u8]) -> Option<Head> {
        let mut plain = [0; 16];
        self.head
            .open(nonce_of(entry), &slot.to_le_bytes(), &entry[HEAD], &entry[HEAD_TAG], &mut plain)
            .ok()?;
        Some(Head { address: word(&plain), birth: word(&plain[8..]) })
    }

    /// Opens the body of an entry after its head; returns whether the body verified.
    pub fn open_body(
        &self,
        slot: u64,
        head: Head,
        entry: &[u8],
        sealed: &[u8],
        into: &mut [u8],
    ) -> bool {
        let bound = bound_of(slot, head.address);
        self.body.open(nonce_of(entry), &bound, sealed, &entry[BODY_TAG], into).is_ok()
    }

    /// Seals the note of a record that already has its slot's entry.
    pub fn seal_note(&self, note: Note, record: &mut [u8]) {
        let mut plain = [0; 32];
        plain[..8].copy_from_slice(&note.slot.to_le_bytes());
        plain[8..16].copy_from_slice(&note.synced.to_le_bytes());
        plain[16..].copy_from_slice(&note.fingerprint.to_le_bytes());
        let nonce = nonce_of(record);
        record[NOTE.start..].fill(0);
        let (sealed, tag) = record[NOTE.start..NOTE_TAG.end].split_at_mut(NOTE.len());
        self.note.seal(nonce, &[], &plain, sealed, tag);
    }

    /// The note of a record, if it verifies under these keys.
    pub fn open_note(&self, record: &[u8]) -> Option<Note> {
        let mut plain = [0; 32];
        self.note.open(nonce_of(record), &[], &record[NOTE], &record[NOTE_TAG], &mut plain).ok()?;
        let fingerprint = u128::from_le_bytes(plain[16..].try_into().expect("16 bytes"));
        Some(Note { slot: word(&plain), synced: word(&plain[8..]), fingerprint })
    }
}

/// The version that an entry, or a record, claims.
pub(super) fn entry_version(entry: &[u8]) -> u64 {
    word(entry)
}

/// The nonce that an entry, or a record, claims.
fn nonce_of(entry: &[u8]) -> Nonce {
    Nonce::new(entry_version(entry), Salt::split(&entry[SALT]).0)
}

fn bound_of(a: u64, b: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&a.to_le_bytes());
    bytes[8..].copy_from_slice(&b.to_le_bytes());
    bytes
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::seal::{Cipher, Secret};

    fn keys() -> RandomTierKeys {
        let key = |n| Cipher::AesGcm.sealer(&Secret::from_bytes([n; 32]));
        RandomTierKeys { head: key(1), body: key(2), note: key(3) }
    }

    #[test]
    fn a_record_comes_back_and_refuses_another_place() {
        let (keys, head) = (keys(), Head { address: 5, birth: 9 });
        let note = Note { slot: 7, synced: 3, fingerprint: 1 << 100 };
        let (mut record, mut body) = ([0xff; RECORD_LEN], [6; 64]);
        keys.seal((40, Salt(11)), 7, head, &mut record, &mut body);
        keys.seal_note(note, &mut record);
        assert_eq!(entry_version(&record), 40);
        assert_eq!(keys.open_head(7, &record), Some(head));
        assert_eq!(keys.open_head(8, &record), None);
        assert_eq!(keys.open_note(&record), Some(note));
        let mut plain = [0; 64];
        assert!(keys.open_body(7, head, &record, &body, &mut plain));
        assert_eq!(plain, [6; 64]);
        assert!(!keys.open_body(8, head, &record, &body, &mut plain));
        let other = Head { address: 6, ..head };
        assert!(!keys.open_body(7, other, &record, &body, &mut plain));
        for at in 0..RECORD_LEN {
            let mut flipped = record;
            flipped[at] ^= 1;
            let whole = keys.open_head(7, &flipped).is_some()
                && keys.open_body(7, head, &flipped, &body, &mut plain)
                && keys.open_note(&flipped).is_some();
            // The bytes from 112 on are unused.
            assert_eq!(whole, at >= 112, "byte {at}");
        }
    }
}
