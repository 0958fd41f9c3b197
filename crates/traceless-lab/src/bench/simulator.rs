//! The rows of the group sim: the speed of the simulator at the papers' size.

use crate::args::SimulatorArgs;
use crate::bench::controls::{Controls, Operations};
use crate::report::{Scale, TimePair, peak_memory, print_rows, row, row_of_ratios};
use traceless_cli::failure::Failure;
use traceless_sim::backend::Backend;
use traceless_sim::constant;
use traceless_sim::dram::Memory;
use traceless_sim::machine::Machine;
use traceless_sim::oram::{Config, Counts, Oram, Pace, Scheme};
use traceless_sim::processor::Run;
use traceless_sim::workload::table_2::TABLE_2;
use traceless_sim::{processor, workload};

/// A memory that takes no time.
const NULL: constant::Config =
    constant::Config { bytes_per_cycle: 1 << 20, latency: 0, oram_latency: 0, capacity: 1 << 40 };

/// Rounds; rows are medians of them.
const ROUNDS: usize = 5;

/// The control of a simulated event, request or path: the core's speed, and memory where a
/// simulated tree lies.
const RECORD: Operations = Operations { hits: 500.0, ..Operations::NONE };
const CYCLE: Operations = Operations { hits: 50.0, ..Operations::NONE };
const REQUEST: Operations = Operations { hits: 500.0, ..Operations::NONE };
const PATH: Operations = Operations { misses: 5.0, hits: 200.0, ..Operations::NONE };

pub fn run(args: &SimulatorArgs) -> Result<(), Failure> {
    let requests = if args.quick { 5_000 } else { 50_000 };
    let (machine, mut controls) = (Machine::ir_oram(), Controls::of_memory());
    let config = Config { pace: Pace::Asked, ..Config::default() };
    let dram = Oram::over_dram(&config, Memory::new(machine.memory)?)?;
    let lines = measure(&machine, dram, requests, |counts| counts.lines, &REQUEST, &mut controls)?;
    let constant = Oram::over_constant(&config, &NULL)?;
    let paths = measure(&machine, constant, requests * 4, Counts::paths, &PATH, &mut controls)?;
    let memory = peak_memory("self")?.saturating_sub(controls.bytes()) as f64;
    let mut unprotected = |name, records, unit: &Operations, count: fn(&Run) -> u64| {
        let records = if args.quick { records / 10 } else { records };
        let round = |_| controls.time(unit, || Ok(count(&unprotected(name, records)?) as f64));
        (0..ROUNDS).map(round).collect::<Result<Vec<TimePair>, Failure>>()
    };
    let records = unprotected(BUSY, 1_000_000, &RECORD, |run| run.records)?;
    let cycles = unprotected(SPARSE, 200_000, &CYCLE, |run| run.cycles)?;
    let rows = vec![
        row_of_ratios("sim-records", MILLIONS, &records),
        row_of_ratios("sim-cycles", MILLIONS, &cycles),
        row_of_ratios("sim-dram-requests", MILLIONS, &lines),
        row_of_ratios("sim-paths", Scale::Rate("k/s", 1e6), &paths),
        row("sim-memory", "GiB", vec![memory / f64::from(1 << 30)]),
        row("sim-bundled-over-ir-oram", "x", vec![gain(args.quick)?]),
    ];
    print_rows("traceless.sim.bench.v1", &rows, args.json)
}

/// Millions per second.
const MILLIONS: Scale = Scale::Rate("M/s", 1e3);

/// Random lines, as in USIMM's own measurements.
const BUSY: &str = "uniform?bytes=16G&before=10";

/// A program that seldom misses its caches.
const SPARSE: &str = "uniform?before=4000";

/// Runs a workload on USIMM's machine.
fn unprotected(name: &str, records: u64) -> Result<Run, Failure> {
    let mut workloads = [workload::named(name, records, 1)?];
    Ok(Machine::FOUR_CHANNELS.run(&mut workloads)?.run)
}

/// How many times faster the scheme `bundled` is than IR-ORAM, as the geometric mean over the
/// stand-ins for Table II. These trees are small; `experiments/beyond` has trees of the paper's
/// size.
fn gain(quick: bool) -> Result<f64, Failure> {
    let names = TABLE_2.iter().map(|benchmark| format!("table-2/{}", benchmark.name));
    let names: Vec<String> = names.step_by(if quick { 4 } else { 1 }).collect();
    let mut logs = 0.0;
    for name in &names {
        let cycles = |scheme| {
            let mut machine = Machine::ir_oram();
            machine.oram = Some(Config { scheme, ..small() });
            let workload = workload::named(name, WARM_UP + TIMED, 1)?;
            Ok::<_, Failure>(machine.run_after(WARM_UP, &mut [workload])?.run.cycles as f64)
        };
        logs += (cycles(Scheme::IrOram)? / cycles(Scheme::Bundled)?).ln();
    }
    Ok((logs / names.len() as f64).exp())
}

/// Records of each stand-in that fill caches and trees.
const WARM_UP: u64 = 20_000;
/// Records of each stand-in that are timed.
const TIMED: u64 = 4_000;

/// Small trees with as many uncached levels as the paper's.
fn small() -> Config {
    Config {
        levels: 20,
        cached_levels: 5,
        blocks: Some(1 << 21),
        warm_up: 20_000,
        ..Config::default()
    }
}

/// Rounds of requests to random lines, in units of `count`.
fn measure(
    machine: &Machine,
    mut oram: Oram,
    requests: u64,
    count: impl Fn(&Counts) -> u64,
    unit: &Operations,
    controls: &mut Controls,
) -> Result<Vec<TimePair>, Failure> {
    assert!(oram.is_written(), "nothing was asked of it yet");
    let mut round = |seed| {
        let before = count(&oram.counts());
        controls.time(unit, || {
            let mut workloads = [workload::named("uniform", requests / ROUNDS as u64, seed)?];
            processor::run(&machine.processor, &mut oram, &mut workloads)?;
            Ok((count(&oram.counts()) - before) as f64)
        })
    };
    (1..=ROUNDS as u64).map(&mut round).collect()
}
