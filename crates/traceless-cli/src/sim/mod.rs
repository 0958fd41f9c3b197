//! `traceless sim`: secure processors, simulated.

mod trace;

use crate::args::SimCommand;
use crate::failure::{DEVICE, Failure};

pub fn run(command: &SimCommand) -> Result<(), Failure> {
    match command {
        SimCommand::Trace(args) => trace::run(args),
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
