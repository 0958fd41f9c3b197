//! The counts of an audit beside a running scheme.

use super::stream::PLACES;
use crate::trace::{Event, Op};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Checks the events of one store, in the order in which they happen.
pub trait EventAudit: Send {
    /// Whether events of this operation are checked.
    fn checks(&self, op: Op) -> bool;

    /// Checks an event.
    fn record(&mut self, event: &Event, counts: &AuditCounts);
}

/// What the audit has found: atomic numbers that several auditors add to. Zeros are an audit before
/// the first event.
#[repr(C)]
pub struct AuditCounts {
    in_turn: AtomicU64,
    out_of_turn: AtomicU64,
    /// One more than the first byte of the first event out of turn.
    first_out_of_turn: AtomicU64,
    /// How many of the draws went to each part of the places.
    draws: [AtomicU64; PLACES],
    /// The places that are drawn from.
    drawn_places: AtomicU64,
}

/// A reading of the counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditReading {
    /// Writes to slots that were due.
    pub in_turn: u64,
    /// Writes to slots that were not.
    pub out_of_turn: u64,
    /// First byte of the first of these.
    pub first_out_of_turn: Option<u64>,
    /// How many draws went to each part of the places, and how many places the part has.
    pub draws: Vec<(u64, u64)>,
}

impl Default for AuditCounts {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            in_turn: zero(),
            out_of_turn: zero(),
            first_out_of_turn: zero(),
            draws: core::array::from_fn(|_| zero()),
            drawn_places: zero(),
        }
    }
}

impl AuditCounts {
    /// What was found so far.
    pub fn read(&self) -> AuditReading {
        let places = self.drawn_places.load(Relaxed);
        let draws = self.draws.iter().enumerate().map(|(part, draws)| {
            let [begin, end] = [part, part + 1].map(|part| first_of_part(part, places));
            (draws.load(Relaxed), end - begin)
        });
        AuditReading {
            in_turn: self.in_turn.load(Relaxed),
            out_of_turn: self.out_of_turn.load(Relaxed),
            first_out_of_turn: self.first_out_of_turn.load(Relaxed).checked_sub(1),
            draws: draws.filter(|(_, places)| *places > 0).collect(),
        }
    }

    /// Counts a write, at byte `at`, to a slot that was due or not.
    pub fn count_turn(&self, was_due: bool, at: u64) {
        if was_due {
            self.in_turn.fetch_add(1, Relaxed);
        } else if self.out_of_turn.fetch_add(1, Relaxed) == 0 {
            self.first_out_of_turn.store(at.wrapping_add(1), Relaxed);
        }
    }

    /// Counts the draw of one of so many places.
    pub fn count_draw(&self, place: u64, places: u64) {
        self.drawn_places.store(places, Relaxed);
        self.draws[part_of(place, places)].fetch_add(1, Relaxed);
    }
}

/// The part of the places that a place is in.
fn part_of(place: u64, places: u64) -> usize {
    let part = u128::from(place) * PLACES as u128 / u128::from(places.max(1));
    (part as usize).min(PLACES - 1)
}

/// The first place of a part.
fn first_of_part(part: usize, places: u64) -> u64 {
    (part as u128 * u128::from(places)).div_ceil(PLACES as u128) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory that processes share may hold anything.
    #[test]
    fn any_bits_are_counts() {
        for bits in [u64::MAX, 1 << 63, 129] {
            let counts = AuditCounts::default();
            let own = [&counts.in_turn, &counts.out_of_turn, &counts.first_out_of_turn];
            for word in own.into_iter().chain(&counts.draws).chain([&counts.drawn_places]) {
                word.store(bits, Relaxed);
            }
            counts.count_turn(false, u64::MAX);
            counts.count_turn(true, 0);
            assert_eq!(counts.read().draws.len(), PLACES);
            counts.count_draw(u64::MAX, 3);
            assert_eq!(counts.read().draws.len(), 3);
        }
    }
}
