//! `traceless sim trace`: one machine, and a workload for each of its cores.

use super::live;
use crate::args::SimTraceArgs;
use crate::dashboard::Dashboard;
use crate::failure::Failure;
use crate::output::{print_json, print_line};
use crate::trace::Trace;
use traceless_core::clock::Monotonic;
use traceless_sim::Watch;
use traceless_sim::dram::Summary;
use traceless_sim::experiment::machine_run::{MachineReport, MachineRun, RequestReport};
use traceless_sim::latency::Latency;
use traceless_sim::oram::Latencies;
use traceless_sim::processor::Run;
use traceless_sim::workload;

pub fn run(args: &SimTraceArgs) -> Result<(), Failure> {
    let run = MachineRun {
        workloads: args.workloads.clone(),
        length: args.length,
        seed: args.seed,
        format: args.format.map(workload::Format::from),
        scheme: args.scheme.clone(),
        config: args.config.clone(),
        check: args.check,
    };
    let trace = Trace::open(&args.trace)?;
    let dashboard = Dashboard::start(&args.dashboard, &format!("sim trace {}", args.scheme))?;
    let watch = Watch { live: live::observer(&dashboard), ..super::watch(&trace) };
    let report = run.simulate(&watch, &Monotonic::start())?;
    trace.finish()?;
    if args.json {
        return print_json(&report);
    }
    print_report(&report);
    Ok(())
}

fn print_report(report: &MachineReport) {
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
            let RequestReport { counts, latency, p50, p99, max, row_hits } = requests;
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
