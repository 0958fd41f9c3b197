//! A node made anew: opened, verified, permuted and sealed, part by part.

use super::{Session, Shared};
use crate::channel::Receiver;
use crate::error::{Error, Result};
use crate::geometry::{Geometry, PART_PIECES, PIECE_LEN};
use crate::kernel::{Choice, NIBBLES_ROWS_MAX, Network, Nibbles, Slab};
use crate::orders::Eviction;
use crate::outer::{Outer, SlotSeal, Vector};
use alloc::vec::Vec;

/// Bytes of memory that an enclave may have, as in the paper.
pub const WORKING_SET_MAX: usize = 64 << 20;

/// A node's slots and those that go with it, in the host's memory.
pub struct NodeBytes<'a> {
    /// The node.
    pub node: &'a [u8],
    /// What comes from above; nothing if the node is made anew by itself.
    pub carried: &'a [u8],
    /// The new node.
    pub new_node: &'a mut [u8],
    /// What goes on; nothing from a leaf.
    pub new_carried: &'a mut [u8],
}

/// Makes nodes anew.
pub struct Evictor {
    geometry: Geometry,
    outer: Outer,
    receiver: Receiver,
    slab: Slab,
    kernel: Kernel,
}

enum Kernel {
    Benes { networks: Vec<Network>, masks: Vec<u32> },
    Paper(Nibbles),
}

impl Evictor {
    /// Works for a session.
    pub fn new(shared: &Shared, session: &Session) -> Result<Self> {
        let geometry = shared.geometry;
        let rows = row_counts(&geometry);
        let most = rows.iter().copied().max().unwrap_or_default();
        let mut working_set = Slab::bytes(most);
        let kernel = match shared.choice {
            Choice::Benes => {
                let (kernel, bytes) = Kernel::benes(rows);
                working_set += bytes;
                kernel
            }
            Choice::Paper if most > NIBBLES_ROWS_MAX => {
                return Err(Error::Parameters("the paper's pages have room for 8192 rows"));
            }
            Choice::Paper => {
                let nibbles = Nibbles::default();
                working_set += nibbles.bytes() + most * 3 * size_of::<Vector>();
                Kernel::Paper(nibbles)
            }
        };
        if working_set > WORKING_SET_MAX {
            return Err(Error::Parameters("a node needs more than 64 MiB of the enclave's memory"));
        }
        Ok(Self {
            geometry,
            outer: Outer::new(&shared.outer, shared.choice),
            receiver: Receiver::new(&session.evict),
            slab: Slab::new(most)?,
            kernel,
        })
    }

    /// The other kernel under the same cipher.
    #[cfg(test)]
    pub(super) fn use_network(&mut self) {
        (self.kernel, _) = Kernel::benes(row_counts(&self.geometry));
    }

    /// Makes a node anew as the order says.
    ///
    /// Every slot that comes in is read once, into the enclave's memory, and verified before
    /// anything of its part goes out. What goes out belongs to an attempt which nobody commits to
    /// if a later part turns out to be wrong.
    pub fn evict(&mut self, order: &mut [u8], bytes: NodeBytes<'_>) -> Result {
        let g = self.geometry;
        let order = Eviction::decode(self.receiver.open(order)?, &g)?;
        let NodeBytes { node, carried, new_node, new_carried } = bytes;
        let job = Job::new(&g, &self.outer, self.kernel.streams(), &order);
        let lens = (node.len(), carried.len(), new_node.len(), new_carried.len());
        if lens != job.lens() {
            return Err(Error::Malformed("not the bytes of a node and of what goes with it"));
        }
        for part in 0..g.parts() {
            job.load(part, (node, carried), &mut self.slab)?;
            self.kernel.permute(&order.control, part, &job, &self.outer, &mut self.slab)?;
            job.store(part, &self.slab, (new_node, new_carried));
        }
        Ok(())
    }
}

/// How many rows there may be: of an inner node and of a leaf, in a round and by themselves.
fn row_counts(g: &Geometry) -> Vec<usize> {
    let mut counts = Vec::new();
    for slots in [g.inner_slots, g.leaf_slots] {
        for rows in [slots, slots + g.round_slots] {
            if !counts.contains(&rows) {
                counts.push(rows);
            }
        }
    }
    counts
}

impl Kernel {
    fn benes(rows: Vec<usize>) -> (Self, usize) {
        let networks: Vec<Network> = rows.into_iter().map(Network::new).collect();
        let bytes = networks.iter().map(Network::bytes).sum();
        (Self::Benes { networks, masks: Vec::new() }, bytes)
    }

    /// Whether it takes streams off and puts them on, or has that done around it.
    fn streams(&self) -> bool {
        matches!(self, Self::Paper(_))
    }

