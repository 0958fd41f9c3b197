//! The memory operations of programs: the input of a simulation.

mod champsim;
mod combined;
mod filter;
pub mod kernel;
pub mod lackey;
mod named;
mod open;
mod packed;
mod permutation;
mod ramulator;
mod synthetic;
pub mod table_2;
mod text;
mod usimm;

pub use champsim::ChampSim;
pub use combined::{Chain, Prefix, Turns};
pub use filter::Filter;
pub use named::{named, programs};
pub use open::{Format, open};
pub use packed::{PACKED_MAGIC, PackedWorkload, PackedWriter};
pub use ramulator::Ramulator;
pub use synthetic::{Pattern, Synthetic};
pub use usimm::Usimm;

use crate::error::Result;

/// Bytes of a line, the unit of transfers between caches and memory.
pub const LINE_LEN: u64 = 64;

/// The first byte of the line that a byte is in.
pub fn line_start(addr: u64) -> u64 {
    addr / LINE_LEN * LINE_LEN
}

/// One memory operation of a program, and how many other instructions came before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Instructions without memory between this operation and the one before.
    pub before: u64,
    /// Whether the operation reads or writes.
    pub op: Op,
    /// Byte address.
    pub addr: u64,
}

/// The kind of a memory operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// A line is fetched.
    Read,
    /// A line is written back.
    Write,
}

/// Memory operations in the order of the program. Object-safe; it may be streamed from a file.
pub trait Workload {
    /// The next operation; after the end always `None`.
    fn next(&mut self) -> Result<Option<Record>>;
}

/// A program on one core or several: a workload for each core, all with the same address space.
/// Each program has an address space of its own.
pub struct Program {
    /// The workload of each core.
    pub threads: Vec<Box<dyn Workload>>,
}

impl From<Box<dyn Workload>> for Program {
    fn from(workload: Box<dyn Workload>) -> Self {
        Self { threads: vec![workload] }
    }
}

impl<I: Iterator<Item = Record>> Workload for I {
    fn next(&mut self) -> Result<Option<Record>> {
        Ok(Iterator::next(self))
    }
}
