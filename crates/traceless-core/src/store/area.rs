//! A stretch of a store cut into equal slots.
//!
//! A slot is a *body* and a small *entry* (tag, and a scheme's metadata). Bodies keep their own
//! alignment and entries lie together: a *stripe* is a header of `stripe_slots` entries, followed
//! by as many bodies. Neighbouring slots are neighbours on the disk, one request covers whole
//! stripes, and all entries can be read without the bodies.

use super::{ALIGN, Store};
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

    /// Where the header of the stripe of `slot` begins.
    pub(super) fn header_at(&self, slot: u64) -> u64 {
        slot / self.stripe_slots * self.stripe_len()
    }

    fn entry_at(&self, slot: u64) -> u64 {
        self.header_at(slot) + slot % self.stripe_slots * self.entry_len as u64
    }

    /// Where the body of `slot` begins.
    pub(super) fn body_at(&self, slot: u64) -> u64 {
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

/// Stripes that one extent covers, at most, where all their bytes are given up: 64 MiB of stripes
/// of 64 blocks of 4 KiB.
const STRIPES_OF_EXTENT: u64 = 256;

/// A named stretch of a store, cut into slots.
#[derive(Clone)]
pub struct Area {
    store: Arc<dyn Store>,
    /// Where the area begins in the store.
    pub(super) first: u64,
    layout: SlotLayout,
    name: &'static str,
    /// Bytes that the store writes as one.
    pub(super) unit: usize,
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

    /// The extents of all stripes that have only slots among the `count` ones from `first` on,
    /// which may wrap once. Each has fewer than 2^32 bytes.
    pub fn whole_stripes(&self, first: Slot, count: u64) -> Vec<Extent> {
        assert!(first.0 < self.slots() && count <= self.slots(), "slots lie in their area");
        let (stripe_slots, slots) = (self.layout.stripe_slots, self.slots());
        let before_end = count.min(slots - first.0);
        let mut extents = Vec::new();
        for (slot, count) in [(first.0, before_end), (0, count - before_end)] {
            let mut begin = slot.next_multiple_of(stripe_slots);
            let end = slot + count;
            // The last stripe of the area may have fewer slots.
            let end = if end == slots { end } else { end / stripe_slots * stripe_slots };
            while begin < end {
                let next = end.min(begin + STRIPES_OF_EXTENT * stripe_slots);
                let last = self.layout.body_at(next - 1) + self.layout.body_len as u64;
                let at = self.layout.header_at(begin);
                extents.push(Extent::new(self.first + at, (last - at) as usize));
                begin = next;
            }
        }
        extents
    }

    /// Splits `count` slots from `first` on by stripe: the first slot in each stripe, and their
    /// number.
    pub(super) fn stripes(&self, first: Slot, count: u64) -> impl Iterator<Item = (u64, u64)> {
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

#[cfg(all(test, feature = "std"))]
pub(super) mod tests {
    use super::*;
    use crate::store::MemStore;

    pub const LAYOUT: SlotLayout =
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
    fn stripes_are_given_up_as_a_whole() {
        let area = Area::new(Arc::new(MemStore::new(2 * 4096)), 4096, LAYOUT, "test");
        let stripe = LAYOUT.stripe_len();
        let whole = |first, count| {
            let extents = area.whole_stripes(Slot(first), count);
            extents.iter().map(|e| (e.at - 4096, e.len as u64)).collect::<Vec<_>>()
        };
        assert_eq!(whole(0, 4), [(0, stripe)]);
        assert_eq!(whole(0, 3), []);
        assert_eq!(whole(1, 7), [(stripe, stripe)]);
        assert_eq!(whole(4, 0), []);
        // The last stripe has two slots.
        let last = (2 * stripe, 64 + 2 * 64);
        assert_eq!(whole(8, 2), [last]);
        assert_eq!(whole(7, 3), [last]);
        assert_eq!(whole(8, 1), []);
        assert_eq!(whole(9, 6), [(0, stripe)]);
        assert_eq!(whole(7, 10), [last, (0, stripe)]);
        assert_eq!(whole(0, 10), [(0, 2 * stripe + last.1)]);
    }

    #[test]
    fn long_stretches_are_several_extents() {
        let layout = SlotLayout { slots: 4 * 1000, ..LAYOUT };
        let area = Area::new(Arc::new(MemStore::new(layout.len())), 0, layout, "test");
        let extents = area.whole_stripes(Slot(4), layout.slots - 4);
        assert_eq!(extents.len(), 4);
        assert!(extents.windows(2).all(|two| two[0].end() == two[1].at));
        let stripe = layout.stripe_len();
        assert_eq!((extents[0].at, extents[3].end()), (stripe, 1000 * stripe));
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
}
