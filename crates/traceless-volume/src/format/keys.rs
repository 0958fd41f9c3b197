//! Keys: from the user's key to the keys that seal each part of the image (docs/keys.md).

use crate::error::{Error, Result};
use std::io;
use traceless_core::rng::Rng;
use traceless_core::seal::{SECRET_LEN, Secret};
use traceless_sys::LockedBytes;
use zeroize::Zeroizing;

/// Bytes of a key file, at least.
pub const KEY_FILE_LEN_MIN: usize = 32;

/// Bytes of a key file, at most.
pub const KEY_FILE_LEN_MAX: usize = 1 << 20;

/// A key that the user holds.
pub enum UserKey {
    /// A typed passphrase; stretched with argon2id.
    Passphrase(Zeroizing<Vec<u8>>),
    /// The bytes of a key file, verbatim: as random as a key, so not stretched.
    File(Zeroizing<Vec<u8>>),
}

impl UserKey {
    /// The key in a key file, if its length is allowed.
    pub fn from_file(bytes: Zeroizing<Vec<u8>>) -> Result<Self> {
        match bytes.len() {
            n if n < KEY_FILE_LEN_MIN => Err(Error::KeyFileShort(n)),
            n if n > KEY_FILE_LEN_MAX => Err(Error::KeyFileLong(KEY_FILE_LEN_MAX)),
            _ => Ok(Self::File(bytes)),
        }
    }
}

/// The key from which all other keys of a volume are derived, in locked memory.
pub struct MasterKey(LockedBytes);

impl MasterKey {
    /// Makes a fresh master key.
    pub fn random(rng: &mut dyn Rng) -> io::Result<Self> {
        let mut bytes = LockedBytes::zeroed(SECRET_LEN)?;
        rng.fill(&mut bytes);
        Ok(Self(bytes))
    }

    pub(super) fn from_bytes(bytes: &[u8; SECRET_LEN]) -> io::Result<Self> {
        let mut locked = LockedBytes::zeroed(SECRET_LEN)?;
        locked.copy_from_slice(bytes);
        Ok(Self(locked))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether `other` is the same key.
    pub fn is(&self, other: &Self) -> bool {
        self.0[..] == other.0[..]
    }

    /// A copy of the key, in locked memory of its own.
    pub fn duplicate(&self) -> io::Result<Self> {
        let mut bytes = LockedBytes::zeroed(SECRET_LEN)?;
        bytes.copy_from_slice(&self.0);
        Ok(Self(bytes))
    }
}

/// The keys of one volume.
pub struct Keys {
    master: MasterKey,
    uuid: [u8; 16],
    salt: Option<[u8; 16]>,
}

impl Keys {
    /// The keys of a new volume `uuid` under `master`.
    pub fn new(master: MasterKey, uuid: [u8; 16]) -> Self {
        Self::salted(master, uuid, None)
    }

    /// The keys of the volume `uuid` with the header's `salt`, under `master`.
    pub(super) fn salted(master: MasterKey, uuid: [u8; 16], salt: Option<[u8; 16]>) -> Self {
        Self { master, uuid, salt }
    }

    /// The master key, for wrapping it in another key slot.
    pub fn master(&self) -> &MasterKey {
        &self.master
    }

    /// The id of the volume that the keys belong to.
    pub fn uuid(&self) -> &[u8; 16] {
        &self.uuid
    }

    /// The secret of the scheme's areas. Each opening derives its own sealing keys from it.
    pub fn scheme(&self) -> Secret {
        self.derive("scheme", "areas")
    }

    pub(super) fn header(&self) -> Secret {
        self.derive("header", "mac")
    }

    pub(super) fn superblock(&self) -> Secret {
        self.derive("superblock", "seal")
    }

    pub(super) fn anchor(&self) -> Secret {
        self.derive("anchor", "mac")
    }

    pub(super) fn veil(&self) -> Secret {
        self.derive("veil", "headers")
    }

    pub(super) fn slots_in_use(&self) -> Secret {
        self.derive("key slots", "in use")
    }

    pub(super) fn rebuild(&self) -> Secret {
        self.derive("rebuild", "seal")
    }

    /// HKDF(master, uuid, product, tree, partition, area, purpose, salt). A volume has one tree and
    /// one partition, both of number 0, and a salt only if it was rebuilt.
    fn derive(&self, area: &str, purpose: &str) -> Secret {
        let mut bytes = Zeroizing::new([0; SECRET_LEN]);
        bytes.copy_from_slice(self.master.bytes());
        let mut parts: Vec<&[u8]> =
            vec![&self.uuid, b"volume", &[0], &[0], area.as_bytes(), purpose.as_bytes()];
        parts.extend(self.salt.as_ref().map(|salt| &salt[..]));
        Secret::from_bytes(*bytes).derive(&parts)
    }

    #[doc(hidden)]
    pub fn for_fuzzing() -> Self {
        let master = MasterKey::from_bytes(&[1; SECRET_LEN]).expect("a page may be locked");
        Self { master, uuid: [2; 16], salt: None }
    }
}
