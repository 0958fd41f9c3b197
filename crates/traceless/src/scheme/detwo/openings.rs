//! Openings: each time a store is opened for writing it gets a random id, and keys of its own.
//!
//! A count may be written twice, once before a crash and once after it, or in two copies of one
//! image; but never twice under one opening, so no nonce ever covers two contents.

use super::geometry::Geometry;
use crate::error::{Error, Result};
use crate::seal::{Aead, Keystream, Secret};
use alloc::vec::Vec;

/// Openings that a state can name.
pub const OPENINGS_MAX: usize = 2000;

/// From this many on, each further opening makes dummy writes, so that the oldest die out before
/// there are [`OPENINGS_MAX`].
pub(super) const OPENINGS_MANY: usize = OPENINGS_MAX / 2;

/// One opening. The id is secret only until it is used; the rest is public.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Opening {
    /// Openings before it.
    pub number: u64,
    /// Random.
    pub id: [u8; 16],
    /// Writes made before it.
    pub start: u64,
}

/// What a `DetWo` keeps in its vault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct State {
    /// Whether it was closed with nothing under way.
    pub clean: bool,
    /// Writes made when this was kept. At least as many must be found again.
    pub at_least: u64,
    /// Openings that may still have live slots, oldest first.
    pub openings: Vec<Opening>,
}

const VERSION: u16 = 1;
const HEAD_LEN: usize = 16;
const OPENING_LEN: usize = 32;

/// Bytes of the longest state.
pub const STATE_LEN_MAX: usize = HEAD_LEN + OPENINGS_MAX * OPENING_LEN;

impl State {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_LEN + self.openings.len() * OPENING_LEN);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&u16::from(self.clean).to_le_bytes());
        let count = u32::try_from(self.openings.len()).expect("at most OPENINGS_MAX");
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&self.at_least.to_le_bytes());
        for opening in &self.openings {
            out.extend_from_slice(&opening.number.to_le_bytes());
            out.extend_from_slice(&opening.id);
            out.extend_from_slice(&opening.start.to_le_bytes());
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (head, rest) =
            bytes.split_at_checked(HEAD_LEN).ok_or(Error::State("it is too short"))?;
        if head[..2] != VERSION.to_le_bytes() {
            return Err(Error::State("it is of another version"));
        }
        let count = u32::from_le_bytes(head[4..8].try_into().expect("4 bytes")) as usize;
        if count == 0 || count > OPENINGS_MAX || rest.len() != count * OPENING_LEN {
            return Err(Error::State("its length is wrong"));
        }
        let openings: Vec<_> = rest
            .chunks_exact(OPENING_LEN)
            .map(|o| Opening {
                number: word(o),
                id: o[8..24].try_into().expect("16 bytes"),
                start: word(&o[24..]),
            })
            .collect();
        if openings.windows(2).any(|w| w[0].number >= w[1].number || w[0].start >= w[1].start) {
            return Err(Error::State("its openings are out of order"));
        }
        Ok(Self { clean: head[2] == 1, at_least: word(&head[8..]), openings })
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))
}

/// Sealers of one tier in one opening.
pub(super) struct TierKeys {
    pub hold: Aead,
    pub head: Aead,
    pub main: Aead,
}

/// The openings with their keys, found by what they wrote.
pub(super) struct KeyRing {
    key: Secret,
    geometry: Geometry,
    blocks: Vec<u64>,
    openings: Vec<(Opening, Vec<TierKeys>)>,
}

impl KeyRing {
    pub fn new(key: Secret, geometry: Geometry, openings: &[Opening]) -> Self {
        let blocks = (0..=geometry.map_tiers).map(|t| geometry.tier_blocks(t)).collect();
        let mut ring = Self { key, geometry, blocks, openings: Vec::new() };
        for &opening in openings {
            ring.push(opening);
        }
        ring
    }

    /// Adds the newest opening. One that wrote nothing is replaced: no slot can carry it.
    pub fn push(&mut self, opening: Opening) {
        if self.openings.last().is_some_and(|(last, _)| last.start == opening.start) {
            self.openings.pop();
        }
        let keys = (0..=self.geometry.map_tiers)
            .map(|tier| {
                let key =
                    |purpose: &[u8]| Aead::new(&self.key.derive(&[&opening.id, &[tier], purpose]));
                TierKeys { hold: key(b"holding"), head: key(b"address"), main: key(b"main") }
            })
            .collect();
        self.openings.push((opening, keys));
    }

