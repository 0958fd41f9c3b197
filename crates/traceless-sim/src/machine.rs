//! A computer: processor, caches and memory, as its file describes it.
//!
//! ```
//! use traceless_sim::machine::Machine;
//! use traceless_sim::workload::named;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let machine: Machine = toml::from_str(
//!     "
//!     [processor]
//!     rob = 128
//!     fetch = 4
//!     retire = 4
//!     depth = 10
//!
//!     [last_level]
//!     bytes = 65536
//!     ways = 8
//!     latency = 10
//!     ",
//! )?;
//! let mut workloads = [named("uniform?bytes=32K&before=10", 5000, 1)?];
//! // The first half only warms up the cache, which holds all of it from then on.
//! let outcome = machine.run_after(2500, &mut workloads)?;
//! assert_eq!(outcome.run.records, 2500);
//! let cache = outcome.last_level.expect("the machine has a last cache");
//! assert!(cache.read_misses + cache.write_misses < 25, "{cache:?}");
//! # Ok(())
//! # }
//! ```

use crate::backend::Backend;
use crate::constant;
use crate::dram::{self, ChannelStats, ChannelTimes, CommandRecord, Memory, Summary};
use crate::error::{Error, Result};
use crate::llc::{self, EarlyWriteBack, LastLevel};
use crate::oram::{self, Early, Latencies, Oram, Scheme};
use crate::processor::{self, Run, Task};
use crate::watch::{ObservedMemory, Watch};
use crate::workload::{Program, Record, Workload};
use serde::{Deserialize, Serialize};
use traceless::stats::Histogram;

/// A processor and its memory.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The configuration of each core.
    pub processor: processor::Config,
    /// The cache that the cores share; none if the workloads were recorded behind it.
    pub last_level: Option<llc::Config>,
    /// The scheme that hides which lines the programs access, if there is one.
    pub oram: Option<oram::Config>,
    /// The memory that they share.
    #[serde(default = "four_channels")]
    pub memory: dram::Config,
    /// A memory known by its bandwidth and latency, in place of the DRAM, if there is one.
    pub constant: Option<constant::Config>,
}

fn four_channels() -> dram::Config {
    dram::Config::FOUR_CHANNELS
}

