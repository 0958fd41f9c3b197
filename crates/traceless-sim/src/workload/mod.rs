//! The memory operations of programs: the input of a simulation.
//!
//! A workload is made up by name, read from a file, or any iterator of records:
//!
//! ```
//! use traceless_sim::workload::{Op, Record, Workload, named, open};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut random = named("uniform?bytes=64M&write_share=0.5&before=20", 1000, 1)?;
//! let first = random.next()?.expect("it has 1000 operations");
//! assert!(first.addr < 64 << 20);
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("two.usimm");
//! std::fs::write(&path, "20 R 0x1240 0x0\n3 W 0x80\n")?;
//! let mut recorded = open(&path, None)?;
//! assert_eq!(recorded.next()?, Some(Record { before: 20, op: Op::Read, addr: 0x1240 }));
//! assert_eq!(recorded.next()?, Some(Record { before: 3, op: Op::Write, addr: 0x80 }));
//! assert_eq!(recorded.next()?, None);
//!
//! let own = (0..10).map(|nth| Record { before: 5, op: Op::Read, addr: nth * 64 });
//! let _: Box<dyn Workload> = Box::new(own);
//! # Ok(())
//! # }
//! ```

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
