//! `traceless-lab bench cloud --experiment`: tables of the paper, from files with the settings and
//! the paper's results.

use super::compared::{self, Comparator};
use super::{fresh_folder, measure_once};
use crate::args::{BenchKernel, CloudArgs};
use crate::bench::experiment::{self, Run, RunInput, Runner, Runs};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;
use traceless_cli::args::parse_size;
use traceless_cli::failure::Failure;

/// The size of an experiment at a level.
#[derive(Deserialize, Serialize, Clone, Copy, PartialEq, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct CloudExtent {
    queries: u64,
    rounds: usize,
    /// All amounts of data are divided by this.
    #[serde(default = "undivided")]
    divided_by: u64,
}

fn undivided() -> u64 {
    1
}

/// A store and its data. Sizes are written as on the command line.
#[derive(Deserialize, Serialize, Clone, PartialEq, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct CloudSubject {
    /// This project's store with one of its kernels, or a system to compare with.
    #[serde(rename = "who")]
    store: StoreKind,
    data: String,
    block_len: String,
    /// Keeps the tree in files instead of memory.
    #[serde(default)]
    in_files: bool,
}

#[derive(Deserialize, Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
enum StoreKind {
    Benes,
    Paper,
    BlockWise,
    Plain,
    Path,
    Circuit,
}

/// Makes the missing results, and prints the report.
pub fn run(path: &Path, args: &CloudArgs) -> Result<(), Failure> {
    experiment::run(path, &CloudRunner(args), &args.of_experiment, args.progress, args.json)
}

/// Measures stores, with the settings of the command line that no file has.
struct CloudRunner<'a>(&'a CloudArgs);

/// How much one run does.
#[derive(Serialize)]
struct CloudAmount {
    extent: CloudExtent,
}

impl Runner for CloudRunner<'_> {
    type Extent = CloudExtent;
    type Subject = CloudSubject;
    type Amount = CloudAmount;

    const RESULT: &'static str = "traceless.cloud.result.v1";
    const REPORT: &'static str = "traceless.cloud.experiment.v1";
    const SHORTFALL: &'static str = "less data and fewer queries than at level full";

    fn check(_: &[&str], extents: [&CloudExtent; 2]) -> Result<(), String> {
        for &CloudExtent { queries, rounds, divided_by } in extents {
            if queries == 0 || rounds == 0 || divided_by == 0 {
                return Err("queries, rounds and divided-by are one or more".to_owned());
            }
        }
        Ok(())
    }

    fn check_subject(subject: &CloudSubject, full: &CloudExtent) -> Result<(), String> {
        subject.sizes(*full).map(|_| ())
    }

    fn rounds(extent: &CloudExtent) -> usize {
        extent.rounds
    }

    fn amount(extent: &CloudExtent, _: &str) -> CloudAmount {
        CloudAmount { extent: *extent }
    }

    fn describe(extent: &CloudExtent) -> (String, Vec<(&'static str, Value)>) {
        let CloudExtent { queries, rounds, divided_by } = *extent;
        let words = format!("data divided by {divided_by}, {queries} queries, {rounds} times");
        let keys = vec![
            ("queries", queries.into()),
            ("rounds", rounds.into()),
            ("divided_by", divided_by.into()),
        ];
        (words, keys)
    }

    fn measure(&self, run: &Run<'_, Self>, runs: &Runs<'_, Self>) -> Result<Value, Failure> {
        let RunInput { subject, amount: CloudAmount { extent }, round, .. } = &run.input;
        let (data, block_len) = subject.sizes(*extent).map_err(Failure::usage)?;
        let (queries, seed) = (extent.queries, self.0.seed + *round as u64);
        let args = CloudArgs { data, block_len, queries, seed, experiment: None, ..self.0.clone() };
        let kernel = |kernel| {
            let folder = if subject.in_files { Some(fresh_folder(runs.out)?) } else { None };
            let dir = folder.as_ref().map(|folder| folder.path().to_owned());
            serde_json::to_value(measure_once(&CloudArgs { kernel, dir, ..args.clone() })?)
                .map_err(Failure::usage)
        };
        let comparator = |comparator| {
            serde_json::to_value(compared::measure(comparator, &args)?).map_err(Failure::usage)
        };
        match subject.store {
            StoreKind::Benes => kernel(BenchKernel::Benes),
            StoreKind::Paper => kernel(BenchKernel::Paper),
            StoreKind::BlockWise => kernel(BenchKernel::BlockWise),
            StoreKind::Plain => comparator(Comparator::Plain),
            StoreKind::Path => comparator(Comparator::Path),
            StoreKind::Circuit => comparator(Comparator::Circuit),
        }
    }
}

impl CloudSubject {
    /// Bytes of the data and of a block.
    fn sizes(&self, extent: CloudExtent) -> Result<(u64, u64), String> {
        Ok((parse_size(&self.data)? / extent.divided_by, parse_size(&self.block_len)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::experiment::testing::{assert_refused, folder, read_all};
    use traceless_sim::experiment::Level;

    #[test]
    fn every_file_can_be_run() {
        let experiments = read_all::<CloudRunner<'_>>("cloud");
        assert!(experiments.len() >= 4);
        for experiment in &experiments {
            for level in [Level::Quick, Level::Full] {
                for Run { input, .. } in experiment.runs(level, "any").unwrap() {
                    let (data, block_len) = input.subject.sizes(input.amount.extent).unwrap();
                    assert!(data >= 1 << 24 && data % block_len == 0, "{}", experiment.title);
                }
            }
        }
    }

    #[test]
    fn mistakes_are_named_with_their_file() {
        let changes = [
            ("who = \"benes\"", "who = \"bones\"", "unknown variant"),
            ("[workload.benes]", "[workload.bones]", "there is no `bones`"),
            ("rounds = 1", "rounds = 0", "one or more"),
            ("data = \"1G\"", "data = \"1X\"", "variant `1 GB`"),
            ("data = \"1G\"", "date = \"1G\"", "unknown field"),
        ];
        assert_refused::<CloudRunner<'_>>(&folder("cloud").join("table-1.toml"), &changes);
    }

    /// A digest of the input names a result: if it changes, no earlier result is found.
    #[test]
    fn inputs_keep_their_form() {
        let experiments = read_all::<CloudRunner<'_>>("cloud");
        let experiment = experiments.iter().find(|e| e.title.contains("beside a plain")).unwrap();
        let runs = experiment.runs(Level::Quick, "any").unwrap();
        assert_eq!(
            serde_json::to_string(&runs[0].input).unwrap(),
            "{\"experiment\":\"cloud-compared.quick\",\"cpu\":\"any\",\"subject\":{\"who\":\
             \"benes\",\"data\":\"256M\",\"block-len\":\"1K\",\"in-files\":false},\"workload\":\
             \"1 KB\",\"extent\":{\"queries\":1000,\"rounds\":1,\"divided-by\":16},\"round\":0}"
        );
    }
}
