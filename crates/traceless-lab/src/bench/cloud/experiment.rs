//! `traceless-lab bench cloud --experiment`: tables of the paper, from files with the settings and
//! the paper's results.

use super::compared::{self, Comparator};
use super::{fresh_folder, measured};
use crate::args::{BenchKernel, CloudArgs, ExperimentArgs};
use crate::bench::make_all;
use crate::numbers::Hardware;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Table;
use traceless_cli::args::parse_size;
use traceless_cli::failure::Failure;
use traceless_cli::output::{say, say_json};
use traceless_sim::experiment::interleave::InterleavedRun;
use traceless_sim::experiment::metrics::RunIndex;
use traceless_sim::experiment::results::Results;
use traceless_sim::experiment::spec::{self, Claim, Metric, Spec, VariantMetrics, median};
use traceless_sim::experiment::toml_file::{self, check_known, merge, read_table};
use traceless_sim::experiment::{Error, Level};

const SCHEMA: &str = "traceless.cloud.result.v1";

/// A table of the paper.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct CloudExperiment {
    title: String,
    /// The paper's name; `place` is the table in it.
    paper: String,
    place: String,
    #[serde(default)]
    remarks: Vec<String>,
    /// Names of the workloads; `workload` holds the settings of each.
    workloads: Vec<String>,
    #[serde(default)]
    workload: BTreeMap<String, Table>,
    /// Settings of all variants.
    #[serde(default)]
    set: Table,
    quick: CloudExtent,
    full: CloudExtent,
    #[serde(rename = "variant")]
    variants: Vec<CloudVariant>,
    #[serde(rename = "metric")]
    metrics: Vec<Metric>,
    #[serde(rename = "claim", default)]
    claims: Vec<Claim>,
    #[serde(skip)]
    path: PathBuf,
}

/// The size of an experiment at a level.
#[derive(Deserialize, Serialize, Clone, Copy, PartialEq, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct CloudExtent {
    queries: u64,
    rounds: usize,
    /// All amounts of data are divided by this.
    #[serde(default = "whole")]
    divided_by: u64,
}

fn whole() -> u64 {
    1
}

/// One of the compared stores.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct CloudVariant {
    name: String,
    /// Settings that differ from the common ones.
    #[serde(default)]
    set: Table,
    #[serde(default)]
    relative_to: BTreeMap<String, String>,
}

/// A store and its data. Sizes are written as on the command line.
#[derive(Deserialize, Serialize, Clone, PartialEq, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct CloudSubject {
    /// This project's store with one of its kernels, or a system to compare with.
    who: StoreKind,
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

/// Everything that determines a result, except other load on the machine.
#[derive(Serialize)]
struct CloudInput<'a> {
    experiment: String,
    cpu: &'a str,
    subject: CloudSubject,
    workload: &'a str,
    extent: CloudExtent,
    round: usize,
}

type Run<'a> = InterleavedRun<CloudInput<'a>>;

/// Makes the missing results, and prints the report.
pub fn run(path: &Path, args: &CloudArgs) -> Result<(), Failure> {
    let ExperimentArgs { level, out } = &args.of_experiment;
    let level = Level::from(*level);
    let out = out.as_ref().expect("--experiment requires it");
    let experiment = CloudExperiment::read(path)?;
    let cpu = Hardware::here().cpu;
    let runs = experiment.runs(level, &cpu)?;
    let results = Results::open(out, SCHEMA)?;
    make_all(&runs, &results, args.progress, |run| counts(args, run, out))?;
    let report = Run::conclude(&runs, &experiment.spec(level), &results, out)?;
    if args.json {
        return say_json(&report);
    }
    say(&Hardware::here().to_string());
    say(&report.to_string());
    Ok(())
}

/// The measurements of a run.
fn counts(args: &CloudArgs, run: &Run<'_>, out: &Path) -> Result<Value, Failure> {
    let CloudInput { subject, extent, round, .. } = &run.input;
    let (data, block_len) = subject.sizes(*extent).map_err(Failure::usage)?;
    let (queries, seed) = (extent.queries, args.seed + *round as u64);
    let of = CloudArgs { data, block_len, queries, seed, experiment: None, ..args.clone() };
    let ours = |kernel| {
        let folder = if subject.in_files { Some(fresh_folder(out)?) } else { None };
        let dir = folder.as_ref().map(|folder| folder.path().to_owned());
        serde_json::to_value(measured(&CloudArgs { kernel, dir, ..of.clone() })?)
            .map_err(Failure::usage)
    };
    let other = |comparator| {
        serde_json::to_value(compared::measured(comparator, &of)?).map_err(Failure::usage)
    };
    match subject.who {
        StoreKind::Benes => ours(BenchKernel::Benes),
        StoreKind::Paper => ours(BenchKernel::Paper),
        StoreKind::BlockWise => ours(BenchKernel::BlockWise),
        StoreKind::Plain => other(Comparator::Plain),
        StoreKind::Path => other(Comparator::Path),
        StoreKind::Circuit => other(Comparator::Circuit),
    }
}

impl CloudSubject {
    /// Bytes of the data and of a block.
    fn sizes(&self, extent: CloudExtent) -> Result<(u64, u64), String> {
        Ok((parse_size(&self.data)? / extent.divided_by, parse_size(&self.block_len)?))
    }
}

impl CloudExperiment {
    fn read(path: &Path) -> Result<Self, Failure> {
        let mut experiment: Self =
            read_table(path)?.try_into().map_err(|e| Error::invalid(path, &e))?;
        path.clone_into(&mut experiment.path);
        experiment.check().map_err(|what| Error::invalid(path, &what))?;
        Ok(experiment)
    }

