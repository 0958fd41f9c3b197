//! A stretch of a store cut into equal slots.
//!
//! A slot is a *body* and a small *entry* (tag, and a scheme's metadata). Bodies keep their own
//! alignment and entries lie together: a *stripe* is a header of `stripe_slots` entries, followed
//! by as many bodies. Neighbouring slots are neighbours on the disk, one request covers whole
//! stripes, and all entries can be read without the bodies.

use super::{ALIGN, AlignedBuf, Store};
use crate::error::Result;
use crate::types::{Extent, Slot, push_extent};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

/// The layout of an area's slots. All lengths are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotLayout {
    /// Number of slots.
    pub slots: u64,
    /// Bytes of a body.
    pub body_len: usize,
    /// Bytes of an entry.
    pub entry_len: usize,
    /// Number of slots with a common header.
    pub stripe_slots: u64,
}

impl SlotLayout {
    /// Bytes of a stripe's header: its entries, rounded up to the alignment of the bodies.
    pub const fn header_len(&self) -> usize {
        let align = if self.body_len < ALIGN { self.body_len } else { ALIGN };
        (self.stripe_slots as usize * self.entry_len).next_multiple_of(align)
    }

    /// Bytes of a full stripe.
    pub const fn stripe_len(&self) -> u64 {
        self.header_len() as u64 + self.stripe_slots * self.body_len as u64
    }

    /// Bytes of the whole area, a multiple of [`ALIGN`].
    pub const fn len(&self) -> u64 {
        let rest = self.slots % self.stripe_slots;
        let last = match rest {
            0 => 0,
            n => self.header_len() as u64 + n * self.body_len as u64,
        };
        (self.slots / self.stripe_slots * self.stripe_len() + last).next_multiple_of(ALIGN as u64)
    }

    /// Whether there are no slots.
    pub const fn is_empty(&self) -> bool {
        self.slots == 0
    }

    fn header_at(&self, slot: u64) -> u64 {
        slot / self.stripe_slots * self.stripe_len()
    }

    fn entry_at(&self, slot: u64) -> u64 {
        self.header_at(slot) + slot % self.stripe_slots * self.entry_len as u64
    }

    fn body_at(&self, slot: u64) -> u64 {
        let nth = slot % self.stripe_slots;
        self.header_at(slot) + self.header_len() as u64 + nth * self.body_len as u64
    }

    /// The slot with a body that begins at byte `at` of the area.
    pub fn slot_with_body_at(&self, at: u64) -> Option<u64> {
        let header = self.header_len() as u64;
        let within = (at % self.stripe_len()).checked_sub(header)?;
        let slot = at / self.stripe_len() * self.stripe_slots + within / self.body_len as u64;
        (within.is_multiple_of(self.body_len as u64) && slot < self.slots).then_some(slot)
    }

    /// Number of slots from `slot` to the end of its stripe or of the area, at most `count`.
    fn in_stripe(&self, slot: u64, count: u64) -> u64 {
        let stripe_end = (slot / self.stripe_slots + 1) * self.stripe_slots;
        count.min(stripe_end.min(self.slots) - slot)
    }
}

/// A named stretch of a store, cut into slots.
#[derive(Clone)]
pub struct Area {
    store: Arc<dyn Store>,
    first: u64,
    layout: SlotLayout,
    name: &'static str,
    /// Bytes that the store writes as one.
    unit: usize,
}

impl Area {
    /// The slots that begin at byte `first` of `store`.
    pub fn new(store: Arc<dyn Store>, first: u64, layout: SlotLayout, name: &'static str) -> Self {
        let unit = store.unit();
        Self { store, first, layout, name, unit }
    }

    /// The layout of the slots.
    pub fn layout(&self) -> &SlotLayout {
        &self.layout
    }

    /// Name of the area in messages and in docs/format.md.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Number of slots.
    pub fn slots(&self) -> u64 {
        self.layout.slots
    }

    /// Reads all entries of the stripe that holds `slot`, and returns that stripe's first slot.
    pub fn read_header(&self, slot: Slot, into: &mut [u8]) -> Result<Slot> {
        let at = self.first + self.layout.header_at(slot.0);
        self.store.read(&[Extent::new(at, self.layout.header_len())], into)?;
        Ok(Slot(slot.0 / self.layout.stripe_slots * self.layout.stripe_slots))
    }

