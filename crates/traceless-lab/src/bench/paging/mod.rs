//! `traceless-lab bench pager --experiment`: the evaluation of the paging paper, with programs that
//! are really paged.

mod file;
mod measure;
mod native;
pub mod programs;
mod threads;
mod workloads;

use crate::args::{ExperimentArgs, PagerBenchArgs};
use crate::bench::make_all;
use crate::numbers::{Hardware, failed};
use file::{How, NATIVE, PagingExperiment, PagingSubject};
use measure::RunCounts;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use traceless_cli::failure::Failure;
use traceless_cli::output::{say, say_json};
use traceless_sim::experiment::Level;
use traceless_sim::experiment::interleave::InterleavedRun;
use traceless_sim::experiment::metrics::RunIndex;
use traceless_sim::experiment::results::Results;

const SCHEMA: &str = "traceless.pager.result.v1";

/// Everything that determines a result, except other load on the machine.
#[derive(Serialize)]
struct PagingInput<'a> {
    experiment: String,
    cpu: &'a str,
    subject: &'a PagingSubject,
    workload: &'a str,
    size: u64,
    counted: u64,
    round: usize,
}

type Run<'a> = InterleavedRun<PagingInput<'a>>;

/// Makes the missing results, and prints the report.
pub fn run(path: &Path, args: &PagerBenchArgs) -> Result<(), Failure> {
    let ExperimentArgs { level, out } = &args.of_experiment;
    let level = Level::from(*level);
    let out = out.as_ref().expect("--experiment requires it");
    let experiment = PagingExperiment::read(path)?;
    let subjects = experiment.subjects()?;
    traceless_pager::paging::fix_addresses().map_err(failed)?;
    let cpu = Hardware::here().cpu;
    let runs = runs(&experiment, &subjects, level, &cpu)?;
    let results = Results::open(out, SCHEMA)?;
    let progress = args.progress.progress;
    make_all(&runs, &results, progress, |run| counts(&experiment, &runs, &results, run))?;
    let report = Run::conclude(&runs, &experiment.spec(level), &results, out)?;
    if args.json {
        return say_json(&report);
    }
    say(&Hardware::here().to_string());
    say(&report.to_string());
    Ok(())
}

/// All runs at a level, by variant, workload and round.
fn runs<'a>(
    experiment: &'a PagingExperiment,
    subjects: &'a [PagingSubject],
    level: Level,
    cpu: &'a str,
) -> Result<Vec<Run<'a>>, Failure> {
    let extent = experiment.extent(level);
    let mut runs = vec![];
    for (variant, subject) in subjects.iter().enumerate() {
        for (workload, name) in experiment.workloads(level).iter().enumerate() {
            for repeat in 0..extent.rounds {
                let input = PagingInput {
                    experiment: format!("{}.{}", experiment.file_name(), level.name()),
                    cpu,
                    subject,
                    workload: name,
                    size: extent.sizes[name],
                    counted: extent.counted,
                    round: repeat,
                };
                runs.push(Run::new(RunIndex { variant, workload, repeat }, input)?);
            }
        }
    }
    Ok(runs)
}

/// The counters of a run. The runs that it is compared with have results already.
fn counts(
    experiment: &PagingExperiment,
    runs: &[Run],
    results: &Results,
    run: &Run,
) -> Result<Value, Failure> {
    let other_counts = |variant: usize| -> Result<RunCounts, Failure> {
        let index = RunIndex { variant, ..run.index };
        let other = runs.iter().find(|run| run.index == index).expect("all variants are run");
        serde_json::from_value(results.get(&other.key)?).map_err(Failure::usage)
    };
    let PagingInput { workload, size, counted, .. } = run.input;
    let first = experiment.first_like(run.input.subject);
    let failed = |e: Failure| {
        let variant = experiment.variant_name(run.index.variant);
        Failure::new(e.code, format!("{workload}, {variant}: {}", e.message))
    };
    let paged = || {
        let first = if first == run.index.variant { None } else { Some(other_counts(first)?) };
        let measured =
            measure::measure(run.input.subject, workload, size, counted, first.as_ref())?;
        measured.check_output(&other_counts(NATIVE)?)?;
        first.map_or(Ok(()), |first| measured.check_order(&first))?;
        match run.input.subject.how {
            How::EagerSimulated => Ok(measured.with_eager_simulated()),
            How::ParallelSimulated => measured.with_parallel_simulated(run.input.subject),
            How::Native | How::Paged => Ok(measured),
        }
    };
    let measured = match run.input.subject.how {
        How::Native => native::measure(workload, size),
        _ => paged(),
    };
    serde_json::to_value(measured.map_err(failed)?).map_err(Failure::usage)
}
