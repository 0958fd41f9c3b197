//! The keys of each opening; the version of a write selects the opening.

use super::entry::RandomTierKeys;
use super::geometry::RandomGeometry;
use alloc::vec::Vec;
use traceless_core::error::Result;
use traceless_core::scheme::openings::{self, Opening, Openings, SchemeState};
use traceless_core::seal::{Cipher, KeyDeriver, Secret};

/// The openings with their keys.
pub(super) struct RandomKeyRing {
    key: Secret,
    cipher: Cipher,
    tiers: u8,
    openings: Openings<Vec<RandomTierKeys>>,
    fingerprints: Vec<KeyDeriver>,
}

impl RandomKeyRing {
    pub fn new(
        key: Secret,
        cipher: Cipher,
        geometry: &RandomGeometry,
        state: &SchemeState,
    ) -> Self {
        let tiers = geometry.map_tiers;
        let deriver = KeyDeriver::new(&key);
        let openings = Openings::new(state, |o| tier_keys(&deriver, cipher, tiers, o));
        let of_tier = |tier| KeyDeriver::new(&deriver.derive(&[&[tier], b"fingerprint"]));
        let fingerprints = (0..=tiers).map(of_tier).collect();
        Self { key, cipher, tiers, openings, fingerprints }
    }

    /// Adds the newest opening.
    pub fn push(&mut self, opening: Opening) -> Result {
        let deriver = KeyDeriver::new(&self.key);
        let keys = tier_keys(&deriver, self.cipher, self.tiers, &opening);
        self.openings.push(opening, keys)
    }

    /// The keys of the slots of tier `tier` with version `version`.
    pub fn at(&self, tier: usize, version: u64) -> &RandomTierKeys {
        let count = version / RandomGeometry::records(tier);
        &self.openings.find(|o| o.start <= count).1[tier]
    }

    /// Fills the body, and its tag, of a lost block.
    pub fn fill_lost(&self, tier: usize, version: u64, tag: &mut [u8], body: &mut [u8]) {
        let count = version / RandomGeometry::records(tier);
        let (opening, _) = self.openings.find(|o| o.start <= count);
        let place = version.to_le_bytes();
        let key = self.key.derive(&[&opening.id, &[tier as u8], b"lost", &place]);
        openings::fill_lost(&key, tag, body);
    }

    /// The contribution of contents number `birth` of block `address` to a fingerprint. This is a
    /// hash and not a cipher: after a crash, or in two copies of one image, a birth may occur
    /// twice.
    pub fn fingerprint(&self, tier: usize, address: u64, birth: u64) -> u128 {
        let mut message = [0; 16];
        message[..8].copy_from_slice(&address.to_le_bytes());
        message[8..].copy_from_slice(&birth.to_le_bytes());
        let mac = self.fingerprints[tier].mac(&message);
        u128::from_le_bytes(mac.bytes()[..16].try_into().expect("16 bytes"))
    }

    /// Forgets all openings but the newest.
    pub fn forget_old(&mut self) {
        let newest = self.openings.last().start;
        self.openings.prune(|next| next <= newest);
    }

    pub fn openings(&self) -> &Openings<Vec<RandomTierKeys>> {
        &self.openings
    }
}

fn tier_keys(
    deriver: &KeyDeriver,
    cipher: Cipher,
    tiers: u8,
    opening: &Opening,
) -> Vec<RandomTierKeys> {
    let of_tier = |tier| {
        let key = |purpose: &[u8]| cipher.sealer(&deriver.derive(&[&opening.id, &[tier], purpose]));
        RandomTierKeys {
            head: key(b"slot head"),
            body: key(b"slot body"),
            note: key(b"journal note"),
        }
    };
    (0..=tiers).map(of_tier).collect()
}
