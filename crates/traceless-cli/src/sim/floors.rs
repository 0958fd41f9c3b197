//! The rows of the group sim: how fast the simulator is at the papers' size.

use crate::args::SimFloorsArgs;
use crate::bench::cpu_seconds;
use crate::failure::Failure;
use crate::numbers::{peak_memory, row, say_rows};
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

pub fn run(args: &SimFloorsArgs) -> Result<(), Failure> {
    let requests = if args.quick { 5_000 } else { 50_000 };
    let machine = Machine::ir_oram();
    let config = Config { pace: Pace::Asked, ..Config::default() };
    let dram = Oram::over_dram(&config, Memory::new(machine.memory)?)?;
    let (counts, seconds) = measure(&machine, dram, requests)?;
    let lines = counts.lines as f64 / seconds / 1e6;
    let (counts, seconds) = measure(&machine, Oram::over_constant(&config, &NULL)?, requests * 4)?;
    let paths = counts.paths() as f64 / seconds / 1e3;
    let memory = peak_memory("self")? as f64 / f64::from(1 << 30);
    let records = |name, n| straight(name, if args.quick { n / 10 } else { n });
    let (busy, seconds) = records(BUSY, 1_000_000)?;
    let records_a_second = busy.records as f64 / seconds / 1e6;
    let (sparse, seconds) = records(SPARSE, 200_000)?;
    let cycles_a_second = sparse.cycles as f64 / seconds / 1e6;
    let rows = vec![
        row("sim-records", "M/s", vec![records_a_second]),
        row("sim-cycles", "M/s", vec![cycles_a_second]),
        row("sim-dram-requests", "M/s", vec![lines]),
        row("sim-paths", "k/s", vec![paths]),
        row("sim-memory", "GiB", vec![memory]),
        row("sim-bundled-over-ir-oram", "x", vec![gain(args.quick)?]),
    ];
    say_rows("traceless.sim.bench.v1", rows, args.json)
}

/// Random lines, as in USIMM's own measurements.
const BUSY: &str = "uniform?bytes=16G&before=10";

/// A program that seldom misses its caches.
const SPARSE: &str = "uniform?before=4000";

/// A workload on USIMM's machine, and the processor time that it took.
fn straight(name: &str, records: u64) -> Result<(Run, f64), Failure> {
    let mut workloads = [workload::named(name, records, 1)?];
    let start = cpu_seconds();
    let run = Machine::FOUR_CHANNELS.run(&mut workloads)?.run;
    Ok((run, cpu_seconds() - start))
}

/// How many times as fast the scheme `bundled` is as IR-ORAM, over the stand-ins for Table II: the
/// geometric mean. In small trees; `experiments/beyond` has those of the paper's size.
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

/// Records of each stand-in that fill caches and trees, and that are timed.
const WARM_UP: u64 = 20_000;
const TIMED: u64 = 4_000;

/// Trees as far from their leaves as those of the paper.
fn small() -> Config {
    Config {
        levels: 20,
        cached_levels: 5,
        blocks: Some(1 << 21),
        warm_up: 20_000,
        ..Config::default()
    }
}

/// What was done for requests to random lines, and the processor time that it took.
fn measure(machine: &Machine, mut oram: Oram, requests: u64) -> Result<(Counts, f64), Failure> {
    let mut workloads = [workload::named("uniform", requests, 1)?];
    assert!(oram.is_written(), "nothing was asked of it yet");
    let start = cpu_seconds();
    processor::run(&machine.processor, &mut oram, &mut workloads)?;
    Ok((oram.counts(), cpu_seconds() - start))
}
