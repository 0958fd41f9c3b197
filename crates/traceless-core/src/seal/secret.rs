//! Keys, and key derivation (docs/keys.md).

use hkdf::Hkdf;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Bytes of a key.
pub const SECRET_LEN: usize = 32;

/// A key. Wiped when dropped, never printed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret([u8; SECRET_LEN]);

impl Secret {
    /// The key with these bytes.
    pub const fn from_bytes(bytes: [u8; SECRET_LEN]) -> Self {
        Self(bytes)
    }

    /// A fresh random key.
    pub fn random(rng: &mut dyn crate::rng::Rng) -> Self {
        let mut key = Self([0; SECRET_LEN]);
        rng.fill(&mut key.0);
        key
    }

    /// HKDF-SHA256 of secret material of any length.
    pub fn extract(salt: &[u8], material: &[u8], purpose: &str) -> Self {
        expand(&Hkdf::<Sha256>::new(Some(salt), material), &[purpose.as_bytes()])
    }

    /// Derives the key of one purpose from this one. Each part is encoded with its length, so that
    /// different lists of parts give different keys.
    #[must_use]
    pub fn derive(&self, parts: &[&[u8]]) -> Self {
        KeyDeriver::new(self).derive(parts)
    }

    /// A tag of `message` that only holders of this key can make.
    pub fn mac(&self, message: &[u8]) -> Mac {
        KeyDeriver::new(self).mac(message)
    }

    /// The bytes, for the cipher alone.
    pub fn bytes(&self) -> &[u8; SECRET_LEN] {
        &self.0
    }
}

/// Derives many keys from one, as [`Secret::derive`] does, each in a third of the time: the key
/// itself is hashed only once. What it holds is wiped when dropped.
pub struct KeyDeriver(Hkdf<Sha256>);

impl KeyDeriver {
    /// Hashes the key to derive from.
    pub fn new(key: &Secret) -> Self {
        Self(Hkdf::new(None, &key.0))
    }

    /// The key that [`Secret::derive`] gives.
    #[must_use]
    pub fn derive(&self, parts: &[&[u8]]) -> Secret {
        expand(&self.0, parts)
    }

    /// The tag that [`Secret::mac`] gives.
    pub fn mac(&self, message: &[u8]) -> Mac {
        Mac(self.derive(&[b"mac", message]).0)
    }
}

/// A message tag. Compared in constant time.
#[derive(Clone, Copy)]
pub struct Mac([u8; SECRET_LEN]);

impl Mac {
    /// The tag's bytes.
    pub fn bytes(&self) -> &[u8; SECRET_LEN] {
        &self.0
    }

    /// Whether `tag` equals this tag.
    pub fn fits(&self, tag: &[u8]) -> bool {
        self.0.ct_eq(tag).into()
    }
}

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(..)")
    }
}

fn expand(hkdf: &Hkdf<Sha256>, parts: &[&[u8]]) -> Secret {
    let mut info = alloc::vec::Vec::new();
    for part in parts {
        let len = u32::try_from(part.len()).expect("a part is a name or an id");
        info.extend_from_slice(&len.to_le_bytes());
        info.extend_from_slice(part);
    }
    let mut key = Secret([0; SECRET_LEN]);
    hkdf.expand(&info, &mut key.0).expect("one block of output");
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_together() {
        let key = Secret::from_bytes([3; 32]);
        let derived = [
            key.derive(&[b"ab", b"c"]),
            key.derive(&[b"a", b"bc"]),
            key.derive(&[b"abc"]),
            Secret::extract(b"salt", &[3; 32], "abc"),
        ];
        for i in 0..derived.len() {
            for j in 0..i {
                assert_ne!(derived[i].bytes(), derived[j].bytes());
            }
        }
        assert_eq!(alloc::format!("{key:?}"), "Secret(..)");
    }

    #[test]
    fn a_deriver_gives_the_keys_of_its_secret() {
        let key = Secret::from_bytes([3; 32]);
        let deriver = KeyDeriver::new(&key);
        for parts in [&[&b"ab"[..], b"c"][..], &[b"abc"], &[]] {
            assert_eq!(deriver.derive(parts).bytes(), key.derive(parts).bytes());
        }
        assert!(deriver.mac(b"one").fits(key.mac(b"one").bytes()));
        // By RFC 5869, with an empty salt, and the parts with their lengths.
        let known = "e35b";
        let first = deriver.derive(&[b"ab", b"c"]);
        assert_eq!(alloc::format!("{:02x}{:02x}", first.bytes()[0], first.bytes()[1]), known);
    }

    #[test]
    fn a_mac_fits_its_message_only() {
        let key = Secret::from_bytes([3; 32]);
        let tag = *key.mac(b"one").bytes();
        assert!(key.mac(b"one").fits(&tag));
        assert!(!key.mac(b"two").fits(&tag));
        assert!(!key.mac(b"one").fits(&tag[..31]));
    }
}
