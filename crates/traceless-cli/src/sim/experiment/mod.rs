//! `traceless sim run` and `sweep`: figures and tables of papers, from files that say what to
//! simulate and what the paper found.

mod calculated;
mod commands;
mod file;
mod input;
mod plan;
#[cfg(test)]
mod tests;
mod workloads;

use crate::args::{Level, SimRunArgs, SimSweepArgs};
use crate::experiment::metrics::{Counts, Place};
use crate::experiment::results::{Results, failed, write_whole};
use crate::experiment::{self, Report};
use crate::failure::Failure;
use crate::output::{Meter, say, say_json};
use crate::signals;
use crate::trace::Trace;
use file::Experiment;
use input::Input;
use plan::Run;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use traceless_sim::Watch;

const SCHEMA: &str = "traceless.sim.result.v1";

/// Makes one experiment; with `only`, one run of it.
pub fn run(args: &SimRunArgs) -> Result<(), Failure> {
    let level = args.level;
    let experiment = read(&args.experiment, args.records)?;
    let mut runs = plan::runs(&experiment, level)?;
    if let Some(nth) = args.only {
        if nth >= runs.len() {
            return Err(Failure::usage(format!("there are runs 0 to {}", runs.len() - 1)));
        }
        runs = vec![runs.swap_remove(nth)];
    }
    let results = Results::open(&args.out, SCHEMA)?;
    if args.trace.trace.is_some() {
        let [run] = &runs[..] else {
            return Err(Failure::usage("one run has a trace: say which one with --only"));
        };
        let trace = Trace::open(&args.trace)?;
        make(&results, &experiment, run, &crate::sim::watch(&trace))?;
        trace.finish()?;
    }
    let wanted: Vec<_> = runs.iter().map(|run| (&experiment, run)).collect();
    let mut meter = Meter::new("simulating", args.progress.progress);
    complete(&results, &wanted, 1, &mut meter)?;
    meter.finish();
    if args.only.is_some() {
        return Ok(());
    }
    let report = conclude(&experiment, level, &runs, &results, &args.out)?;
    if args.json {
        return say_json(&report);
    }
    report.print();
    Ok(())
}

/// Reads an experiment, with the number of records that the user wants.
fn read(path: &Path, records: Option<u64>) -> Result<Experiment, Failure> {
    let mut experiment = Experiment::read(path)?;
    if let Some(records) = records {
        experiment.take(records)?;
    }
    Ok(experiment)
}

/// The reports of several experiments.
#[derive(Serialize)]
struct Reports {
    schema: &'static str,
    experiments: Vec<Report>,
}

/// Makes several experiments, several runs at a time; or prints the commands that make the runs.
pub fn sweep(args: &SimSweepArgs) -> Result<(), Failure> {
    let level = args.level;
    let mut experiments = vec![];
    for path in &args.experiments {
        let experiment = read(path, args.records)?;
        let runs = plan::runs(&experiment, level)?;
        experiments.push((experiment, runs));
    }
    if args.print_commands || args.slurm.is_some() {
        return tell_commands(args, &experiments);
    }
    let results = Results::open(&args.out, SCHEMA)?;
    let mut wanted: Vec<(&Experiment, &Run)> = vec![];
    for (experiment, runs) in &experiments {
        for run in runs {
            // Figures share their baselines, so runs with equal keys are made once.
            if wanted.iter().all(|(_, other)| other.key != run.key) {
                wanted.push((experiment, run));
            }
        }
    }
    let mut meter = Meter::new("simulating", args.progress.progress);
    complete(&results, &wanted, args.jobs, &mut meter)?;
    meter.finish();
    let mut reports = vec![];
    for (experiment, runs) in &experiments {
        reports.push(conclude(experiment, level, runs, &results, &args.out)?);
    }
    if args.json {
        return say_json(&Reports { schema: "traceless.sim.sweep.v1", experiments: reports });
    }
    for report in &reports {
        report.print();
        say("");
    }
    let verdicts = || reports.iter().flat_map(|report| &report.verdicts);
    let judged = |is: Option<bool>| verdicts().filter(|v| v.reproduced == is).count();
    say(&format!(
        "{} of {} claims reproduced, {} not, {} from runs too short to judge",
        judged(Some(true)),
        verdicts().count(),
        judged(Some(false)),
        judged(None),
    ));
    Ok(())
}

fn tell_commands(
    args: &SimSweepArgs,
    experiments: &[(Experiment, Vec<Run>)],
) -> Result<(), Failure> {
    let mut commands = vec![];
    for (experiment, runs) in experiments {
        let of_one = commands::commands(experiment, runs.len(), args);
        commands.extend(of_one.map_err(Failure::usage)?);
    }
    if let Some(path) = &args.slurm {
        let runs = experiments.iter().flat_map(|(_, runs)| runs);
        let gigabytes = commands::gigabytes(runs.map(|run| &run.input.machine));
        let script = commands::slurm(&commands, gigabytes);
        write_whole(path, script.as_bytes()).map_err(|e| failed(path, &e))?;
    }
    if args.print_commands {
        for command in &commands {
            say(command);
        }
    }
    Ok(())
}

/// Makes the runs without a result.
fn complete(
    results: &Results,
    runs: &[(&Experiment, &Run)],
    jobs: usize,
    meter: &mut Meter,
) -> Result<(), Failure> {
    let keys: Vec<&str> = runs.iter().map(|(_, run)| run.key.as_str()).collect();
    results.complete(&keys, jobs, &*signals::flag()?, meter, |nth| {
        let (experiment, run) = runs[nth];
        make(results, experiment, run, &Watch::default())
    })
}

/// Makes a run, even if it has a result already; `watch` observes it.
fn make(
    results: &Results,
    experiment: &Experiment,
    run: &Run,
    watch: &Watch,
) -> Result<(), Failure> {
    results.keep(&run.key, &run.input, &simulate(experiment, &run.input, watch)?)
}

fn simulate(experiment: &Experiment, input: &Input, watch: &Watch) -> Result<Value, Failure> {
    if let Some(overheads) = &input.overheads {
        return Ok(overheads.counts());
    }
    let (mut programs, warm_up) = workloads::open(experiment, input)?;
    let outcome = input.machine.run_watched(warm_up, &mut programs, watch).map_err(|e| {
        let failure = Failure::from(e);
        Failure::new(failure.code, format!("{}: {}", input.workload, failure.message))
    })?;
    serde_json::to_value(&outcome).map_err(Failure::usage)
}

/// The report of an experiment with all runs made, also written to `out`.
fn conclude(
    experiment: &Experiment,
    level: Level,
    runs: &[Run],
    results: &Results,
    out: &Path,
) -> Result<Report, Failure> {
    let counts = runs.iter().map(|run| results.made(&run.key)).collect::<Result<Vec<_>, _>>()?;
    let places: Vec<Place> = runs.iter().map(|run| run.place).collect();
    let sheet = experiment.sheet(level);
    let counts = Counts::new(&sheet, &places, counts);
    let lines = runs.iter().map(|run| {
        let names = vec![
            ("variant", experiment.variants[run.place.variant].name.clone().into()),
            ("workload", run.input.workload.clone().into()),
            ("seed", run.input.seed.into()),
            ("key", run.key.clone().into()),
        ];
        (names, counts.at(run.place))
    });
    experiment::conclude(&sheet, &counts, lines, out)
}
