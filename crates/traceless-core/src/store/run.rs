//! Slots that are read or written in one round trip.

use super::area::{Area, SlotLayout};
use super::{ALIGN, AlignedBuf, Store};
use crate::error::Result;
use crate::types::{Extent, Slot, push_extent};
use alloc::vec;
use alloc::vec::Vec;

/// The header of the stripe that an area's writer is in. A writer that fills slots in order keeps
/// it, so that it never reads a header back to complete it.
#[derive(Clone)]
pub struct Cursor {
    header: Vec<u8>,
}

impl Cursor {
    /// A cursor at the beginning of a stripe, with an empty header.
    pub fn at_start(layout: &SlotLayout) -> Self {
        Self { header: vec![0; layout.header_len()] }
    }

    /// A cursor in the middle of the stripe of `slot`; reads the header back.
    pub fn load(area: &Area, slot: Slot) -> Result<Self> {
        let mut cursor = Self::at_start(area.layout());
        area.read_header(slot, &mut cursor.header)?;
        Ok(cursor)
    }
}

/// Fewest pieces for which a run prefetches before it reads: one slot with its entry is two.
const PIECES_MIN: usize = 3;

/// Some slots of one or more areas of a store, gathered so that they are read, or written, in one
/// round trip. Its owner keeps and clears it, so that a request allocates nothing once it has
/// grown.
#[derive(Default)]
pub struct Run {
    bytes: AlignedBuf,
    len: usize,
    extents: Vec<Extent>,
    slots: Vec<SlotParts>,
}

/// Where one slot lies in a run's bytes. `header` is where its part of the header begins, before
/// its entry.
struct SlotParts {
    header: usize,
    part: HeaderPart,
    entry: usize,
    entry_len: usize,
    body: usize,
    body_len: usize,
}

/// The bytes `from..from + len` of a stripe's header; the first `skip` of them belong to other
/// slots.
#[derive(Clone, Copy)]
pub(super) struct HeaderPart {
    pub(super) from: usize,
    pub(super) len: usize,
    skip: usize,
}

impl HeaderPart {
    /// The whole units around the entries of `n` slots of one stripe.
    fn around(layout: &SlotLayout, slot: u64, n: u64, unit: usize) -> Self {
        let begin = (slot % layout.stripe_slots) as usize * layout.entry_len;
        let end = begin + n as usize * layout.entry_len;
        let from = begin / unit * unit;
        let to = end.next_multiple_of(unit).min(layout.header_len());
        Self { from, len: to - from, skip: begin - from }
    }

    /// What is written of a header with the `n` slots of its stripe from `slot` on: a header is
    /// begun as a whole, so that no read is needed to complete it; later only the units that change
    /// are written.
    pub(super) fn to_write(layout: &SlotLayout, slot: u64, n: u64, unit: usize) -> Self {
        let is_first = slot.is_multiple_of(layout.stripe_slots);
        Self::around(layout, slot, n, if is_first { layout.header_len().max(1) } else { unit })
    }
}

impl Run {
    /// Removes all gathered slots.
    pub fn clear(&mut self) {
        self.len = 0;
        self.extents.clear();
        self.slots.clear();
    }

    /// Number of slots gathered.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Adds `count` slots from `first` on, to be read. The area is a ring: they may wrap once.
    pub fn add(&mut self, area: &Area, first: Slot, count: u64) {
        // More of a header than the entries is read only where requests must be aligned.
        self.add_slots(area, first, count, if area.unit < ALIGN { 1 } else { area.unit });
    }

    /// Adds `count` slots from `first` on, to be overwritten in place; no other entry changes.
    pub fn add_in_place(&mut self, area: &Area, first: Slot, count: u64) {
        self.add_slots(area, first, count, 1);
    }

    /// Adds `count` slots from `first` on, with the whole units of `unit` bytes around their
    /// entries.
    fn add_slots(&mut self, area: &Area, first: Slot, count: u64, unit: usize) {
        for (slot, n) in area.stripes(first, count) {
            let part = HeaderPart::around(area.layout(), slot, n, unit);
            self.add_stripe(area, slot, n, part);
        }
    }

