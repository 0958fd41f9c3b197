//! How a log's entries are authenticated: under a key that also encrypts them, or by a hash for a
//! host without a key.

use aws_lc_rs::{constant_time, hmac};
use sha2::{Digest, Sha256};
use traceless_core::rng::Rng;
use traceless_core::seal::{Aead, Nonce, Salt, Sealer, Secret};

/// Bytes of a file's id.
pub const ID_LEN: usize = 16;
/// A file's id.
pub type Id = [u8; ID_LEN];
/// Bytes of a tag.
pub const TAG_LEN: usize = 16;
/// Authenticates a head, a header or a mark.
pub type Tag = [u8; TAG_LEN];
/// Bytes of a chain.
pub const CHAIN_LEN: usize = 24;
/// Authenticates an entry's body and all previous entries.
pub type Chain = [u8; CHAIN_LEN];

/// Authenticates the entries and marks of one file.
pub trait Proof: Sized {
    /// The key that all files of a log share.
    type Key;

    /// The proof for the file with this id.
    fn new(key: &Self::Key, id: &Id) -> Self;

    /// The tag of some bytes.
    fn tag(&self, bytes: &[u8]) -> Tag;

    /// Turns a body into its form in the file, bound to its header, and returns its tag. Salts are
    /// drawn from `rng`.
    fn seal(&self, number: u64, header: &[u8], body: &mut [u8], rng: &mut dyn Rng) -> Chain;

    /// Restores the body. Returns whether it is as it was written.
    #[must_use]
    fn open(&self, number: u64, header: &[u8], body: &mut [u8], tag: &Chain) -> bool;

    /// Whether a tag fits some bytes.
    fn fits(&self, bytes: &[u8], tag: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(&self.tag(bytes), tag).is_ok()
    }
}

/// Encrypts entries. Without the key no entry can be forged.
pub struct SealProof {
    tags: hmac::Key,
    bodies: Aead,
}

impl Proof for SealProof {
    type Key = Secret;

    fn new(key: &Secret, id: &Id) -> Self {
        let tags = key.derive(&[b"tags", id]);
        let tags = hmac::Key::new(hmac::HMAC_SHA256, tags.bytes());
        Self { tags, bodies: Aead::new(&key.derive(&[b"bodies", id])) }
    }

    fn tag(&self, bytes: &[u8]) -> Tag {
        *hmac::sign(&self.tags, bytes).as_ref().first_chunk().expect("32 bytes")
    }

    fn seal(&self, number: u64, header: &[u8], body: &mut [u8], rng: &mut dyn Rng) -> Chain {
        let mut chain = Chain::default();
        // Drawn when the body is final: a copy of this process may write another body.
        let salt = rng.salt();
        let tag = salt.put(&mut chain);
        self.bodies.seal_in_place(Nonce::new(number, salt), proved(header), body, tag);
        chain
    }

    fn open(&self, number: u64, header: &[u8], body: &mut [u8], chain: &Chain) -> bool {
        let (salt, tag) = Salt::split(chain);
        self.bodies.open_in_place(Nonce::new(number, salt), proved(header), body, tag).is_ok()
    }
}

/// The part of a header that is bound to the body: its tag.
fn proved(header: &[u8]) -> &[u8] {
    header.last_chunk::<TAG_LEN>().expect("a header ends with its tag")
}

/// Hashes entries, which stay readable. The file's id distinguishes them from entries of an older
/// file at the same place on the disk.
pub struct HashProof {
    id: Id,
}

impl HashProof {
    fn hash<const LEN: usize>(&self, parts: [&[u8]; 2]) -> [u8; LEN] {
        let mut hash = Sha256::new_with_prefix(self.id);
        for part in parts {
            hash.update(part);
        }
        *hash.finalize().first_chunk().expect("32 bytes")
    }
}

impl Proof for HashProof {
    type Key = ();

    fn new((): &(), id: &[u8; ID_LEN]) -> Self {
        Self { id: *id }
    }

    fn tag(&self, bytes: &[u8]) -> Tag {
        self.hash([b"tag", bytes])
    }

    fn seal(&self, _number: u64, header: &[u8], body: &mut [u8], _rng: &mut dyn Rng) -> Chain {
        self.hash([header, body])
    }

    fn open(&self, _number: u64, header: &[u8], body: &mut [u8], tag: &Chain) -> bool {
        self.hash([header, body]) == *tag
    }
}
