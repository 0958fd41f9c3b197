//! The workloads of an experiment, by name.

use super::file::Experiment;
use super::plan::{Input, hex};
use super::results::failed;
use crate::failure::Failure;
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use traceless_sim::Error;
use traceless_sim::workload::{Program, programs};

/// What tells two files of the same name apart; none for a workload that is made up.
pub fn content(experiment: &Experiment, name: &str) -> Result<Option<String>, Failure> {
    if let Some(path) = file(experiment, name) {
        let bytes = std::fs::read(&path).map_err(|e| failed(&path, &e))?;
        return Ok(Some(hex(&Sha256::digest(bytes))));
    }
    programs(name, 1, 1).map_err(|e| experiment.wrong(&format!("workloads: {e}")))?;
    Ok(None)
}

/// The programs of a run.
pub fn open(experiment: &Experiment, input: &Input) -> Result<Vec<Program>, Error> {
    let name = match file(experiment, &input.workload) {
        Some(path) => path.display().to_string(),
        None => input.workload.clone(),
    };
    programs(&name, input.warm_up + input.records, input.seed)
}

/// The file of that name, beside the experiment that names it.
fn file(experiment: &Experiment, name: &str) -> Option<PathBuf> {
    let path = experiment.path.parent()?.join(name);
    path.is_file().then_some(path)
}