    /// Adds `count` slots from `first` on, to be written after the slots recorded in `cursor`. They
    /// may wrap once. Entries behind them in their stripe may become zero.
    pub fn add_write(&mut self, area: &Area, first: Slot, count: u64, cursor: &Cursor) {
        for (slot, n) in area.stripes(first, count) {
            let part = HeaderPart::to_write(area.layout(), slot, n, area.unit);
            let at = self.len;
            self.add_stripe(area, slot, n, part);
            let bytes = &mut self.bytes[at..at + part.len];
            bytes[..part.skip].copy_from_slice(&cursor.header[part.from..part.from + part.skip]);
            bytes[part.skip..].fill(0);
        }
    }

    /// Adds one slot, to be rewritten in the middle of a stripe: the other entries of its stripe
    /// stay as `cursor` has them.
    pub fn add_rewrite(&mut self, area: &Area, slot: Slot, cursor: &Cursor) {
        let at = self.len;
        self.add_write(area, slot, 1, cursor);
        let part = self.slots.last().expect("just added").part;
        self.bytes[at..at + part.len]
            .copy_from_slice(&cursor.header[part.from..part.from + part.len]);
    }

    /// Reads all gathered slots.
    pub fn read(&mut self, store: &dyn Store) -> Result {
        if self.len == 0 {
            return Ok(());
        }
        self.prefetch_pieces(store);
        store.read(&self.extents, &mut self.bytes[..self.len])
    }

    /// Prefetches all pieces except the longest: the kernel reads ahead in that by itself, unless
    /// it finds that it is read already.
    fn prefetch_pieces(&self, store: &dyn Store) {
        // Prefetching a piece pays only if another one has to be waited for.
        if self.extents.len() < PIECES_MIN {
            return;
        }
        let lens = self.extents.iter().map(|extent| extent.len);
        let longest = lens.enumerate().max_by_key(|&(_, len)| len);
        let (before, rest) = self.extents.split_at(longest.map_or(0, |(nth, _)| nth));
        store.prefetch(before);
        store.prefetch(&rest[1..]);
    }

    /// Writes all gathered slots.
    pub fn write(&self, store: &dyn Store) -> Result {
        if self.len == 0 {
            return Ok(());
        }
        store.write(&self.extents, &self.bytes[..self.len])
    }

    /// Entry and body of the slot that was added as number `nth`.
    pub fn slot(&self, nth: usize) -> (&[u8], &[u8]) {
        let s = &self.slots[nth];
        (&self.bytes[s.entry..s.entry + s.entry_len], &self.bytes[s.body..s.body + s.body_len])
    }

    /// As [`Run::slot`], but mutable.
    pub fn slot_mut(&mut self, nth: usize) -> (&mut [u8], &mut [u8]) {
        let s = &self.slots[nth];
        let (before, bodies) = self.bytes.split_at_mut(s.body);
        (&mut before[s.entry..s.entry + s.entry_len], &mut bodies[..s.body_len])
    }

    /// Keeps the entries behind slot number `nth`, the last one of its stripe to be written, as
    /// `cursor` has them.
    pub fn keep_behind(&mut self, nth: usize, cursor: &Cursor) {
        let SlotParts { header, part, entry, entry_len, .. } = self.slots[nth];
        let (begin, end) = (entry + entry_len, header + part.len);
        let at = part.from + (begin - header);
        self.bytes[begin..end].copy_from_slice(&cursor.header[at..at + (end - begin)]);
    }

    /// Updates `cursor` with the written part of the header of slot number `nth`'s stripe.
    pub fn advance(&self, cursor: &mut Cursor, nth: usize) {
        let SlotParts { header, part, .. } = self.slots[nth];
        cursor.header[part.from..part.from + part.len]
            .copy_from_slice(&self.bytes[header..header + part.len]);
    }

