//! The events of accesses, as far as they are kept: each place by its number, in four bytes.

use std::collections::BTreeMap;
use traceless_core::trace::{Event, Op};

/// The most events that are kept, for tests that examine single events.
const EVENTS_MAX: usize = 1 << 24;

/// One event of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FootprintEvent {
    /// The number of the place.
    pub number: u32,
    pub is_write: bool,
    /// Whether it is a read, and the last event at this place was one, too.
    pub is_reread: bool,
}

/// The reads and writes of a trace, in order.
#[derive(Default, Debug)]
pub(crate) struct Footprint {
    all: Vec<u32>,
    numbers: BTreeMap<u64, u32>,
    /// For each number, its place, and whether the last event there was a read.
    places: Vec<u64>,
    was_read: Vec<bool>,
}

impl Footprint {
    /// Adds an event, unless there are too many.
    pub fn add(&mut self, event: &Event) {
        if event.op == Op::Sync || self.all.len() == EVENTS_MAX {
            return;
        }
        let next = self.places.len() as u32;
        let number = *self.numbers.entry(event.at).or_insert(next);
        if number == next {
            self.places.push(event.at);
            self.was_read.push(false);
        }
        let is_write = event.op == Op::Write;
        let before = core::mem::replace(&mut self.was_read[number as usize], !is_write);
        if is_write && event.len > 1 {
            // A bucket may be written as a whole, although its slots are read one by one.
            let end = event.at.saturating_add(event.len.into());
            for (_, &inside) in self.numbers.range(event.at..end).skip(1) {
                self.was_read[inside as usize] = false;
            }
        }
        self.all.push(number << 2 | u32::from(is_write) << 1 | u32::from(before && !is_write));
    }

    /// The number of events that are kept so far.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The events of an access; nothing if not all of them were kept.
    pub fn of(
        &self,
        first: usize,
        events: usize,
    ) -> Option<impl ExactSizeIterator<Item = FootprintEvent>> {
        let event = |&word: &u32| FootprintEvent {
            number: word >> 2,
            is_write: word & 2 != 0,
            is_reread: word & 1 != 0,
        };
        Some(self.all.get(first..first + events)?.iter().map(event))
    }

    /// The place with this number.
    pub fn place(&self, number: u32) -> u64 {
        self.places[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::trace::Surface;

    #[test]
    fn reads_without_a_write_in_between_are_rereads() {
        let mut footprint = Footprint::default();
        let mut add = |op, at| {
            footprint.add(&Event { time: 0, surface: Surface::Storage, op, at, len: 1 });
        };
        for (op, at) in [(Op::Read, 9), (Op::Read, 4), (Op::Read, 9), (Op::Sync, 0)] {
            add(op, at);
        }
        for (op, at) in [(Op::Write, 9), (Op::Read, 9), (Op::Read, 9), (Op::Write, 4)] {
            add(op, at);
        }
        let all: Vec<FootprintEvent> = footprint.of(0, 7).unwrap().collect();
        let rereads: Vec<bool> = all.iter().map(|event| event.is_reread).collect();
        assert_eq!(rereads, [false, false, true, false, false, true, false]);
        let places: Vec<u64> = all.iter().map(|event| footprint.place(event.number)).collect();
        assert_eq!(places, [9, 4, 9, 9, 9, 9, 4]);
        assert!(all[3].is_write && !all[4].is_write);
        assert!(footprint.of(1, 7).is_none());
    }

    #[test]
    fn a_long_write_covers_all_places_in_it() {
        let mut footprint = Footprint::default();
        for (op, at, len) in [(Op::Read, 8, 4), (Op::Write, 0, 9), (Op::Read, 8, 4)] {
            footprint.add(&Event { time: 0, surface: Surface::Storage, op, at, len });
        }
        assert!(footprint.of(0, 3).unwrap().all(|event| !event.is_reread));
        footprint.add(&Event {
            time: 0,
            surface: Surface::Storage,
            op: Op::Write,
            at: u64::MAX,
            len: 4,
        });
    }
}
