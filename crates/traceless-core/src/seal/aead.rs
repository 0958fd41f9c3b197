//! AES-256-GCM: aws-lc with `std`, `RustCrypto` without; both make the same bytes.

use super::{Nonce, Sealer, Secret, TAG_LEN};
use alloc::vec::Vec;

/// The tag does not fit the contents, the place or the version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forgery;

/// One AES-256-GCM key. Only the low half of a nonce's version is in the cipher's nonce; the whole
/// version is authenticated.
pub struct Aead {
    key: CipherKey,
    #[cfg(feature = "suite")]
    name: u64,
}

impl Aead {
    /// The cipher under `key`.
    pub fn new(key: &Secret) -> Self {
        Self {
            key: CipherKey::new(key),
            #[cfg(feature = "suite")]
            name: super::record::name_of(key),
        }
    }
}

impl Sealer for Aead {
    fn tag_len(&self) -> usize {
        TAG_LEN
    }

    fn seal(&self, nonce: Nonce, bound: &[u8], plain: &[u8], sealed: &mut [u8], tag: &mut [u8]) {
        assert!(plain.len() == sealed.len() && tag.len() == TAG_LEN, "lengths agree");
        with_version(nonce, bound, |aad| self.key.seal(nonce.short(), aad, plain, sealed, tag));
        #[cfg(feature = "suite")]
        super::wrong_machine::spoil::<Self>(tag);
        #[cfg(feature = "suite")]
        super::record::note(self.name, nonce, tag);
    }

    fn seal_in_place(&self, nonce: Nonce, bound: &[u8], body: &mut [u8], tag: &mut [u8]) {
        with_version(nonce, bound, |aad| self.key.seal_in_place(nonce.short(), aad, body, tag));
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
        with_version(nonce, bound, |aad| self.key.open_in_place(nonce.short(), aad, body, tag))?;
        #[cfg(feature = "suite")]
        super::wrong_machine::spoil_opened::<Self>(body);
        Ok(())
    }

    fn open(
        &self,
        nonce: Nonce,
        bound: &[u8],
        sealed: &[u8],
        tag: &[u8],
        plain: &mut [u8],
    ) -> Result<(), Forgery> {
        assert!(plain.len() == sealed.len() && tag.len() == TAG_LEN, "lengths agree");
        with_version(nonce, bound, |aad| self.key.open(nonce.short(), aad, sealed, tag, plain))?;
        #[cfg(feature = "suite")]
        super::wrong_machine::spoil_opened::<Self>(plain);
        Ok(())
    }
}

/// Bound bytes, besides the version, that need no allocation.
const BOUND_LEN: usize = 56;

/// Passes the version followed by `bound` to `act`: the data that is authenticated.
#[inline]
fn with_version<R>(nonce: Nonce, bound: &[u8], act: impl FnOnce(&[u8]) -> R) -> R {
    let version = nonce.version.to_le_bytes();
    if bound.len() > BOUND_LEN {
        let mut all = Vec::with_capacity(version.len() + bound.len());
        all.extend_from_slice(&version);
        all.extend_from_slice(bound);
        return act(&all);
    }
    let mut all = [0; 8 + BOUND_LEN];
    all[..8].copy_from_slice(&version);
    all[8..8 + bound.len()].copy_from_slice(bound);
    act(&all[..8 + bound.len()])
}

#[cfg(feature = "std")]
mod aws {
    use super::{Forgery, Secret};
    use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

    pub struct AwsKey(LessSafeKey);

    impl AwsKey {
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
        ) -> Result<(), Forgery> {
            let nonce = Nonce::assume_unique_for_key(n);
            let opened = self.0.open_in_place_separate_tag(nonce, Aad::from(aad), tag, body);
            opened.map(|_| ()).map_err(|_| Forgery)
        }

        pub fn open(
            &self,
            n: [u8; 12],
            aad: &[u8],
            sealed: &[u8],
            tag: &[u8],
            plain: &mut [u8],
        ) -> Result<(), Forgery> {
            let nonce = Nonce::assume_unique_for_key(n);
            self.0
                .open_separate_gather(nonce, Aad::from(aad), sealed, tag, plain)
                .map_err(|_| Forgery)
        }
    }
}

#[cfg(feature = "std")]
use aws::AwsKey as CipherKey;

#[cfg(any(test, all(feature = "portable", not(feature = "std"))))]
#[path = "aead_portable.rs"]
mod portable;

#[cfg(all(feature = "portable", not(feature = "std")))]
use portable::PortableKey as CipherKey;

#[cfg(not(any(feature = "std", feature = "portable")))]
compile_error!("AES-256-GCM is in the feature `std`, or without a system in `portable`");

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::rng::Salt;

    fn nonce(version: u64) -> [u8; 12] {
        Nonce::new(version, Salt(5)).short()
    }

    #[test]
    fn a_version_is_authenticated_whole() {
        let aead = Aead::new(&Secret::from_bytes([7; 32]));
        for bound in [&b""[..], b"place", &[9; BOUND_LEN], &[9; BOUND_LEN + 1]] {
            let (mut sealed, mut tag) = ([1; 40], [0; TAG_LEN]);
            aead.seal_in_place(Nonce::new(3, Salt(4)), bound, &mut sealed, &mut tag);
            let opens = |nonce, bound: &[u8]| {
                let mut body = sealed;
                aead.open_in_place(nonce, bound, &mut body, &tag).is_ok_and(|()| body == [1; 40])
            };
            assert!(opens(Nonce::new(3, Salt(4)), bound));
            assert!(!opens(Nonce::new(3 + (1 << 32), Salt(4)), bound));
            assert!(!opens(Nonce::new(3, Salt(5)), bound));
            assert!(!opens(Nonce::new(3, Salt(4)), b"other"));
        }
    }

    #[test]
    fn both_implementations_agree_and_refuse_changes() {
        let key = Secret::from_bytes([7; 32]);
        let (fast, slow) = (CipherKey::new(&key), portable::PortableKey::new(&key));
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
                as [&dyn Fn([u8; 12], &[u8], &[u8], &mut [u8]) -> Result<(), Forgery>; 4]
            {
                assert_eq!(key(nonce(3), b"place", &tag_a, &mut out), Ok(()));
                assert_eq!(out, plain);
                assert_eq!(key(nonce(4), b"place", &tag_a, &mut out), Err(Forgery));
                assert_eq!(key(nonce(3), b"Place", &tag_a, &mut out), Err(Forgery));
                let mut wrong = tag_a;
                wrong[15] ^= 1;
                assert_eq!(key(nonce(3), b"place", &wrong, &mut out), Err(Forgery));
            }
        }
    }
}