    /// Adds the `n` slots of one stripe from `slot` on, with `part` of the stripe's header in front
    /// of their bodies.
    fn add_stripe(&mut self, area: &Area, slot: u64, n: u64, part: HeaderPart) {
        let layout = area.layout();
        let header_at = area.first + layout.header_at(slot) + part.from as u64;
        push_extent(&mut self.extents, Extent::new(header_at, part.len));
        let (header, bodies) = (self.len, self.len + part.len);
        for i in 0..n as usize {
            self.slots.push(SlotParts {
                header,
                part,
                entry: header + part.skip + i * layout.entry_len,
                entry_len: layout.entry_len,
                body: bodies + i * layout.body_len,
                body_len: layout.body_len,
            });
        }
        let body_len = n as usize * layout.body_len;
        push_extent(&mut self.extents, Extent::new(area.first + layout.body_at(slot), body_len));
        self.len = bodies + body_len;
        self.bytes.grow(self.len);
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::super::area::tests::LAYOUT;
    use super::*;
    use crate::store::MemStore;
    use std::sync::{Arc, Mutex};

    #[test]
    fn writes_in_pieces_are_read_back_in_other_pieces() {
        let store = Arc::new(MemStore::new(2 * LAYOUT.len()));
        let area = Area::new(store.clone(), LAYOUT.len(), LAYOUT, "test");
        let mut cursor = Cursor::at_start(&LAYOUT);
        let mut run = Run::default();
        // Three slots at a time, around the ring; slot 10 is slot 0 again.
        for start in (0..12).step_by(3) {
            run.clear();
            run.add_write(&area, Slot(start % 10), 3, &cursor);
            for i in 0..3 {
                let (entry, body) = run.slot_mut(i);
                entry.fill(start as u8 + i as u8);
                body.fill(100 + start as u8 + i as u8);
            }
            run.write(&*store).unwrap();
            run.advance(&mut cursor, 2);
        }
        run.clear();
        run.add(&area, Slot(2), 10);
        assert_eq!(run.slots(), 10);
        run.read(&*store).unwrap();
        let mut seen = vec![];
        for i in 0..10 {
            let (entry, body) = run.slot(i);
            assert!(entry.iter().all(|&b| b == entry[0]));
            assert!(body.iter().all(|&b| b == body[0]));
            seen.push((entry[0], body[0]));
        }
        // The writer is in the stripe of slots 0..4 and has begun its header anew.
        assert_eq!(seen[..2], [(0, 102), (0, 103)]);
        let rest: Vec<_> = (4..12).map(|i| (i, 100 + i)).collect();
        assert_eq!(seen[2..], rest);
    }

    #[test]
    fn entries_behind_the_writer_may_be_kept() {
        let store = Arc::new(MemStore::from_bytes(&vec![7; LAYOUT.len() as usize]));
        let area = Area::new(store.clone(), 0, LAYOUT, "test");
        let cursor = Cursor::load(&area, Slot(4)).unwrap();
        let mut run = Run::default();
        run.add_write(&area, Slot(4), 2, &cursor);
        run.keep_behind(1, &cursor);
        run.slot_mut(0).0.fill(1);
        run.slot_mut(1).0.fill(2);
        run.write(&*store).unwrap();
        let mut entries = [0; 10 * 16];
        area.read_entries(Slot(0), 10, &mut entries).unwrap();
        let seen: Vec<_> = entries.chunks(16).map(|entry| entry[0]).collect();
        assert_eq!(seen, [7, 7, 7, 7, 1, 2, 7, 7, 7, 7]);
    }

    #[test]
    fn a_whole_stripe_is_one_extent() {
        let store = Arc::new(MemStore::new(LAYOUT.len()));
        let area = Area::new(store, 0, LAYOUT, "test");
        let mut run = Run::default();
        run.add(&area, Slot(0), 8);
        assert_eq!(run.extents.len(), 1);
        run.clear();
        run.add(&area, Slot(5), 1);
        assert_eq!(run.extents.len(), 2);
        assert_eq!(run.extents[0].len, 16);
    }

    #[test]
    fn parts_of_a_header_are_whole_units() {
        let layout = SlotLayout { slots: 100, body_len: 4096, entry_len: 48, stripe_slots: 100 };
        assert_eq!(layout.header_len(), 8192);
        let part = |slot, n, unit| {
            let HeaderPart { from, len, skip } = HeaderPart::around(&layout, slot, n, unit);
            (from, len, skip)
        };
        assert_eq!(part(0, 1, 512), (0, 512, 0));
        assert_eq!(part(30, 2, 1), (1440, 96, 0));
        assert_eq!(part(30, 2, 512), (1024, 512, 416));
        assert_eq!(part(31, 2, 512), (1024, 1024, 464));
        assert_eq!(part(90, 1, 4096), (4096, 4096, 224));
        assert_eq!(part(99, 1, 8192), (0, 8192, 4752));
    }

    /// A store in memory that records prefetches.
    struct Noting(MemStore, usize, Mutex<Vec<(u64, usize)>>);

    impl Store for Noting {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn unit(&self) -> usize {
            self.1
        }
        fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
            self.0.read(extents, into)
        }
        fn prefetch(&self, extents: &[Extent]) {
            self.2.lock().unwrap().extend(extents.iter().map(|e| (e.at, e.len)));
        }
        fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
            self.0.write(extents, from)
        }
        fn sync(&self) -> Result {
            self.0.sync()
        }
    }

    #[test]
    fn requests_are_of_whole_units_in_stores_with_units() {
        let layout = SlotLayout { slots: 200, body_len: 4096, entry_len: 48, stripe_slots: 100 };
        let header_parts = |unit, write: bool, slot| {
            let store = Noting(MemStore::new(layout.len()), unit, Mutex::default());
            let area = Area::new(Arc::new(store), 0, layout, "test");
            let (mut run, cursor) = (Run::default(), Cursor::at_start(&layout));
            if write {
                run.add_write(&area, Slot(slot), 1, &cursor);
            } else {
                run.add(&area, Slot(slot), 1);
            }
            (run.extents[0].at, run.extents[0].len)
        };
        assert_eq!(header_parts(512, false, 90), (4320, 48), "nothing but the entry");
        assert_eq!(header_parts(4096, false, 90), (4096, 4096));
        // A header at its beginning is written as a whole.
        assert_eq!(header_parts(512, true, 0).1, 8192 + 4096);
        assert_eq!(header_parts(512, true, 90), (4096, 512));
        assert_eq!(header_parts(512, true, 101).1, 512);
    }

    #[test]
    fn all_pieces_but_the_longest_are_fetched_ahead() {
        let store = Arc::new(Noting(MemStore::new(LAYOUT.len()), 64, Mutex::default()));
        let area = Area::new(store.clone(), 0, LAYOUT, "test");
        let fetched = |adds: &[(u64, u64)]| {
            let mut run = Run::default();
            for &(first, count) in adds {
                run.add(&area, Slot(first), count);
            }
            run.read(&*store).unwrap();
            let pieces = run.extents.iter().map(|e| (e.at, e.len)).collect::<Vec<_>>();
            (pieces, core::mem::take(&mut *store.2.lock().unwrap()))
        };
        let (pieces, ahead) = fetched(&[(1, 1)]);
        assert_eq!((pieces.len(), ahead), (2, vec![]), "one slot, with nothing to wait for");
        let (pieces, ahead) = fetched(&[(1, 1), (4, 4), (9, 1)]);
        assert_eq!(pieces.len(), 5);
        assert_eq!(ahead, [&pieces[..2], &pieces[3..]].concat());
        let (pieces, ahead) = fetched(&[(1, 1), (4, 4)]);
        assert_eq!((pieces.len(), ahead), (3, pieces[..2].to_vec()));
    }
}
