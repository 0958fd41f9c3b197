//! `traceless sim run` and `sweep`: figures and tables of papers, from files that say what to
//! simulate and what the paper found.

mod calculated;
mod commands;
mod file;
mod metrics;
mod plan;
mod plot;
mod report;
mod results;
mod table;
#[cfg(test)]
mod tests;
mod verdict;
mod workloads;

use crate::args::{Level, SimRunArgs, SimSweepArgs};
use crate::failure::Failure;
use crate::output::{Meter, say, say_json};
use crate::signals;
use crate::trace::Trace;
use file::Experiment;
use metrics::Counts;
use plan::Run;
use report::Report;
use results::{Results, failed, write_whole};
use serde::Serialize;
use std::path::Path;
use table::Table;

/// One experiment; with `only`, one run of it.
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
    let results = Results::open(&args.out)?;
    if args.trace.trace.is_some() {
        let [run] = &runs[..] else {
            return Err(Failure::usage("one run has a trace: say which one with --only"));
        };
        let trace = Trace::open(&args.trace)?;
        results.make_watched(&experiment, run, &crate::sim::watch(&trace))?;
        trace.finish()?;
    }
    let wanted: Vec<_> = runs.iter().map(|run| (&experiment, run)).collect();
    let mut meter = Meter::new("simulating", args.progress.progress);
    results.complete(&wanted, 1, &*signals::flag()?, &mut meter)?;
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

/// An experiment, and how many records of each workload the user wants.
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

/// Several experiments, several runs at a time; or the commands that make them.
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
    let results = Results::open(&args.out)?;
    let mut wanted: Vec<(&Experiment, &Run)> = vec![];
    for (experiment, runs) in &experiments {
        for run in runs {
            // Figures share their baselines.
            if wanted.iter().all(|(_, other)| other.key != run.key) {
                wanted.push((experiment, run));
            }
        }
    }
    let mut meter = Meter::new("simulating", args.progress.progress);
    results.complete(&wanted, args.jobs, &*signals::flag()?, &mut meter)?;
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

/// The report of an experiment whose runs are all made, also left in `out` with its picture and
/// the counts of each run.
fn conclude(
    experiment: &Experiment,
    level: Level,
    runs: &[Run],
    results: &Results,
    out: &Path,
) -> Result<Report, Failure> {
    let found = |run: &Run| {
        let gone = || Failure::usage(format!("the result {} has gone", run.key));
        results.find(run).ok_or_else(gone)
    };
    let counts = runs.iter().map(found).collect::<Result<Vec<_>, _>>()?;
    let counts = Counts::new(experiment, level, runs, counts);
    let report = Report::new(experiment, level, &counts)?;
    let json = serde_json::to_string_pretty(&report).map_err(Failure::usage)?;
    let svg = plot::plot(&report).to_svg();
    let table = Table::new(experiment, runs, &counts);
    let parquet = table.to_parquet().map_err(Failure::usage)?;
    let csv = table.to_csv().into_bytes();
    let files = [
        ("json", json.into_bytes()),
        ("svg", svg.into_bytes()),
        ("csv", csv),
        ("parquet", parquet),
    ];
    for (ending, bytes) in files {
        let path = out.join(format!("{}.{}.{ending}", experiment.file_name(), level.name()));
        write_whole(&path, &bytes).map_err(|e| failed(&path, &e))?;
    }
    Ok(report)
}
