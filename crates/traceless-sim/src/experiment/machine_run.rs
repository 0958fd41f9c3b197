//! One machine, and a workload for each of its cores: a run without an experiment.
//!
//! ```
//! use traceless::clock::Monotonic;
//! use traceless_sim::Watch;
//! use traceless_sim::experiment::machine_run::MachineRun;
//!
//! # fn main() -> traceless_sim::experiment::Result {
//! let run = MachineRun {
//!     workloads: vec!["uniform".to_owned()],
//!     length: Some(500),
//!     ..MachineRun::new("dram")
//! };
//! let report = run.simulate(&Watch::default(), &Monotonic::start())?;
//! assert_eq!(report.outcome.run.records, 500);
//! # Ok(())
//! # }
//! ```

use super::toml_file::read_machine;
use super::{Error, Result};
use crate::Watch;
use crate::dram::{self, Breach, ChannelStats, ChannelTimes, OpStats, Summary};
use crate::latency::Latency;
use crate::machine::{Machine, Outcome};
use crate::oram::{Config, Scheme};
use crate::workload::{self, Format, Prefix, Program, Workload};
use serde::Serialize;
use std::path::{Path, PathBuf};
use traceless::clock::Clock;
use traceless::stats::Histogram;

/// What is run, and on which machine.
#[derive(Clone, Debug)]
pub struct MachineRun {
    /// A workload for each core: a file, or a name.
    pub workloads: Vec<String>,
    /// Operations that a core runs at most. By default a whole file, or a million.
    pub length: Option<u64>,
    /// The seed of everything random.
    pub seed: u64,
    /// The format of the files; by default it is detected.
    pub format: Option<Format>,
    /// The name of the scheme that memory is reached by.
    pub scheme: String,
    /// The machine as TOML; by default one that the scheme's paper has.
    pub config: Option<PathBuf>,
    /// Whether every command on the memory's bus is checked against each constraint.
    pub check: bool,
}

/// The outcome of a run, as JSON in the schema `traceless.sim.trace.v1`.
#[derive(Serialize)]
pub struct MachineReport {
    schema: &'static str,
    machine: Machine,
    /// What the machine counted.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The channels of the memory.
    pub channels: Vec<ChannelReport>,
    /// The number of commands on the bus, if all of them were checked.
    pub commands_checked: Option<u64>,
    /// The speed of the simulator itself.
    pub records_per_second: f64,
}

/// A channel of the memory.
#[derive(Serialize)]
pub struct ChannelReport {
    /// Its reads.
    pub reads: RequestReport,
    /// Its writes.
    pub writes: RequestReport,
    dram: Summary,
}

/// Requests of one kind to a channel.
#[derive(Serialize)]
pub struct RequestReport {
    /// How many there were.
    #[serde(flatten)]
    pub counts: OpStats,
    /// The mean latency, in cycles.
    pub latency: f64,
    /// The median latency, in cycles.
    pub p50: u64,
    /// The latency that 99 of 100 requests do not exceed, in cycles.
    pub p99: u64,
    /// The longest latency, in cycles.
    pub max: u64,
    /// The share of requests that found their row open.
    pub row_hits: f64,
}

/// Default length of a generated workload, in operations.
const MADE_UP_LEN: u64 = 1_000_000;

impl MachineRun {
    /// A run with the scheme of this name, without workloads.
    pub fn new(scheme: &str) -> Self {
        Self {
            workloads: vec![],
            length: None,
            seed: 1,
            format: None,
            scheme: scheme.to_owned(),
            config: None,
            check: false,
        }
    }

    /// Simulates the run; `watch` observes it, and `clock` measures the simulator.
    pub fn simulate(&self, watch: &Watch, clock: &dyn Clock) -> Result<MachineReport> {
        let machine = self.machine()?;
        let mut programs = self.programs()?;
        let watch = Watch { commands: self.check, ..watch.clone() };
        let begin = clock.now();
        let outcome = machine.run_watched(0, &mut programs, &watch)?;
        let seconds = (clock.now() - begin) as f64 / 1e9;
        let commands_checked = self.check.then(|| check(&machine, &outcome)).transpose()?;
        let channel = |(stats, times)| ChannelReport::of(stats, times, &machine, &outcome);
        Ok(MachineReport {
            schema: "traceless.sim.trace.v1",
            channels: outcome.channels.iter().zip(&outcome.channel_times).map(channel).collect(),
            commands_checked,
            records_per_second: outcome.run.records as f64 / seconds,
            machine,
            outcome,
        })
    }

    /// The machine of the file, or the default one, with the scheme.
    fn machine(&self) -> Result<Machine> {
        let named = self.config.as_deref().map(read_machine).transpose()?;
        let scheme = Scheme::named(&self.scheme).ok_or_else(|| no_scheme(&self.scheme))?;
        if scheme == Scheme::Dram {
            return Ok(Machine { oram: None, ..named.unwrap_or(Machine::FOUR_CHANNELS) });
        }
        let machine = named.unwrap_or_else(Machine::ir_oram);
        let oram = Config { scheme, ..machine.oram.clone().unwrap_or_default() };
        Ok(Machine { oram: Some(oram.resolved()), ..machine })
    }

    /// The workloads of all cores, in order.
    fn programs(&self) -> Result<Vec<Program>> {
        let mut programs = vec![];
        for (name, seed) in self.workloads.iter().zip(self.seed..) {
            let path = Path::new(name);
            if self.format.is_none() && !path.exists() {
                let length = self.length.unwrap_or(MADE_UP_LEN);
                programs.extend(workload::programs(name, length, seed)?);
            } else {
                let file = workload::open(path, self.format)?;
                let limited = Prefix::new(file, self.length.unwrap_or(u64::MAX));
                programs.push((Box::new(limited) as Box<dyn Workload>).into());
            }
        }
        Ok(programs)
    }
}

impl ChannelReport {
    fn of(
        stats: &ChannelStats,
        times: &ChannelTimes,
        machine: &Machine,
        outcome: &Outcome,
    ) -> Self {
        let requests = |counts: OpStats, times: &Histogram| {
            let Latency { p50, p99, max, .. } = Latency::of(times);
            let (latency, row_hits) = (counts.latency(), counts.row_hits());
            RequestReport { counts, latency, p50, p99, max, row_hits }
        };
        let channel = std::slice::from_ref(stats);
        Self {
            reads: requests(stats.reads, &times.reads),
            writes: requests(stats.writes, &times.writes),
            dram: Summary::new(&machine.memory, channel, outcome.run.cycles),
        }
    }
}

/// The number of commands on the bus. Fails at the first one that breaks a constraint.
fn check(machine: &Machine, outcome: &Outcome) -> Result<u64> {
    if machine.constant.is_some() {
        return Err(Error::NoCommands);
    }
    for (channel, log) in outcome.commands.iter().enumerate() {
        if let Some(Breach { nth, command, rule }) = dram::first_breach(&machine.memory, log) {
            let what = format!("channel {channel}, command {nth}: {rule}: {command:?}");
            return Err(Error::Breach { what });
        }
    }
    Ok(outcome.commands.iter().map(|log| log.len() as u64).sum())
}

fn no_scheme(name: &str) -> Error {
    let known: Vec<&str> = Scheme::NAMED.iter().map(|(name, _)| *name).collect();
    Error::NoScheme { name: name.to_owned(), known: known.join(", ") }
}
