//! The transport seal, the outer layer of encryption of a slot, which the enclave applies and
//! removes.
//!
//! Every version of a node has its own key, derived from the node, its epoch and the round's random
//! attempt number. So a slot opens only in its place and version, no metadata is stored for that,
//! and a repeated round reuses no nonce.
//!
//! A part of a slot opens in the version of the node that it was sealed for, and in no other:
//!
//! ```
//! use traceless_cloud::geometry::{Node, TAG_LEN};
//! use traceless_cloud::kernel::Choice;
//! use traceless_cloud::transport_seal::{TransportKeys, Version};
//! use traceless_core::rng::System;
//! use traceless_core::seal::Secret;
//!
//! let keys = TransportKeys::new(&Secret::random(&mut System), Choice::Benes);
//! let version = Version { node: Node(5), epoch: 3, attempt: 99, carried: false };
//! let (slot, part) = (7, 0);
//! let (mut sealed, mut opened) = ([0; 64 + TAG_LEN], [0; 64]);
//! keys.seal(version).seal((slot, part), &[1; 64], &mut sealed);
//!
//! let older = Version { epoch: 2, ..version };
//! assert!(keys.seal(older).open((slot, part), &sealed, &mut opened).is_err());
//! assert!(keys.seal(version).open((slot, part), &sealed, &mut opened).is_ok());
//! assert_eq!(opened, [1; 64]);
//! ```

use crate::geometry::{Geometry, Node, PART_LEN, PART_PIECES, PIECE_LEN};
use crate::kernel::Choice;
use sha2::{Digest, Sha256};
use traceless_core::seal::{Aead, Forgery, Nonce, Prf, Sealer, Secret};

/// The start of a key stream: the paper's random vector, here derived from version and slot.
pub type Vector = [u8; PIECE_LEN];

/// One version of a node, or of the rows that are carried into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    /// The node.
    pub node: Node,
    /// How many rounds passed through the node before.
    pub epoch: u64,
    /// The attempt number of the round that wrote it; 0 if the node was never written.
    pub attempt: u64,
    /// Whether this is the version of rows that are carried into the node.
    pub carried: bool,
}

impl Version {
    /// Whether it was ever written. An unwritten version holds zeros and is not opened.
    pub fn is_written(&self) -> bool {
        self.attempt != 0
    }
}

/// The keys of all versions.
pub struct TransportKeys {
    choice: Choice,
    /// Derive the two halves of a version's key.
    halves: [Prf; 2],
    stream: Stream,
}

impl TransportKeys {
    /// Derives the keys from one that gateway and enclave share.
    pub fn new(key: &Secret, choice: Choice) -> Self {
        let half = |name: &[u8]| Prf::new(&key.derive(&[b"version", name]));
        let stream = Stream::new(&key.derive(&[b"stream"]));
        Self { choice, halves: [half(b"low"), half(b"high")], stream }
    }

    /// The key stream of the paper's kernel.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The seal of a written version.
    pub fn seal(&self, version: Version) -> SlotSeal<'_> {
        assert!(version.is_written(), "only what was written has a key");
        let place = u64::from(version.node.0) << 1 | u64::from(version.carried);
        // Epochs beyond 2^31 share this number with earlier ones; the attempt still distinguishes
        // them.
        let place = place << 31 | version.epoch & 0x7fff_ffff;
        let input = u128::from(place) << 64 | u128::from(version.attempt);
        let mut key = [0; 32];
        for (half, prf) in key.as_chunks_mut::<16>().0.iter_mut().zip(&self.halves) {
            *half = prf.at(input).to_le_bytes();
        }
        let key = Secret::from_bytes(key);
        let vectors = (self.choice == Choice::Paper).then(|| Prf::new(&key.derive(&[b"vector"])));
        SlotSeal { node: version.node, aead: Aead::new(&key), vectors, keys: self }
    }
}

/// Seals and opens the slots of one version.
pub struct SlotSeal<'a> {
    node: Node,
    aead: Aead,
    /// `Some` with the paper's cipher.
    vectors: Option<Prf>,
    keys: &'a TransportKeys,
}

