//! The memory that host and enclave share to pass nodes.
//!
//! It is read and written as a file and never mapped. So the enclave works on its own copies, and a
//! host that changes bytes meanwhile changes nothing that was verified. A node is stored part by
//! part, each part for all slots, so that the enclave copies one part at a time.

use crate::codec::{Reader, Writer};
use crate::enclave::{NodeBytes, PartBytes, SlotParts};
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use core::ops::Range;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Bytes of a node, of the slots carried in, and of the slots carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lens {
    node: usize,
    carried: usize,
    new_carried: usize,
}

/// Bytes of encoded lengths.
pub const LENS_LEN: usize = 24;

impl Lens {
    /// The lengths of these bytes.
    pub fn of(bytes: &NodeBytes<'_>) -> Self {
        let (node, carried) = (bytes.node.len(), bytes.carried.len());
        Self { node, carried, new_carried: bytes.new_carried.len() }
    }

    /// The lengths as bytes.
    pub fn encode(&self) -> [u8; LENS_LEN] {
        let mut out = Writer::with_capacity(LENS_LEN);
        for len in [self.node, self.carried, self.new_carried] {
            out.u64(len as u64);
        }
        out.into_array()
    }

    /// Decodes bytes of the host, which are not trusted.
    pub fn decode(reader: &mut Reader<'_>, geometry: &Geometry) -> Result<Self> {
        let lens = [reader.u64()?, reader.u64()?, reader.u64()?];
        let (node, carried) = lens_max(geometry);
        let [node, carried, new_carried] = match lens.map(usize::try_from) {
            [Ok(a), Ok(b), Ok(c)] if a <= node && b <= carried && c <= carried => [a, b, c],
            _ => return Err(Error::Malformed("a node of such length")),
        };
        Ok(Self { node, carried, new_carried })
    }

    /// Where the new slots begin.
    fn new_at(&self) -> u64 {
        (self.node + self.carried) as u64
    }
}

/// Bytes of a node and of the carried slots, at most.
fn lens_max(g: &Geometry) -> (usize, usize) {
    let slots = g.inner_slots.max(g.leaf_slots);
    (slots * g.slot_len(), g.round_slots * g.slot_len())
}

/// The shared memory.
pub struct Nodes {
    file: File,
    len: u64,
}

impl Nodes {
    /// Creates the memory as a file without a name.
    pub fn create() -> Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC;
        Ok(memfd_create("traceless-nodes", flags).map_err(std::io::Error::from)?)
    }

    /// The shared memory for nodes of a tree.
    pub fn new(file: OwnedFd, geometry: &Geometry) -> Self {
        let (node, carried) = lens_max(geometry);
        Self { file: File::from(file), len: 2 * (node + carried) as u64 }
    }

    /// Sets the file's length.
    pub fn make_room(&self) -> Result {
        Ok(self.file.set_len(self.len)?)
    }

    /// Writes the old slots, at the host. `buffer` is a work buffer.
    pub fn write_old(&self, g: &Geometry, bytes: &NodeBytes<'_>, buffer: &mut Vec<u8>) -> Result {
        let NodeBytes { node, carried, .. } = bytes;
        if is_one_part(g) {
            self.file.write_all_at(node, 0)?;
            return Ok(self.file.write_all_at(carried, node.len() as u64)?);
        }
        let slots = || node.chunks_exact(g.slot_len()).chain(carried.chunks_exact(g.slot_len()));
        let mut at = 0;
        for part in 0..g.parts() {
            buffer.clear();
            slots().for_each(|slot| buffer.extend_from_slice(&slot[part_of(g, part)]));
            self.file.write_all_at(buffer, at)?;
            at += buffer.len() as u64;
        }
        Ok(())
    }

    /// Reads the new slots, at the host. `buffer` is a work buffer.
    pub fn read_new(
        &self,
        g: &Geometry,
        bytes: &mut NodeBytes<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result {
        let mut at = Lens::of(bytes).new_at();
        let NodeBytes { new_node: node, new_carried: carried, .. } = bytes;
        if is_one_part(g) {
            self.file.read_exact_at(node, at)?;
            return Ok(self.file.read_exact_at(carried, at + node.len() as u64)?);
        }
        let slots = (node.len() + carried.len()) / g.slot_len();
        for part in 0..g.parts() {
            let range = part_of(g, part);
            buffer.resize(slots * range.len(), 0);
            self.file.read_exact_at(buffer, at)?;
            at += buffer.len() as u64;
            let slots = node.chunks_exact_mut(g.slot_len());
            let slots = slots.chain(carried.chunks_exact_mut(g.slot_len()));
            for (slot, part) in slots.zip(buffer.chunks_exact(range.len())) {
                slot[range.clone()].copy_from_slice(part);
            }
        }
        Ok(())
    }
}

/// The range of a part and its tag in its slot.
fn part_of(g: &Geometry, part: usize) -> Range<usize> {
    g.part_at(part)..g.part_end(part)
}

/// Whether a slot is one part, so that slots are stored unchanged.
fn is_one_part(g: &Geometry) -> bool {
    part_of(g, 0) == (0..g.slot_len())
}

/// The enclave's private copies of one part: old and new.
#[derive(Default)]
pub struct Copies {
    old: Vec<u8>,
    new: Vec<u8>,
}

impl Copies {
    /// Bytes that the copies take up, at most.
    pub fn bytes(g: &Geometry) -> usize {
        let (node, carried) = lens_max(g);
        2 * (node + carried) / g.slot_len() * part_of(g, 0).len()
    }
}

/// A node in the shared memory that the enclave evicts.
pub struct SharedNode<'a> {
    nodes: &'a Nodes,
    lens: Lens,
    copies: &'a mut Copies,
    /// Offsets of the current part: of the old and of the new slots.
    at: u64,
    new_at: u64,
}

impl<'a> SharedNode<'a> {
    /// A node with these lengths.
    pub fn new(nodes: &'a Nodes, lens: Lens, copies: &'a mut Copies) -> Self {
        Self { nodes, lens, copies, at: 0, new_at: lens.new_at() }
    }
}

impl SlotParts for SharedNode<'_> {
    fn lens(&self) -> (usize, usize, usize, usize) {
        let Lens { node, carried, new_carried } = self.lens;
        (node, carried, node, new_carried)
    }

    fn part(&mut self, g: &Geometry, part: usize) -> Result<PartBytes<'_>> {
        let (slot_len, stride) = (g.slot_len(), part_of(g, part).len());
        let [node, carried, new_carried] =
            [self.lens.node, self.lens.carried, self.lens.new_carried]
                .map(|len| len / slot_len * stride);
        let Copies { old, new } = &mut *self.copies;
        old.resize(node + carried, 0);
        new.resize(node + new_carried, 0);
        self.nodes.file.read_exact_at(old, self.at)?;
        self.at += old.len() as u64;
        let (node, carried) = old.split_at(node);
        let (new_node, new_carried) = new.split_at_mut(node.len());
        let bytes = NodeBytes { node, carried, new_node, new_carried };
        Ok(PartBytes { bytes, stride, at: 0 })
    }

    fn done(&mut self) -> Result {
        self.nodes.file.write_all_at(&self.copies.new, self.new_at)?;
        self.new_at += self.copies.new.len() as u64;
        Ok(())
    }
}
