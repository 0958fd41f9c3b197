//! What the reads of a trace show: the leaf of each access, which is drawn at random, and the rest,
//! which follows from the number of accesses.
//!
//! Beside the leaf an access shows which unread slot of each bucket it reads, and whether all
//! dummies of a bucket were read. Both follow from the leaves, and from draws that mean nothing.

use super::RingGeometry;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem::take;
use core::result::Result;
use traceless_core::scheme::contract::ReadTrace;
use traceless_core::store::SlotLayout;
use traceless_core::trace::{Event, Op};

/// Splits a trace from the creation on. An error says what no ring does: a slot is read twice, a
/// bucket beside the path, or a bucket is read whole before all its dummies are.
pub(super) fn read_trace(
    geometry: &RingGeometry,
    trace: &[Event],
) -> Result<ReadTrace, &'static str> {
    let mut reader = TraceReader {
        geometry,
        count: 0,
        read: geometry.levels.iter().map(|_| BTreeSet::new()).collect(),
        reads: Vec::new(),
        writes: Vec::new(),
        out: ReadTrace { places: geometry.leaves(), drawn: Vec::new(), public: Vec::new() },
    };
    for event in trace {
        reader.record(*event)?;
    }
    reader.end_of_writes()?;
    reader.out.public.append(&mut reader.reads);
    Ok(reader.out)
}

struct TraceReader<'a> {
    geometry: &'a RingGeometry,
    count: u64,
    /// Of each level the slots that were read alone since their bucket was written.
    read: Vec<BTreeSet<u64>>,
    reads: Vec<Event>,
    writes: Vec<Event>,
    out: ReadTrace,
}

impl TraceReader<'_> {
    fn record(&mut self, event: Event) -> Result<(), &'static str> {
        if event.op != Op::Write {
            self.end_of_writes()?;
        }
        match event.op {
            Op::Write => self.writes.push(event),
            Op::Read => self.reads.push(event),
            // What an opening reads before its first sync follows from the count.
            Op::Sync => {
                self.out.public.append(&mut self.reads);
                self.out.public.push(event);
            }
        }
        Ok(())
    }

    /// The slots of each level with bodies in these events, in order.
    fn level_slots(&self, events: &[Event]) -> Vec<(usize, u64)> {
        let areas = self.geometry.areas();
        let layouts: Vec<_> =
            (0..self.geometry.levels.len()).map(|level| self.geometry.level(level)).collect();
        let of_event = |event: &Event| {
            let of_level = |(level, layout): (usize, &SlotLayout)| {
                let slots = slots_in(layout, areas[1 + level].1, *event);
                slots.into_iter().map(move |slot| (level, slot))
            };
            layouts.iter().enumerate().flat_map(of_level).collect::<Vec<_>>()
        };
        events.iter().flat_map(of_event).collect()
    }

    fn end_of_writes(&mut self) -> Result<(), &'static str> {
        if self.writes.is_empty() {
            return Ok(());
        }
        let (writes, reads) = (take(&mut self.writes), take(&mut self.reads));
        let (log, at) = (self.geometry.log(), self.geometry.areas()[0].1);
        let records: u64 = writes.iter().map(|event| slots_in(&log, at, *event).len() as u64).sum();
        let (evicted, slots) = (self.evicted(records), self.level_slots(&reads));
        if records == 0 || slots == evicted {
            // Of a pass all of it follows from the count.
            self.out.public.extend(reads);
        } else {
            let first = reads.first().ok_or("records are written, and nothing is read")?;
            let rest = self.accesses(records, &slots, *first)?;
            if rest != evicted {
                return Err("something is read beside the paths");
            }
        }
        for (level, slot) in self.level_slots(&writes) {
            self.read[level].remove(&slot);
        }
        self.out.public.extend(writes);
        self.count += records;
        Ok(())
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
    fn accesses<'s>(
        &mut self,
        records: u64,
        slots: &'s [(usize, u64)],
        event: Event,
    ) -> Result<&'s [(usize, u64)], &'static str> {
        let (mut rest, mut whole) = (slots, BTreeSet::new());
        for _ in 0..records {
            let mut path = None;
            for level in 0..self.geometry.levels.len() {
                let bucket = self.slot_of_access(level, &mut rest, &mut whole)?;
                if let (Some(above), Some(path)) = (level.checked_sub(1), path) {
                    let of = |level: usize| self.geometry.levels[level].buckets;
                    if bucket.is_some_and(|bucket| bucket / (of(level) / of(above)) != path) {
                        return Err("buckets of two paths are read");
                    }
                }
                path = bucket;
            }
            self.out.drawn.push(path);
            self.out.public.push(Event { at: 0, len: 1, ..event });
        }
        Ok(rest)
    }

    /// Takes what an access reads of a level, and returns the bucket. It is not known of a bucket
    /// that was read whole for an access before.
    fn slot_of_access(
        &mut self,
        level: usize,
        rest: &mut &[(usize, u64)],
        whole: &mut BTreeSet<(usize, u64)>,
    ) -> Result<Option<u64>, &'static str> {
        let again = whole.iter().any(|(of, _)| *of == level);
        let Some(&(of, slot)) = rest.first().filter(|(of, _)| *of == level) else {
            return if again { Ok(None) } else { Err("a level is not read") };
        };
        let of_level = self.geometry.levels[of];
        let first = slot / of_level.slots() * of_level.slots();
        let bucket = self.bucket_at(level, first).ok_or("a dead bucket is read")?;
        let alone = self.read[level].range(first..first + of_level.slots()).count() as u64;
        if alone < of_level.dummies {
            if !self.read[level].insert(slot) {
                return Err("a slot is read twice");
            }
            *rest = &rest[1..];
            return Ok(Some(bucket));
        }
        if !whole.insert((level, first)) {
            return Ok(None);
        }
        let len = of_level.slots() as usize;
        let is_whole = rest.len() >= len
            && rest[..len].iter().copied().eq((first..).take(len).map(|slot| (level, slot)));
        if !is_whole {
            return Err("a bucket without unread dummies is not read whole");
        }
        *rest = &rest[len..];
        Ok(Some(bucket))
    }

    /// The bucket with this first slot.
    fn bucket_at(&self, level: usize, first: u64) -> Option<u64> {
        let evictions = self.geometry.evictions(self.count);
        let is_there = |bucket: &u64| self.geometry.bucket_slot(level, *bucket, evictions) == first;
        (0..self.geometry.levels[level].buckets).find(is_there)
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