    /// The opening that made write `count`, and its keys.
    pub fn at_hold(&self, tier: usize, count: u64) -> (&Opening, &TierKeys) {
        self.find(tier, |o| o.start <= count)
    }

    /// The opening that made refresh `r` of a tier, and its keys.
    pub fn at_main(&self, tier: usize, r: u64) -> (&Opening, &TierKeys) {
        let first = |start| self.blocks[tier] + self.geometry.refresh.after(start);
        self.find(tier, |o| first(o.start) <= r)
    }

    /// What stands in the main area for a block that was lost: bytes like any others, which open
    /// under no key. No nonce is spent on them, so the block may yet be refreshed properly.
    pub fn fill_lost(&self, tier: usize, r: u64, tag: &mut [u8], body: &mut [u8]) {
        let (opening, _) = self.at_main(tier, r);
        let key = self.key.derive(&[&opening.id, &[tier as u8], b"lost", &r.to_le_bytes()]);
        let mut stream = Keystream::new(&key);
        for bytes in [tag, body] {
            bytes.fill(0);
            stream.apply(bytes);
        }
    }

    pub fn last(&self) -> &Opening {
        &self.openings.last().expect("there is always one").0
    }

    /// Forgets openings of which no slot can matter any more once `count` writes are durable.
    pub fn prune(&mut self, count: u64) {
        let k = self.geometry.refresh;
        let settled = count.saturating_sub(self.geometry.unsynced_max);
        while self.openings.len() > 1 {
            let next = self.openings[1].0.start;
            let dead = self.blocks.iter().all(|&n| {
                next <= settled.saturating_sub(k.writes_for(n))
                    && k.after(next) + n <= k.after(settled)
            });
            if !dead {
                return;
            }
            self.openings.remove(0);
        }
    }

    pub fn list(&self) -> Vec<Opening> {
        self.openings.iter().map(|(o, _)| *o).collect()
    }

    fn find(&self, tier: usize, wrote: impl Fn(&Opening) -> bool) -> (&Opening, &TierKeys) {
        // Nearly always the newest; the first also stands for what was there before it.
        let found = match self.openings.last() {
            Some((o, _)) if wrote(o) => self.openings.len() - 1,
            _ => self.openings.partition_point(|(o, _)| wrote(o)).saturating_sub(1),
        };
        let (opening, keys) = &self.openings[found];
        (opening, &keys[tier])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::detwo::Refresh;
    use alloc::vec;

    fn opening(number: u64, start: u64) -> Opening {
        Opening { number, id: [number as u8; 16], start }
    }

    #[test]
    fn state_comes_back_as_it_went() {
        let state =
            State { clean: true, at_least: 9, openings: vec![opening(3, 0), opening(4, 7)] };
        let bytes = state.encode();
        assert_eq!(State::decode(&bytes).unwrap(), state);
        assert!(State::decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(State::decode(&[]).is_err());
        let swapped = State { openings: vec![opening(4, 7), opening(3, 0)], ..state };
        assert!(State::decode(&swapped.encode()).is_err());
    }

    #[test]
    fn openings_are_found_by_what_they_wrote_and_die_out() {
        let geometry = Geometry::new(64, 64, Refresh::ONE, 0).unwrap();
        let list = [opening(0, 0), opening(1, 10), opening(2, 20)];
        let mut ring = KeyRing::new(Secret::from_bytes([0; 32]), geometry, &list);
        for (count, number) in [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (1000, 2)] {
            assert_eq!(ring.at_hold(0, count).0.number, number);
            assert_eq!(ring.at_main(0, 64 + count).0.number, number);
        }
        ring.push(opening(3, 20));
        assert_eq!(ring.list().len(), 3);
        ring.prune(20 + 64);
        assert_eq!(ring.list()[0].number, 1);
        ring.prune(20 + 64 + geometry.unsynced_max);
        assert_eq!(ring.list()[0].number, 3);
    }
}
