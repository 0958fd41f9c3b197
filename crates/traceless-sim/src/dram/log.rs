//! The commands that went out, for those who check them.

use crate::workload::Op;

/// What a bank is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Open a row.
    Activate,
    /// Close it.
    Precharge,
    /// Read a line of it.
    Read,
    /// Write a line of it.
    Write,
}

impl Command {
    /// The command that moves data.
    pub fn column(op: Op) -> Self {
        match op {
            Op::Read => Self::Read,
            Op::Write => Self::Write,
        }
    }
}

/// A command that went out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandRecord {
    /// When, in cycles of the processor.
    pub at: u64,
    /// What.
    pub command: Command,
    /// To which rank.
    pub rank: usize,
    /// To which bank of it.
    pub bank: usize,
    /// The row of the request that it was for.
    pub row: u32,
    /// The bank is told to precharge by itself, as soon as it may.
    pub closes: bool,
}
