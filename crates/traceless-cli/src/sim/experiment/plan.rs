//! The runs that an experiment takes: each variant with each workload and seed.

use super::file::{Experiment, Variant, lay_over};
use crate::args::Level;
use crate::failure::Failure;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use toml::{Table, Value};
use traceless_sim::machine::Machine;
use traceless_sim::oram;

/// Another number whenever the same input gives another result, so that results of different
/// simulators are never mixed.
const RESULTS_VERSION: u32 = 3;

/// One run.
pub struct Run {
    /// Which variant, workload and seed of the experiment.
    pub place: Place,
    pub input: Input,
    /// Of all that the result follows from.
    pub key: String,
}

/// Where a run stands among those of its experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub variant: usize,
    pub workload: usize,
    pub seed: usize,
}

/// All that a result follows from.
#[derive(Serialize)]
pub struct Input {
    version: u32,
    pub machine: Machine,
    pub workload: String,
    /// What is in it, if it is a file.
    content: Option<String>,
    pub seed: u64,
    pub warm_up: u64,
    pub records: u64,
}

/// All runs at a level.
pub fn runs(experiment: &Experiment, level: Level) -> Result<Vec<Run>, Failure> {
    let base = experiment.base()?;
    let extent = experiment.extent(level);
    let workloads = experiment.workloads(level);
    let mut contents = vec![];
    for name in workloads {
        contents.push(super::workloads::content(experiment, name)?);
    }
    let mut runs = vec![];
    for (variant, wanted) in experiment.variants.iter().enumerate() {
        for (workload, (name, content)) in workloads.iter().zip(&contents).enumerate() {
            for (seed, &number) in extent.seeds.iter().enumerate() {
                let machine = machine(experiment, &base, &extent.set, wanted, number)?;
                let input = Input {
                    version: RESULTS_VERSION,
                    machine,
                    workload: name.clone(),
                    content: content.clone(),
                    seed: number,
                    warm_up: extent.warm_up,
                    records: extent.records,
                };
                let key = key(&input)?;
                runs.push(Run { place: Place { variant, workload, seed }, input, key });
            }
        }
    }
    Ok(runs)
}

fn machine(
    experiment: &Experiment,
    base: &Table,
    set: &Table,
    variant: &Variant,
    seed: u64,
) -> Result<Machine, Failure> {
    let mut table = base.clone();
    lay_over(&mut table, set);
    for part in &variant.unset {
        if table.remove(part).is_none() {
            let what = format!("variant `{}`: unset: there is no `{part}`", variant.name);
            return Err(experiment.wrong(&what));
        }
    }
    lay_over(&mut table, &variant.set);
    if let Some(Value::Table(oram)) = table.get_mut("oram") {
        let seed = i64::try_from(seed).map_err(|e| experiment.wrong(&e))?;
        oram.insert("seed".to_owned(), Value::Integer(seed));
    }
    let wrong = |e: toml::de::Error| {
        experiment.wrong(&format!("variant `{}`: {}", variant.name, e.to_string().trim_end()))
    };
    let machine: Machine = table.try_into().map_err(wrong)?;
    // What schemes leave out, too, is what a result follows from.
    Ok(Machine { oram: machine.oram.as_ref().map(oram::Config::resolved), ..machine })
}

fn key(input: &Input) -> Result<String, Failure> {
    let text = serde_json::to_vec(input).map_err(Failure::usage)?;
    Ok(hex(&Sha256::digest(text)))
}

/// Bytes as text.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes every digit");
        text
    })
}
