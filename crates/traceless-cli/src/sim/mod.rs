//! `traceless sim`: simulation of secure processors.

mod experiment;
mod live;
mod record;
mod trace;

use crate::args::{SimCommand, WorkloadFormat};
use crate::failure::{DEVICE, Failure};
use crate::lab;
use crate::trace::Trace;
use std::sync::Arc;
use traceless_core::trace::Op;
use traceless_sim::workload::{self, Format, LINE_LEN};
use traceless_sim::{RequestHook, Watch};

pub fn run(command: &SimCommand) -> Result<(), Failure> {
    match command {
        SimCommand::Trace(args) => trace::run(args),
        SimCommand::Record(args) => record::run(args),
        SimCommand::Run(args) => experiment::run(args),
        SimCommand::Sweep(args) => experiment::sweep(args),
        SimCommand::Floors(_) => lab::run(),
    }
}

/// Lets `trace` record the machine's bus, and the requests to its memory.
fn watch(trace: &Trace) -> Watch {
    let on_request = trace.request_recorder().map(|ask| {
        Arc::new(move |op, addr| ask(event_op(op), addr, LINE_LEN as u32)) as RequestHook
    });
    Watch { bus: trace.witness(), on_request, ..Watch::default() }
}

/// The operation of an event, for a program's operation.
fn event_op(op: workload::Op) -> Op {
    match op {
        workload::Op::Read => Op::Read,
        workload::Op::Write => Op::Write,
    }
}

impl From<traceless_sim::Error> for Failure {
    fn from(error: traceless_sim::Error) -> Self {
        match error {
            traceless_sim::Error::Io { .. } => Self::new(DEVICE, error.to_string()),
            _ => Self::usage(error),
        }
    }
}

impl From<WorkloadFormat> for Format {
    fn from(format: WorkloadFormat) -> Self {
        match format {
            WorkloadFormat::Packed => Self::Packed,
            WorkloadFormat::Usimm => Self::Usimm,
            WorkloadFormat::Ramulator => Self::Ramulator,
            WorkloadFormat::ChampSim => Self::ChampSim,
            WorkloadFormat::Lackey => Self::Lackey,
        }
    }
}
