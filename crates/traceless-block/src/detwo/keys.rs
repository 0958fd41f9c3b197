//! The keys of each opening; a write count or refresh number selects the opening.

use super::geometry::DetWoGeometry;
use crate::log::LogKeys;
use crate::refreshed::{self, RefreshKey};
use alloc::vec::Vec;
use traceless_core::error::Result;
use traceless_core::scheme::openings::{Opening, Openings, SchemeState};
use traceless_core::seal::{Cipher, KeyDeriver, Secret};

/// Sealers of one tier in one opening.
pub(super) struct DetWoTierKeys {
    pub hold: LogKeys,
    pub main: RefreshKey,
}

/// The openings with their keys.
pub(super) struct DetWoKeyRing {
    key: Secret,
    cipher: Cipher,
    geometry: DetWoGeometry,
    blocks: Vec<u64>,
    openings: Openings<Vec<DetWoTierKeys>>,
}

impl DetWoKeyRing {
    pub fn new(key: Secret, cipher: Cipher, geometry: DetWoGeometry, state: &SchemeState) -> Self {
        let blocks = (0..=geometry.map_tiers).map(|t| geometry.tier_blocks(t)).collect();
        let deriver = KeyDeriver::new(&key);
        let openings = Openings::new(state, |o| tier_keys(&deriver, cipher, &geometry, o));
        Self { key, cipher, geometry, blocks, openings }
    }

    /// Adds the newest opening.
    pub fn push(&mut self, opening: Opening) -> Result {
        let deriver = KeyDeriver::new(&self.key);
        let keys = tier_keys(&deriver, self.cipher, &self.geometry, &opening);
        self.openings.push(opening, keys)
    }

    /// The opening that made write `count`, and its keys.
    pub fn at_hold(&self, tier: usize, count: u64) -> (&Opening, &DetWoTierKeys) {
        let (opening, keys) = self.openings.find(|o| o.start <= count);
        (opening, &keys[tier])
    }

    /// The opening that made refresh `r` of a tier, and its keys.
    pub fn at_main(&self, tier: usize, r: u64) -> (&Opening, &DetWoTierKeys) {
        let first = |start| self.blocks[tier] + self.geometry.refresh.after(start);
        let (opening, keys) = self.openings.find(|o| first(o.start) <= r);
        (opening, &keys[tier])
    }

    /// Fills the main slot of a lost block.
    pub fn fill_lost(&self, tier: usize, r: u64, slot: (&mut [u8], &mut [u8])) {
        let (opening, _) = self.at_main(tier, r);
        let key = self.key.derive(&[&opening.id, &[tier as u8], b"lost", &r.to_le_bytes()]);
        refreshed::fill_lost(&key, r, slot);
    }

    /// Forgets openings without slots in use once `count` writes are durable: their holding slots
    /// are dead, and every main block was refreshed since.
    pub fn prune(&mut self, count: u64) {
        let k = self.geometry.refresh;
        let settled = count.saturating_sub(self.geometry.unsynced_max);
        self.openings.prune(|next| self.blocks.iter().all(|&n| next + k.writes_for(n) <= settled));
    }

    pub fn openings(&self) -> &Openings<Vec<DetWoTierKeys>> {
        &self.openings
    }
}

fn tier_keys(
    deriver: &KeyDeriver,
    cipher: Cipher,
    geometry: &DetWoGeometry,
    opening: &Opening,
) -> Vec<DetWoTierKeys> {
    let of_tier = |tier| {
        let key = |purpose: &[u8]| deriver.derive(&[&opening.id, &[tier], purpose]);
        let hold = LogKeys::new(cipher, &key(b"address"), &key(b"holding"));
        DetWoTierKeys { hold, main: RefreshKey::new(cipher, &key(b"main")) }
    };
    (0..=geometry.map_tiers).map(of_tier).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detwo::Refresh;
    use alloc::vec;

    fn opening(number: u64, start: u64) -> Opening {
        Opening { number, id: [number as u8; 16], start }
    }

    fn ring(geometry: DetWoGeometry, openings: Vec<Opening>) -> DetWoKeyRing {
        let at_least = openings.last().unwrap().start;
        let state = SchemeState { at_least, openings, ..SchemeState::default() };
        DetWoKeyRing::new(Secret::from_bytes([0; 32]), Cipher::AesGcm, geometry, &state)
    }

    #[test]
    fn openings_are_found_by_what_they_wrote_and_die_out() {
        let geometry = DetWoGeometry::new(64, 64, Refresh::ONE, 0).unwrap();
        let mut ring = ring(geometry, vec![opening(0, 0), opening(1, 10), opening(2, 20)]);
        for (count, number) in [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (1000, 2)] {
            assert_eq!(ring.at_hold(0, count).0.number, number);
            assert_eq!(ring.at_main(0, 64 + count).0.number, number);
        }
        ring.push(opening(3, 20)).unwrap();
        assert_eq!(ring.openings().list().len(), 3);
        ring.prune(20 + 64);
        assert_eq!(ring.openings().list()[0].number, 1);
        ring.prune(20 + 64 + geometry.unsynced_max);
        assert_eq!(ring.openings().list()[0].number, 3);
    }

    /// Recovery opens the entries of the last `live_writes` writes, even if the refreshes of fewer
    /// writes have carried all their blocks.
    #[test]
    fn an_opening_lives_until_no_entry_needs_it() {
        for (refresh, map_tiers) in [("1", 0), ("1/3", 0), ("3/7", 1), ("5/2", 1)] {
            let refresh = Refresh::parse(refresh).unwrap();
            let geometry = DetWoGeometry::new(640, 64, refresh, map_tiers).unwrap();
            let pass = refresh.writes_for(640) + geometry.unsynced_max;
            for next in [1, 9, 10, 11, 12, 13, 14, 15] {
                let mut ring = ring(geometry, vec![opening(0, 0), opening(1, next)]);
                ring.prune(next + pass - 1);
                assert_eq!(ring.openings().len(), 2, "{refresh} {next}");
                ring.prune(next + pass);
                assert_eq!(ring.openings().list(), [opening(1, next)], "{refresh} {next}");
            }
        }
    }

    #[test]
    fn what_fills_a_lost_slot_is_of_that_slot_and_opening_alone() {
        let geometry = DetWoGeometry::new(640, 64, Refresh::ONE, 1).unwrap();
        let ring = ring(geometry, vec![opening(0, 0), opening(1, 10)]);
        let filled = |tier, r, before| {
            let (mut entry, mut body) = ([before; refreshed::ENTRY_LEN], [before; 64]);
            ring.fill_lost(tier, r, (&mut entry, &mut body));
            (entry, body)
        };
        // The filler does not depend on earlier bytes of the slot, so a repeat after a crash is
        // identical.
        assert_eq!(filled(0, 640, 0), filled(0, 640, 9));
        let bodies = [(0, 640), (0, 641), (1, 640), (0, 650), (1, 650)];
        let mut bodies = bodies.map(|(tier, r)| filled(tier, r, 0).1).to_vec();
        // The same slot in another opening.
        let other = self::ring(geometry, vec![opening(1, 0)]);
        let mut body = [0; 64];
        other.fill_lost(0, 640, (&mut [0; refreshed::ENTRY_LEN], &mut body));
        bodies.extend([body, [0; 64]]);
        bodies.sort_unstable();
        bodies.dedup();
        assert_eq!(bodies.len(), 7);
    }
}