impl SlotSeal<'_> {
    /// The node.
    pub fn node(&self) -> Node {
        self.node
    }

    /// Seals a part of a slot into `sealed`, which is longer by a tag.
    pub fn seal(&self, (slot, part): (u32, usize), plain: &[u8], sealed: &mut [u8]) {
        let (body, tag) = sealed.split_at_mut(plain.len());
        if self.vectors.is_some() {
            body.copy_from_slice(plain);
            self.stream(slot, part, body);
            self.tag((slot, part), body, tag);
        } else {
            self.aead.seal(nonce(slot, part), &[], plain, body, tag);
        }
    }

    /// Seals a whole slot, part by part.
    pub fn seal_slot(&self, geometry: &Geometry, slot: u32, plain: &[u8], sealed: &mut [u8]) {
        for (part, plain) in plain.chunks(PART_LEN).enumerate() {
            let sealed = &mut sealed[geometry.part_at(part)..geometry.part_end(part)];
            self.seal((slot, part), plain, sealed);
        }
    }

    /// Opens a part. On failure the content of `plain` is unusable.
    pub fn open(
        &self,
        (slot, part): (u32, usize),
        sealed: &[u8],
        plain: &mut [u8],
    ) -> Result<(), Forgery> {
        if self.vectors.is_some() {
            self.check((slot, part), sealed, plain)?;
            self.stream(slot, part, plain);
            return Ok(());
        }
        let (body, tag) = sealed.split_at(plain.len());
        self.aead.open(nonce(slot, part), &[], body, tag, plain)
    }

    /// With the paper's cipher: verifies a part, and copies it without removing its stream.
    pub fn check(
        &self,
        (slot, part): (u32, usize),
        sealed: &[u8],
        body: &mut [u8],
    ) -> Result<(), Forgery> {
        let (copied, tag) = sealed.split_at(body.len());
        body.copy_from_slice(copied);
        self.aead.open(nonce(slot, part), body, &[], tag, &mut [])
    }

    /// With the paper's cipher: the tag of a part with its stream applied.
    pub fn tag(&self, (slot, part): (u32, usize), body: &[u8], tag: &mut [u8]) {
        self.aead.seal(nonce(slot, part), body, &[], &mut [], tag);
    }

    /// With the paper's cipher: the vector of a slot.
    pub fn vector(&self, slot: u32) -> Vector {
        let vectors = self.vectors.as_ref().expect("the paper's cipher");
        let mut vector = [0; PIECE_LEN];
        for (i, half) in vector.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            *half = vectors.at(u128::from(slot) << 1 | i as u128).to_le_bytes();
        }
        vector
    }

    fn stream(&self, slot: u32, part: usize, body: &mut [u8]) {
        let vector = self.vector(slot);
        let first = part * PART_PIECES;
        for (piece, word) in body.as_chunks_mut().0.iter_mut().enumerate() {
            self.keys.stream.apply(&vector, first + piece, word);
        }
    }
}

fn nonce(slot: u32, part: usize) -> Nonce {
    Nonce::of_fresh_key(u64::from(slot) << 16 | part as u64)
}

/// The paper's key stream, extended by key and piece: SHA-256(key | vector | piece).
pub struct Stream(Secret);

impl Stream {
    /// The stream under its own key.
    pub fn new(key: &Secret) -> Self {
        Self(key.clone())
    }

    /// Applies or removes the stream of a piece.
    pub fn apply(&self, vector: &Vector, piece: usize, word: &mut [u8; PIECE_LEN]) {
        let mut hash = Sha256::new();
        hash.update(self.0.bytes());
        hash.update(vector);
        hash.update((piece as u64).to_le_bytes());
        for (byte, key) in word.iter_mut().zip(hash.finalize()) {
            *byte ^= key;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::TAG_LEN;
    use alloc::vec::Vec;

    fn version() -> Version {
        Version { node: Node(5), epoch: 3, attempt: 99, carried: false }
    }

    #[test]
    fn a_slot_opens_in_its_place_and_version_only() {
        for choice in [Choice::Benes, Choice::Paper] {
            let keys = TransportKeys::new(&Secret::from_bytes([1; 32]), choice);
            let plain: Vec<u8> = (0..96).collect();
            let mut sealed = [0; 96 + TAG_LEN];
            keys.seal(version()).seal((7, 1), &plain, &mut sealed);
            let opens = |version, slot, part| {
                let mut out = [0; 96];
                keys.seal(version).open((slot, part), &sealed, &mut out).map(|()| out)
            };
            assert_eq!(opens(version(), 7, 1).unwrap()[..], plain);
            assert!(opens(version(), 7, 0).is_err() && opens(version(), 6, 1).is_err());
            for other in [
                Version { node: Node(6), ..version() },
                Version { epoch: 4, ..version() },
                Version { attempt: 98, ..version() },
                Version { carried: true, ..version() },
            ] {
                assert!(opens(other, 7, 1).is_err(), "{other:?}");
            }
            for byte in [0, 50, 95, 96, 111] {
                let mut changed = sealed;
                changed[byte] ^= 1;
                let mut out = [0; 96];
                assert!(keys.seal(version()).open((7, 1), &changed, &mut out).is_err());
            }
        }
    }

    #[test]
    fn a_verified_part_keeps_its_key_stream() {
        let keys = TransportKeys::new(&Secret::from_bytes([1; 32]), Choice::Paper);
        let seal = keys.seal(version());
        let (plain, mut sealed, mut body) = ([9; 64], [0; 64 + TAG_LEN], [0; 64]);
        seal.seal((2, 0), &plain, &mut sealed);
        seal.check((2, 0), &sealed, &mut body).unwrap();
        assert_eq!(body, sealed[..64]);
        let mut tag = [0; TAG_LEN];
        seal.tag((2, 0), &body, &mut tag);
        assert_eq!(tag, sealed[64..]);
        for (piece, word) in body.as_chunks_mut().0.iter_mut().enumerate() {
            keys.stream().apply(&seal.vector(2), piece, word);
        }
        assert_eq!(body, plain);
        // No two vectors share a stream, nor do two pieces of one vector.
        assert_ne!(seal.vector(2), seal.vector(3));
        assert_ne!(sealed[..32], sealed[32..64]);
    }
}
