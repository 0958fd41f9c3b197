//! The audit of a running scheme: whether each event touches the places that the scheme's public
//! description says.

use super::{SlotLayout, SlotTurns};
use crate::activity::{AuditCounts, EventAudit};
use crate::trace::{Event, Op};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Places that a scheme draws from, all with the same probability: the leaves of a tree, or slots.
pub trait DrawnPlaces: Send {
    /// How many places there are.
    fn places(&self) -> u64;

    /// The operation that shows draws.
    fn shown_by(&self) -> Op;

    /// The place that was drawn, if this event of that operation is the one that shows it. A draw
    /// is shown by one event at most.
    fn drawn(&self, event: &Event) -> Option<u64>;
}

/// Slots of which the scheme writes drawn ones, each by a write of its own.
pub struct DrawnSlots {
    /// First byte of the area.
    pub first: u64,
    /// The layout of the slots.
    pub layout: SlotLayout,
}

impl DrawnPlaces for DrawnSlots {
    fn places(&self) -> u64 {
        self.layout.slots
    }

    fn shown_by(&self) -> Op {
        Op::Write
    }

    fn drawn(&self, event: &Event) -> Option<u64> {
        let at = event.at.checked_sub(self.first)?;
        let slot = self.layout.slot_with_body_at(at)?;
        (event.len as usize == self.layout.body_len).then_some(slot)
    }
}

/// Checks the events of one store against the public description of its scheme.
#[derive(Default)]
pub struct PlaceAudit {
    /// Areas with slots that are written in turn, by their first bytes.
    turns: Vec<(u64, SlotTurns)>,
    draws: Option<Box<dyn DrawnPlaces>>,
}

impl PlaceAudit {
    /// Also checks that the slots of areas are written in turn. Each area is given with its first
    /// byte. The store writes `unit` bytes as one.
    #[must_use]
    pub fn with_turns(
        mut self,
        areas: impl IntoIterator<Item = (u64, SlotLayout)>,
        unit: usize,
    ) -> Self {
        let turns = areas.into_iter().map(|(at, layout)| (at, SlotTurns::new(layout, unit)));
        self.turns.extend(turns);
        self.turns.sort_by_key(|(at, _)| *at);
        self
    }

    /// From now on only the first slots of each area need be written in turn, as many as come to be
    /// used.
    #[must_use]
    pub fn with_growth(mut self) -> Self {
        self.turns.iter_mut().for_each(|(_, turns)| turns.allow_growth());
        self
    }

    /// From now on whole stripes may also be discarded, which are recorded as writes.
    #[must_use]
    pub fn with_discards(mut self) -> Self {
        self.turns.iter_mut().for_each(|(_, turns)| turns.allow_discards());
        self
    }

    /// Also counts draws.
    #[must_use]
    pub fn with_draws(mut self, draws: Box<dyn DrawnPlaces>) -> Self {
        self.draws = Some(draws);
        self
    }

    /// Checks a write. Areas may be neighbours, and one write may reach into the next area.
    fn check_turn(&mut self, event: &Event, counts: &AuditCounts) {
        let (begin, end) = (event.at, event.at.saturating_add(event.len.into()));
        let nth = self.turns.partition_point(|(at, turns)| at + turns.area_len() <= begin);
        for (at, turns) in &mut self.turns[nth..] {
            let (from, to) = (begin.max(*at), end.min(*at + turns.area_len()));
            if from >= to {
                break;
            }
            counts.count_turn(turns.follow(from - *at, to - from), event.at);
        }
    }
}

impl EventAudit for PlaceAudit {
    fn checks(&self, op: Op) -> bool {
        let has_turns = op == Op::Write && !self.turns.is_empty();
        has_turns || self.draws.as_ref().is_some_and(|draws| draws.shown_by() == op)
    }

    fn record(&mut self, event: &Event, counts: &AuditCounts) {
        if event.op == Op::Write {
            self.check_turn(event, counts);
        }
        if let Some(draws) = &self.draws
            && draws.shown_by() == event.op
            && let Some(place) = draws.drawn(event)
        {
            counts.count_draw(place, draws.places());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::PLACES;
    use crate::trace::Surface;
    use alloc::vec;

    const LAYOUT: SlotLayout =
        SlotLayout { slots: 4, body_len: 512, entry_len: 128, stripe_slots: 4 };

    fn event(op: Op, at: u64, len: u32) -> Event {
        Event { time: 0, surface: Surface::Storage, op, at, len }
    }

    #[test]
    fn turns_are_checked_area_by_area() {
        let len = LAYOUT.len();
        let areas = [(100 + len, LAYOUT), (100, LAYOUT)];
        let mut audit = PlaceAudit::default().with_turns(areas, 512);
        let counts = AuditCounts::default();
        let mut write = |at, len| audit.record(&event(Op::Write, at, len), &counts);
        // Outside; the header and two slots of the first area; the first slot of the second one.
        write(0, 100);
        write(100, 512 + 2 * 512);
        write(100 + len, 512 + 512);
        write(100 + 2 * len, 9);
        assert_eq!((counts.read().in_turn, counts.read().out_of_turn), (2, 0));
        // The second slot of the first area again.
        write(100, 512);
        write(100 + 2 * 512, 512);
        assert_eq!(counts.read().first_out_of_turn, Some(100 + 2 * 512));
        // One write at the end of one area and at the beginning of the next one.
        write(100, 512);
        write(100 + 3 * 512, 1024);
        write(100 + len + 512, 512);
        audit.record(&event(Op::Read, 100, 512), &counts);
        let found = counts.read();
        assert_eq!((found.in_turn, found.out_of_turn, found.draws), (5, 2, vec![]));
        assert_eq!(Op::ALL.map(|op| audit.checks(op)), [false, true, false]);
    }

    #[test]
    fn drawn_slots_are_written_as_a_whole() {
        let slots = DrawnSlots { first: 100, layout: LAYOUT };
        let drawn = |at, len| slots.drawn(&event(Op::Write, at, len));
        assert_eq!([0, 3].map(|slot| drawn(100 + 512 + slot * 512, 512)), [Some(0), Some(3)]);
        let others =
            [(100, 512), (100 + 512, 1024), (100 + 513, 512), (100 + 5 * 512, 512), (0, 9)];
        assert!(others.iter().all(|&(at, len)| drawn(at, len).is_none()));
    }

    struct Places(u64);

    impl DrawnPlaces for Places {
        fn places(&self) -> u64 {
            self.0
        }
        fn shown_by(&self) -> Op {
            Op::Read
        }
        fn drawn(&self, event: &Event) -> Option<u64> {
            (event.len == 1).then_some(event.at)
        }
    }

    #[test]
    fn draws_are_counted_by_parts_of_the_places() {
        for places in [1, 2, 100, 128, 129, 1000] {
            let mut audit = PlaceAudit::default().with_draws(Box::new(Places(places)));
            let counts = AuditCounts::default();
            for at in 0..places {
                audit.record(&event(Op::Read, at, 1), &counts);
                audit.record(&event(Op::Write, at, 1), &counts);
                audit.record(&event(Op::Read, at, 2), &counts);
            }
            assert_eq!(Op::ALL.map(|op| audit.checks(op)), [true, false, false]);
            let draws = counts.read().draws;
            assert_eq!(draws.len() as u64, places.min(PLACES as u64));
            assert!(draws.iter().all(|(draws, places)| draws == places), "{draws:?}");
        }
    }
}
