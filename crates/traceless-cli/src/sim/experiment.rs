//! `traceless sim run` and `sweep`: figures and tables of papers.

use super::live;
use crate::args::{DashboardArgs, Level, ProgressHow, SimRunArgs, SimSweepArgs};
use crate::dashboard::Dashboard;
use crate::failure::{DEVICE, FINDING, Failure};
use crate::output::{Meter, print_json, print_line};
use crate::signals;
use crate::trace::Trace;
use std::slice;
use traceless_sim::Watch;
use traceless_sim::experiment;
use traceless_sim::experiment::results::{Control, Results, write_atomically};
use traceless_sim::experiment::simulation::{Shard, Sweep, open_results};

/// Makes one experiment; with `only`, one run of it.
pub fn run(args: &SimRunArgs) -> Result<(), Failure> {
    let paths = slice::from_ref(&args.experiment);
    let mut sweep = Sweep::read(paths, args.extent.level.into(), args.extent.records)?;
    if let Some(nth) = args.only {
        sweep.select(nth)?;
    }
    let results = open_results(&args.extent.out)?;
    let dashboard = show(&mut sweep, &args.dashboard, "sim run")?;
    if args.trace.trace.is_some() {
        if sweep.run_count() != 1 {
            return Err(Failure::usage("one run has a trace: say which one with --only"));
        }
        let trace = Trace::open(&args.trace)?;
        let watch = Watch { live: live::observer(&dashboard), ..super::watch(&trace) };
        sweep.make_watched(&results, &watch)?;
        trace.finish()?;
    }
    complete(&sweep, &results, 1, args.progress.progress)?;
    if args.only.is_some() {
        return Ok(());
    }
    for report in sweep.conclude(&results, &args.extent.out)?.experiments {
        if args.json {
            print_json(&report)?;
        } else {
            print_line(&report.to_string());
        }
    }
    Ok(())
}

/// Makes several experiments, several runs at a time, or a share of the runs; or joins the shares;
/// or prints the commands that make the runs.
pub fn sweep(args: &SimSweepArgs) -> Result<(), Failure> {
    let mut sweep = Sweep::read(&args.experiments, args.extent.level.into(), args.extent.records)?;
    if args.print_commands || args.slurm.is_some() {
        return print_commands(args, &sweep);
    }
    let _dashboard = show(&mut sweep, &args.dashboard, "sim sweep")?;
    if let Some(shard) = &args.shard {
        let shard = shard.parse().map_err(|e| Failure::usage(format!("--shard {shard}: {e}")))?;
        return make_shard(args, &sweep, shard);
    }
    let results = if args.merge.is_empty() {
        let results = open_results(&args.extent.out)?;
        complete(&sweep, &results, args.jobs, args.progress.progress)?;
        results
    } else {
        sweep.merge(&args.merge, &args.extent.out)?
    };
    let report = sweep.conclude(&results, &args.extent.out)?;
    if args.json {
        return print_json(&report);
    }
    print_line(&report.to_string());
    Ok(())
}

/// Shows the runs of `sweep` on a live page, if the option was given, until the result is dropped.
fn show(sweep: &mut Sweep, args: &DashboardArgs, title: &str) -> Result<Dashboard, Failure> {
    let dashboard = Dashboard::start(args, title)?;
    sweep.observe(Watch { live: live::observer(&dashboard), ..Watch::default() });
    Ok(dashboard)
}

fn print_commands(args: &SimSweepArgs, sweep: &Sweep) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(Failure::usage)?;
    let commands = sweep.commands(&program, &args.extent.out).map_err(Failure::usage)?;
    if let Some(path) = &args.slurm {
        write_atomically(path, sweep.slurm_script(&commands).as_bytes())?;
    }
    if args.print_commands {
        for command in &commands {
            print_line(command);
        }
    }
    Ok(())
}

fn make_shard(args: &SimSweepArgs, sweep: &Sweep, shard: Shard) -> Result<(), Failure> {
    let record = with_control(args.progress.progress, |control| {
        sweep.complete_shard(shard, &args.extent.out, args.jobs, control)
    })?;
    if args.json {
        return print_json(&record);
    }
    print_line(&record.to_string());
    Ok(())
}

/// Makes the runs without a result.
fn complete(
    sweep: &Sweep,
    results: &Results,
    jobs: usize,
    progress: ProgressHow,
) -> Result<(), Failure> {
    with_control(progress, |control| sweep.complete(results, jobs, control))
}

/// Makes runs, which a user follows and may interrupt.
fn with_control<T>(
    progress: ProgressHow,
    make: impl FnOnce(Control<'_>) -> experiment::Result<T>,
) -> Result<T, Failure> {
    let mut meter = Meter::new("simulating", progress);
    let control = Control {
        interrupted: &*signals::flag()?,
        progress: &mut |done, all| meter.update(done, all),
    };
    let result = make(control)?;
    meter.finish();
    Ok(result)
}

impl From<Level> for experiment::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::Quick => Self::Quick,
            Level::Full => Self::Full,
        }
    }
}

impl From<experiment::Error> for Failure {
    fn from(error: experiment::Error) -> Self {
        if error.is_finding() {
            Self::new(FINDING, error)
        } else if error.is_io() {
            Self::new(DEVICE, error)
        } else {
            Self::usage(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{ExtentArgs, ProgressArgs, TraceArgs};
    use std::fs::{self, File};
    use std::path::{Path, PathBuf};
    use traceless_core::trace::{SecretReader, TraceReader};

    fn args(out: &Path, only: Option<usize>) -> SimRunArgs {
        let file = "../../experiments/ir-oram/fig12.toml";
        SimRunArgs {
            experiment: Path::new(env!("CARGO_MANIFEST_DIR")).join(file),
            extent: ExtentArgs { level: Level::Quick, records: Some(300), out: out.to_owned() },
            only,
            trace: TraceArgs::default(),
            dashboard: DashboardArgs::default(),
            progress: ProgressArgs { progress: ProgressHow::None },
            json: false,
        }
    }

    fn results(out: &Path) -> Vec<PathBuf> {
        fs::read_dir(out.join("runs")).unwrap().map(|file| file.unwrap().path()).collect()
    }

    /// A run with a result is watched all the same, and gives the same result.
    #[test]
    fn one_run_has_a_trace() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path();
        run(&args(out, Some(0))).unwrap();
        let [path] = &results(out)[..] else { panic!("one run was made") };
        let result = fs::read(path).unwrap();
        let (trace, secret) = (out.join("trace"), out.join("secret"));
        let of_trace = TraceArgs { trace: Some(trace.clone()), secret: Some(secret.clone()) };
        let several = run(&SimRunArgs { trace: of_trace.clone(), ..args(out, None) }).unwrap_err();
        assert!(format!("{several:?}").contains("--only"), "{several:?}");
        run(&SimRunArgs { trace: of_trace, ..args(out, Some(0)) }).unwrap();
        assert_eq!(fs::read(path).unwrap(), result);
        let lines = TraceReader::new(File::open(trace).unwrap()).unwrap().map(Result::unwrap);
        let requests = SecretReader::new(File::open(secret).unwrap()).unwrap().map(Result::unwrap);
        let stored: serde_json::Value = serde_json::from_slice(&result).unwrap();
        let paths = stored["counts"]["paths"]["data"].as_u64().unwrap();
        assert!(paths > 0 && lines.count() as u64 > 10 * paths);
        let cache = &stored["counts"]["last_level"];
        let count = |of: &str| cache[of].as_u64().unwrap();
        let expected = count("read_misses") + count("write_misses") + count("write_backs");
        assert_eq!(requests.count() as u64, expected);
    }
}