    fn permute(
        &mut self,
        control: &[u8],
        part: usize,
        job: &Job<'_>,
        outer: &Outer,
        slab: &mut Slab,
    ) -> Result {
        let rows = job.slots + job.carried;
        match self {
            Self::Benes { networks, masks } => {
                let network = networks.iter().find(|network| network.rows() == rows);
                let network = network.filter(|network| network.control_len() == control.len());
                let network = network.ok_or(Error::Malformed("not the bits of a network"))?;
                network.permute(control, masks, slab);
            }
            Self::Paper(nibbles) => {
                let dest: Vec<u32> = control
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&to| u32::from(u16::from_le_bytes(to)))
                    .collect();
                if dest.len() != rows || dest.iter().any(|&to| to as usize >= rows) {
                    return Err(Error::Malformed("not a permutation"));
                }
                let old: Vec<Option<Vector>> = (0..rows)
                    .map(|row| job.source(row).map(|(seal, slot)| seal.vector(slot)))
                    .collect();
                let new: Vec<Vector> = (0..rows).map(|row| job.new_vector(row)).collect();
                let pieces = (part * PART_PIECES, job.geometry.part_len(part) / PIECE_LEN);
                nibbles.permute(&dest, pieces, outer.stream(), (&old, &new), slab, &mut ());
            }
        }
        Ok(())
    }
}

/// One node's eviction, with the seals of what comes in and goes out.
struct Job<'a> {
    geometry: &'a Geometry,
    /// Whether the kernel takes streams off and puts them on.
    streams: bool,
    slots: usize,
    carried: usize,
    old: Option<SlotSeal<'a>>,
    carried_in: SlotSeal<'a>,
    new: SlotSeal<'a>,
    carried_out: Option<SlotSeal<'a>>,
}

impl<'a> Job<'a> {
    fn new(geometry: &'a Geometry, outer: &'a Outer, streams: bool, order: &Eviction) -> Self {
        let old = order.old(geometry);
        Self {
            geometry,
            streams,
            slots: geometry.slots(geometry.layer_of(order.node)),
            carried: if order.in_round { geometry.round_slots } else { 0 },
            old: old.is_written().then(|| outer.seal(old)),
            carried_in: outer.seal(order.carried_in(geometry)),
            new: outer.seal(order.renewed(geometry)),
            carried_out: order.carried_out(geometry).map(|version| outer.seal(version)),
        }
    }

    /// Bytes of the node, of what comes with it, of the new node, of what goes on.
    fn lens(&self) -> (usize, usize, usize, usize) {
        let slot = self.geometry.slot_len();
        let on = if self.carried_out.is_some() { self.carried * slot } else { 0 };
        (self.slots * slot, self.carried * slot, self.slots * slot, on)
    }

    /// What a row comes in under, and as which slot. Nothing, if it was never written.
    fn source(&self, row: usize) -> Option<(&SlotSeal<'a>, u32)> {
        match row.checked_sub(self.slots) {
            None => self.old.as_ref().map(|seal| (seal, row as u32)),
            Some(carried) => Some((&self.carried_in, carried as u32)),
        }
    }

    /// What a row goes out under, and as which slot. Nothing, if it is dropped.
    fn target(&self, row: usize) -> Option<(&SlotSeal<'a>, u32)> {
        match row.checked_sub(self.slots) {
            None => Some((&self.new, row as u32)),
            Some(carried) => self.carried_out.as_ref().map(|seal| (seal, carried as u32)),
        }
    }

    /// The vector that a row goes out under. A row that is dropped has one, too: whether a piece
    /// goes there is secret.
    fn new_vector(&self, row: usize) -> Vector {
        let (seal, slot) = self.target(row).unwrap_or((&self.new, row as u32));
        seal.vector(slot)
    }

    fn load(&self, part: usize, (node, carried): (&[u8], &[u8]), slab: &mut Slab) -> Result {
        let g = self.geometry;
        let slots = node.chunks_exact(g.slot_len()).chain(carried.chunks_exact(g.slot_len()));
        let mut wrong = None;
        for (row, slot) in slots.enumerate() {
            let plain = &mut slab.row_mut(row)[..g.part_len(part)];
            let Some((seal, number)) = self.source(row) else {
                plain.fill(0);
                continue;
            };
            let sealed = &slot[g.part_at(part)..g.part_end(part)];
            let opened = if self.streams {
                seal.check((number, part), sealed, plain)
            } else {
                seal.open((number, part), sealed, plain)
            };
            if opened.is_err() {
                wrong = Some(Error::Tampered { node: seal.node().0, slot: number });
            }
        }
        wrong.map_or(Ok(()), Err)
    }

    fn store(&self, part: usize, slab: &Slab, (node, carried): (&mut [u8], &mut [u8])) {
        let g = self.geometry;
        let len = g.slot_len();
        for (row, slot) in
            node.chunks_exact_mut(len).chain(carried.chunks_exact_mut(len)).enumerate()
        {
            let (seal, number) = self.target(row).expect("a slot for what goes out");
            let sealed = &mut slot[g.part_at(part)..g.part_end(part)];
            let plain = &slab.row(row)[..g.part_len(part)];
            if self.streams {
                let (body, tag) = sealed.split_at_mut(plain.len());
                body.copy_from_slice(plain);
                seal.tag((number, part), body, tag);
            } else {
                seal.seal((number, part), plain, sealed);
            }
        }
    }
}
