//! What of a ring's trace is public without the draws: everything but the leaves of accesses, and
//! which unread slot of each bucket is read. Panics at a trace that is not one of a ring: a slot
//! that is read twice, a bucket beside the path, a bucket read whole before all its dummies were.

use super::RingGeometry;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem::take;
use traceless_core::store::SlotLayout;
use traceless_core::trace::{Event, Op};

/// The events with the reads of each access replaced by one event.
pub(super) fn template(geometry: &RingGeometry, trace: &[Event]) -> Vec<Event> {
    let mut template = Template {
        geometry,
        count: 0,
        is_opening: false,
        read: geometry.levels.iter().map(|_| BTreeSet::new()).collect(),
        reads: Vec::new(),
        writes: Vec::new(),
        out: Vec::new(),
    };
    for event in trace {
        template.record(*event);
    }
    template.end_of_writes();
    template.out
}

struct Template<'a> {
    geometry: &'a RingGeometry,
    count: u64,
    /// Whether a log was read, and no access was made since then.
    is_opening: bool,
    /// Of each level the slots that were read alone since their bucket was written.
    read: Vec<BTreeSet<u64>>,
    reads: Vec<Event>,
    writes: Vec<Event>,
    out: Vec<Event>,
}

impl Template<'_> {
    fn record(&mut self, event: Event) {
        if event.op != Op::Write {
            self.end_of_writes();
        }
        match event.op {
            Op::Write => self.writes.push(event),
            Op::Read => {
                self.is_opening |= !slots_in(&self.geometry.log(), self.log_at(), event).is_empty();
                self.reads.push(event);
            }
            Op::Sync => {
                self.out.append(&mut self.reads);
                self.out.push(event);
            }
        }
    }

    fn log_at(&self) -> u64 {
        self.geometry.areas()[0].1
    }

    /// The slots of each level with bodies in these events, in order.
    fn level_slots(&self, events: &[Event]) -> Vec<(usize, u64)> {
        let areas = self.geometry.areas();
        let of_event = |event: &Event| {
            let levels = 0..self.geometry.levels.len();
            let of_level = |level: usize| {
                let slots = slots_in(&self.geometry.level(level), areas[1 + level].1, *event);
                slots.into_iter().map(|slot| (level, slot)).collect::<Vec<_>>()
            };
            levels.flat_map(of_level).collect::<Vec<_>>()
        };
        events.iter().flat_map(of_event).collect()
    }

    fn end_of_writes(&mut self) {
        let (writes, log) = (take(&mut self.writes), self.geometry.log());
        let of_log = |event: &Event| slots_in(&log, self.log_at(), *event).len() as u64;
        let records: u64 = writes.iter().map(of_log).sum();
        let reads = take(&mut self.reads);
        let evicted = self.evicted(records);
        let slots = self.level_slots(&reads);
        if records == 0 || self.is_opening && slots.ends_with(&evicted) {
            // Of a pass or an opening, all of it follows from the count.
            self.out.extend(reads);
        } else {
            self.is_opening = false;
            let rest = self.accesses(records, &slots, reads[0]);
            assert_eq!(rest, evicted, "the bucket of an eviction, and nothing else");
        }
        for (level, slot) in self.level_slots(&writes) {
            self.read[level].remove(&slot);
        }
        self.out.extend(writes);
        self.count += records;
    }

    /// The slots that the eviction after so many more records reads.
    fn evicted(&self, records: u64) -> Vec<(usize, u64)> {
        let (ring, after) = (self.geometry, self.count + records);
        if records == 0 || !after.is_multiple_of(ring.rate.into()) {
            return Vec::new();
        }
        let nth = ring.evictions(after) - 1;
        let of_level = |level: usize| {
            let bucket = ring.bucket(level, ring.evicted_leaf(nth));
            let last = ring.last_eviction(level, bucket, nth)?;
            let first = ring.written_slot(level, last);
            Some((first..first + ring.levels[level].slots()).map(move |slot| (level, slot)))
        };
        (0..ring.levels.len()).filter_map(of_level).flatten().collect()
    }

    /// Takes the slots of `records` accesses from the front of `slots`, and returns the rest.
    fn accesses(
        &mut self,
        records: u64,
        slots: &[(usize, u64)],
        event: Event,
    ) -> Vec<(usize, u64)> {
        let (mut rest, mut whole) = (slots, BTreeSet::new());
        for _ in 0..records {
            let mut above = None;
            for level in 0..self.geometry.levels.len() {
                let Some((&(of, slot), behind)) = rest.split_first() else {
                    assert!(!whole.is_empty(), "an access reads a slot of each level");
                    break;
                };
                let per_bucket = self.geometry.levels[level].slots();
                let first = slot / per_bucket * per_bucket;
                let alone = self.read[level].range(first..first + per_bucket).count() as u64;
                if of != level || alone == self.geometry.levels[level].dummies {
                    // A bucket that is read whole, or that was in this chunk.
                    if of == level && whole.insert((level, first)) {
                        assert!(rest.len() >= per_bucket as usize, "the whole bucket is read");
                        rest = &rest[per_bucket as usize..];
                    }
                    assert!(whole.iter().any(|(l, _)| *l == level), "a slot of this level");
                    above = None;
                    continue;
                }
                let bucket = self.bucket_at(level, first);
                if let Some(above) = above {
                    let fan = self.geometry.levels[level].buckets
                        / self.geometry.levels[level - 1].buckets;
                    assert_eq!(bucket / fan, above, "the buckets of one path");
                }
                above = Some(bucket);
                assert!(self.read[level].insert(slot), "no slot is read twice");
                rest = behind;
            }
            self.out.push(Event { at: 0, len: 1, ..event });
        }
        rest.to_vec()
    }

    /// The bucket with this first slot.
    fn bucket_at(&self, level: usize, first: u64) -> u64 {
        let evictions = self.geometry.evictions(self.count);
        (0..self.geometry.levels[level].buckets)
            .find(|&bucket| self.geometry.bucket_slot(level, bucket, evictions) == first)
            .expect("a slot of a live bucket is read")
    }
}

/// The slots of an area at byte `first` with bodies that begin in an event.
fn slots_in(layout: &SlotLayout, first: u64, event: Event) -> Vec<u64> {
    let end = event.at + u64::from(event.len);
    let (from, to) = (event.at.max(first), end.min(first + layout.len()));
    // Blocks are multiples of 64 bytes, and so are headers.
    let from = from.saturating_sub(first).next_multiple_of(64) + first;
    (from..to.max(from)).step_by(64).filter_map(|at| layout.slot_with_body_at(at - first)).collect()
}
