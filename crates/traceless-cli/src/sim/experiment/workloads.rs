//! The workloads of an experiment, by name.

use super::file::Experiment;
use super::plan::{Input, hex};
use crate::failure::{DEVICE, Failure};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use traceless_sim::Error;
use traceless_sim::workload::{self, Record, Workload};

/// What tells two files of the same name apart; none for a workload that is made up.
pub fn content(experiment: &Experiment, name: &str) -> Result<Option<String>, Failure> {
    let path = beside(experiment, name);
    let bytes = std::fs::read(&path)
        .map_err(|e| Failure::new(DEVICE, format!("{}: {e}", path.display())))?;
    Ok(Some(hex(&Sha256::digest(bytes))))
}

/// The workload of a run.
pub fn open(experiment: &Experiment, input: &Input) -> Result<Box<dyn Workload>, Error> {
    let whole = workload::open(&beside(experiment, &input.workload), None)?;
    Ok(Box::new(FirstOf { whole, left: input.warm_up + input.records }))
}

/// Files lie beside the experiment that names them.
fn beside(experiment: &Experiment, name: &str) -> PathBuf {
    experiment.path.parent().map_or_else(|| PathBuf::from(name), |folder| folder.join(name))
}

/// The first records of a workload.
struct FirstOf {
    whole: Box<dyn Workload>,
    left: u64,
}

impl Workload for FirstOf {
    fn next(&mut self) -> Result<Option<Record>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.whole.next()
    }
}