    /// Reads the entries of `count` slots from `first` on. The area is a ring: they may wrap once.
    pub fn read_entries(&self, first: Slot, count: u64, into: &mut [u8]) -> Result {
        let mut extents = Vec::new();
        self.add_entries(first, count, &mut extents);
        self.store.read(&extents, into)
    }

    /// Adds the extents of the entries of `count` slots from `first` on, which may wrap once.
    pub fn add_entries(&self, first: Slot, count: u64, extents: &mut Vec<Extent>) {
        for (slot, n) in self.stripes(first, count) {
            let at = self.first + self.layout.entry_at(slot);
            push_extent(extents, Extent::new(at, n as usize * self.layout.entry_len));
        }
    }

    /// Adds the extents of `count` slots from `first` on, with everything between them. The slots
    /// may wrap once.
    pub fn add_stretch(&self, first: Slot, count: u64, extents: &mut Vec<Extent>) {
        for (slot, n) in self.stripes(first, count) {
            let whole_header = slot % self.layout.stripe_slots == 0;
            let begin =
                if whole_header { self.layout.header_at(slot) } else { self.layout.body_at(slot) };
            let end = self.layout.body_at(slot + n - 1) + self.layout.body_len as u64;
            push_extent(extents, Extent::new(self.first + begin, (end - begin) as usize));
        }
    }

    /// Splits `count` slots from `first` on by stripe: the first slot in each stripe, and their
    /// number.
    fn stripes(&self, first: Slot, count: u64) -> impl Iterator<Item = (u64, u64)> {
        assert!(first.0 < self.slots() && count <= self.slots(), "slots lie in their area");
        let layout = self.layout;
        let (mut slot, mut left) = (first.0, count);
        core::iter::from_fn(move || {
            let n = layout.in_stripe(slot, left);
            let stripe = (slot, n);
            slot = (slot + n) % layout.slots;
            left -= n;
            (n > 0).then_some(stripe)
        })
    }

