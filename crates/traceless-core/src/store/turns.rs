//! Whether the writes to an area go to its slots in turn: an adversary can check it by the layout.

use super::area::SlotLayout;
use super::run::HeaderPart;

/// Follows the writes to an area: its slots are due one after the other, around the area.
pub struct SlotTurns {
    layout: SlotLayout,
    /// Bytes that the store writes as one.
    unit: usize,
    /// The slot that is due, once one was written.
    next: Option<u64>,
    /// The stripe of a header that was written in part, and where and how much. Its slots are next.
    header: Option<(u64, usize, usize)>,
    /// Whether stripes without the slot that is due may be discarded.
    takes_discards: bool,
    /// For an area that grows, the slots that were used when the first one was due again last.
    grows_from: Option<u64>,
}

impl SlotTurns {
    /// Before the first write, to an area of a store that writes `unit` bytes as one.
    pub fn new(layout: SlotLayout, unit: usize) -> Self {
        Self { layout, unit, next: None, header: None, takes_discards: false, grows_from: None }
    }

    /// From now on whole stripes may also be discarded, in any order, but for the one of the slot
    /// that is due.
    pub fn allow_discards(&mut self) {
        self.takes_discards = true;
    }

    /// From now on the first slot may be due again when only some slots were written, but never
    /// fewer than the last time.
    pub fn allow_growth(&mut self) {
        self.grows_from = Some(1);
    }

    /// Bytes of the area.
    pub fn area_len(&self) -> u64 {
        self.layout.len()
    }

    /// Whether this write, of the area's bytes `at..at + len`, was due: it goes on where the last
    /// one ended. The first write may be anywhere, and after one that was not due, the next one
    /// goes on from there.
    pub fn follow(&mut self, at: u64, len: u64) -> bool {
        let end = at.saturating_add(len);
        if end > self.layout.len() {
            return false;
        }
        if self.takes_discards && self.is_discard(at, end) {
            return true;
        }
        let mut at = at;
        let mut was_due = true;
        while at < end {
            let stripe = at / self.layout.stripe_len();
            let bodies = stripe * self.layout.stripe_len() + self.layout.header_len() as u64;
            let part_end = if at < bodies {
                let part_end = end.min(bodies);
                was_due &= self.follow_header(stripe, at, part_end);
                part_end
            } else {
                let part_end = end.min((stripe + 1) * self.layout.stripe_len());
                was_due &= self.follow_bodies(stripe, at - bodies, part_end - bodies);
                part_end
            };
            at = part_end;
        }
        was_due
    }

    /// Whether these bytes are whole stripes, and none of them has the slot that is due.
    fn is_discard(&self, at: u64, end: u64) -> bool {
        let (stripe, slots) = (self.layout.stripe_len(), self.layout.slots);
        let area_end = self.layout.body_at(slots - 1) + self.layout.body_len as u64;
        let is_whole = at.is_multiple_of(stripe) && (end.is_multiple_of(stripe) || end == area_end);
        let is_due = |slot: u64| (at..end).contains(&self.layout.body_at(slot % slots));
        is_whole && self.header.is_none() && self.next.is_some_and(|slot| !is_due(slot))
    }

    /// Whether this is the first slot of an area that grows, and enough slots were written.
    fn begins_again(&mut self, slot: u64) -> bool {
        let (Some(least), Some(used)) = (self.grows_from, self.next) else { return false };
        if slot != 0 || used < least {
            return false;
        }
        self.grows_from = Some(used);
        true
    }

    fn follow_header(&mut self, stripe: u64, at: u64, end: u64) -> bool {
        let from = (at - stripe * self.layout.stripe_len()) as usize;
        // A header without its slots was not due.
        self.header.replace((stripe, from, (end - at) as usize)).is_none()
    }

