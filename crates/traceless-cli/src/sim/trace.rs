//! `traceless sim trace`: one machine, and a workload for each of its cores.

use super::live;
use crate::args::SimTraceArgs;
use crate::dashboard::Dashboard;
use crate::failure::Failure;
use crate::output::{print_json, print_line};
use crate::trace::Trace;
use traceless_core::clock::Monotonic;
use traceless_sim::Watch;
use traceless_sim::experiment::machine_run::MachineRun;
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
    print_line(report.to_string().trim_end());
    Ok(())
}
