//! One node's eviction: its bytes, and the seals of its input and output.

use crate::enclave_orders::Eviction;
use crate::error::{Error, Result};
use crate::fork_join::ForkJoin;
use crate::geometry::{Geometry, TAG_LEN};
use crate::kernel::{Rows, Slab};
use crate::transport_seal::{SlotSeal, TransportKeys, Vector};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use traceless_sys::ct::secret::declassify;

/// The slots of a node that do not hold what was last written to them.
pub type DamagedSlots = BTreeSet<u32>;

/// A node's slots and the slots that are carried through it, in the host's memory.
pub struct NodeBytes<'a> {
    /// The old slots of the node.
    pub node: &'a [u8],
    /// Slots carried down from the parent; empty if the node is evicted alone.
    pub carried: &'a [u8],
    /// The new slots of the node.
    pub new_node: &'a mut [u8],
    /// Slots carried on to the child; empty for a leaf.
    pub new_carried: &'a mut [u8],
}

/// Where an evictor reads a node and writes its new version, part by part.
pub trait SlotParts: Send {
    /// Bytes of all slots of the node, carried in, of the new node, and carried out.
    fn lens(&self) -> (usize, usize, usize, usize);

    /// A part of each slot, and the place for the new parts.
    fn part(&mut self, geometry: &Geometry, part: usize) -> Result<PartBytes<'_>>;

    /// Reports that the new parts for the last call of [`SlotParts::part`] are written.
    fn done(&mut self) -> Result {
        Ok(())
    }
}

/// One part of a node's slots, and of the slots carried through the node.
pub struct PartBytes<'a> {
    /// Whole slots, or buffers that hold a part of each slot.
    pub bytes: NodeBytes<'a>,
    /// Bytes from the start of one slot to the next.
    pub stride: usize,
    /// Offset of the part in each slot.
    pub at: usize,
}

impl SlotParts for NodeBytes<'_> {
    fn lens(&self) -> (usize, usize, usize, usize) {
        let Self { node, carried, new_node, new_carried } = self;
        (node.len(), carried.len(), new_node.len(), new_carried.len())
    }

    fn part(&mut self, geometry: &Geometry, part: usize) -> Result<PartBytes<'_>> {
        let Self { node, carried, new_node, new_carried } = self;
        let bytes = NodeBytes { node, carried, new_node, new_carried };
        Ok(PartBytes { bytes, stride: geometry.slot_len(), at: geometry.part_at(part) })
    }
}

/// One node's eviction, with the seals of its input and output.
pub struct Job<'a> {
    pub geometry: &'a Geometry,
    /// Whether the kernel removes and applies the cipher's streams.
    streams: bool,
    slots: usize,
    carried: usize,
    old: Option<SlotSeal<'a>>,
    /// Slots of the old version that become zeros.
    zeroed: &'a [u32],
    /// What is sealed under the attempt; `None` if the node is only verified.
    renewed: Option<RenewedSeals<'a>>,
}

/// The seals of an attempt.
struct RenewedSeals<'a> {
    carried_in: SlotSeal<'a>,
    new: SlotSeal<'a>,
    carried_out: Option<SlotSeal<'a>>,
}

impl<'a> Job<'a> {
    pub fn new(
        geometry: &'a Geometry,
        transport_keys: &'a TransportKeys,
        streams: bool,
        order: &'a Eviction,
    ) -> Self {
        let old = order.old(geometry);
        let seal = |version| transport_keys.seal(version);
        let renewed = (!order.only_verifies()).then(|| RenewedSeals {
            carried_in: seal(order.carried_in(geometry)),
            new: seal(order.renewed(geometry)),
            carried_out: order.carried_out(geometry).map(seal),
        });
        Self {
            geometry,
            streams,
            slots: geometry.slots(geometry.layer_of(order.node)),
            carried: if order.in_round { geometry.round_slots } else { 0 },
            old: old.is_written().then(|| seal(old)),
            zeroed: &order.zeroed,
            renewed,
        }
    }

