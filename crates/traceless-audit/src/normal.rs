//! The bytes touched between two syncs, without the properties that an adversary cannot rely on:
//! times, the order of writes that no sync separates, and how a stretch was cut into requests.
//!
//! A cache or a kernel may reorder, split and join requests between two syncs, so two runs of one
//! program differ there without leaking a secret. A sync is an event of its own, and keeps its
//! place in the trace.

use core::convert::Infallible;
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use traceless_core::trace::{Event, Op, Surface};

/// A range of touched bytes; or a sync, which has neither place nor length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// The surface on which the event was observed.
    pub surface: Surface,
    /// The operation.
    pub op: Op,
    /// First byte.
    pub at: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Stretch {
    /// The mark of a sync.
    pub const SYNC: Self = Self { surface: Surface::Storage, op: Op::Sync, at: 0, len: 0 };

    /// The bytes that `event` touched.
    pub fn of(event: &Event) -> Self {
        match event.op {
            Op::Sync => Self { surface: event.surface, ..Self::SYNC },
            op => Self { surface: event.surface, op, at: event.at, len: u64::from(event.len) },
        }
    }

    /// The first byte after the stretch. A file may contain any numbers: a stretch that would go
    /// beyond the last address ends there.
    pub fn end(&self) -> u64 {
        self.at.saturating_add(self.len)
    }

    fn order(&self) -> (u8, u8, u64) {
        (op_rank(self.op), surface_rank(self.surface), self.at)
    }

    /// Takes in `next`, which does not begin before this stretch, if the two touch or overlap.
    fn absorb(&mut self, next: &Self) -> bool {
        let same_kind = self.op == next.op && self.surface == next.surface;
        let joins = same_kind && self.at <= next.at && next.at <= self.end();
        if joins {
            self.len = self.end().max(next.end()) - self.at;
        }
        joins
    }
}

impl core::fmt::Display for Stretch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let what = match self.op {
            Op::Sync => return f.write_str("a sync"),
            Op::Read => "a read",
            Op::Write => "a write",
        };
        write!(f, "{what} of {} bytes at {}", self.len, self.at)?;
        match self.surface {
            Surface::Storage => Ok(()),
            Surface::Dram => f.write_str(" of the memory"),
            Surface::Page => f.write_str(" of the pages"),
            Surface::Wire => f.write_str(" on the wire"),
        }
    }
}

/// Serializes the library's enums by name, because they do not implement serde's traits.
impl Serialize for Stretch {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut out = to.serialize_struct("Stretch", 4)?;
        let surface = ["storage", "dram", "page", "wire"][usize::from(surface_rank(self.surface))];
        out.serialize_field("surface", surface)?;
        out.serialize_field("op", ["read", "write", "sync"][usize::from(op_rank(self.op))])?;
        out.serialize_field("at", &self.at)?;
        out.serialize_field("len", &self.len)?;
        out.end()
    }
}

/// The number of events of each kind.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Counts {
    /// Write events.
    pub writes: u64,
    /// Bytes that the write events wrote.
    pub bytes_written: u64,
    /// Syncs.
    pub syncs: u64,
    /// Read events; zero if reads are left out.
    pub reads: u64,
}

impl Counts {
    /// The number of all events.
    pub fn events(&self) -> u64 {
        self.writes + self.syncs + self.reads
    }

    /// Counts one more event.
    pub fn add(&mut self, event: &Event) {
        match event.op {
            Op::Read => self.reads += 1,
            Op::Sync => self.syncs += 1,
            Op::Write => {
                self.writes += 1;
                self.bytes_written = self.bytes_written.saturating_add(u64::from(event.len));
            }
        }
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        self.writes += other.writes;
        self.syncs += other.syncs;
        self.reads += other.reads;
        self.bytes_written = self.bytes_written.saturating_add(other.bytes_written);
    }
}

/// The events up to one sync, this sync included.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Epoch {
    /// Syncs before the epoch.
    pub number: u64,
    /// The touched stretches, in order; no two of a kind touch each other. Reads come before
    /// writes.
    pub stretches: Vec<Stretch>,
    /// Whether a sync ends the epoch. Only the last one of a trace may lack it.
    pub synced: bool,
    /// The counts of its events.
    pub counts: Counts,
}

