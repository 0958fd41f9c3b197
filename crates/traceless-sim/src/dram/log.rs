//! A log of the commands that went out, for checks.

use crate::workload::Op;

/// A command to a bank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Open a row.
    Activate,
    /// Close the open row.
    Precharge,
    /// Read a line of the open row.
    Read,
    /// Write a line of the open row.
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
    /// The time, in cycles of the processor.
    pub at: u64,
    /// The command.
    pub command: Command,
    /// The rank that it went to.
    pub rank: usize,
    /// The bank of the rank.
    pub bank: usize,
    /// The row of the request that the command was for.
    pub row: u32,
    /// Whether the command carries an auto-precharge: the bank closes as soon as it may.
    pub closes: bool,
}