    fn renewed(&self) -> &RenewedSeals<'a> {
        self.renewed.as_ref().expect("nothing is carried or sealed where a node is only verified")
    }

    fn carried_out(&self) -> Option<&SlotSeal<'a>> {
        self.renewed.as_ref().and_then(|seals| seals.carried_out.as_ref())
    }

    pub fn rows(&self) -> usize {
        self.slots + self.carried
    }

    /// Bytes of the node, of the carried-in slots, of the new node, of the carried-out slots.
    fn lens(&self) -> (usize, usize, usize, usize) {
        let slot = self.geometry.slot_len();
        let on = if self.carried_out().is_some() { self.carried * slot } else { 0 };
        (self.slots * slot, self.carried * slot, self.slots * slot, on)
    }

    pub fn check(&self, parts: &impl SlotParts) -> Result {
        if parts.lens() == self.lens() {
            return Ok(());
        }
        Err(Error::Malformed("not the bytes of a node and of what goes with it"))
    }

    /// The seal and slot number that a row is opened under; `None` if it becomes zeros: it was
    /// never written, or is damaged.
    pub fn source(&self, row: usize) -> Option<(&SlotSeal<'a>, u32)> {
        match row.checked_sub(self.slots) {
            None if self.zeroed.contains(&(row as u32)) => None,
            None => self.old.as_ref().map(|seal| (seal, row as u32)),
            Some(carried) => Some((&self.renewed().carried_in, carried as u32)),
        }
    }

    /// The seal and slot number that a row is sealed under; `None` if the row is dropped.
    pub fn target(&self, row: usize) -> Option<(&SlotSeal<'a>, u32)> {
        match row.checked_sub(self.slots) {
            None => Some((&self.renewed().new, row as u32)),
            Some(carried) => self.carried_out().map(|seal| (seal, carried as u32)),
        }
    }

    /// The vector that a row is sealed under. A dropped row has one, too: whether a piece goes
    /// there is secret.
    pub fn new_vector(&self, row: usize) -> Vector {
        let (seal, slot) = self.target(row).unwrap_or((&self.renewed().new, row as u32));
        seal.vector(slot)
    }

    /// Opens a part of every slot into its row. `damaged` gets the wrong slots of the node. A wrong
    /// slot that was carried in is an error, once all are opened: the gateway has its block, and
    /// carries it in again.
    pub fn load(
        &self,
        part: usize,
        found: &PartBytes<'_>,
        slab: &mut Slab,
        threads: &dyn ForkJoin,
        damaged: &mut DamagedSlots,
    ) -> Result {
        let middle = self.rows() / 2;
        let mut rows = slab.rows_mut(self.rows());
        let (mut first, mut second) = rows.split_at(middle);
        let (mut wrong, mut also_wrong) = (Vec::new(), Vec::new());
        threads.join(&mut || wrong = self.load_rows(part, 0, found, &mut first), &mut || {
            also_wrong = self.load_rows(part, middle, found, &mut second);
        });
        for row in wrong.into_iter().chain(also_wrong) {
            self.report(row, damaged)?;
        }
        Ok(())
    }

    /// Adds the slot of a wrong row to `damaged`; an error if it was carried in.
    pub fn report(&self, row: usize, damaged: &mut DamagedSlots) -> Result {
        if row >= self.slots {
            let node = self.renewed().carried_in.node().0;
            return Err(Error::Tampered { node, slot: (row - self.slots) as u32 });
        }
        damaged.insert(row as u32);
        Ok(())
    }

    /// Opens slots into rows, from row `start` on, and returns the wrong ones.
    fn load_rows(
        &self,
        part: usize,
        start: usize,
        PartBytes { bytes, stride, at }: &PartBytes<'_>,
        rows: &mut Rows<'_>,
    ) -> Vec<usize> {
        let len = self.geometry.part_len(part);
        let slots = bytes.node.chunks_exact(*stride).chain(bytes.carried.chunks_exact(*stride));
        let mut wrong = Vec::new();
        for ((row, words), slot) in (start..).zip(rows.bytes_mut()).zip(slots.skip(start)) {
            let plain = &mut words[..len];
            let Some((seal, number)) = self.source(row) else {
                plain.fill(0);
                continue;
            };
            let sealed = &slot[*at..][..len + TAG_LEN];
            let opened = if self.streams {
                seal.check((number, part), sealed, plain)
            } else {
                seal.open((number, part), sealed, plain)
            };
            if opened.is_err() {
                wrong.push(row);
            }
        }
        wrong
    }

    /// Seals a part of every row into its slot.
    pub fn store(
        &self,
        part: usize,
        slab: &mut Slab,
        PartBytes { bytes, stride, at }: PartBytes<'_>,
        threads: &dyn ForkJoin,
    ) {
        let NodeBytes { new_node: node, new_carried: carried, .. } = bytes;
        // Fewer rows may go out than came in: a leaf drops the rest.
        let out = (node.len() + carried.len()) / stride;
        let middle = (out / 2).min(self.slots);
        let (above, below) = node.split_at_mut(middle * stride);
        let mut rows = slab.rows_mut(out);
        let (mut first, mut second) = rows.split_at(middle);
        threads.join(
            &mut || self.store_rows(part, 0, (at, above.chunks_exact_mut(stride)), &mut first),
            &mut || {
                let slots = below.chunks_exact_mut(stride).chain(carried.chunks_exact_mut(stride));
                self.store_rows(part, middle, (at, slots), &mut second);
            },
        );
    }

    /// Seals rows into slots, from row `start` on.
    fn store_rows<'b>(
        &self,
        part: usize,
        start: usize,
        (at, slots): (usize, impl Iterator<Item = &'b mut [u8]>),
        rows: &mut Rows<'_>,
    ) {
        let len = self.geometry.part_len(part);
        for ((row, words), slot) in (start..).zip(rows.bytes_mut()).zip(slots) {
            let (seal, number) = self.target(row).expect("a slot for what goes out");
            let sealed = &mut slot[at..][..len + TAG_LEN];
            let plain = &words[..len];
            if self.streams {
                let (body, tag) = sealed.split_at_mut(plain.len());
                body.copy_from_slice(plain);
                seal.tag((number, part), body, tag);
            } else {
                seal.seal((number, part), plain, sealed);
            }
            declassify(sealed);
        }
    }
}
