//! Openings: each time a store is opened for writing it gets a random id, and keys of its own.
//!
//! A count may be written twice, once before a crash and once after it, or in two copies of one
//! image; but never twice under one opening, so no nonce ever covers two contents. Two copies of
//! the memory of one opening continue with the same counts; there the salts of nonces differ.
//!
//! The second opening of a scheme gets an id and keys of its own. The kept state names both
//! openings:
//!
//! ```
//! use traceless_core::rng::{Rng, System};
//! use traceless_core::scheme::openings::{Opening, Openings, SchemeState};
//! use traceless_core::seal::Secret;
//!
//! # fn main() -> traceless_core::Result {
//! let key = Secret::random(&mut System);
//! let derive = |opening: &Opening| key.derive(&[b"example", &opening.id]);
//! let mut id = || { let mut id = [0; 16]; System.fill(&mut id); id };
//!
//! let mut openings = Openings::new(&SchemeState::default(), derive);
//! for start in [0, 100] {
//!     let opening = openings.next(id(), start);
//!     openings.push(opening, derive(&opening))?;
//! }
//! // Write number 99 was made in the first opening, and its slot is sealed under that one's key.
//! assert_eq!(openings.find(|opening| opening.start <= 99).0.number, 0);
//!
//! let state = SchemeState::decode(&openings.state(true, 150).encode())?;
//! assert_eq!((state.openings.len(), state.openings[1].start, state.at_least), (2, 100, 150));
//! # Ok(())
//! # }
//! ```

use crate::error::{Error, Result};
use crate::seal::{Keystream, Secret};
use alloc::vec::Vec;

/// Bytes that one opening's keys may seal, at most; then the scheme begins a new opening.
pub const KEY_BYTES_MAX: u64 = 1 << 44;

/// Contents that one opening's keys may seal, at most: short nonces have room for a version of half
/// a word.
const KEY_SEALS_MAX: u64 = 1 << 32;

/// Bytes that one opening's keys may seal in contents of `len` bytes.
pub fn key_bytes_max(len: usize) -> u64 {
    KEY_BYTES_MAX.min(KEY_SEALS_MAX.saturating_mul(len as u64))
}

/// Openings that a state can list.
pub const OPENINGS_MAX: usize = 2000;

/// From this many openings on, each further opening makes dummy writes, so that the oldest ones
/// retire before there are [`OPENINGS_MAX`].
pub const OPENINGS_MANY: usize = OPENINGS_MAX / 2;

/// One opening. The id is secret only until it is used; the rest is public.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// Openings before it.
    pub number: u64,
    /// Random id.
    pub id: [u8; 16],
    /// Writes made before it.
    pub start: u64,
}

/// The state that a scheme keeps in its vault. The state of a new scheme is empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SchemeState {
    /// Whether the scheme was closed with no operation incomplete.
    pub clean: bool,
    /// Whether a salvage after damage began and did not end. Until a salvage succeeds, the map may
    /// point to outdated copies.
    pub half_salvaged: bool,
    /// Number of writes when this state was kept. An opening must find at least as many.
    pub at_least: u64,
    /// Openings that may still have live slots, oldest first.
    pub openings: Vec<Opening>,
}

const VERSION: u16 = 1;
const CLEAN: u16 = 1;
const HALF_SALVAGED: u16 = 2;
const HEAD_LEN: usize = 16;
const OPENING_LEN: usize = 32;

/// Bytes of the longest state.
pub const STATE_LEN_MAX: usize = HEAD_LEN + OPENINGS_MAX * OPENING_LEN;

impl SchemeState {
    /// The bytes of the state, at most [`STATE_LEN_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_LEN + self.openings.len() * OPENING_LEN);
        out.extend_from_slice(&VERSION.to_le_bytes());
        let mark = if self.half_salvaged { HALF_SALVAGED } else { u16::from(self.clean) * CLEAN };
        out.extend_from_slice(&mark.to_le_bytes());
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

    /// Reads a state that [`encode`](Self::encode) made.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (head, rest) =
            bytes.split_at_checked(HEAD_LEN).ok_or(Error::State("it is too short"))?;
        if head[..2] != VERSION.to_le_bytes() {
            return Err(Error::State("it is of another version"));
        }
        let mark = u16::from_le_bytes(head[2..4].try_into().expect("2 bytes"));
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
        Ok(Self {
            clean: mark == CLEAN,
            half_salvaged: mark == HALF_SALVAGED,
            at_least: word(&head[8..]),
            openings,
        })
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))
}

/// The openings that may still have live slots, oldest first, each with its keys `K`.
pub struct Openings<K> {
    list: Vec<(Opening, K)>,
}

impl<K> Openings<K> {
    /// The openings of `state`, each with the keys that `derive` makes for it.
    pub fn new(state: &SchemeState, derive: impl Fn(&Opening) -> K) -> Self {
        Self { list: state.openings.iter().map(|o| (*o, derive(o))).collect() }
    }

    /// The next opening, which begins after `start` writes.
    pub fn next(&self, id: [u8; 16], start: u64) -> Opening {
        let number = self.list.last().map_or(0, |(last, _)| last.number + 1);
        Opening { number, id, start }
    }

    /// Adds the newest opening. It replaces an opening that wrote nothing, since no slot can carry
    /// that one.
    pub fn push(&mut self, opening: Opening, keys: K) -> Result {
        if self.list.last().is_some_and(|(last, _)| last.start == opening.start) {
            self.list.pop();
        }
        self.list.push((opening, keys));
        if self.list.len() > OPENINGS_MAX {
            return Err(Error::State("it names too many openings that were cut short"));
        }
        Ok(())
    }

