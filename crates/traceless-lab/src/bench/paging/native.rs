//! Runs a program without paging.

use super::measure::{ProgramRun, RunCounts, Scratch};
use crate::report::failed;
use std::process::Command;
use traceless_cli::failure::Failure;
use traceless_pager::paging::Summary;

/// The program's output and time.
pub fn measure(workload: &str, size: u64) -> Result<RunCounts, Failure> {
    let scratch = Scratch::new()?;
    let workload = super::workloads::open(workload, size, scratch.path())?;
    let mut command = Command::new(&workload.program);
    let ProgramRun { wall_ns, output, .. } =
        scratch.run(&mut command, &workload, |child| child.wait().map_err(failed))?;
    let counted = Summary { span_ns: wall_ns, ..Summary::default() };
    Ok(RunCounts { counted, wall_ns, usable_ns: 0, output: Some(output), threads: None })
}
