//! The simulator of secure processors.

use crate::failure::{Failure, FailureKind, Result};
use crate::interrupt::interruptible;
use crate::json::to_python;
use crate::storage::Recording;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::path::PathBuf;
use std::sync::Arc;
use traceless_core::clock::Monotonic;
use traceless_core::trace::Witness;
use traceless_sim::Watch;
use traceless_sim::experiment::machine_run::MachineRun;
use traceless_sim::experiment::results::Control;
use traceless_sim::experiment::simulation::{Shard, Sweep, open_results};
use traceless_sim::experiment::{self, Level};
use traceless_sim::workload::Format;

/// Simulates one machine with a workload on each of its cores, as `traceless sim trace --json`.
///
/// workloads: the name of a workload, or of a file, or a list of them, one for each core
///     (docs/workloads.md).
/// scheme: how memory is reached: "dram", "path", "ir-oram", "rho" and more.
/// length: operations that a core runs at most; by default a whole file, or a million.
/// seed: the seed of everything random.
/// config: the machine, as a file of TOML (docs/simulator.md).
/// format: the format of workloads that are files, if it is not detected: "packed", "usimm",
///     "ramulator", "champsim" or "lackey".
/// check: check each command on the memory's bus against every constraint.
/// trace: a file to make with what an observer of the memory's bus sees; see `read_trace`.
///
/// Returns a dictionary in the schema "traceless.sim.trace.v1" (docs/json.md).
#[pyfunction]
#[pyo3(signature = (
    workloads, scheme, *, length = None, seed = 1, config = None, format = None, check = false,
    trace = None,
))]
#[expect(clippy::too_many_arguments, reason = "Python gives them by name")]
pub fn simulate<'py>(
    py: Python<'py>,
    workloads: &Bound<'_, PyAny>,
    scheme: String,
    length: Option<u64>,
    seed: u64,
    config: Option<PathBuf>,
    format: Option<&str>,
    check: bool,
    trace: Option<PathBuf>,
) -> Result<Bound<'py, PyAny>> {
    let workloads = match workloads.extract::<String>() {
        Ok(name) => vec![name],
        Err(_) => workloads.extract::<Vec<String>>()?,
    };
    if workloads.is_empty() || length == Some(0) {
        return Err(Failure::usage(
            "there is nothing to simulate: name a workload, of length 1 up",
        ));
    }
    let format = format.map(format_named).transpose()?;
    let run = MachineRun { workloads, length, seed, format, scheme, config, check };
    let report = py.detach(|| {
        let recording = trace.as_deref().map(Recording::create).transpose()?;
        let bus = recording.as_ref().map(|r| r.witness.clone() as Arc<dyn Witness>);
        let report = run.simulate(&Watch { bus, ..Watch::default() }, &Monotonic::start())?;
        recording.map_or(Ok(()), |recording| recording.finish())?;
        Ok::<_, Failure>(report)
    })?;
    to_python(py, &report)
}

/// Simulates an experiment, a figure or table of a paper, as `traceless sim run --json`.
///
/// file: what to simulate, as in the folder `experiments` of the repository.
/// out: a folder for results and reports. Runs with a result there are not made again.
/// level: "quick" or "full".
/// records: time so many records of each workload, instead of the level's number.
/// jobs: runs at a time.
///
/// Ctrl-C ends it after the runs that are under way; what is finished is kept.
///
/// Returns a dictionary in the schema "traceless.sim.run.v1" (docs/json.md): `metrics`, and
/// `verdicts` on the paper's claims. `report_rows` makes rows of it.
#[pyfunction]
#[pyo3(signature = (file, out, *, level = "quick", records = None, jobs = 1))]
pub fn run_experiment<'py>(
    py: Python<'py>,
    file: PathBuf,
    out: PathBuf,
    level: &str,
    records: Option<u64>,
    jobs: usize,
) -> Result<Bound<'py, PyAny>> {
    let level = level_named(level, records, jobs)?;
    let report = interruptible(py, move |interrupted| {
        let sweep = Sweep::read(&[file], level, records)?;
        let results = open_results(&out)?;
        let control = Control { interrupted, progress: &mut |_, _| {} };
        sweep.complete(&results, jobs, control)?;
        let mut reports = sweep.conclude(&results, &out)?.experiments;
        Ok(reports.pop().expect("one experiment has one report"))
    })?;
    to_python(py, &report)
}

