//! AEGIS-256: libaegis with `std`, AES rounds in Rust without; both make the same bytes.
//!
//! As strong as AES-256-GCM (draft-irtf-cfrg-aegis-aead), and for a bucket of a few blocks it takes
//! about half the time: it has no key schedule and no second pass.

use super::{Forgery, Nonce, Sealer, Secret, TAG_LEN};

/// One AEGIS-256 key.
pub struct Aegis {
    key: Secret,
    #[cfg(feature = "suite")]
    name: u64,
}

impl Aegis {
    /// The cipher under `key`.
    pub fn new(key: &Secret) -> Self {
        Self {
            key: key.clone(),
            #[cfg(feature = "suite")]
            name: super::record::name_of(key),
        }
    }
}

impl Sealer for Aegis {
    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn seal_in_place(&self, nonce: Nonce, bound: &[u8], body: &mut [u8], tag: &mut [u8]) {
        tag.copy_from_slice(&imp::encrypt(self.key.bytes(), &nonce.long(), bound, body));
        #[cfg(feature = "suite")]
        super::wrong_machine::spoil::<Self>(tag);
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
        let tag = tag.try_into().expect("lengths agree");
        imp::decrypt(self.key.bytes(), &nonce.long(), bound, body, tag)?;
        #[cfg(feature = "suite")]
        super::wrong_machine::spoil_opened::<Self>(body);
        Ok(())
    }
}

#[cfg(feature = "std")]
mod imp {
    use super::{Forgery, TAG_LEN};
    use aegis::aegis256::Aegis256;

    #[inline]
    pub fn encrypt(
        key: &[u8; 32],
        nonce: &[u8; 32],
        bound: &[u8],
        body: &mut [u8],
    ) -> [u8; TAG_LEN] {
        Aegis256::<TAG_LEN>::new(key, nonce).encrypt_in_place(body, bound)
    }

    #[inline]
    pub fn decrypt(
        key: &[u8; 32],
        nonce: &[u8; 32],
        bound: &[u8],
        body: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Forgery> {
        let opened = Aegis256::<TAG_LEN>::new(key, nonce).decrypt_in_place(body, tag, bound);
        opened.map_err(|_| Forgery)
    }
}

#[cfg(any(test, not(feature = "std")))]
#[path = "aegis_portable.rs"]
mod portable;

#[cfg(not(feature = "std"))]
use portable as imp;

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::rng::Salt;
    use alloc::vec::Vec;

    fn nonce(version: u64) -> [u8; 32] {
        Nonce::new(version, Salt(5)).long()
    }

    /// The first test vector of the draft.
    #[test]
    fn is_aegis() {
        let (mut key, mut nonce) = ([0; 32], [0; 32]);
        (key[0], key[1], nonce[0], nonce[2]) = (0x10, 0x01, 0x10, 0x02);
        let (mut fast, mut slow) = ([0; 16], [0; 16]);
        let tags = [
            imp::encrypt(&key, &nonce, &[], &mut fast),
            portable::encrypt(&key, &nonce, &[], &mut slow),
        ];
        let ciphertext: u128 = 0x754f_c3d8_c973_246d_cc6d_7414_12a4_b236;
        let tag: u128 = 0x3fe9_1994_768b_332e_d7f5_70a1_9ec5_896e;
        assert_eq!([fast, slow], [ciphertext.to_be_bytes(); 2]);
        assert_eq!(tags, [tag.to_be_bytes(); 2]);
    }

    #[test]
    fn both_implementations_agree_and_refuse_changes() {
        let (key, at) = ([7; 32], nonce(3));
        for len in [0, 1, 15, 16, 17, 64, 4096] {
            for bound in [&b""[..], b"place", &[9; 40]] {
                let plain: Vec<u8> = (0..len).map(|i| i as u8).collect();
                let (mut a, mut b) = (plain.clone(), plain.clone());
                let tag = imp::encrypt(&key, &at, bound, &mut a);
                assert_eq!(tag, portable::encrypt(&key, &at, bound, &mut b));
                assert_eq!(a, b);
                let mut wrong = tag;
                wrong[15] ^= 1;
                for open in [imp::decrypt, portable::decrypt] {
                    let opened = |nonce, bound: &[u8], tag| {
                        let mut body = a.clone();
                        open(&key, &nonce, bound, &mut body, &tag).map(|()| body)
                    };
                    assert_eq!(opened(at, bound, tag), Ok(plain.clone()));
                    assert_eq!(opened(nonce(4), bound, tag), Err(Forgery));
                    assert_eq!(opened(at, b"Place", tag), Err(Forgery));
                    assert_eq!(opened(at, bound, wrong), Err(Forgery));
                }
            }
        }
    }
}
