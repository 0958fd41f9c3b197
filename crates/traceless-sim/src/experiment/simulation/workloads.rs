//! The workloads of an experiment, by name.

use super::file::{Experiment, RECORDS_MAX};
use super::input::Input;
use crate::Result;
use crate::cache::{Cache, Config, Lookup};
use crate::experiment;
use crate::experiment::results::hex;
use crate::workload::{Prefix, Program, Record, Workload, named, programs};
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// What the plan of an experiment must know of a workload.
pub struct WorkloadSummary {
    /// A digest that distinguishes files of the same name; `None` for a generated workload.
    pub digest: Option<String>,
    /// The cores that it runs on.
    pub cores: usize,
}

/// Looks at a workload, and refuses a name that there is not.
pub fn look_up(experiment: &Experiment, name: &str) -> experiment::Result<WorkloadSummary> {
    if let Some(path) = file(experiment, name) {
        let bytes = std::fs::read(&path).map_err(experiment::Error::io(&path))?;
        return Ok(WorkloadSummary { digest: Some(hex(&Sha256::digest(bytes))), cores: 1 });
    }
    let programs =
        programs(name, 1, 1).map_err(|e| experiment.invalid(&format!("workloads: {e}")))?;
    Ok(WorkloadSummary { digest: None, cores: programs.iter().map(|of| of.threads.len()).sum() })
}

/// The programs of a run, and how many records of each core only fill caches.
pub fn open(experiment: &Experiment, input: &Input) -> Result<(Vec<Program>, u64)> {
    let name = match file(experiment, &input.workload) {
        Some(path) => path.display().to_string(),
        None => input.workload.clone(),
    };
    let all = input.warm_up + input.records;
    if !input.in_misses {
        return Ok((programs(&name, all, input.seed)?, input.warm_up));
    }
    let endless = || named(&name, RECORDS_MAX, input.seed);
    let (warm_up, length) = records(&mut *endless()?, input)?;
    let limited: Box<dyn Workload> = Box::new(Prefix::new(endless()?, length));
    Ok((vec![limited.into()], warm_up))
}

/// Two numbers of records: until the last cache has missed `warm_up` times, and until it has missed
/// `records` times more.
fn records(workload: &mut dyn Workload, input: &Input) -> Result<(u64, u64)> {
    let config = input.machine.last_level.map(|llc| Config { bytes: llc.bytes, ways: llc.ways });
    let mut cache = config.as_ref().map(Cache::new).transpose()?;
    let (mut records, mut misses, mut warm_up) = (0, 0, 0);
    while misses < input.warm_up + input.records {
        let Some(Record { op, addr, .. }) = workload.next()? else { break };
        records += 1;
        let is_cached = cache.as_mut().is_some_and(|cache| cache.access(addr, op) == Lookup::Hit);
        misses += u64::from(!is_cached);
        if misses <= input.warm_up {
            warm_up = records;
        }
    }
    Ok((warm_up, records))
}

/// The file of that name beside the experiment's file, if there is one.
fn file(experiment: &Experiment, name: &str) -> Option<PathBuf> {
    let path = experiment.path.parent()?.join(name);
    path.is_file().then_some(path)
}
