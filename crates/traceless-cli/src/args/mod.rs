//! The command line, without anything behind it: the build makes man pages and completions of it.

pub mod audit;
mod bench;
mod cloud;
mod common;
mod experiment;
mod gateway;
mod host;
mod run;
mod shares;
mod sim;
mod stash;
mod tree;
mod volume;

pub use audit::AuditArgs;
pub use cloud::*;
pub use common::*;
pub use experiment::*;
pub use gateway::*;
pub use host::*;
pub use run::*;
pub use shares::*;
pub use sim::*;
pub use stash::*;
pub use tree::*;
pub use volume::*;

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Where to record what an adversary sees.
#[derive(Args, Clone, Default, Debug)]
pub struct TraceArgs {
    /// Record what an adversary sees, event by event (docs/trace-format.md)
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Record what was asked for, too, in a file of its own. It is plain text to whoever reads it,
    /// and what the trace must not tell
    #[arg(long, value_name = "FILE", requires = "trace")]
    pub secret: Option<PathBuf>,
}

/// Hides which data is touched from whoever holds the disk.
#[derive(Parser, Debug)]
#[command(name = "traceless", version, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 done; 1 a finding (leak, damage, rollback); 2 wrong use or \
                        could not run; 3 key; 4 file or device; 5 in use.")]
pub struct Cli {
    #[command(subcommand)]
    pub product: Product,
}

#[derive(Subcommand, Debug)]
pub enum Product {
    /// Encrypted block devices whose writes tell nothing but their number
    Volume {
        #[command(subcommand)]
        command: VolumeCommand,
    },
    /// The adversary as a program: what do the recorded events tell?
    Audit(AuditArgs),
    /// Run a program with little memory: the rest of its heap is paged, and page writes tell
    /// nothing. Exit codes: the program's own; 125 the pager failed; 126, 127 as of env
    Run(RunArgs),
    /// What `run --mode process` starts: the pager, for whoever holds the other end of its input
    #[command(hide = true)]
    ServePages,
    /// What `bench pager --experiment` pages
    #[command(hide = true)]
    PagedProgram(PagedProgramArgs),
    /// A store of values that does not see which one is asked for, behind the Redis protocol
    Gateway(Box<GatewayArgs>),
    /// The untrusted side of a gateway's store: it keeps the tree, and sees no name and no value
    Host(HostArgs),
    /// What a host starts as its enclave
    #[command(hide = true)]
    Enclave,
    /// Measure the schemes of the library by themselves
    Bench {
        #[command(subcommand)]
        command: BenchCommand,
    },
    /// Simulate secure processors: what oblivious memory costs on a memory bus
    Sim {
        #[command(subcommand)]
        command: SimCommand,
    },
    /// Print the completions of this command for a shell
    Completions(CompletionsArgs),
    /// Write the manual pages of this command
    Man(ManArgs),
}
