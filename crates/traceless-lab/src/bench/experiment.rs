//! Experiments that measure this machine: figures and tables of papers, from files with the
//! settings of the compared variants and the paper's results.
//!
//! A [`Runner`] is one kind of experiment. Reading, checking, resuming and judging are the same for
//! all of them.

use crate::args::ExperimentArgs;
use crate::report::Hardware;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Table;
use traceless_cli::args::ProgressHow;
use traceless_cli::failure::Failure;
use traceless_cli::output::{Meter, print_json, print_line};
use traceless_cli::signals;
use traceless_sim::experiment::interleave::InterleavedRun;
use traceless_sim::experiment::metrics::RunIndex;
use traceless_sim::experiment::results::{Control, Results};
use traceless_sim::experiment::spec::{self, Claim, Metric, Spec, VariantMetrics, median};
use traceless_sim::experiment::toml_file::{self, check_known, merge, read_table};
use traceless_sim::experiment::{Error, Level};

/// A kind of experiment.
pub trait Runner: Sized + Sync {
    /// The size of an experiment at a level.
    type Extent: DeserializeOwned + PartialEq + Sync;
    /// The settings of a variant with a workload.
    type Subject: DeserializeOwned + Serialize + Sync;
    /// How much one run does.
    type Amount: Serialize + Sync;

    /// The schemas of a run's result and of the report.
    const RESULT: &'static str;
    const REPORT: &'static str;
    /// The reason why a run below level full is too short to judge a claim.
    const SHORTFALL: &'static str;

    /// Refuses workloads and extents that cannot be run.
    fn check(workloads: &[&str], extents: [&Self::Extent; 2]) -> Result<(), String>;

    /// Refuses settings that cannot be run; `full` is the extent at level full.
    fn check_subject(subject: &Self::Subject, full: &Self::Extent) -> Result<(), String>;

    /// Refuses a choice of variants, given in the order of the file.
    fn check_variants(subjects: &[Self::Subject]) -> Result<(), String> {
        let _ = subjects;
        Ok(())
    }

    /// Whether the extent has the workload.
    fn has_workload(extent: &Self::Extent, workload: &str) -> bool {
        let _ = (extent, workload);
        true
    }

    /// How often each variant runs each workload.
    fn rounds(extent: &Self::Extent) -> usize;

    fn amount(extent: &Self::Extent, workload: &str) -> Self::Amount;

    /// The extent in words, and as keys of the report.
    fn describe(extent: &Self::Extent) -> (String, Vec<(&'static str, Value)>);

    /// The counts of a run. Runs of the same round and workload come in the order of variants.
    fn measure(&self, run: &Run<'_, Self>, runs: &Runs<'_, Self>) -> Result<Value, Failure>;
}

/// A figure or table of a paper.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[serde(bound(deserialize = "R::Extent: DeserializeOwned"))]
pub struct Experiment<R: Runner> {
    pub title: String,
    /// The paper's name; `place` is the figure or table in it.
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
    quick: R::Extent,
    full: R::Extent,
    #[serde(rename = "variant")]
    variants: Vec<Variant>,
    #[serde(rename = "metric")]
    metrics: Vec<Metric>,
    #[serde(rename = "claim", default)]
    claims: Vec<Claim>,
    #[serde(skip)]
    path: PathBuf,
    /// The workloads of level quick, and of level full.
    #[serde(skip)]
    of_level: [Vec<String>; 2],
}

/// One of the compared variants.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Variant {
    name: String,
    /// Settings that differ from the common ones.
    #[serde(default)]
    set: Table,
    #[serde(default)]
    relative_to: BTreeMap<String, String>,
}

/// Everything that determines a result, except other load on the machine. Its digest names the
/// result, so a change of its JSON makes all earlier results void.
#[derive(Serialize)]
#[serde(bound(serialize = "R::Subject: Serialize, R::Amount: Serialize"))]
pub struct RunInput<'a, R: Runner> {
    experiment: String,
    cpu: &'a str,
    pub subject: R::Subject,
    pub workload: &'a str,
    #[serde(flatten)]
    pub amount: R::Amount,
    pub round: usize,
}

pub type Run<'a, R> = InterleavedRun<RunInput<'a, R>>;

