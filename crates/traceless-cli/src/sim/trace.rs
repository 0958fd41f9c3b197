//! `traceless sim trace`: one machine, and a workload for each of its cores.

use crate::args::SimTraceArgs;
use crate::failure::{FINDING, Failure};
use crate::output::{print_json, print_line};
use crate::trace::Trace;
use serde::Serialize;
use std::path::Path;
use traceless_core::clock::{Clock, Monotonic};
use traceless_core::stats::Histogram;
use traceless_sim::Watch;
use traceless_sim::dram::{self, Breach, ChannelStats, ChannelTimes, OpStats, Summary};
use traceless_sim::experiment::toml_file::read_machine;
use traceless_sim::latency::Latency;
use traceless_sim::machine::{Machine, Outcome};
use traceless_sim::oram::{Config, Latencies, Scheme};
use traceless_sim::processor::Run;
use traceless_sim::workload::{self, Prefix, Program, Workload};

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    machine: Machine,
    #[serde(flatten)]
    outcome: Outcome,
    channels: Vec<Channel>,
    /// The number of commands on the bus, if all of them were checked.
    commands_checked: Option<u64>,
    /// The speed of the simulator itself.
    records_per_second: f64,
}

#[derive(Serialize)]
struct Channel {
    reads: Requests,
    writes: Requests,
    dram: Summary,
}

#[derive(Serialize)]
struct Requests {
    #[serde(flatten)]
    counts: OpStats,
    latency: f64,
    p50: u64,
    p99: u64,
    max: u64,
    row_hits: f64,
}

pub fn run(args: &SimTraceArgs) -> Result<(), Failure> {
    let machine = machine(args)?;
    let mut programs = programs(args)?;
    let clock = Monotonic::start();
    let trace = Trace::open(&args.trace)?;
    let watch = Watch { commands: args.check, ..super::watch(&trace) };
    let outcome = machine.run_watched(0, &mut programs, &watch)?;
    trace.finish()?;
    let seconds = clock.now() as f64 / 1e9;
    let commands_checked = args.check.then(|| check(&machine, &outcome)).transpose()?;
    let channel = |(stats, times)| Channel::of(stats, times, &machine, &outcome);
    let report = Report {
        schema: "traceless.sim.trace.v1",
        channels: outcome.channels.iter().zip(&outcome.channel_times).map(channel).collect(),
        commands_checked,
        records_per_second: outcome.run.records as f64 / seconds,
        machine,
        outcome,
    };
    if args.json {
        return print_json(&report);
    }
    print_report(&report);
    Ok(())
}

/// The number of commands on the bus. Fails at the first one that breaks a constraint.
fn check(machine: &Machine, outcome: &Outcome) -> Result<u64, Failure> {
    if machine.constant.is_some() {
        return Err(Failure::usage("a memory known by its bandwidth has no commands to check"));
    }
    for (channel, log) in outcome.commands.iter().enumerate() {
        if let Some(Breach { nth, command, rule }) = dram::first_breach(&machine.memory, log) {
            let what = format!("channel {channel}, command {nth}: {rule}: {command:?}");
            return Err(Failure::new(FINDING, what));
        }
    }
    Ok(outcome.commands.iter().map(|log| log.len() as u64).sum())
}

/// The workloads of all cores, in order.
fn programs(args: &SimTraceArgs) -> Result<Vec<Program>, Failure> {
    let mut programs = vec![];
    for (name, seed) in args.workloads.iter().zip(args.seed..) {
        let path = Path::new(name);
        if args.format.is_none() && !path.exists() {
            let length = args.length.unwrap_or(MADE_UP_LEN);
            programs.extend(workload::programs(name, length, seed)?);
        } else {
            let file = workload::open(path, args.format.map(workload::Format::from))?;
            let limited = Prefix::new(file, args.length.unwrap_or(u64::MAX));
            programs.push((Box::new(limited) as Box<dyn Workload>).into());
        }
    }
    Ok(programs)
}

/// Default length of a generated workload, in operations.
const MADE_UP_LEN: u64 = 1_000_000;

/// The machine of `--config`, or the default one, with the scheme of `--scheme`.
fn machine(args: &SimTraceArgs) -> Result<Machine, Failure> {
    let named = args.config.as_deref().map(read_machine).transpose()?;
    let scheme = Scheme::named(&args.scheme).ok_or_else(|| no_scheme(&args.scheme))?;
    if scheme == Scheme::Dram {
        return Ok(Machine { oram: None, ..named.unwrap_or(Machine::FOUR_CHANNELS) });
    }
    let machine = named.unwrap_or_else(Machine::ir_oram);
    let oram = Config { scheme, ..machine.oram.clone().unwrap_or_default() };
    Ok(Machine { oram: Some(oram.resolved()), ..machine })
}