/// The epochs of a trace, one in memory at a time.
///
/// The epochs of a trace file, while it is read:
///
/// ```
/// use traceless_audit::Epochs;
/// use traceless_core::trace::{Event, Op, Surface, TraceError, TraceReader, TraceWriter};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut file = vec![];
/// let mut writer = TraceWriter::new(&mut file)?;
/// for (op, at, len) in [(Op::Write, 0, 8), (Op::Sync, 0, 0), (Op::Write, 64, 8)] {
///     writer.append(Event { time: 0, surface: Surface::Storage, op, at, len })?;
/// }
/// writer.finish()?;
/// let epochs = Epochs::new(TraceReader::new(&file[..])?, false);
/// let synced = epochs.map(|epoch| Ok(epoch?.synced)).collect::<Result<Vec<bool>, TraceError>>()?;
/// assert_eq!(synced, [true, false]);
/// # Ok(())
/// # }
/// ```
pub struct Epochs<I> {
    events: I,
    reads: bool,
    number: u64,
}

impl<I> Epochs<I> {
    /// The epochs of `events`; reads are left out unless `reads` is set.
    pub fn new(events: I, reads: bool) -> Self {
        Self { events, reads, number: 0 }
    }
}

impl<I: Iterator<Item = Result<Event, E>>, E> Iterator for Epochs<I> {
    type Item = Result<Epoch, E>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut stretches = Stretches::default();
        let mut counts = Counts::default();
        let mut synced = false;
        while !synced {
            let event = match self.events.next() {
                None => break,
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(event)) => event,
            };
            if event.op == Op::Read && !self.reads {
                continue;
            }
            counts.add(&event);
            synced = event.op == Op::Sync;
            // An empty event touches nothing, however it is cut.
            if !synced && event.len > 0 {
                stretches.push(Stretch::of(&event));
            }
        }
        if counts == Counts::default() {
            return None;
        }
        let number = self.number;
        self.number += 1;
        Some(Ok(Epoch { number, stretches: stretches.into_sorted(), synced, counts }))
    }
}

/// The epochs of a trace that is in memory.
///
/// Writes that touch are one stretch, in whichever order they came:
///
/// ```
/// use traceless_audit::normalise;
/// use traceless_core::trace::{Event, Op, Surface};
///
/// let write = |at, len| Event { time: 0, surface: Surface::Storage, op: Op::Write, at, len };
/// let epochs: Vec<_> = normalise([write(512, 512), write(0, 512)], false).collect();
/// assert_eq!(epochs.len(), 1);
/// let stretch = epochs[0].stretches[0];
/// assert_eq!((stretch.at, stretch.len), (0, 1024));
/// ```
pub fn normalise(
    events: impl IntoIterator<Item = Event>,
    reads: bool,
) -> impl Iterator<Item = Epoch> {
    let events = events.into_iter().map(Ok::<_, Infallible>);
    Epochs::new(events, reads).map(|epoch| {
        let Ok(epoch) = epoch;
        epoch
    })
}

/// Stretches joined where they touch. Occasional sorting keeps the memory of an epoch proportional
/// to what it covers, however many events it has.
#[derive(Default)]
struct Stretches {
    list: Vec<Stretch>,
    sorted: usize,
}

/// Stretches kept before the first sorting.
const UNSORTED_MIN: usize = 1 << 12;

impl Stretches {
    fn push(&mut self, next: Stretch) {
        if self.list.last_mut().is_some_and(|last| last.absorb(&next)) {
            return;
        }
        if self.list.len() >= (2 * self.sorted).max(UNSORTED_MIN) {
            self.sort();
        }
        self.list.push(next);
    }

    fn sort(&mut self) {
        self.list.sort_unstable_by_key(Stretch::order);
        self.list.dedup_by(|next, before| before.absorb(next));
        self.sorted = self.list.len();
    }