    /// Sets every entry to zero.
    pub fn clear_entries(&self) -> Result {
        let zeros = vec![0; self.layout.header_len()];
        for slot in (0..self.slots()).step_by(self.layout.stripe_slots as usize) {
            let at = self.first + self.layout.header_at(slot);
            self.store.write(&[Extent::new(at, zeros.len())], &zeros)?;
        }
        Ok(())
    }
}

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
        let mut cursor = Self::at_start(&area.layout);
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
        self.add_entries(area, first, count, if area.unit < ALIGN { 1 } else { area.unit });
    }

    /// Adds `count` slots from `first` on, to be overwritten in place; no other entry changes.
    pub fn add_in_place(&mut self, area: &Area, first: Slot, count: u64) {
        self.add_entries(area, first, count, 1);
    }

    fn add_entries(&mut self, area: &Area, first: Slot, count: u64, unit: usize) {
        for (slot, n) in area.stripes(first, count) {
            let part = HeaderPart::around(&area.layout, slot, n, unit);
            let header_at = area.first + area.layout.header_at(slot) + part.from as u64;
            push_extent(&mut self.extents, Extent::new(header_at, part.len));
            self.add_slots(area, slot, n, part);
        }
    }

    /// Adds `count` slots from `first` on, to be written after the slots recorded in `cursor`. They
    /// may wrap once. Entries behind them in their stripe may become zero.
    pub fn add_write(&mut self, area: &Area, first: Slot, count: u64, cursor: &Cursor) {
        for (slot, n) in area.stripes(first, count) {
            let layout = &area.layout;
            let part = HeaderPart::to_write(layout, slot, n, area.unit);
            let at = self.len;
            let header_at = area.first + layout.header_at(slot) + part.from as u64;
            push_extent(&mut self.extents, Extent::new(header_at, part.len));
            self.add_slots(area, slot, n, part);
            let bytes = &mut self.bytes[at..at + part.len];
            bytes[..part.skip].copy_from_slice(&cursor.header[part.from..part.from + part.skip]);
            bytes[part.skip..].fill(0);
        }
    }

    /// Adds one slot, to be rewritten in the middle of a stripe: the other entries of its stripe
    /// stay as `header` has them.
    pub fn add_rewrite(&mut self, area: &Area, slot: Slot, header: &Cursor) {
        let at = self.len;
        self.add_write(area, slot, 1, header);
        let part = self.slots.last().expect("just added").part;
        self.bytes[at..at + part.len]
            .copy_from_slice(&header.header[part.from..part.from + part.len]);
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

    /// Updates `cursor` with the written part of the header of slot number `nth`'s stripe.
    pub fn advance(&self, cursor: &mut Cursor, nth: usize) {
        let SlotParts { header, part, .. } = self.slots[nth];
        cursor.header[part.from..part.from + part.len]
            .copy_from_slice(&self.bytes[header..header + part.len]);
    }

    /// Makes room for a part of a header, and for `n` bodies behind it.
    fn add_slots(&mut self, area: &Area, slot: u64, n: u64, part: HeaderPart) {
        let layout = &area.layout;
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
    use super::*;
    use crate::store::MemStore;
    use std::sync::Mutex;

    const LAYOUT: SlotLayout =
        SlotLayout { slots: 10, body_len: 64, entry_len: 16, stripe_slots: 4 };

    #[test]
    fn slots_do_not_overlap_and_fit() {
        let mut used = vec![false; LAYOUT.len() as usize];
        for slot in 0..LAYOUT.slots {
            let entry = LAYOUT.entry_at(slot)..LAYOUT.entry_at(slot) + 16;
            for byte in entry.chain(LAYOUT.body_at(slot)..LAYOUT.body_at(slot) + 64) {
                assert!(!core::mem::replace(&mut used[byte as usize], true));
            }
        }
        let with_bodies: Vec<_> =
            (0..LAYOUT.len()).filter_map(|at| LAYOUT.slot_with_body_at(at)).collect();
        assert_eq!(with_bodies, (0..LAYOUT.slots).collect::<Vec<_>>());
        assert_eq!(LAYOUT.slot_with_body_at(LAYOUT.body_at(5)), Some(5));
        assert_eq!(LAYOUT.header_len(), 64);
        assert_eq!(LAYOUT.len(), 4096);
    }

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
    fn headers_are_read_as_a_whole_and_cleared_alone() {
        let layout = LAYOUT;
        let store = Arc::new(MemStore::from_bytes(&vec![7; 4096 + layout.len() as usize]));
        let area = Area::new(store.clone(), 4096, layout, "test");
        assert_eq!((area.name(), area.slots()), ("test", 10));
        let mut header = [0; 64];
        for (slot, first) in [(0, 0), (3, 0), (4, 4), (9, 8)] {
            assert_eq!(area.read_header(Slot(slot), &mut header).unwrap(), Slot(first));
        }
        area.clear_entries().unwrap();
        let mut bytes = store.snapshot();
        for slot in 0..layout.slots {
            let at = 4096 + layout.entry_at(slot) as usize;
            assert!(bytes[at..at + 16].iter().all(|&byte| byte == 0), "entry {slot}");
            bytes[at..at + 16].fill(7);
        }
        // The last stripe is not full, but its header has full length.
        let rest = 4096 + layout.entry_at(9) as usize + 16;
        bytes[rest..rest + 32].fill(7);
        assert!(bytes.iter().all(|&byte| byte == 7), "nothing else");
    }

    #[test]
    fn a_stretch_has_all_bodies_and_what_is_between_them() {
        let area = Area::new(Arc::new(MemStore::new(2 * 4096)), 4096, LAYOUT, "test");
        let stripe = LAYOUT.stripe_len();
        let stretch = |first, count| {
            let mut extents = vec![];
            area.add_stretch(Slot(first), count, &mut extents);
            extents.iter().map(|e| (e.at - 4096, e.len as u64)).collect::<Vec<_>>()
        };
        assert_eq!(stretch(0, 4), [(0, stripe)]);
        assert_eq!(stretch(1, 2), [(64 + 64, 2 * 64)]);
        // With headers in between, and around the ring.
        assert_eq!(stretch(2, 4), [(64 + 2 * 64, 2 * 64 + 64 + 2 * 64)]);
        let end = 2 * stripe + 64 + 64;
        assert_eq!(stretch(9, 2), [(end, 64), (0, 64 + 64)]);
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