/// All runs of an experiment at a level, and their results so far.
pub struct Runs<'a, R: Runner> {
    experiment: &'a Experiment<R>,
    all: &'a [Run<'a, R>],
    results: &'a Results,
    /// The folder of the results.
    pub out: &'a Path,
}

/// Makes the missing results, and prints the report.
pub fn run<R: Runner>(
    path: &Path,
    runner: &R,
    args: &ExperimentArgs,
    progress: ProgressHow,
    json: bool,
) -> Result<(), Failure> {
    let ExperimentArgs { level, out } = args;
    let out = out.as_ref().expect("--experiment requires it");
    let experiment = Experiment::<R>::read(path)?;
    let cpu = Hardware::here().cpu;
    let level = Level::from(*level);
    let runs = experiment.runs(level, &cpu)?;
    let results = Results::open(out, R::RESULT)?;
    let all = Runs { experiment: &experiment, all: &runs, results: &results, out };
    let mut meter = Meter::new("measuring", progress);
    let control = Control {
        interrupted: &*signals::flag()?,
        progress: &mut |done, all| meter.update(done, all),
    };
    Run::<R>::make_all(&runs, &results, control, |run| runner.measure(run, &all))?;
    meter.finish();
    let report = Run::<R>::conclude(&runs, &experiment.spec(level), &results, out)?;
    if json {
        return print_json(&report);
    }
    print_line(&Hardware::here().to_string());
    print_line(&report.to_string());
    Ok(())
}

impl<'a, R: Runner> Runs<'a, R> {
    /// The runs of all variants in the round and with the workload of `index`, by variant.
    pub fn beside(&self, index: RunIndex) -> impl Iterator<Item = &'a Run<'a, R>> {
        let is_beside = move |run: &&Run<'_, R>| {
            (run.index.workload, run.index.repeat) == (index.workload, index.repeat)
        };
        self.all.iter().filter(is_beside)
    }

    /// The counts of a run that has a result already.
    pub fn counts<T: DeserializeOwned>(&self, run: &Run<'_, R>) -> Result<T, Failure> {
        serde_json::from_value(self.results.get(&run.key)?).map_err(Failure::usage)
    }

    /// The name of the variant that a run is of.
    pub fn variant_name(&self, run: &Run<'_, R>) -> &'a str {
        &self.experiment.variants[run.index.variant].name
    }
}

