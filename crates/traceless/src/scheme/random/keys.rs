//! The keys of each opening, found by the write that used them.

use super::entry::TierKeys;
use super::geometry::Geometry;
use crate::error::Result;
use crate::scheme::openings::{self, Opening, Openings, State};
use crate::seal::{Aead, Sealer, Secret, TAG_LEN};
use alloc::vec::Vec;

/// The openings with their keys.
pub(super) struct KeyRing {
    key: Secret,
    tiers: u8,
    openings: Openings<Vec<TierKeys>>,
    fingerprints: Vec<Aead>,
}

impl KeyRing {
    pub fn new(key: Secret, geometry: &Geometry, state: &State) -> Self {
        let tiers = geometry.map_tiers;
        let openings = Openings::new(state, |o| tier_keys(&key, tiers, o));
        let of_tier = |tier| Aead::new(&key.derive(&[&[tier], b"fingerprint"]));
        let fingerprints = (0..=tiers).map(of_tier).collect();
        Self { key, tiers, openings, fingerprints }
    }

    /// Adds the newest opening.
    pub fn push(&mut self, opening: Opening) -> Result {
        self.openings.push(opening, tier_keys(&self.key, self.tiers, &opening))
    }

    /// The keys of the slots of tier `tier` with version `version`.
    pub fn at(&self, tier: usize, version: u64) -> &TierKeys {
        let count = version / Geometry::records(tier);
        &self.openings.find(|o| o.start <= count).1[tier]
    }

    /// Fills the body, and its tag, of a block that was lost.
    pub fn fill_lost(&self, tier: usize, version: u64, tag: &mut [u8], body: &mut [u8]) {
        let count = version / Geometry::records(tier);
        let (opening, _) = self.openings.find(|o| o.start <= count);
        let place = version.to_le_bytes();
        let key = self.key.derive(&[&opening.id, &[tier as u8], b"lost", &place]);
        openings::fill_lost(&key, tag, body);
    }

    /// What contents number `birth` of block `address` add to a fingerprint. No birth is used
    /// twice in one image, and what comes out is shown to nobody: it leaves the memory sealed only.
    pub fn fingerprint(&self, tier: usize, address: u64, birth: u64) -> u128 {
        let mut tag = [0; TAG_LEN];
        let bound = address.to_le_bytes();
        self.fingerprints[tier].seal(birth, &bound, &[], &mut [], &mut tag);
        u128::from_le_bytes(tag)
    }

    /// Forgets all openings but the newest.
    pub fn forget_old(&mut self) {
        let newest = self.openings.last().start;
        self.openings.prune(|next| next <= newest);
    }

    pub fn openings(&self) -> &Openings<Vec<TierKeys>> {
        &self.openings
    }
}

fn tier_keys(key: &Secret, tiers: u8, opening: &Opening) -> Vec<TierKeys> {
    let of_tier = |tier| {
        let key = |purpose: &[u8]| Aead::new(&key.derive(&[&opening.id, &[tier], purpose]));
        TierKeys { head: key(b"slot head"), body: key(b"slot body"), note: key(b"journal note") }
    };
    (0..=tiers).map(of_tier).collect()
}
