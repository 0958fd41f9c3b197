//! A computer: processor, caches and memory, as files say it.

use crate::backend::Backend;
use crate::constant;
use crate::dram::{self, ChannelStats, Memory, Summary};
use crate::error::Result;
use crate::llc::{self, EarlyWriteBack, LastLevel};
use crate::oram::{self, Early, Oram, Scheme};
use crate::processor::{self, Run};
use crate::workload::{Record, Workload};
use serde::{Deserialize, Serialize};

/// A processor and its memory.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Each of its cores.
    pub processor: processor::Config,
    /// The cache that they share, if the workloads are what comes before it.
    pub last_level: Option<llc::Config>,
    /// What hides which lines are meant, if anything does.
    pub oram: Option<oram::Config>,
    /// The memory that they share.
    #[serde(default = "four_channels")]
    pub memory: dram::Config,
    /// What is there in place of that, if anything is.
    pub constant: Option<constant::Config>,
}

fn four_channels() -> dram::Config {
    dram::Config::FOUR_CHANNELS
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
    /// What the memory did.
    pub dram: Option<Summary>,
    /// What each channel of it did.
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
        constant: None,
    };

    /// The baseline of the IR-ORAM paper's Table I. Subtrees lie in one row of all four channels.
    pub fn ir_oram() -> Self {
        Self {
            processor: processor::Config { rob: 128, ..processor::Config::FOUR_CHANNELS },
            last_level: Some(llc::Config {
                bytes: 2 << 20,
                ways: 8,
                latency: 10,
                reads_before_writes: true,
            }),
            oram: Some(oram::Config::default()),
            memory: dram::Config {
                map: dram::AddressMap::ROWS_TOGETHER,
                ..dram::Config::FOUR_CHANNELS
            },
            constant: None,
        }
    }

    /// Runs each workload to its end, on a core of its own.
    pub fn run(&self, workloads: &mut [Box<dyn Workload>]) -> Result<Outcome> {
        self.run_after(0, workloads)
    }

    /// The same, but the first `warm_up` records of each workload only fill the last cache and what
    /// is behind it.
    pub fn run_after(&self, warm_up: u64, workloads: &mut [Box<dyn Workload>]) -> Result<Outcome> {
        let hidden = self.oram.as_ref().filter(|oram| oram.scheme != Scheme::Dram);
        match (hidden, &self.constant) {
            (None, None) => {
                let memory = Memory::new(self.memory)?;
                self.run_over(memory, warm_up, workloads, |memory, end| (None, memory.stats(end)))
            }
            (None, Some(constant)) => {
                let memory = constant::Straight::new(constant)?;
                self.run_over(memory, warm_up, workloads, |_, _| (None, vec![]))
            }
            (Some(oram), constant) => {
                let oram = match constant {
                    None => Oram::over_dram(oram, Memory::new(self.memory)?)?,
                    Some(constant) => Oram::over_constant(oram, constant)?,
                };
                let tell = |oram: &Oram, end| (Some(oram.counts()), oram.stats(end));
                self.run_over(oram, warm_up, workloads, tell)
            }
        }
    }

    fn run_over<B: Backend>(
        &self,
        mut memory: B,
        warm_up: u64,
        workloads: &mut [Box<dyn Workload>],
        tell: impl Fn(&B, u64) -> (Option<oram::Counts>, Vec<ChannelStats>),
    ) -> Result<Outcome> {
        let Some(last_level) = &self.last_level else {
            fill(&mut memory, warm_up, workloads)?;
            let run = processor::run(&self.processor, &mut memory, workloads)?;
            let (paths, channels) = tell(&memory, run.cycles);
            let dram = self.summary(&channels, run.cycles);
            return Ok(Outcome { run, last_level: None, paths, dram, channels });
        };
        let mut cached = LastLevel::new(last_level, memory)?;
        if let Some(early) = self.early() {
            cached.write_back_early(early);
        }
        fill(&mut cached, warm_up, workloads)?;
        let run = processor::run(&self.processor, &mut cached, workloads)?;
        let (paths, channels) = tell(cached.behind(), run.cycles);
        let dram = self.summary(&channels, run.cycles);
        Ok(Outcome { run, last_level: Some(cached.counts()), paths, dram, channels })
    }

    /// What all channels did, if there are any.
    fn summary(&self, channels: &[ChannelStats], end: u64) -> Option<Summary> {
        self.constant.is_none().then(|| Summary::new(&self.memory, channels, end))
    }

    /// How dirty lines of the last cache are found that can be written back early.
    fn early(&self) -> Option<EarlyWriteBack> {
        let oram = self.oram.as_ref()?.resolved();
        match oram.early {
            Some(Early::Scan) => Some(EarlyWriteBack::scan(oram.seed, oram.early_pause)),
            Some(Early::Queue) => Some(EarlyWriteBack::queue(oram.early_queue)),
            _ => None,
        }
    }
}

/// Takes the first records of all workloads, in turn, to warm `memory`.
fn fill(memory: &mut impl Backend, records: u64, workloads: &mut [Box<dyn Workload>]) -> Result {
    let part = processor::part_of_a_core(memory.capacity(), workloads.len())?;
    for _ in 0..records {
        for (nth, workload) in workloads.iter_mut().enumerate() {
            if let Some(Record { op, addr, .. }) = workload.next()? {
                memory.warm(op, part * nth as u64 + addr % part)?;
            }
        }
    }
    Ok(())
}