/// The results of a run on a machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// Cycles, instructions and memory operations of the run.
    #[serde(flatten)]
    pub run: Run,
    /// The requests to the last cache.
    pub last_level: Option<llc::CacheCounts>,
    /// Path accesses of the scheme.
    pub paths: Option<oram::Counts>,
    /// How long requests and path accesses took; without a scheme, reads and writes.
    pub latencies: Option<Latencies>,
    /// The costs of the scheme's position map.
    pub map: Option<oram::MapCounts>,
    /// The scheme's storage in the processor.
    pub storage: Option<oram::Storage>,
    /// The work of the DRAM.
    pub dram: Option<Summary>,
    /// The work of each channel of the DRAM.
    #[serde(skip)]
    pub channels: Vec<ChannelStats>,
    /// How long requests to each channel took.
    #[serde(skip)]
    pub channel_times: Vec<ChannelTimes>,
    /// The commands to each channel, if [`Watch::commands`] is set.
    #[serde(skip)]
    pub commands: Vec<Vec<CommandRecord>>,
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
                brought_before: 0,
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

    /// Runs each workload to its end. The first `warm_up` records of each only fill the last cache
    /// and the memory behind it.
    pub fn run_after(&self, warm_up: u64, workloads: &mut [Box<dyn Workload>]) -> Result<Outcome> {
        self.simulate(warm_up, &mut processor::apart(workloads), &Watch::default())
    }

    /// Runs programs, each of their threads on a core of its own.
    pub fn run_programs(&self, warm_up: u64, programs: &mut [Program]) -> Result<Outcome> {
        self.run_watched(warm_up, programs, &Watch::default())
    }

    /// Runs programs, and reports to `watch` what the records after the warm-up show.
    pub fn run_watched(
        &self,
        warm_up: u64,
        programs: &mut [Program],
        watch: &Watch,
    ) -> Result<Outcome> {
        self.simulate(warm_up, &mut processor::together(programs), watch)
    }

    /// Refuses impossible values, as far as they are known before anything is built.
    pub fn check(&self) -> Result {
        self.processor.check()?;
        self.last_level.as_ref().map_or(Ok(()), llc::Config::check)?;
        self.hidden().map_or(Ok(()), oram::Config::check)?;
        self.constant.as_ref().map_or_else(|| self.memory.check(), constant::Config::check)
    }

    /// The scheme that hides addresses, if there is one.
    fn hidden(&self) -> Option<&oram::Config> {
        self.oram.as_ref().filter(|oram| oram.scheme != Scheme::Dram)
    }

    fn simulate(&self, warm_up: u64, tasks: &mut [Task<'_>], watch: &Watch) -> Result<Outcome> {
        self.check()?;
        let outcome = self.simulate_memory(warm_up, tasks, watch)?;
        if outcome.run.records == 0 {
            return Err(Error::Nothing);
        }
        Ok(outcome)
    }

    fn simulate_memory(
        &self,
        warm_up: u64,
        tasks: &mut [Task<'_>],
        watch: &Watch,
    ) -> Result<Outcome> {
        if watch.bus.is_some() && self.constant.is_some() {
            let what = "it is known by its bandwidth and has no bus to watch";
            return Err(Error::Memory(what));
        }
        let bus = match &self.constant {
            Some(constant) => constant.capacity,
            None => self.memory.geometry.capacity(),
        };
        let observers = watch.begin(bus);
        let dram = || {
            let mut memory = Memory::new(self.memory)?;
            observers.bus().iter().for_each(|witness| memory.watch(witness));
            if watch.commands {
                memory.keep_log();
            }
            Ok::<_, Error>(memory)
        };
        let hidden = self.hidden();
        match (hidden, &self.constant) {
            (None, _) if watch.lines.is_some() => {
                Err(Error::Oram("nothing hides what could be watched"))
            }
            (None, None) => {
                let report_of = |memory: &Memory, end| dram_report(memory, end, watch.commands);
                self.simulate_over(observers.observe(dram()?, None), warm_up, tasks, report_of)
            }
            (None, Some(constant)) => {
                let memory = constant::Straight::new(constant)?;
                let report_of = |memory: &constant::Straight, _| {
                    let (reads, writes) = memory.times();
                    let latencies = Latencies::straight(reads, &Histogram::default(), writes);
                    MemoryReport { latencies: Some(latencies), ..MemoryReport::default() }
                };
                self.simulate_over(observers.observe(memory, None), warm_up, tasks, report_of)
            }
            (Some(oram), constant) => {
                let mut oram = match constant {
                    None => Oram::over_dram(oram, dram()?)?,
                    Some(constant) => Oram::over_constant(oram, constant)?,
                };
                if let Some(witness) = observers.lines(constant.is_none()) {
                    oram.watch(witness);
                }
                let report_of = |oram: &Oram, end| {
                    let (channels, channel_times) = (oram.stats(end), oram.times());
                    let kept = if watch.commands { channels.len() } else { 0 };
                    let commands = (0..kept).map(|nth| oram.commands(nth).to_vec()).collect();
                    MemoryReport {
                        paths: Some(oram.counts()),
                        map: Some(oram.map_counts()),
                        latencies: Some(oram.latencies()),
                        channels,
                        channel_times,
                        commands,
                    }
                };
                let leaves = oram.drawn_leaves();
                self.simulate_over(observers.observe(oram, leaves), warm_up, tasks, report_of)
            }
        }
    }

    fn simulate_over<B: Backend>(
        &self,
        mut memory: ObservedMemory<B>,
        warm_up: u64,
        tasks: &mut [Task<'_>],
        report_of: impl Fn(&B, u64) -> MemoryReport,
    ) -> Result<Outcome> {
        let storage = self.oram.as_ref().map(oram::Config::storage).transpose()?.flatten();
        let Some(last_level) = &self.last_level else {
            fill(&mut memory, warm_up, tasks)?;
            let run = processor::run_tasks(&self.processor, &mut memory, tasks)?;
            let report = report_of(&memory.memory, run.cycles);
            return Ok(self.outcome(run, None, storage, report));
        };
        let mut cached = LastLevel::new(last_level, memory)?;
        if let Some(early) = self.early() {
            cached.write_back_early(early);
        }
        fill(&mut cached, warm_up, tasks)?;
        let run = processor::run_tasks(&self.processor, &mut cached, tasks)?;
        let report = report_of(&cached.behind().memory, run.cycles);
        Ok(self.outcome(run, Some(cached.counts()), storage, report))
    }

    fn outcome(
        &self,
        run: Run,
        last_level: Option<llc::CacheCounts>,
        storage: Option<oram::Storage>,
        report: MemoryReport,
    ) -> Outcome {
        let MemoryReport { paths, map, latencies, channels, channel_times, commands } = report;
        Outcome {
            run,
            last_level,
            paths,
            latencies,
            map,
            storage,
            dram: self.summary(&channels, run.cycles),
            channels,
            channel_times,
            commands,
        }
    }

    /// The work of all channels, if there are any.
    fn summary(&self, channels: &[ChannelStats], end: u64) -> Option<Summary> {
        self.constant.is_none().then(|| Summary::new(&self.memory, channels, end))
    }

    /// How to find dirty lines of the last cache for an early write-back.
    fn early(&self) -> Option<EarlyWriteBack> {
        let oram = self.oram.as_ref()?.resolved();
        match oram.early {
            Some(Early::Scan) => Some(EarlyWriteBack::scan(oram.seed, oram.early_pause)),
            Some(Early::Queue) => Some(EarlyWriteBack::queue(oram.early_queue)),
            _ => None,
        }
    }
}

/// The results of a memory.
#[derive(Default)]
struct MemoryReport {
    paths: Option<oram::Counts>,
    map: Option<oram::MapCounts>,
    latencies: Option<Latencies>,
    channels: Vec<ChannelStats>,
    channel_times: Vec<ChannelTimes>,
    commands: Vec<Vec<CommandRecord>>,
}

/// The results of a DRAM without a scheme.
fn dram_report(memory: &Memory, end: u64, with_commands: bool) -> MemoryReport {
    let channel_times: Vec<_> = memory.times().cloned().collect();
    let mut all = ChannelTimes::default();
    for times in &channel_times {
        all.merge(times);
    }
    let latencies = Latencies::straight(&all.reads, &all.merged_reads, &all.writes);
    let kept = if with_commands { channel_times.len() } else { 0 };
    MemoryReport {
        latencies: Some(latencies),
        channels: memory.stats(end),
        commands: (0..kept).map(|channel| memory.log(channel).to_vec()).collect(),
        channel_times,
        ..MemoryReport::default()
    }
}

/// Warms `memory` with the first records of all cores, in turn.
fn fill(memory: &mut impl Backend, records: u64, tasks: &mut [Task<'_>]) -> Result {
    let part = processor::part_of_a_program(memory.capacity(), tasks)?;
    for _ in 0..records {
        for Task { workload, program } in &mut *tasks {
            if let Some(Record { op, addr, .. }) = workload.next()? {
                memory.warm(op, part * *program as u64 + addr % part)?;
            }
        }
    }
    Ok(())
}
