//! Experiments that the simulator runs: figures and tables of papers, from files that say what to
//! simulate and what the paper found.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use traceless_sim::experiment::Level;
//! use traceless_sim::experiment::results::Control;
//! use traceless_sim::experiment::simulation::{Sweep, open_results};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let experiment = r#"
//! title = "A cache"
//! paper = "none"
//! place = "Figure 1"
//! machine = { processor = { rob = 128, fetch = 4, retire = 4, depth = 10 } }
//! workloads = ["sequential"]
//! quick = { records = 500, seeds = [1] }
//! full = { records = 500, seeds = [1] }
//! variant = [
//!     { name = "without" },
//!     { name = "with", set = { last_level = { bytes = 65536, ways = 8, latency = 10 } } },
//! ]
//! metric = [{ name = "cycles", of = ["cycles"] }]
//! claim = [{ text = "first", metric = "cycles", variant = "with", rule = { at-least = 1.0 } }]
//! "#;
//! let folder = tempfile::tempdir()?;
//! let (file, out) = (folder.path().join("cache.toml"), folder.path().join("out"));
//! std::fs::write(&file, experiment)?;
//! let sweep = Sweep::read(&[file], Level::Quick, None)?;
//! let results = open_results(&out)?;
//! let control = Control { interrupted: &AtomicBool::new(false), progress: &mut |_, _| {} };
//! sweep.complete(&results, 1, control)?;
//! let report = sweep.conclude(&results, &out)?;
//! assert!(report.to_string().contains("1 of 1 claims reproduced"));
//! # Ok(())
//! # }
//! ```

mod commands;
mod file;
mod input;
mod merge;
mod overheads;
mod plan;
mod shard;
#[cfg(test)]
mod tests;
mod workloads;

pub use shard::{Shard, ShardRecord};

use super::metrics::{RunCounts, RunIndex};
use super::results::{Control, Results};
use super::{Error, Level, Report, Result};
use crate::Watch;
use file::Experiment;
use input::Input;
use plan::PlannedRun;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

const SCHEMA: &str = "traceless.sim.result.v1";

/// One experiment or several, with their runs at one level.
pub struct Sweep {
    experiments: Vec<(Experiment, Vec<PlannedRun>)>,
    level: Level,
    /// The number of timed records, if it is not that of the level.
    records: Option<u64>,
    /// What observes each run that is made.
    watch: Watch,
}

/// Opens the folder of results in `out`.
pub fn open_results(out: &Path) -> Result<Results> {
    Results::open(out, SCHEMA)
}

impl Sweep {
    /// The experiments in the files at `paths`, which time `records` records of each workload
    /// instead of the level's number if it is given.
    pub fn read(paths: &[PathBuf], level: Level, records: Option<u64>) -> Result<Self> {
        let mut experiments = vec![];
        for path in paths {
            let mut experiment = Experiment::read(path)?;
            if let Some(records) = records {
                experiment.set_records(records)?;
            }
            let runs = plan::runs(&experiment, level)?;
            experiments.push((experiment, runs));
        }
        Ok(Self { experiments, level, records, watch: Watch::default() })
    }

    /// Lets `watch` observe each run that is made.
    pub fn observe(&mut self, watch: Watch) {
        self.watch = watch;
    }

    /// Drops all runs but one; `nth` counts the runs of all experiments from 0.
    pub fn select(&mut self, nth: usize) -> Result {
        let count = self.run_count();
        if nth >= count {
            return Err(Error::NoRun { last: count.saturating_sub(1) });
        }
        let mut first = 0;
        for (_, runs) in &mut self.experiments {
            let count = runs.len();
            let mut number = first..;
            runs.retain(|_| number.next() == Some(nth));
            first += count;
        }
        Ok(())
    }

    /// The number of runs of all experiments.
    pub fn run_count(&self) -> usize {
        self.experiments.iter().map(|(_, runs)| runs.len()).sum()
    }

    fn runs(&self) -> Vec<(&Experiment, &PlannedRun)> {
        let mut all = vec![];
        for (experiment, runs) in &self.experiments {
            all.extend(runs.iter().map(|run| (experiment, run)));
        }
        all
    }

