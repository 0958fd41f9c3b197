//! The parts of a memory: channels, ranks, banks, rows and columns.

use crate::workload::LINE_LEN;
use serde::{Deserialize, Serialize};

/// Channels, and the number of parts in each of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Geometry {
    /// Channels, each with a bus of its own.
    pub channels: u32,
    /// Ranks of a channel.
    pub ranks: u32,
    /// Banks of a rank.
    pub banks: u32,
    /// Groups of banks: neighbouring banks are in different groups. All banks of a rank are alike
    /// only if there is one group.
    #[serde(default = "one_group")]
    pub groups: u32,
    /// Rows of a bank.
    pub rows: u32,
    /// Lines of a row.
    pub columns: u32,
}

impl Geometry {
    /// Bytes of the memory.
    pub fn capacity(&self) -> u64 {
        let Self { channels, ranks, banks, rows, columns, .. } = *self;
        [channels, ranks, banks, rows, columns].map(u64::from).iter().product::<u64>() * LINE_LEN
    }
}

fn one_group() -> u32 {
    1
}