    /// Follows the bodies `from..to` of a stripe, in bytes behind its header.
    fn follow_bodies(&mut self, stripe: u64, from: u64, to: u64) -> bool {
        let (layout, len) = (&self.layout, self.layout.body_len as u64);
        let slot = stripe * layout.stripe_slots + from / len;
        let end = stripe * layout.stripe_slots + to / len;
        let is_whole = from.is_multiple_of(len) && to.is_multiple_of(len) && end <= layout.slots;
        let part = HeaderPart::to_write(layout, slot, end.saturating_sub(slot), self.unit);
        let header = self.header.take();
        let is_next = self.next.is_none_or(|next| next == slot) || self.begins_again(slot);
        let layout = &self.layout;
        let was_due = is_whole
            && is_next
            && header == (part.len > 0).then_some((stripe, part.from, part.len));
        if end == layout.slots {
            // The whole area is in use, and stays so.
            self.grows_from = self.grows_from.map(|_| end);
        }
        self.next = Some(end % layout.slots.max(1));
        was_due
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::rng::{Rng, SeededRng};
    use crate::store::{Area, Cursor, MemStore, Run, Store, WatchedStore};
    use crate::trace::{Event, Op, Recorder};
    use crate::types::Slot;
    use std::sync::Arc;

    const LAYOUT: SlotLayout =
        SlotLayout { slots: 37, body_len: 64, entry_len: 16, stripe_slots: 8 };

    /// The unit of a store in memory.
    const UNIT: usize = 64;

    /// The events of writes of random length to the slots of an area in turn.
    fn events(layout: SlotLayout, writes: u64) -> Vec<Event> {
        let witness = Arc::new(Recorder::default());
        let store: Arc<dyn Store> =
            Arc::new(WatchedStore::new(MemStore::new(layout.len()), witness.clone()));
        let area = Area::new(store.clone(), 0, layout, "test");
        let (mut cursor, mut run) = (Cursor::at_start(&layout), Run::default());
        let (mut slot, mut rng) = (0, SeededRng::new(3));
        for _ in 0..writes {
            let count = 1 + rng.below(layout.slots - 1);
            run.clear();
            run.add_write(&area, Slot(slot), count, &cursor);
            run.write(&*store).unwrap();
            run.advance(&mut cursor, count as usize - 1);
            slot = (slot + count) % layout.slots;
        }
        witness.take().into_iter().filter(|event| event.op == Op::Write).collect()
    }

    fn wrong(turns: &mut SlotTurns, events: &[Event]) -> usize {
        events.iter().filter(|event| !turns.follow(event.at, event.len.into())).count()
    }

    #[test]
    fn writes_in_turn_are_due() {
        for stripe_slots in [1, 7, 8, 64] {
            let layout = SlotLayout { stripe_slots, ..LAYOUT };
            let events = events(layout, 300);
            assert!(events.len() > 300);
            assert_eq!(wrong(&mut SlotTurns::new(layout, UNIT), &events), 0, "{stripe_slots}");
            // Also for an auditor that comes later, at the beginning of a write.
            let header = events
                .iter()
                .skip(40)
                .position(|event| event.at % layout.stripe_len() < layout.header_len() as u64);
            let later = &events[40 + header.unwrap()..];
            assert_eq!(wrong(&mut SlotTurns::new(layout, UNIT), later), 0, "{stripe_slots}");
        }
    }

    #[test]
    fn stripes_that_are_not_due_may_be_discarded() {
        let mut turns = SlotTurns::new(LAYOUT, UNIT);
        turns.allow_discards();
        let stripe = LAYOUT.stripe_len();
        // The header and the first two slots of the third stripe; the next one is due.
        assert!(turns.follow(2 * stripe, 128 + 2 * 64));
        let last = 128 + 5 * 64;
        for (at, len, was_due) in [
            (0, 2 * stripe, true),
            (3 * stripe, stripe + last, true),
            (4 * stripe, last, true),
            (2 * stripe + 64, 64 + 3 * 64, false),
        ] {
            assert_eq!(turns.follow(at, len), was_due, "{at} {len}");
        }
        let mut others = SlotTurns::new(LAYOUT, UNIT);
        assert!(others.follow(2 * stripe, 128 + 2 * 64));
        assert!(!others.follow(0, 2 * stripe), "unless discards are allowed");
        // A stripe that is due is written, and the next slot follows from it.
        let mut whole = SlotTurns::new(LAYOUT, UNIT);
        whole.allow_discards();
        assert!(whole.follow(0, stripe) && whole.follow(stripe, stripe));
        assert!(whole.follow(0, stripe) && whole.follow(2 * stripe, 128 + 64));
        assert!(!whole.follow(stripe, 128 + 64));
    }

    #[test]
    fn an_area_that_grows_is_never_used_in_a_smaller_part() {
        let layout = SlotLayout { slots: 5, body_len: 4096, entry_len: 0, stripe_slots: 5 };
        let due = |slots: &[u64], grows| {
            let mut turns = SlotTurns::new(layout, UNIT);
            if grows {
                turns.allow_growth();
            }
            slots.iter().filter(|&slot| turns.follow(slot * 4096, 4096)).count()
        };
        assert_eq!(due(&[0, 1, 0, 1, 0, 1, 2, 0, 1, 2, 3, 4, 0], true), 13);
        assert_eq!(due(&[0, 1, 0, 1], false), 3);
        assert_eq!(due(&[0, 1, 2, 0, 1, 0], true), 5, "a smaller part");
        assert_eq!(due(&[0, 1, 0, 1, 2, 3, 4, 0, 1, 0], true), 9, "after the whole area");
        assert_eq!(due(&[0, 1, 2, 1, 2, 0], true), 5, "not the first slot");
    }

    #[test]
    fn slots_without_entries_have_no_headers() {
        let layout = SlotLayout { slots: 5, body_len: 4096, entry_len: 0, stripe_slots: 5 };
        let mut turns = SlotTurns::new(layout, UNIT);
        let due = [3, 4, 0, 1, 3, 4].map(|slot| turns.follow(slot * 4096, 4096));
        assert_eq!(due, [true, true, true, true, false, true]);
    }

    #[test]
    fn everything_out_of_turn_is_found() {
        let events = events(LAYOUT, 60);
        for nth in 2..events.len() - 2 {
            let mut others = [(); 5].map(|()| events.clone());
            others[0].remove(nth);
            others[1].swap(nth, nth + 1);
            others[2][nth].at += 64;
            others[3][nth].len -= 16;
            others[4][nth].len += 16;
            for (fault, other) in others.iter().enumerate() {
                let found = wrong(&mut SlotTurns::new(LAYOUT, UNIT), other);
                assert!((1..=5).contains(&found), "fault {fault} at {nth}: {found}");
            }
        }
    }

    #[test]
    fn any_write_is_followed() {
        let mut rng = SeededRng::new(4);
        let mut turns = SlotTurns::new(LAYOUT, 512);
        for _ in 0..10_000 {
            turns.follow(rng.below(2 * LAYOUT.len()), rng.below(5000));
        }
        turns.follow(u64::MAX, 9);
        turns.follow(0, 0);
    }
}