    /// Figures share their baselines: of runs with equal keys only the first, which is made.
    fn distinct_runs(&self) -> Vec<(&Experiment, &PlannedRun)> {
        let mut keys = HashSet::new();
        self.runs().into_iter().filter(|(_, run)| keys.insert(run.key.as_str())).collect()
    }

    /// Makes the runs without a result, `jobs` at a time.
    pub fn complete(&self, results: &Results, jobs: usize, control: Control<'_>) -> Result {
        complete(&self.distinct_runs(), results, jobs, &self.watch, control)
    }

    /// Makes all runs, even if they have results already; `watch` observes them.
    pub fn make_watched(&self, results: &Results, watch: &Watch) -> Result {
        self.runs()
            .into_iter()
            .try_for_each(|(experiment, run)| make(results, experiment, run, watch))
    }

    /// The reports of all experiments after their runs; also written to `out`.
    pub fn conclude(&self, results: &Results, out: &Path) -> Result<SweepReport> {
        let mut reports = vec![];
        for (experiment, runs) in &self.experiments {
            reports.push(conclude(experiment, self.level, runs, results, out)?);
        }
        Ok(SweepReport { schema: "traceless.sim.sweep.v1", experiments: reports })
    }
}

/// The reports of several experiments.
#[derive(Serialize)]
pub struct SweepReport {
    schema: &'static str,
    /// The reports, in the order of the experiments.
    pub experiments: Vec<Report>,
}

/// Text for people to read: each report, and how many claims were reproduced.
impl fmt::Display for SweepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for report in &self.experiments {
            writeln!(f, "{report}\n")?;
        }
        let verdicts = || self.experiments.iter().flat_map(|report| &report.verdicts);
        let count = |is: Option<bool>| verdicts().filter(|v| v.reproduced == is).count();
        write!(
            f,
            "{} of {} claims reproduced, {} not, {} from runs too short to judge",
            count(Some(true)),
            verdicts().count(),
            count(Some(false)),
            count(None),
        )
    }
}

/// Makes each of `runs` without a result, `jobs` at a time.
fn complete(
    runs: &[(&Experiment, &PlannedRun)],
    results: &Results,
    jobs: usize,
    watch: &Watch,
    control: Control<'_>,
) -> Result {
    let keys: Vec<&str> = runs.iter().map(|(_, run)| run.key.as_str()).collect();
    results.complete(&keys, jobs, control, |nth| {
        let (experiment, run) = runs[nth];
        make(results, experiment, run, watch)
    })
}

/// Makes a run, even if it has a result already; `watch` observes it.
fn make(results: &Results, experiment: &Experiment, run: &PlannedRun, watch: &Watch) -> Result {
    results.store(&run.key, &run.input, &simulate(experiment, &run.input, watch)?)
}

fn simulate(experiment: &Experiment, input: &Input, watch: &Watch) -> Result<Value> {
    if let Some(overheads) = &input.overheads {
        return Ok(overheads.counts());
    }
    let (mut programs, warm_up) = workloads::open(experiment, input)?;
    let outcome = input
        .machine
        .run_watched(warm_up, &mut programs, watch)
        .map_err(|source| Error::Simulation { workload: input.workload.clone(), source })?;
    Ok(serde_json::to_value(&outcome)?)
}

/// The report of an experiment with all runs made, also written to `out`.
fn conclude(
    experiment: &Experiment,
    level: Level,
    runs: &[PlannedRun],
    results: &Results,
    out: &Path,
) -> Result<Report> {
    let counts = runs.iter().map(|run| results.get(&run.key)).collect::<Result<Vec<_>>>()?;
    let indices: Vec<RunIndex> = runs.iter().map(|run| run.index).collect();
    let spec = experiment.spec(level);
    let counts = RunCounts::new(&spec, &indices, counts);
    let lines = runs.iter().map(|run| {
        let names = vec![
            ("variant", experiment.variants[run.index.variant].name.clone().into()),
            ("workload", run.input.workload.clone().into()),
            ("seed", run.input.seed.into()),
            ("key", run.key.clone().into()),
        ];
        (names, counts.at(run.index))
    });
    super::conclude(&spec, &counts, lines, out)
}
