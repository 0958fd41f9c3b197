//! Encryption without a tag, for contents that are authenticated elsewhere.

use super::{Forgery, Nonce, Sealer, Secret};
use aes::Aes256;
use aes::cipher::{InnerIvInit, KeyInit, StreamCipher};
use ctr::{Ctr128BE, CtrCore};

/// AES-256 in counter mode, one stream a nonce. An adversary that flips bits of the ciphertext
/// flips the same bits of the plaintext: a tree sealed with it needs
/// `scheme::pmmac::Pmmac` of the ORAM library above.
pub struct MaskSeal(Aes256);

impl MaskSeal {
    /// The cipher under `key`.
    pub fn new(key: &Secret) -> Self {
        Self(Aes256::new(key.bytes().into()))
    }

    fn apply(&self, nonce: Nonce, bytes: &mut [u8]) {
        let mut first = [0; 16];
        first[..12].copy_from_slice(&nonce.short());
        let stream = CtrCore::inner_iv_init(&self.0, &first.into());
        Ctr128BE::from_core(stream).apply_keystream(bytes);
    }
}

impl Sealer for MaskSeal {
    fn tag_len(&self) -> usize {
        0
    }

    fn seal_in_place(&self, nonce: Nonce, _: &[u8], body: &mut [u8], _: &mut [u8]) {
        self.apply(nonce, body);
    }

    fn open_in_place(
        &self,
        nonce: Nonce,
        _: &[u8],
        body: &mut [u8],
        _: &[u8],
    ) -> Result<(), Forgery> {
        self.apply(nonce, body);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_a_stream_of_its_own() {
        let cipher = MaskSeal::new(&Secret::from_bytes([7; 32]));
        let sealed = |version| {
            let nonce = Nonce::of_fresh_key(version);
            let mut body = [5; 100];
            cipher.seal_in_place(nonce, &[], &mut body, &mut []);
            let mut other = [0; 100];
            cipher.seal(nonce, &[], &[5; 100], &mut other, &mut []);
            assert_eq!(body, other);
            cipher.open(nonce, &[], &body, &[], &mut other).unwrap();
            assert_eq!(other, [5; 100]);
            body
        };
        assert_ne!(sealed(1)[..50], sealed(2)[..50]);
        // No stream repeats another one a few blocks later.
        assert_ne!(sealed(1)[16..32], sealed(2)[..16]);
    }

    #[test]
    fn there_is_no_tag() {
        let sealer = MaskSeal::new(&Secret::from_bytes([7; 32]));
        assert_eq!((sealer.tag_len(), sealer.tag_is_public()), (0, false));
    }
}
