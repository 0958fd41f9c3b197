//! Nonces: a version and a salt.

use crate::rng::Salt;

impl Salt {
    /// Splits stored bytes into the salt in front and the rest.
    pub fn split(stored: &[u8]) -> (Self, &[u8]) {
        let (salt, rest) = stored.split_first_chunk().expect("room for a salt was made");
        (Self::from_bytes(*salt), rest)
    }

    /// Stores the salt in front, and returns the room behind it.
    pub fn put(self, into: &mut [u8]) -> &mut [u8] {
        let (salt, rest) = into.split_first_chunk_mut().expect("room for a salt was made");
        *salt = self.to_bytes();
        rest
    }
}

/// The nonce of one seal: a version, and a salt.
///
/// Freshness rests on the version, which the opener knows from elsewhere. Under one key a version
/// is used for one content. Copies of a process that go on with the same keys and counts may repeat
/// it, but their salts differ. The salt is stored beside the tag, and is public.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Nonce {
    /// Usually a count. Never used twice under one key in one process.
    pub version: u64,
    /// Drawn for each batch of seals, once their contents are fixed. `None` if the key itself is
    /// drawn afresh for these contents.
    pub salt: Option<Salt>,
}

impl Nonce {
    /// A nonce from a version and the salt of its batch.
    pub fn new(version: u64, salt: Salt) -> Self {
        Self { version, salt: Some(salt) }
    }

    /// A nonce under a key that is itself drawn at random for these contents. A copy of this
    /// process draws another key, so a version is enough.
    pub fn of_fresh_key(version: u64) -> Self {
        Self { version, salt: None }
    }

    /// In 96 bits: the low half of the version, then the salt. Versions of one batch must differ in
    /// that half; other batches have other salts. The whole version is also authenticated. Without
    /// a salt, the whole version.
    pub(super) fn short(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        match self.salt {
            Some(salt) => {
                bytes[..4].copy_from_slice(&(self.version as u32).to_le_bytes());
                bytes[4..].copy_from_slice(&salt.to_bytes());
            }
            None => bytes[4..].copy_from_slice(&self.version.to_be_bytes()),
        }
        bytes
    }

    /// The bytes of the salt, zeros if there is none.
    pub(super) fn salt_bytes(self) -> [u8; Salt::LEN] {
        self.salt.map_or([0; Salt::LEN], Salt::to_bytes)
    }

    /// In 256 bits.
    pub(super) fn long(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[16..24].copy_from_slice(&self.salt_bytes());
        bytes[24..].copy_from_slice(&self.version.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_part_makes_another_nonce() {
        let nonce = Nonce::new(7, Salt(9));
        let others = [Nonce::new(8, Salt(9)), Nonce::new(7, Salt(8)), Nonce::of_fresh_key(7)];
        for other in others {
            assert_ne!(nonce.short(), other.short());
            assert_ne!(nonce.long(), other.long());
        }
        let later = 7 + (1 << 32);
        assert_ne!(nonce.long(), Nonce::new(later, Salt(9)).long());
        let [one, other] = [7, later].map(Nonce::of_fresh_key);
        assert_ne!(one.short(), other.short());
    }
}