impl<R: Runner> Experiment<R> {
    /// The experiment in the file at `path`.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let mut experiment: Self =
            read_table(path)?.try_into().map_err(|e| Error::invalid(path, &e))?;
        path.clone_into(&mut experiment.path);
        experiment.of_level = [&experiment.quick, &experiment.full].map(|extent| {
            let all = experiment.workloads.iter();
            all.filter(|name| R::has_workload(extent, name)).cloned().collect()
        });
        experiment.check().map_err(|what| Error::invalid(path, &what))?;
        Ok(experiment)
    }

    fn check(&self) -> Result<(), String> {
        let names: Vec<&str> = self.workloads.iter().map(String::as_str).collect();
        for name in self.workload.keys() {
            check_known("workload", &names, name)?;
        }
        R::check(&names, [&self.quick, &self.full])?;
        spec::check(&self.compared(), &self.workloads, &self.metrics, &self.claims)
    }

    /// The settings of all variants with a workload.
    pub fn subjects(&self, workload: &str) -> Result<Vec<R::Subject>, Failure> {
        let subjects = self.variants.iter().map(|variant| self.subject(variant, workload));
        let subjects = subjects.collect::<Result<Vec<_>, _>>()?;
        R::check_variants(&subjects).map_err(|what| Error::invalid(&self.path, &what))?;
        Ok(subjects)
    }

    fn subject(&self, variant: &Variant, workload: &str) -> Result<R::Subject, Failure> {
        let mut table = self.set.clone();
        merge(&mut table, &variant.set);
        if let Some(set) = self.workload.get(workload) {
            merge(&mut table, set);
        }
        let subject = table.try_into().map_err(|e: toml::de::Error| e.to_string());
        let sound = subject.and_then(|subject: R::Subject| {
            R::check_subject(&subject, &self.full)?;
            Ok(subject)
        });
        let subject = sound.map_err(|what| {
            let what = what.trim_end();
            Error::invalid(&self.path, &format!("variant `{}`, {workload}: {what}", variant.name))
        });
        Ok(subject?)
    }

    /// All runs at a level.
    pub fn runs<'a>(&'a self, level: Level, cpu: &'a str) -> Result<Vec<Run<'a, R>>, Failure> {
        let (extent, mut runs) = (self.extent(level), vec![]);
        for (workload, name) in self.workloads(level).iter().enumerate() {
            for round in 0..R::rounds(extent) {
                for (variant, subject) in self.subjects(name)?.into_iter().enumerate() {
                    let input = RunInput {
                        experiment: format!(
                            "{}.{}",
                            toml_file::file_name(&self.path),
                            level.name()
                        ),
                        cpu,
                        subject,
                        workload: name,
                        amount: R::amount(extent, name),
                        round,
                    };
                    runs.push(Run::new(RunIndex { variant, workload, repeat: round }, input)?);
                }
            }
        }
        // Reports list runs by variant, workload and round.
        runs.sort_by_key(|run| (run.index.variant, run.index.workload, run.index.repeat));
        Ok(runs)
    }

    fn extent(&self, level: Level) -> &R::Extent {
        match level {
            Level::Quick => &self.quick,
            Level::Full => &self.full,
        }
    }

    /// The workloads at a level.
    pub fn workloads(&self, level: Level) -> &[String] {
        let [quick, full] = &self.of_level;
        match level {
            Level::Quick => quick,
            Level::Full => full,
        }
    }

    fn compared(&self) -> Vec<VariantMetrics<'_>> {
        let all = self.variants.iter();
        all.map(|v| VariantMetrics { name: &v.name, relative_to: &v.relative_to }).collect()
    }

    /// What is compared and judged at a level. Below level full, only claims that hold at any size
    /// are judged.
    pub fn spec(&self, level: Level) -> Spec<'_> {
        let extent = self.extent(level);
        let is_less = *extent != self.full;
        let shortfall = |claim: &Claim| {
            let is_short = is_less && !claim.at_any_size;
            is_short.then(|| R::SHORTFALL.to_owned())
        };
        let (words, keys) = R::describe(extent);
        let keys = keys.into_iter().map(|(name, value)| (name.to_owned(), value));
        Spec {
            path: &self.path,
            schema: R::REPORT,
            title: &self.title,
            paper: &self.paper,
            place: &self.place,
            remarks: &self.remarks,
            level,
            extent: words,
            extent_json: keys.collect(),
            workloads: self.workloads(level),
            repeats: R::rounds(extent),
            average: median,
            variants: self.compared(),
            metrics: &self.metrics,
            claims: &self.claims,
            shortfalls: self.claims.iter().map(shortfall).collect(),
        }
    }
}

#[cfg(test)]
pub mod testing {
    use super::*;

    /// The folder of the experiments called `name`.
    pub fn folder(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(name)
    }

    /// Every experiment of a folder. Level quick must be too short to judge any claim.
    pub fn read_all<R: Runner>(name: &str) -> Vec<Experiment<R>> {
        let files = std::fs::read_dir(folder(name)).unwrap();
        let read = |file: std::io::Result<std::fs::DirEntry>| {
            let experiment = Experiment::<R>::read(&file.unwrap().path()).unwrap();
            let quick = experiment.spec(Level::Quick);
            assert!(quick.shortfalls.iter().all(Option::is_some), "{}", experiment.title);
            assert!(experiment.spec(Level::Full).shortfalls.iter().all(Option::is_none));
            experiment
        };
        files.map(read).collect()
    }

    /// Each change of a file, from one text to another, must be refused with a message that has
    /// the third text.
    pub fn assert_refused<R: Runner>(path: &Path, changes: &[(&str, &str, &str)]) {
        let own = tempfile::tempdir().unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        for (from, to, named) in changes {
            assert!(text.contains(from), "{from}");
            let path = own.path().join("wrong.toml");
            std::fs::write(&path, text.replace(from, to)).unwrap();
            let read = Experiment::<R>::read(&path)
                .and_then(|experiment| Ok(experiment.runs(Level::Full, "any")?.len()));
            let message = read.unwrap_err().message;
            assert!(message.contains(named), "{to}: {message}");
            assert!(message.contains("wrong.toml"), "{to}: {message}");
        }
    }
}