    fn into_sorted(mut self) -> Vec<Stretch> {
        self.sort();
        self.list
    }
}

fn op_rank(op: Op) -> u8 {
    match op {
        Op::Read => 0,
        Op::Write => 1,
        Op::Sync => 2,
    }
}

fn surface_rank(surface: Surface) -> u8 {
    match surface {
        Surface::Storage => 0,
        Surface::Dram => 1,
        Surface::Page => 2,
        Surface::Wire => 3,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn write(at: u64, len: u32) -> Event {
        Event { time: 0, surface: Surface::Storage, op: Op::Write, at, len }
    }

    pub fn read(at: u64, len: u32) -> Event {
        Event { op: Op::Read, ..write(at, len) }
    }

    pub fn sync() -> Event {
        Event { op: Op::Sync, ..write(0, 0) }
    }

    fn covered(events: &[Event]) -> Vec<Vec<(u64, u64)>> {
        let epochs = normalise(events.iter().copied(), false);
        epochs.map(|e| e.stretches.iter().map(|s| (s.at, s.len)).collect()).collect()
    }

    #[test]
    fn adjacent_and_overlapping_writes_are_merged_in_any_order() {
        let events = [write(8, 4), write(0, 4), write(4, 4), write(10, 10), write(30, 1)];
        assert_eq!(covered(&events), [vec![(0, 20), (30, 1)]]);
        let mut reversed = events;
        reversed.reverse();
        assert_eq!(covered(&reversed), covered(&events));
        // A write that lies inside another does not shorten it.
        assert_eq!(covered(&[write(0, 100), write(10, 5), write(100, 1)]), [vec![(0, 101)]]);
    }

    #[test]
    fn writes_are_not_merged_across_a_sync() {
        let events = [write(0, 4), sync(), write(4, 4), sync(), sync(), write(8, 4)];
        assert_eq!(covered(&events), [vec![(0, 4)], vec![(4, 4)], vec![], vec![(8, 4)]]);
        let epochs: Vec<_> = normalise(events, false).collect();
        assert_eq!(epochs.iter().map(|e| e.synced).collect::<Vec<_>>(), [true, true, true, false]);
        assert_eq!(epochs.iter().map(|e| e.number).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(normalise([], false).count(), 0);
        assert_eq!(normalise([write(0, 1), sync()], false).count(), 1);
    }

    #[test]
    fn reads_are_normalised_only_on_request() {
        let events = [read(50, 4), write(0, 4), read(4, 4)];
        let without: Vec<_> = normalise(events, false).collect();
        assert_eq!(without[0].stretches.len(), 1);
        assert_eq!(without[0].counts, Counts { writes: 1, bytes_written: 4, syncs: 0, reads: 0 });
        let with: Vec<_> = normalise(events, true).collect();
        // Reads do not join with writes.
        assert_eq!(with[0].stretches.len(), 3);
        assert_eq!(with[0].counts.reads, 2);
        assert_eq!(normalise([read(0, 1)], false).count(), 0);
    }

    #[test]
    fn writes_to_different_surfaces_are_not_merged() {
        let events = [write(0, 4), Event { surface: Surface::Dram, ..write(4, 4) }];
        assert_eq!(covered(&events), [vec![(0, 4), (4, 4)]]);
    }

    #[test]
    fn a_long_epoch_is_stored_as_its_coverage() {
        let mut merged = Stretches::default();
        for i in 0..1_000_000u64 {
            merged.push(Stretch { len: 16, at: i * 7919 % 1000 * 16, ..Stretch::of(&write(0, 1)) });
        }
        assert!(merged.list.len() <= 2 * UNSORTED_MIN, "{}", merged.list.len());
        let list = merged.into_sorted();
        assert_eq!(list.len(), 1);
        assert_eq!((list[0].at, list[0].len), (0, 16_000));
    }

    #[test]
    fn writes_at_the_last_address_do_not_overflow() {
        let events = [write(u64::MAX, 10), write(u64::MAX - 5, 100), write(7, 0)];
        assert_eq!(covered(&events), [vec![(u64::MAX - 5, 5)]]);
    }
}
