//! `traceless sim`: secure processors, simulated.

mod experiment;
mod floors;
mod record;
mod trace;

use crate::args::{SimCommand, WorkloadFormat};
use crate::failure::{DEVICE, Failure};
use traceless_sim::workload::Format;

pub fn run(command: &SimCommand) -> Result<(), Failure> {
    match command {
        SimCommand::Trace(args) => trace::run(args),
        SimCommand::Record(args) => record::run(args),
        SimCommand::Run(args) => experiment::run(args),
        SimCommand::Sweep(args) => experiment::sweep(args),
        SimCommand::Floors(args) => floors::run(args),
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
        }
    }
}
