//! `ChaCha20` with HMAC-SHA-256, as the paging paper seals pages: for comparison only.

use super::{Forgery, Nonce, Sealer, Secret, TAG_LEN};
use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// `ChaCha20` (RFC 8439), and HMAC-SHA-256 over the ciphertext, truncated from 32 to 16 bytes (RFC
/// 4868): two passes, two keys.
pub struct ChaChaHmac {
    cipher: Secret,
    mac: Hmac<Sha256>,
    #[cfg(feature = "suite")]
    name: u64,
}

impl ChaChaHmac {
    /// The cipher under two keys derived from `key`.
    pub fn new(key: &Secret) -> Self {
        let mac = key.derive(&[b"hmac-sha-256"]);
        Self {
            cipher: key.derive(&[b"chacha20"]),
            mac: <Hmac<Sha256> as KeyInit>::new_from_slice(mac.bytes())
                .expect("HMAC takes keys of any length"),
            #[cfg(feature = "suite")]
            name: super::record::name_of(key),
        }
    }

    fn apply_keystream(&self, nonce: Nonce, body: &mut [u8]) {
        let nonce = nonce.short();
        ChaCha20::new(self.cipher.bytes().into(), (&nonce).into()).apply_keystream(body);
    }

    /// Each length precedes its field, so that no two messages have the same encoding.
    fn authenticated(&self, nonce: Nonce, bound: &[u8], sealed: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(&nonce.version.to_be_bytes());
        mac.update(&nonce.salt_bytes());
        mac.update(&(bound.len() as u64).to_be_bytes());
        mac.update(bound);
        mac.update(sealed);
        mac
    }
}

impl Sealer for ChaChaHmac {
    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn seal_in_place(&self, nonce: Nonce, bound: &[u8], body: &mut [u8], tag: &mut [u8]) {
        self.apply_keystream(nonce, body);
        let made = self.authenticated(nonce, bound, body).finalize().into_bytes();
        tag.copy_from_slice(&made[..TAG_LEN]);
        #[cfg(feature = "suite")]
        super::record::note(self.name, nonce, tag);
    }

    fn open_in_place(
        &self,
        nonce: Nonce,
        bound: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), Forgery> {
        assert_eq!(tag.len(), TAG_LEN, "lengths agree");
        // Compares in constant time.
        let fits = self.authenticated(nonce, bound, body).verify_truncated_left(tag);
        fits.map_err(|_| Forgery)?;
        self.apply_keystream(nonce, body);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonce(version: u64) -> Nonce {
        Nonce::new(version, crate::rng::Salt(5))
    }

    fn sealer() -> ChaChaHmac {
        ChaChaHmac::new(&Secret::from_bytes([6; 32]))
    }

    /// Vectors from Python's `cryptography` and `hmac`, with the two derived keys.
    #[test]
    fn sealed_bytes_match_another_implementation() {
        let (mut body, mut tag) = (*b"sixteen bytes or", [0; TAG_LEN]);
        sealer().seal_in_place(nonce(3), b"page 7", &mut body, &mut tag);
        assert_eq!(body, SEALED);
        assert_eq!(tag, TAG);
    }

    const SEALED: [u8; 16] = [
        0x8b, 0x26, 0xbf, 0xcd, 0xfa, 0xc8, 0x54, 0x9a, 0xea, 0xfb, 0x9c, 0xa6, 0xa0, 0xe5, 0x8a,
        0x2b,
    ];
    const TAG: [u8; TAG_LEN] = [
        0x59, 0xec, 0x11, 0xa4, 0xa7, 0xba, 0xf2, 0xe6, 0x4b, 0xab, 0x52, 0x1f, 0x83, 0xd9, 0xfd,
        0xe9,
    ];

    #[test]
    fn what_was_changed_is_refused() {
        let (body, bound) = ([9; 100], [1, 2, 3]);
        let (mut sealed, mut tag) = (body, [0; TAG_LEN]);
        sealer().seal_in_place(nonce(5), &bound, &mut sealed, &mut tag);
        let open = |version, bound: &[u8], at: usize| {
            let (mut sealed, mut tag) = (sealed, tag);
            if at < 100 {
                sealed[at] ^= 1;
            } else if at < 100 + TAG_LEN {
                tag[at - 100] ^= 1;
            }
            let opened = sealer().open_in_place(nonce(version), bound, &mut sealed, &tag);
            opened.map(|()| assert_eq!(sealed, body))
        };
        assert!(open(5, &bound, usize::MAX).is_ok());
        assert!((0..100 + TAG_LEN).all(|at| open(5, &bound, at) == Err(Forgery)));
        assert_eq!(open(4, &bound, usize::MAX), Err(Forgery));
        assert_eq!(open(5, &bound[..2], usize::MAX), Err(Forgery));
    }

    #[test]
    fn a_tag_is_half_a_hash() {
        let sealer = sealer();
        assert_eq!((sealer.tag_len(), sealer.tag_is_public()), (16, false));
    }
}