/// Simulates several experiments, as `traceless sim sweep --json`. Runs that they share are made
/// once. `traceless.ray.sweep` does the same on a cluster of Ray.
///
/// files: what to simulate, as in the folder `experiments` of the repository.
/// out: a folder for results and reports. Runs with a result there are not made again.
/// level: "quick" or "full".
/// records: time so many records of each workload, instead of the level's number.
/// jobs: runs at a time.
/// shard: make a share of the runs only: "I/N" is share I, counted from 0, of N. `merge_shards`
///     joins the shares.
///
/// Ctrl-C ends it after the runs that are under way; what is finished is kept.
///
/// Returns a dictionary in the schema "traceless.sim.sweep.v1" (docs/json.md), of which
/// `report_rows` makes rows; of a shard one in the schema "traceless.sim.shard.v1".
#[pyfunction]
#[pyo3(signature = (files, out, *, level = "quick", records = None, jobs = 1, shard = None))]
pub fn sweep<'py>(
    py: Python<'py>,
    files: Vec<PathBuf>,
    out: PathBuf,
    level: &str,
    records: Option<u64>,
    jobs: usize,
    shard: Option<&str>,
) -> Result<Bound<'py, PyAny>> {
    let level = level_named(level, records, jobs)?;
    let shard = shard.map(shard_named).transpose()?;
    let report = interruptible(py, move |interrupted| {
        let sweep = Sweep::read(&files, level, records)?;
        let control = Control { interrupted, progress: &mut |_, _| {} };
        if let Some(shard) = shard {
            let record = sweep.complete_shard(shard, &out, jobs, control)?;
            return serde_json::to_value(record).map_err(Failure::usage);
        }
        let results = open_results(&out)?;
        sweep.complete(&results, jobs, control)?;
        serde_json::to_value(sweep.conclude(&results, &out)?).map_err(Failure::usage)
    })?;
    to_python(py, &report)
}

/// Joins the shards of a sweep, as `traceless sim sweep --merge`: puts their results into `out`.
///
/// files, level, records: as for `sweep`.
/// shards: the folders of all shards.
///
/// Returns what `sweep` returns for the whole.
#[pyfunction]
#[pyo3(signature = (files, shards, out, *, level = "quick", records = None))]
pub fn merge_shards<'py>(
    py: Python<'py>,
    files: Vec<PathBuf>,
    shards: Vec<PathBuf>,
    out: PathBuf,
    level: &str,
    records: Option<u64>,
) -> Result<Bound<'py, PyAny>> {
    let level = level_named(level, records, 1)?;
    let report = py.detach(|| {
        let sweep = Sweep::read(&files, level, records)?;
        let results = sweep.merge(&shards, &out)?;
        Ok::<_, Failure>(sweep.conclude(&results, &out)?)
    })?;
    to_python(py, &report)
}

/// The numbers of the report of an experiment or a sweep as a list of dictionaries, which
/// `pandas.DataFrame` and `polars.DataFrame` take: `metric`, `variant`, `workload` and `value`, and
/// of a sweep first `experiment`, the title.
#[pyfunction]
pub fn report_rows<'py>(report: &Bound<'py, PyDict>) -> Result<Bound<'py, PyList>> {
    let Some(experiments) = report.get_item("experiments")? else { return rows_of(report, false) };
    let rows = PyList::empty(report.py());
    for experiment in experiments.try_iter()? {
        let experiment = experiment?.cast_into::<PyDict>().map_err(PyErr::from)?;
        rows.call_method1("extend", (rows_of(&experiment, true)?,))?;
    }
    Ok(rows)
}

fn rows_of<'py>(report: &Bound<'py, PyDict>, has_title: bool) -> Result<Bound<'py, PyList>> {
    let rows = PyList::empty(report.py());
    let workloads = report.as_any().get_item("workloads")?;
    for metric in report.as_any().get_item("metrics")?.try_iter()? {
        let metric = metric?;
        for variant in metric.get_item("variants")?.try_iter()? {
            let variant = variant?;
            let values = variant.get_item("each")?;
            for (workload, value) in workloads.try_iter()?.zip(values.try_iter()?) {
                let row = PyDict::new(report.py());
                if has_title {
                    row.set_item("experiment", report.as_any().get_item("title")?)?;
                }
                row.set_item("metric", metric.get_item("name")?)?;
                row.set_item("variant", variant.get_item("name")?)?;
                row.set_item("workload", workload?)?;
                row.set_item("value", value?)?;
                rows.append(row)?;
            }
        }
    }
    Ok(rows)
}

/// The level of this name, where the numbers beside it are possible.
fn level_named(name: &str, records: Option<u64>, jobs: usize) -> Result<Level> {
    if records == Some(0) || jobs == 0 {
        return Err(Failure::usage("`records` and `jobs` are 1 or more"));
    }
    match name {
        "quick" => Ok(Level::Quick),
        "full" => Ok(Level::Full),
        _ => Err(Failure::usage(format!("there is no level `{name}`: quick, full"))),
    }
}

fn shard_named(text: &str) -> Result<Shard> {
    text.parse().map_err(|e| Failure::usage(format!("the shard `{text}`: {e}")))
}

fn format_named(name: &str) -> Result<Format> {
    Format::named(name).ok_or_else(|| Failure::usage(format!("there is no format `{name}`")))
}

impl From<experiment::Error> for Failure {
    fn from(error: experiment::Error) -> Self {
        let kind = match &error {
            _ if error.is_finding() => FailureKind::Damage,
            _ if error.is_io() => FailureKind::File,
            _ => FailureKind::Usage,
        };
        Self::Kind(kind, error.to_string())
    }
}
