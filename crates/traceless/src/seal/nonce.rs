//! What makes one use of a key differ from every other.

use crate::rng::Salt;

impl Salt {
    /// What was stored with a salt in front of it: salt and rest.
    pub fn split(stored: &[u8]) -> (Self, &[u8]) {
        let (salt, rest) = stored.split_first_chunk().expect("room for a salt was made");
        (Self::from_bytes(*salt), rest)
    }

    /// Stores the salt in front; the rest is for what is stored behind it.
    pub fn put(self, into: &mut [u8]) -> &mut [u8] {
        let (salt, rest) = into.split_first_chunk_mut().expect("room for a salt was made");
        *salt = self.to_bytes();
        rest
    }
}

/// The nonce of one seal: a version, and a salt.
///
/// The version is what freshness rests on: whoever opens knows it from elsewhere. Under one key it
/// is used for one content, but for copies of a process that go on with the same keys and counts:
/// their salts differ. The salt is stored beside the tag, and is public.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Nonce {
    /// A count, as a rule. Never twice under one key in one process.
    pub version: u64,
    /// Drawn for each batch of seals, when it is known what they seal. None under a key that is
    /// itself drawn for what it seals.
    pub salt: Option<Salt>,
}

impl Nonce {
    /// Of a version, with the salt of the batch.
    pub fn new(version: u64, salt: Salt) -> Self {
        Self { version, salt: Some(salt) }
    }

    /// Of a key that is itself drawn at random for what it seals, so that a copy of this process
    /// has another one: a version is enough.
    pub fn of_fresh_key(version: u64) -> Self {
        Self { version, salt: None }
    }

    /// In 96 bits: the low half of the version, then the salt. Versions of one batch must differ in
    /// that half; those of other batches have another salt. The rest of the version is
    /// authenticated. Without a salt, all of the version.
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

    /// The bytes of the salt, zeros where there is none.
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
