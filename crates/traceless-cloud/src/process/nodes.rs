//! The memory that host and enclave both have, and carry nodes in.
//!
//! It is read and written as a file and never mapped. So the enclave works on copies of its own,
//! and a host that changes bytes meanwhile changes nothing that was verified.

use crate::enclave::NodeBytes;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::orders::Reader;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Bytes of a node, of what comes with it, and of what goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lens {
    node: usize,
    carried: usize,
    new_carried: usize,
}

/// Bytes that say so.
pub const LENS_LEN: usize = 24;

impl Lens {
    /// Of these bytes.
    pub fn of(bytes: &NodeBytes<'_>) -> Self {
        let (node, carried) = (bytes.node.len(), bytes.carried.len());
        Self { node, carried, new_carried: bytes.new_carried.len() }
    }

    /// As bytes.
    pub fn encode(&self) -> [u8; LENS_LEN] {
        let mut bytes = [0; LENS_LEN];
        let lens = [self.node, self.carried, self.new_carried];
        for (to, len) in bytes.as_chunks_mut().0.iter_mut().zip(lens) {
            *to = (len as u64).to_le_bytes();
        }
        bytes
    }

    /// From bytes of a host, which may say anything.
    pub fn decode(reader: &mut Reader<'_>, geometry: &Geometry) -> Result<Self> {
        let lens = [reader.u64()?, reader.u64()?, reader.u64()?];
        let (node, carried) = lens_max(geometry);
        let [node, carried, new_carried] = match lens.map(usize::try_from) {
            [Ok(a), Ok(b), Ok(c)] if a <= node && b <= carried && c <= carried => [a, b, c],
            _ => return Err(Error::Malformed("a node of such length")),
        };
        Ok(Self { node, carried, new_carried })
    }

    /// Where the new bytes begin.
    fn new_at(&self) -> u64 {
        (self.node + self.carried) as u64
    }
}

/// Bytes of a node and of what a round carries, at most.
fn lens_max(g: &Geometry) -> (usize, usize) {
    let slots = g.inner_slots.max(g.leaf_slots);
    (slots * g.slot_len(), g.round_slots * g.slot_len())
}

/// The memory.
pub struct Nodes {
    file: File,
    len: u64,
}

impl Nodes {
    /// A file without a name.
    pub fn create() -> Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC;
        Ok(memfd_create("traceless-nodes", flags).map_err(std::io::Error::from)?)
    }

    /// The memory for nodes of a tree.
    pub fn new(file: OwnedFd, geometry: &Geometry) -> Self {
        let (node, carried) = lens_max(geometry);
        Self { file: File::from(file), len: 2 * (node + carried) as u64 }
    }

    /// Makes it long enough.
    pub fn make_room(&self) -> Result {
        Ok(self.file.set_len(self.len)?)
    }

    /// What the host puts there.
    pub fn write_old(&self, lens: &Lens, node: &[u8], carried: &[u8]) -> Result {
        self.file.write_all_at(node, 0)?;
        Ok(self.file.write_all_at(carried, lens.node as u64)?)
    }

    /// What the enclave takes.
    pub fn read_old(&self, lens: &Lens, node: &mut Vec<u8>, carried: &mut Vec<u8>) -> Result {
        node.resize(lens.node, 0);
        carried.resize(lens.carried, 0);
        self.file.read_exact_at(node, 0)?;
        Ok(self.file.read_exact_at(carried, lens.node as u64)?)
    }

    /// What the enclave puts there.
    pub fn write_new(&self, lens: &Lens, node: &[u8], carried: &[u8]) -> Result {
        self.file.write_all_at(node, lens.new_at())?;
        Ok(self.file.write_all_at(carried, lens.new_at() + lens.node as u64)?)
    }

    /// What the host takes.
    pub fn read_new(&self, lens: &Lens, node: &mut [u8], carried: &mut [u8]) -> Result {
        if (node.len(), carried.len()) != (lens.node, lens.new_carried) {
            return Err(Error::Malformed("not the bytes of a node and of what goes with it"));
        }
        self.file.read_exact_at(node, lens.new_at())?;
        Ok(self.file.read_exact_at(carried, lens.new_at() + lens.node as u64)?)
    }

    /// Room for what the enclave makes.
    pub fn room_for_new(lens: &Lens, node: &mut Vec<u8>, carried: &mut Vec<u8>) {
        node.resize(lens.node, 0);
        carried.resize(lens.new_carried, 0);
    }
}
