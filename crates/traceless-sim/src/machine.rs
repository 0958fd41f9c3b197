//! A computer: processor, caches and memory, as files say it.

use crate::cache;
use crate::dram::{self, ChannelStats, Memory};
use crate::error::{Error, Result};
use crate::llc::{self, LastLevel};
use crate::oram::{self, Oram};
use crate::processor::{self, Run};
use crate::workload::Workload;
use serde::{Deserialize, Serialize};

/// A processor and its memory.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Each of its cores.
    pub processor: processor::Config,
    /// The cache that they share, if the workloads are what comes before it.
    pub last_level: Option<LastLevelConfig>,
    /// What hides which lines are meant, if anything does.
    pub oram: Option<oram::Config>,
    /// The memory that they share.
    pub memory: dram::Config,
}

/// The last cache before memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LastLevelConfig {
    /// Bytes that it holds.
    pub bytes: u64,
    /// Lines of a set.
    pub ways: u32,
    /// Cycles that a hit takes.
    pub latency: u64,
}

/// What a machine did.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// The whole run.
    #[serde(flatten)]
    pub run: Run,
    /// What the last cache was asked for.
    pub last_level: Option<llc::Counts>,
    /// Path accesses.
    pub paths: Option<oram::Counts>,
    /// What each channel did.
    #[serde(skip)]
    pub channels: Vec<ChannelStats>,
}

impl Machine {
    /// USIMM's machine with four channels.
    pub const FOUR_CHANNELS: Self = Self {
        processor: processor::Config::FOUR_CHANNELS,
        last_level: None,
        oram: None,
        memory: dram::Config::FOUR_CHANNELS,
    };

    /// The baseline of the IR-ORAM paper's Table I. Subtrees lie in one row of all four channels.
    pub fn ir_oram() -> Self {
        Self {
            processor: processor::Config { rob: 128, ..processor::Config::FOUR_CHANNELS },
            last_level: Some(LastLevelConfig { bytes: 2 << 20, ways: 8, latency: 10 }),
            oram: Some(oram::Config::default()),
            memory: dram::Config {
                map: dram::AddressMap::ROWS_TOGETHER,
                ..dram::Config::FOUR_CHANNELS
            },
        }
    }

    /// Runs each workload to its end, on a core of its own.
    pub fn run(&self, workloads: &mut [Box<dyn Workload>]) -> Result<Outcome> {
        let memory = Memory::new(self.memory)?;
        match &self.oram {
            None => self.run_over(memory, workloads, |memory| (None, memory.stats())),
            Some(config) => {
                let oram = Oram::new(config, memory)?;
                self.run_over(oram, workloads, |oram| (Some(oram.counts()), oram.stats()))
            }
        }
    }

    fn run_over<B: crate::backend::Backend>(
        &self,
        mut memory: B,
        workloads: &mut [Box<dyn Workload>],
        tell: impl Fn(&B) -> (Option<oram::Counts>, Vec<ChannelStats>),
    ) -> Result<Outcome> {
        let Some(LastLevelConfig { bytes, ways, latency }) = self.last_level else {
            let run = processor::run(&self.processor, &mut memory, workloads)?;
            let (paths, channels) = tell(&memory);
            return Ok(Outcome { run, last_level: None, paths, channels });
        };
        if latency > LATENCY_MAX {
            return Err(Error::Cache("a hit takes more than 2^20 cycles"));
        }
        let mut cached = LastLevel::new(&cache::Config { bytes, ways }, latency, memory)?;
        let run = processor::run(&self.processor, &mut cached, workloads)?;
        let (paths, channels) = tell(cached.behind());
        Ok(Outcome { run, last_level: Some(cached.counts()), paths, channels })
    }
}

const LATENCY_MAX: u64 = 1 << 20;
