//! How entries of a log are proved: under a key that also hides them, or by a hash for whoever has
//! no key.

use super::{CHAIN_LEN, Chain, ID_LEN, Id, TAG_LEN, Tag};
use aws_lc_rs::{constant_time, hmac};
use sha2::{Digest, Sha256};
use traceless::seal::{Aead, Sealer, Secret};

/// What proves the entries of one file, and its marks.
pub trait Proof: Sized {
    /// What all files of a log have in common.
    type Key;

    /// For the file of this id.
    fn new(key: &Self::Key, id: &Id) -> Self;

    /// A tag of some bytes.
    fn tag(&self, bytes: &[u8]) -> Tag;

    /// Turns a body into what lies in the file, bound to its header, and returns its tag.
    fn seal(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> Chain;

    /// Turns it back. Says whether it is as it was written.
    #[must_use]
    fn open(&self, number: u64, header: &[u8], body: &mut [u8], tag: &Chain) -> bool;

    /// Whether a tag is that of some bytes.
    fn fits(&self, bytes: &[u8], tag: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(&self.tag(bytes), tag).is_ok()
    }
}

/// Entries are encrypted, and nobody without the key can make one.
pub struct Sealed {
    tags: hmac::Key,
    bodies: Aead,
}

impl Proof for Sealed {
    type Key = Secret;

    fn new(key: &Secret, id: &Id) -> Self {
        let tags = key.derive(&[b"tags", id]);
        let tags = hmac::Key::new(hmac::HMAC_SHA256, tags.bytes());
        Self { tags, bodies: Aead::new(&key.derive(&[b"bodies", id])) }
    }

    fn tag(&self, bytes: &[u8]) -> Tag {
        *hmac::sign(&self.tags, bytes).as_ref().first_chunk().expect("32 bytes")
    }

    fn seal(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> Chain {
        let mut tag = [0; CHAIN_LEN];
        self.bodies.seal_in_place(number, header, body, &mut tag[CHAIN_LEN - TAG_LEN..]);
        tag
    }

    fn open(&self, number: u64, header: &[u8], body: &mut [u8], tag: &Chain) -> bool {
        let (rest, tag) = tag.split_at(CHAIN_LEN - TAG_LEN);
        rest == [0; CHAIN_LEN - TAG_LEN]
            && self.bodies.open_in_place(number, header, body, tag).is_ok()
    }
}

/// Entries can be read by anybody. The file's id tells them from what another file had in the same
/// place of the disk.
pub struct Hashed {
    id: Id,
}

impl Hashed {
    fn hash<const LEN: usize>(&self, parts: [&[u8]; 2]) -> [u8; LEN] {
        let mut hash = Sha256::new_with_prefix(self.id);
        for part in parts {
            hash.update(part);
        }
        *hash.finalize().first_chunk().expect("32 bytes")
    }
}

impl Proof for Hashed {
    type Key = ();

    fn new((): &(), id: &[u8; ID_LEN]) -> Self {
        Self { id: *id }
    }

    fn tag(&self, bytes: &[u8]) -> Tag {
        self.hash([b"tag", bytes])
    }

    fn seal(&mut self, _number: u64, header: &[u8], body: &mut [u8]) -> Chain {
        self.hash([header, body])
    }

    fn open(&self, _number: u64, header: &[u8], body: &mut [u8], tag: &Chain) -> bool {
        self.hash([header, body]) == *tag
    }
}
