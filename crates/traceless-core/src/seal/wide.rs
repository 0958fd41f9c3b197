//! AEGIS-256X2 and AEGIS-256X4: two and four states of AEGIS-256 side by side, for bodies of a page
//! and more.
//!
//! Ciphers of the same draft as AEGIS-256, but incompatible with it. They need libaegis, which
//! selects the processor's widest instructions.

use super::{Forgery, Nonce, Sealer, Secret, TAG_LEN};
use aegis::aegis256x2::Aegis256X2;
use aegis::aegis256x4::Aegis256X4;

/// A sealer over one of the wide ciphers.
macro_rules! wide {
    ($name:ident, $cipher:ident, $doc:literal) => {
        #[doc = $doc]
        pub struct $name {
            key: Secret,
            #[cfg(feature = "suite")]
            name: u64,
        }

        impl $name {
            /// The cipher under `key`.
            pub fn new(key: &Secret) -> Self {
                Self {
                    key: key.clone(),
                    #[cfg(feature = "suite")]
                    name: super::record::name_of(key),
                }
            }

            fn cipher(&self, nonce: Nonce) -> $cipher<TAG_LEN> {
                $cipher::new(self.key.bytes(), &nonce.long())
            }
        }

        impl Sealer for $name {
            fn tag_len(&self) -> usize {
                TAG_LEN
            }

            fn seal_in_place(&self, nonce: Nonce, bound: &[u8], body: &mut [u8], tag: &mut [u8]) {
                tag.copy_from_slice(&self.cipher(nonce).encrypt_in_place(body, bound));
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
                let opened = self.cipher(nonce).decrypt_in_place(body, tag, bound);
                opened.map_err(|_| Forgery)?;
                #[cfg(feature = "suite")]
                super::wrong_machine::spoil_opened::<Self>(body);
                Ok(())
            }
        }
    };
}

wide!(DoubleAegis, Aegis256X2, "One AEGIS-256X2 key.");
wide!(WideAegis, Aegis256X4, "One AEGIS-256X4 key.");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Salt;

    fn refuses_changes(cipher: &dyn Sealer) {
        let nonce = |version| Nonce::new(version, Salt(5));
        for len in [0, 1, 255, 4096] {
            let plain: alloc::vec::Vec<u8> = (0..len).map(|i| i as u8).collect();
            let (mut sealed, mut tag) = (plain.clone(), [0; TAG_LEN]);
            cipher.seal_in_place(nonce(3), b"place", &mut sealed, &mut tag);
            let open = |nonce, bound: &[u8], tag: &[u8]| {
                let mut out = sealed.clone();
                cipher.open_in_place(nonce, bound, &mut out, tag).map(|()| out)
            };
            assert_eq!(open(nonce(3), b"place", &tag), Ok(plain.clone()));
            assert_eq!(open(nonce(4), b"place", &tag), Err(Forgery));
            assert_eq!(open(Nonce::new(3, Salt(6)), b"place", &tag), Err(Forgery));
            assert_eq!(open(nonce(3), b"Place", &tag), Err(Forgery));
            let mut wrong = tag;
            wrong[0] ^= 1;
            assert_eq!(open(nonce(3), b"place", &wrong), Err(Forgery));
            if let Some(last) = sealed.last_mut() {
                *last ^= 1;
                let mut out = sealed.clone();
                assert_eq!(cipher.open_in_place(nonce(3), b"place", &mut out, &tag), Err(Forgery));
            }
        }
    }

    /// The second test vectors of the draft, begin and end of their contents.
    #[test]
    fn both_are_ciphers_of_the_draft() {
        let (key, nonce) =
            ([0, 16].map(|first| core::array::from_fn(|at| first + at as u8))).into();
        let (bound, plain) = ([1, 2, 3, 4].repeat(2), [4, 5, 6, 7].repeat(30));
        let (mut double, mut wide) = (plain.clone(), plain);
        let tags = [
            Aegis256X2::<TAG_LEN>::new(&key, &nonce).encrypt_in_place(&mut double, &bound),
            Aegis256X4::<TAG_LEN>::new(&key, &nonce).encrypt_in_place(&mut wide, &bound),
        ];
        let expected = [
            (
                0x635d_3918_2852_0bf1_5127_63f0_c8f5_cdbd,
                0x7212_0c2e_a823_6180_d678_5900_1f47_2907,
                0xe638_5cd6_54a1_9f48_1cba_3b8f_2591_0b42,
            ),
            (
                0xb63b_611b_1397_5e2f_3dc3_cb6c_2397_bfcd,
                0xbfc2_085b_7e80_17da_99b0_b6d6_46ae_4d01,
                0x8138_08b8_1748_a490_dd65_6465_fed6_1f09,
            ),
        ];
        for ((body, tag), expected) in [double, wide].iter().zip(tags).zip(expected) {
            let [begin, end] = [body.first_chunk(), body.last_chunk()].map(Option::unwrap);
            let number = |bytes: &[u8; 16]| u128::from_be_bytes(*bytes);
            assert_eq!((number(&tag), number(begin), number(end)), expected);
        }
    }

    #[test]
    fn opens_what_it_sealed_and_refuses_changes() {
        let key = Secret::from_bytes([7; 32]);
        refuses_changes(&DoubleAegis::new(&key));
        refuses_changes(&WideAegis::new(&key));
    }
}