    /// The newest opening that `wrote` a slot, and its keys. The oldest opening also stands for all
    /// retired ones.
    pub fn find(&self, wrote: impl Fn(&Opening) -> bool) -> &(Opening, K) {
        // In nearly all cases this is the newest one.
        let found = match self.list.last() {
            Some((o, _)) if wrote(o) => self.list.len() - 1,
            _ => self.list.partition_point(|(o, _)| wrote(o)).saturating_sub(1),
        };
        &self.list[found]
    }

    /// Forgets the oldest openings while `dead`, called with the start of the next opening, returns
    /// true: no slot from before that start is in use any more.
    pub fn prune(&mut self, dead: impl Fn(u64) -> bool) {
        let alive = |pair: &[(Opening, K)]| !dead(pair[1].0.start);
        let first = self.list.windows(2).position(alive).unwrap_or(self.list.len().max(1) - 1);
        self.list.drain(..first);
    }

    /// The newest opening.
    pub fn last(&self) -> &Opening {
        &self.list.last().expect("there is always one").0
    }

    /// Number of openings; there is always one.
    #[expect(clippy::len_without_is_empty, reason = "there is always an opening")]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// All openings, the oldest first.
    pub fn list(&self) -> Vec<Opening> {
        self.list.iter().map(|(o, _)| *o).collect()
    }

    /// The state to keep for these openings after `at_least` writes.
    pub fn state(&self, clean: bool, at_least: u64) -> SchemeState {
        SchemeState { clean, half_salvaged: false, at_least, openings: self.list() }
    }
}

/// Dummy writes to make at an opening, so that the oldest openings retire before there are too
/// many. After `pass` further writes no slot of an opening is in use any more. 0 while there are
/// few openings.
pub fn dummies_to_retire(openings: usize, pass: u64) -> u64 {
    if openings < OPENINGS_MANY {
        return 0;
    }
    pass.div_ceil((OPENINGS_MAX - OPENINGS_MANY) as u64 / 2)
}

/// Fills the slot of a lost block with bytes that look like any other slot and open under no key.
/// They use up no nonce, so the block can still be written there normally. `key` must be specific
/// to this place and opening.
pub fn fill_lost(key: &Secret, tag: &mut [u8], body: &mut [u8]) {
    let mut stream = Keystream::new(key);
    for bytes in [tag, body] {
        bytes.fill(0);
        stream.apply(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn opening(number: u64, start: u64) -> Opening {
        Opening { number, id: [number as u8; 16], start }
    }

    #[test]
    fn state_comes_back_as_it_went() {
        let openings = vec![opening(3, 0), opening(4, 7)];
        let mut state = SchemeState { clean: true, half_salvaged: false, at_least: 9, openings };
        for (clean, half_salvaged) in [(false, true), (false, false), (true, false)] {
            (state.clean, state.half_salvaged) = (clean, half_salvaged);
            assert_eq!(SchemeState::decode(&state.encode()).unwrap(), state);
        }
        let bytes = state.encode();
        assert!(SchemeState::decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(SchemeState::decode(&[]).is_err());
        let swapped = SchemeState { openings: vec![opening(4, 7), opening(3, 0)], ..state };
        assert!(SchemeState::decode(&swapped.encode()).is_err());
    }

    #[test]
    fn a_state_names_some_openings_in_order_and_not_too_many() {
        let state = |openings: Vec<Opening>| SchemeState { openings, ..SchemeState::default() };
        let named = |count: usize| state((0..count as u64).map(|n| opening(n, n)).collect());
        assert!(SchemeState::decode(&named(OPENINGS_MAX).encode()).is_ok());
        for count in [0, OPENINGS_MAX + 1] {
            assert!(SchemeState::decode(&named(count).encode()).is_err(), "{count}");
        }
        let good = named(2).encode();
        assert!(
            SchemeState::decode(&[&good[..], &good[HEAD_LEN..]].concat()).is_err(),
            "one too many"
        );
        for second in [opening(3, 8), opening(4, 7), opening(3, 7), opening(2, 9), opening(9, 2)] {
            assert!(SchemeState::decode(&state(vec![opening(3, 7), second]).encode()).is_err());
        }
        assert!(SchemeState::decode(&state(vec![opening(3, 7), opening(4, 8)]).encode()).is_ok());
    }

    #[test]
    fn openings_are_as_many_as_a_state_can_name() {
        let mut openings = Openings::new(&SchemeState::default(), |_| ());
        for n in 0..OPENINGS_MAX as u64 {
            openings.push(opening(n, n), ()).unwrap();
        }
        // Replaces an opening that wrote nothing.
        let last = OPENINGS_MAX as u64;
        openings.push(opening(last, last - 1), ()).unwrap();
        assert_eq!((openings.len(), openings.last().number), (OPENINGS_MAX, last));
        assert!(openings.push(opening(last + 1, last), ()).is_err());
    }

    #[test]
    fn many_openings_are_retired() {
        assert_eq!(dummies_to_retire(OPENINGS_MANY - 1, 10_000), 0);
        // Half of the remaining openings would do.
        assert_eq!(dummies_to_retire(OPENINGS_MANY, 10_000), 20);
        assert_eq!(dummies_to_retire(OPENINGS_MAX, 10_001), 21);
    }
}
