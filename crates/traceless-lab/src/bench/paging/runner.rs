//! Experiment files about paging: programs, the ways to page them, and the paper's results.

use super::measure::{self, RunCounts};
use super::subject::{How, PagingSubject};
use super::{native, workloads};
use crate::bench::experiment::{Run, RunInput, Runner, Runs};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use traceless_cli::failure::Failure;
use traceless_sim::experiment::toml_file::check_known;

/// Runs paged programs.
pub struct PagingRunner;

/// How much programs do at a level.
#[derive(Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PagingExtent {
    /// The size argument of each program; programs without one are left out.
    pub sizes: BTreeMap<String, u64>,
    /// Faults of each program that are counted; 0 for all.
    #[serde(default)]
    pub counted: u64,
    pub rounds: usize,
}

/// How much one run does.
#[derive(Serialize)]
pub struct PagingAmount {
    size: u64,
    counted: u64,
}

impl Runner for PagingRunner {
    type Extent = PagingExtent;
    type Subject = PagingSubject;
    type Amount = PagingAmount;

    const RESULT: &'static str = "traceless.pager.result.v1";
    const REPORT: &'static str = "traceless.pager.experiment.v1";
    const SHORTFALL: &'static str = "programs do less than at level full";

    fn check(programs: &[&str], extents: [&PagingExtent; 2]) -> Result<(), String> {
        for name in programs {
            check_known("workloads", &workloads::names(), name)?;
        }
        for extent in extents {
            if extent.rounds == 0 || extent.sizes.is_empty() {
                return Err("quick and full have sizes, and one of rounds or more".to_owned());
            }
            for name in extent.sizes.keys() {
                check_known("sizes", programs, name)?;
            }
        }
        Ok(())
    }

    fn check_subject(subject: &PagingSubject, _: &PagingExtent) -> Result<(), String> {
        subject.settings().map(|_| ())
    }

    /// The first variant defines the correct output.
    fn check_variants(subjects: &[PagingSubject]) -> Result<(), String> {
        let is_native = |subject: &PagingSubject| subject.how == How::Native;
        let has_native = subjects.first().is_some_and(is_native);
        has_native.then_some(()).ok_or("the first variant is how = \"native\"".to_owned())
    }

    fn has_workload(extent: &PagingExtent, workload: &str) -> bool {
        extent.sizes.contains_key(workload)
    }

    fn rounds(extent: &PagingExtent) -> usize {
        extent.rounds
    }

    fn amount(extent: &PagingExtent, workload: &str) -> PagingAmount {
        PagingAmount { size: extent.sizes[workload], counted: extent.counted }
    }

    fn describe(extent: &PagingExtent) -> (String, Vec<(&'static str, Value)>) {
        let rounds = extent.rounds;
        let words = match extent.counted {
            0 => format!("whole programs, {rounds} times"),
            most => format!("up to {most} faults of each program, {rounds} times"),
        };
        (words, vec![("counted", extent.counted.into()), ("rounds", rounds.into())])
    }

    fn measure(&self, run: &Run<'_, Self>, runs: &Runs<'_, Self>) -> Result<Value, Failure> {
        let RunInput { subject, workload, amount, .. } = &run.input;
        let failed = |e: Failure| {
            let variant = runs.variant_name(run);
            Failure::new(e.code, format!("{workload}, {variant}: {}", e.message))
        };
        let counts = match subject.how {
            How::Native => native::measure(workload, amount.size),
            _ => paged(run, runs),
        };
        serde_json::to_value(counts.map_err(failed)?).map_err(Failure::usage)
    }
}

/// The counts of a paged program. The runs that it is compared with have results already.
fn paged(run: &Run<'_, PagingRunner>, runs: &Runs<'_, PagingRunner>) -> Result<RunCounts, Failure> {
    let RunInput { subject, workload, amount: PagingAmount { size, counted }, .. } = &run.input;
    let beside: Vec<_> = runs.beside(run.index).collect();
    let subjects: Vec<_> = beside.iter().map(|run| &run.input.subject).collect();
    let base = base_of(subject, &subjects);
    let base = match beside.get(base) {
        Some(base) if base.index != run.index => Some(runs.counts::<RunCounts>(base)?),
        _ => None,
    };
    let counts = measure::measure(subject, workload, *size, *counted, base.as_ref())?;
    counts.check_output(&runs.counts(beside[0])?)?;
    if let Some(base) = &base {
        counts.check_order(base)?;
    }
    match subject.how {
        How::EagerSimulated => Ok(counts.with_eager_simulated()),
        How::ParallelSimulated => counts.with_parallel_simulated(subject),
        How::Native | How::Paged => Ok(counts),
    }
}

/// The first paged variant with the same number of resident pages, or the subject itself. The order
/// of evicted pages is the same in all of them, and this variant's scheme is the base for costs.
fn base_of(subject: &PagingSubject, all: &[&PagingSubject]) -> usize {
    let is_base = |other: &&PagingSubject| {
        other.how == How::Paged && !other.stops && other.resident == subject.resident
    };
    all.iter().position(is_base).unwrap_or_else(|| {
        all.iter().position(|other| *other == subject).expect("it is one of them")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::experiment::testing::{assert_refused, folder, read_all};
    use traceless_sim::experiment::Level;

    #[test]
    fn every_file_can_be_run() {
        let experiments = read_all::<PagingRunner>("paging");
        assert!(experiments.len() >= 5);
        for experiment in &experiments {
            for workload in experiment.workloads(Level::Full) {
                let subjects = experiment.subjects(workload).unwrap();
                for (nth, subject) in subjects.iter().enumerate().skip(1) {
                    let base = base_of(subject, &subjects.iter().collect::<Vec<_>>());
                    assert!(base <= nth, "it is run before");
                    assert_eq!(subjects[base].resident, subject.resident);
                    assert_eq!(subjects[base].settings().unwrap().scheme.name(), "plain");
                }
            }
        }
    }

    #[test]
    fn mistakes_are_named_with_their_file() {
        let changes = [
            ("set = { how = \"native\" }\n", "", "first variant"),
            ("\"lbm\"", "\"lbn\"", "there is no `lbn`"),
            ("lbm = 2", "lbn = 2", "there is no `lbn`"),
            ("rounds = 1", "rounds = 0", "one of rounds or more"),
            ("resident = 15", "resident = 7", "at least 8 pages"),
            ("resident = 15", "residents = 15", "unknown field"),
            ("chacha20-hmac\"", "rot13\"", "cannot be understood"),
            ("relative-to = \"native\"", "relative-to = \"none\"", "there is no `none`"),
        ];
        assert_refused::<PagingRunner>(&folder("paging").join("programs.toml"), &changes);
    }

    /// A digest of the input names a result: if it changes, no earlier result is found.
    #[test]
    fn inputs_keep_their_form() {
        let experiments = read_all::<PagingRunner>("paging");
        let experiment = experiments.iter().find(|e| e.title == "Programs").unwrap();
        let runs = experiment.runs(Level::Quick, "any").unwrap();
        assert_eq!(
            serde_json::to_string(&runs[0].input).unwrap(),
            "{\"experiment\":\"paging-programs.quick\",\"cpu\":\"any\",\"subject\":{\"how\":\
             \"native\",\"scheme\":\"plain\",\"refresh\":3,\"cached\":0,\"helpers\":1,\
             \"cipher\":\"chacha20-hmac\",\"resident\":15,\"memory-mib\":64,\
             \"ocalls\":false,\"stops\":false},\"workload\":\"random-writes\",\
             \"size\":1000,\"counted\":1000,\"round\":0}"
        );
    }
}
