//! The command line of `traceless-lab`.

pub mod audit;
mod auditor;
mod cloud;
mod experiment;
mod pager;
mod python;
mod report;
mod scale;
mod simulator;
mod stash;
mod tree;
mod volume;

pub use auditor::*;
pub use cloud::*;
pub use experiment::*;
pub use pager::*;
pub use python::*;
pub use report::*;
pub use scale::*;
pub use simulator::*;
pub use stash::*;
pub use tree::*;
pub use volume::*;

use audit::AuditArgs;
use clap::{Parser, Subcommand};

/// Measures Traceless, reproduces what papers found, and plants faults for the auditor to find.
#[derive(Parser, Debug)]
#[command(name = "traceless-lab", version, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 done; 1 a finding; 2 wrong use or could not run; 3 key; \
                        4 file or device; 5 in use.")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Runs schemes and products, and tries to distinguish their users by what an adversary
    /// observes
    Audit(AuditArgs),
    /// Measures, beside controls of the same run
    Bench {
        #[command(subcommand)]
        command: BenchCommand,
    },
    /// Makes one page with every figure of the papers beside the papers' numbers, and audits
    Report(ReportArgs),
    /// Predicts how fast a cloud store of any size is, by a model of its parts that this machine's
    /// times calibrate
    Scale(ScaleArgs),
    /// Runs a command of `report`, and ends it when the report ends
    #[command(hide = true)]
    Supervise(SupervisorArgs),
    /// Runs a program that `bench pager --experiment` pages
    #[command(hide = true)]
    PagedProgram(PagedProgramArgs),
}

#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Measure volumes: the floors in bench/floors.toml, or one scheme beside another
    Volume(VolumeBenchArgs),
    /// Measure a tree ORAM in memory, one access after the other on one thread
    Tree(TreeArgs),
    /// Measure page faults, one after the other, and what schemes cost beside plain paging
    Pager(PagerBenchArgs),
    /// Show how full trees and stashes are, beside what was published
    Stash(StashArgs),
    /// Measure the oblivious cloud store, with gateway, host and enclave in one process
    Cloud(CloudArgs),
    /// Measure how fast the simulator is
    Simulator(SimulatorArgs),
    /// Measure what calls of the Python package cost beside the same calls in Rust
    Python(PythonBenchArgs),
    /// Measure how small traces are, and how fast they are written and read
    Auditor(AuditorArgs),
}