    fn check(&self) -> Result<(), String> {
        let names: Vec<&str> = self.workloads.iter().map(String::as_str).collect();
        for name in self.workload.keys() {
            check_known("workload", &names, name)?;
        }
        for CloudExtent { queries, rounds, divided_by } in [self.quick, self.full] {
            if queries == 0 || rounds == 0 || divided_by == 0 {
                return Err("queries, rounds and divided-by are one or more".to_owned());
            }
        }
        spec::check(&self.variant_metrics(), &self.workloads, &self.metrics, &self.claims)
    }

    /// The settings of a variant with a workload.
    fn subject(&self, variant: &CloudVariant, workload: &str) -> Result<CloudSubject, Error> {
        let mut table = self.set.clone();
        merge(&mut table, &variant.set);
        if let Some(set) = self.workload.get(workload) {
            merge(&mut table, set);
        }
        let subject = table.try_into().map_err(|e: toml::de::Error| e.to_string());
        let sound = subject.and_then(|subject: CloudSubject| {
            subject.sizes(self.full)?;
            Ok(subject)
        });
        sound.map_err(|what| {
            let what = what.trim_end();
            Error::invalid(&self.path, &format!("variant `{}`, {workload}: {what}", variant.name))
        })
    }

    /// All runs at a level, by variant, workload and round.
    fn runs<'a>(&'a self, level: Level, cpu: &'a str) -> Result<Vec<Run<'a>>, Failure> {
        let (extent, mut runs) = (self.extent(level), vec![]);
        for (variant, own) in self.variants.iter().enumerate() {
            for (nth, workload) in self.workloads.iter().enumerate() {
                for repeat in 0..extent.rounds {
                    let input = CloudInput {
                        experiment: format!(
                            "{}.{}",
                            toml_file::file_name(&self.path),
                            level.name()
                        ),
                        cpu,
                        subject: self.subject(own, workload)?,
                        workload,
                        extent,
                        round: repeat,
                    };
                    let index = RunIndex { variant, workload: nth, repeat };
                    runs.push(Run::new(index, input)?);
                }
            }
        }
        Ok(runs)
    }

    fn extent(&self, level: Level) -> CloudExtent {
        match level {
            Level::Quick => self.quick,
            Level::Full => self.full,
        }
    }

    fn variant_metrics(&self) -> Vec<VariantMetrics<'_>> {
        let all = self.variants.iter();
        all.map(|v| VariantMetrics { name: &v.name, relative_to: &v.relative_to }).collect()
    }

    /// The spec of a level. Below level full, only claims that hold at any size are judged.
    fn spec(&self, level: Level) -> Spec<'_> {
        let extent = self.extent(level);
        let shortfall = |claim: &Claim| {
            let is_short = extent != self.full && !claim.at_any_size;
            is_short.then(|| "less data and fewer queries than at level full".to_owned())
        };
        let CloudExtent { queries, rounds, divided_by } = extent;
        let field = |name: &str, value: Value| (name.to_owned(), value);
        Spec {
            path: &self.path,
            schema: "traceless.cloud.experiment.v1",
            title: &self.title,
            paper: &self.paper,
            place: &self.place,
            remarks: &self.remarks,
            level,
            extent: format!("data divided by {divided_by}, {queries} queries, {rounds} times"),
            extent_json: Map::from_iter([
                field("queries", queries.into()),
                field("rounds", rounds.into()),
                field("divided_by", divided_by.into()),
            ]),
            workloads: &self.workloads,
            repeats: rounds,
            average: median,
            variants: self.variant_metrics(),
            metrics: &self.metrics,
            claims: &self.claims,
            shortfalls: self.claims.iter().map(shortfall).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/cloud")
    }

    #[test]
    fn every_file_can_be_run() {
        let files: Vec<_> = std::fs::read_dir(folder()).unwrap().collect();
        assert!(files.len() >= 4);
        for file in files {
            let experiment = CloudExperiment::read(&file.unwrap().path()).unwrap();
            for level in [Level::Quick, Level::Full] {
                for Run { input, .. } in experiment.runs(level, "any").unwrap() {
                    let (data, block_len) = input.subject.sizes(input.extent).unwrap();
                    assert!(data >= 1 << 24 && data % block_len == 0, "{}", experiment.title);
                }
            }
            let is_short = |shortfall: &Option<String>| shortfall.is_some();
            assert!(experiment.spec(Level::Quick).shortfalls.iter().all(is_short));
            assert!(!experiment.spec(Level::Full).shortfalls.iter().any(is_short));
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_file() {
        let own = tempfile::tempdir().unwrap();
        let text = std::fs::read_to_string(folder().join("table-1.toml")).unwrap();
        for (from, to, named) in [
            ("who = \"benes\"", "who = \"bones\"", "unknown variant"),
            ("[workload.benes]", "[workload.bones]", "there is no `bones`"),
            ("rounds = 1", "rounds = 0", "one or more"),
            ("data = \"1G\"", "data = \"1X\"", "variant `1 GB`"),
            ("data = \"1G\"", "date = \"1G\"", "unknown field"),
        ] {
            assert!(text.contains(from), "{from}");
            let path = own.path().join("wrong.toml");
            std::fs::write(&path, text.replace(from, to)).unwrap();
            let read = CloudExperiment::read(&path)
                .and_then(|experiment| Ok(experiment.runs(Level::Full, "any")?.len()));
            let message = read.unwrap_err().message;
            assert!(message.contains(named), "{to}: {message}");
            assert!(message.contains("wrong.toml"), "{to}: {message}");
        }
    }
}