fn no_scheme(name: &str) -> Failure {
    let names: Vec<&str> = Scheme::NAMED.iter().map(|(name, _)| *name).collect();
    Failure::usage(format!("there is no scheme `{name}`; there are {}", names.join(", ")))
}

impl Channel {
    fn of(
        stats: &ChannelStats,
        times: &ChannelTimes,
        machine: &Machine,
        outcome: &Outcome,
    ) -> Self {
        let requests = |counts: OpStats, times: &Histogram| {
            let Latency { p50, p99, max, .. } = Latency::of(times);
            let (latency, row_hits) = (counts.latency(), counts.row_hits());
            Requests { counts, latency, p50, p99, max, row_hits }
        };
        let channel = std::slice::from_ref(stats);
        Self {
            reads: requests(stats.reads, &times.reads),
            writes: requests(stats.writes, &times.writes),
            dram: Summary::new(&machine.memory, channel, outcome.run.cycles),
        }
    }
}

fn print_report(report: &Report) {
    let Run { cycles, instructions, records } = report.outcome.run;
    let per_cycle = instructions as f64 / cycles as f64;
    print_line(&format!("{cycles} cycles, {instructions} instructions ({per_cycle:.3} a cycle)"));
    print_line(&format!("{records} records, {:.0} a second simulated", report.records_per_second));
    if let Some(paths) = report.outcome.paths {
        let share = |n: u64| n as f64 * 100.0 / paths.paths().max(1) as f64;
        print_line(&format!(
            "{} path accesses of {:.1} cycles each: {:.1} % for data, {:.1} % for the map, {:.1} % \
             dummies, {:.1} % evictions",
            paths.paths(),
            paths.busy as f64 / paths.paths().max(1) as f64,
            share(paths.data),
            share(paths.map),
            share(paths.dummy),
            share(paths.eviction),
        ));
    }
    if let Some(latencies) = &report.outcome.latencies {
        print_latencies(latencies, report.outcome.paths.is_some());
    }
    if let Some(dram) = &report.outcome.dram {
        print_memory(dram);
    }
    if let Some(commands) = report.commands_checked {
        print_line(&format!(
            "{commands} commands, none of which breaks a constraint of the memory"
        ));
    }
    for (nth, channel) in report.channels.iter().enumerate() {
        for (name, requests) in [("reads", &channel.reads), ("writes", &channel.writes)] {
            let Requests { counts, latency, p50, p99, max, row_hits } = requests;
            if counts.served + counts.merged == 0 {
                continue;
            }
            let hits = row_hits.max(0.0) * 100.0;
            print_line(&format!(
                "channel {nth}: {:>9} {name:<6} mean {latency:.1}, p50 {p50}, p99 {p99}, most \
                 {max} cycles; {hits:.1} % found their row open, {} merged",
                counts.served, counts.merged,
            ));
        }
    }
}

/// Prints the latencies of reads, writes and path accesses, as far as there were any.
fn print_latencies(latencies: &Latencies, is_hidden: bool) {
    let Latencies { reads, reads_at_hand, reads_by_map, write_backs, paths } = latencies;
    print_latency("reads", reads);
    if !is_hidden {
        print_latency("  merged with a request", reads_at_hand);
        print_latency("writes", write_backs);
        return;
    }
    print_latency("  without a path access", reads_at_hand);
    for (levels, latency) in reads_by_map.iter().enumerate() {
        print_latency(&format!("  after {levels} accesses to the map"), latency);
    }
    print_latency("write-backs", write_backs);
    print_latency("path accesses for data", &paths.data);
    print_latency("  for the map", &paths.map);
    print_latency("  dummies", &paths.dummy);
    print_latency("  evictions", &paths.eviction);
    print_latency("  early write-backs", &paths.early);
}

fn print_latency(what: &str, latency: &Latency) {
    let Latency { count, mean, p50, p99, max } = latency;
    if *count > 0 {
        print_line(&format!(
            "{what:<32} {count:>9}: mean {mean:.1}, p50 {p50}, p99 {p99}, most {max} cycles"
        ));
    }
}

fn print_memory(dram: &Summary) {
    print_line(&format!(
        "memory: {:.1} % of the bandwidth used, {:.1} % found their row open",
        dram.utilisation * 100.0,
        dram.row_hits * 100.0
    ));
    if let (Some(milliwatts), Some(per_bit)) = (dram.milliwatts, dram.picojoules_per_bit) {
        print_line(&format!("chips: {milliwatts:.0} mW, {per_bit:.1} pJ for each bit moved"));
    }
}
