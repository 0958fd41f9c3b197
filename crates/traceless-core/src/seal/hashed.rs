//! Encryption and a hash: the sealer of a Merkle tree's buckets.

use super::{Forgery, MaskSeal, Nonce, Sealer, Secret};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Bytes of a hash.
const HASH_LEN: usize = 32;

/// AES-256 in counter mode, with SHA-256 of version and ciphertext in place of a tag.
pub struct HashSeal(MaskSeal);

impl HashSeal {
    /// The cipher under `key`.
    pub fn new(key: &Secret) -> Self {
        Self(MaskSeal::new(key))
    }
}

impl Sealer for HashSeal {
    fn tag_len(&self) -> usize {
        HASH_LEN
    }

    fn tag_is_public(&self) -> bool {
        true
    }

    fn seal_in_place(&self, nonce: Nonce, bound: &[u8], body: &mut [u8], tag: &mut [u8]) {
        self.0.seal_in_place(nonce, bound, body, &mut []);
        tag.copy_from_slice(&hash(nonce, bound, body));
    }

    fn open_in_place(
        &self,
        nonce: Nonce,
        bound: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), Forgery> {
        if bool::from(hash(nonce, bound, body).ct_ne(tag)) {
            return Err(Forgery);
        }
        self.0.open_in_place(nonce, bound, body, &[])
    }
}

fn hash(nonce: Nonce, bound: &[u8], sealed: &[u8]) -> [u8; HASH_LEN] {
    let mut hash = Sha256::new();
    hash.update(nonce.version.to_le_bytes());
    hash.update(nonce.salt_bytes());
    hash.update((bound.len() as u64).to_le_bytes());
    hash.update(bound);
    hash.update(sealed);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Salt;

    fn nonce(version: u64) -> Nonce {
        Nonce::new(version, Salt(5))
    }

    #[test]
    fn refuses_changes() {
        let cipher = HashSeal::new(&Secret::from_bytes([7; 32]));
        let (mut sealed, mut tag) = ([0; 50], [0; HASH_LEN]);
        cipher.seal(nonce(3), b"place", &[1; 50], &mut sealed, &mut tag);
        let opened = |version, bound: &[u8], at: Option<usize>| {
            let (mut body, mut plain) = (sealed, [0; 50]);
            if let Some(at) = at {
                body[at] ^= 1;
            }
            let opened = cipher.open(nonce(version), bound, &body, &tag, &mut plain);
            assert_eq!(cipher.open_in_place(nonce(version), bound, &mut body, &tag), opened);
            opened.map(|()| assert_eq!((body, plain), ([1; 50], [1; 50])))
        };
        assert_eq!(opened(3, b"place", None), Ok(()));
        assert_eq!(opened(4, b"place", None), Err(Forgery));
        assert_eq!(opened(3, b"Place", None), Err(Forgery));
        (0..50).for_each(|at| assert_eq!(opened(3, b"place", Some(at)), Err(Forgery)));
        let mut in_place = [1; 50];
        cipher.seal_in_place(nonce(3), b"place", &mut in_place, &mut tag);
        assert_eq!(in_place, sealed);
    }

    #[test]
    fn a_tag_is_a_hash_that_lies_with_the_node_above() {
        let sealer = HashSeal::new(&Secret::from_bytes([7; 32]));
        assert_eq!((sealer.tag_len(), sealer.tag_is_public()), (32, true));
    }
}
