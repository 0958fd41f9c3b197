//! AES-256-GCM: aws-lc with `std`, `RustCrypto` without, byte for byte the same.

use super::{Sealer, Secret};

/// Bytes of a tag.
pub const TAG_LEN: usize = 16;

/// The tag does not fit the bytes, the place or the version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forged;

/// One AES-256-GCM key. The nonce is the version, so each version seals one content only.
pub struct Aead {
    key: imp::Key,
    #[cfg(feature = "suite")]
    name: u64,
}

impl Aead {
    /// The cipher under `key`.
    pub fn new(key: &Secret) -> Self {
        Self {
            key: imp::Key::new(key),
            #[cfg(feature = "suite")]
            name: super::record::name_of(key),
        }
    }
}

impl Sealer for Aead {
    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn seal(&self, version: u64, bound: &[u8], plain: &[u8], sealed: &mut [u8], tag: &mut [u8]) {
        assert!(plain.len() == sealed.len() && tag.len() == TAG_LEN, "lengths agree");
        self.key.seal(nonce(version), bound, plain, sealed, tag);
        #[cfg(feature = "suite")]
        super::record::note(self.name, version, tag);
    }

    fn seal_in_place(&self, version: u64, bound: &[u8], body: &mut [u8], tag: &mut [u8]) {
        self.key.seal_in_place(nonce(version), bound, body, tag);
        #[cfg(feature = "suite")]
        super::record::note(self.name, version, tag);
    }

    fn open_in_place(
        &self,
        version: u64,
        bound: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), Forged> {
        self.key.open_in_place(nonce(version), bound, body, tag)
    }

    fn open(
        &self,
        version: u64,
        bound: &[u8],
        sealed: &[u8],
        tag: &[u8],
        plain: &mut [u8],
    ) -> Result<(), Forged> {
        assert!(plain.len() == sealed.len() && tag.len() == TAG_LEN, "lengths agree");
        self.key.open(nonce(version), bound, sealed, tag, plain)
    }
}

fn nonce(version: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&version.to_be_bytes());
    nonce
}

#[cfg(feature = "std")]
mod imp {
    use super::{Forged, Secret};
    use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

    pub struct Key(LessSafeKey);

    impl Key {
        pub fn new(key: &Secret) -> Self {
            let key = UnboundKey::new(&AES_256_GCM, key.bytes()).expect("a key of 32 bytes");
            Self(LessSafeKey::new(key))
        }

        pub fn seal(&self, n: [u8; 12], aad: &[u8], plain: &[u8], out: &mut [u8], tag: &mut [u8]) {
            let nonce = Nonce::assume_unique_for_key(n);
            self.0
                .seal_out_of_place_scatter(nonce, Aad::from(aad), plain, out, &[], tag)
                .expect("lengths were checked");
        }

        pub fn seal_in_place(&self, n: [u8; 12], aad: &[u8], body: &mut [u8], tag: &mut [u8]) {
            let nonce = Nonce::assume_unique_for_key(n);
            let made = self
                .0
                .seal_in_place_separate_tag(nonce, Aad::from(aad), body)
                .expect("a body is far shorter than the cipher's limit");
            tag.copy_from_slice(made.as_ref());
        }

        pub fn open_in_place(
            &self,
            n: [u8; 12],
            aad: &[u8],
            body: &mut [u8],
            tag: &[u8],
        ) -> Result<(), Forged> {
            let nonce = Nonce::assume_unique_for_key(n);
            let opened = self.0.open_in_place_separate_tag(nonce, Aad::from(aad), tag, body);
            opened.map(|_| ()).map_err(|_| Forged)
        }

        pub fn open(
            &self,
            n: [u8; 12],
            aad: &[u8],
            sealed: &[u8],
            tag: &[u8],
            plain: &mut [u8],
        ) -> Result<(), Forged> {
            let nonce = Nonce::assume_unique_for_key(n);
            self.0
                .open_separate_gather(nonce, Aad::from(aad), sealed, tag, plain)
                .map_err(|_| Forged)
        }
    }
}

#[cfg(any(test, not(feature = "std")))]
#[path = "aead_portable.rs"]
mod portable;

#[cfg(not(feature = "std"))]
use portable as imp;

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    #[test]
    fn both_implementations_agree_and_refuse_changes() {
        let key = Secret::from_bytes([7; 32]);
        let (fast, slow) = (imp::Key::new(&key), portable::Key::new(&key));
        for len in [0, 1, 8, 64, 4096] {
            let plain: alloc::vec::Vec<u8> = (0..len).map(|i| i as u8).collect();
            let (mut a, mut b) = (plain.clone(), plain.clone());
            let (mut tag_a, mut tag_b) = ([0; TAG_LEN], [0; TAG_LEN]);
            fast.seal(nonce(3), b"place", &plain, &mut a, &mut tag_a);
            slow.seal_in_place(nonce(3), b"place", &mut b, &mut tag_b);
            assert_eq!((&a, tag_a), (&b, tag_b));
            let mut c = plain.clone();
            slow.seal(nonce(3), b"place", &plain, &mut c, &mut tag_b);
            assert_eq!((&a, tag_a), (&c, tag_b));
            c.copy_from_slice(&plain);
            fast.seal_in_place(nonce(3), b"place", &mut c, &mut tag_b);
            assert_eq!((&a, tag_a), (&c, tag_b));
            let mut out = plain.clone();
            for key in [
                &|n, aad: &[u8], t: &[u8], o: &mut [u8]| {
                    o.copy_from_slice(&a);
                    fast.open_in_place(n, aad, o, t)
                },
                &|n, aad: &[u8], t: &[u8], o: &mut [u8]| {
                    o.copy_from_slice(&a);
                    slow.open_in_place(n, aad, o, t)
                },
                &|n, aad: &[u8], t: &[u8], o: &mut [u8]| fast.open(n, aad, &a, t, o),
                &|n, aad: &[u8], t: &[u8], o: &mut [u8]| slow.open(n, aad, &a, t, o),
            ]
                as [&dyn Fn([u8; 12], &[u8], &[u8], &mut [u8]) -> Result<(), Forged>; 4]
            {
                assert_eq!(key(nonce(3), b"place", &tag_a, &mut out), Ok(()));
                assert_eq!(out, plain);
                assert_eq!(key(nonce(4), b"place", &tag_a, &mut out), Err(Forged));
                assert_eq!(key(nonce(3), b"Place", &tag_a, &mut out), Err(Forged));
                let mut wrong = tag_a;
                wrong[15] ^= 1;
                assert_eq!(key(nonce(3), b"place", &wrong, &mut out), Err(Forged));
            }
        }
    }
}
