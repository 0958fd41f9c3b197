//! A computer: processor and memory, as files say it.

use crate::dram::{self, ChannelStats, Memory};
use crate::error::Result;
use crate::processor::{self, Run};
use crate::workload::Workload;
use serde::{Deserialize, Serialize};

/// A processor and its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Each of its cores.
    pub processor: processor::Config,
    /// The memory that they share.
    pub memory: dram::Config,
}

impl Machine {
    /// USIMM's machine with four channels.
    pub const FOUR_CHANNELS: Self =
        Self { processor: processor::Config::FOUR_CHANNELS, memory: dram::Config::FOUR_CHANNELS };

    /// USIMM's machine with one channel.
    pub const ONE_CHANNEL: Self =
        Self { processor: processor::Config::ONE_CHANNEL, memory: dram::Config::ONE_CHANNEL };

    /// Runs each workload to its end, on a core of its own, straight over the memory: without
    /// caches, and without hiding anything.
    pub fn run(&self, workloads: &mut [Box<dyn Workload>]) -> Result<(Run, Vec<ChannelStats>)> {
        let mut memory = Memory::new(self.memory)?;
        let run = processor::run(&self.processor, &mut memory, workloads)?;
        Ok((run, memory.stats()))
    }
}
