//! What a program asks of memory: the input of a simulation.

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

/// Bytes of a line, the unit in which caches and memory talk.
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
    /// Read or written.
    pub op: Op,
    /// Byte address.
    pub addr: u64,
}

/// What a memory operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// A line is fetched.
    Read,
    /// A line is written back.
    Write,
}

/// Memory operations in the order of the program. Object-safe; it may be streamed from a file.
pub trait Workload {
    /// The next one; none at the end, for good.
    fn next(&mut self) -> Result<Option<Record>>;
}

/// What a program asks of memory on several cores: a workload for each, and all mean the same
/// memory by an address. Other programs mean another part of it.
pub struct Program {
    /// One for each core that it takes.
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
