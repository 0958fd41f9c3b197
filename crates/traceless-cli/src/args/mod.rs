//! The command line: definitions only, as the build makes man pages and completions from it.

mod advise;
#[cfg(feature = "audit")]
pub mod audit;
mod common;
#[cfg(any(feature = "volume", feature = "pager", feature = "cloud", feature = "sim"))]
mod dashboard;
#[cfg(feature = "cloud")]
mod gateway;
#[cfg(feature = "cloud")]
mod host;
#[cfg(feature = "cloud")]
mod plan;
#[cfg(feature = "pager")]
mod run;
mod shares;
#[cfg(feature = "sim")]
mod sim;
#[cfg(feature = "cloud")]
mod store;
#[cfg(feature = "volume")]
mod volume;

pub use advise::*;
#[cfg(feature = "audit")]
pub use audit::AuditArgs;
pub use common::*;
#[cfg(any(feature = "volume", feature = "pager", feature = "cloud", feature = "sim"))]
pub use dashboard::*;
#[cfg(feature = "cloud")]
pub use gateway::*;
#[cfg(feature = "cloud")]
pub use host::*;
#[cfg(feature = "cloud")]
pub use plan::*;
#[cfg(feature = "pager")]
pub use run::*;
pub use shares::*;
#[cfg(feature = "sim")]
pub use sim::*;
#[cfg(feature = "cloud")]
pub use store::*;
#[cfg(feature = "volume")]
pub use volume::*;

use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Where to record what an adversary observes.
#[derive(Args, Clone, Default, Debug)]
pub struct TraceArgs {
    /// Record what an adversary observes, event by event (docs/trace-format.md)
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Record the requests, too, in a file of their own. It is plain text, and holds the very
    /// secrets that the trace must not reveal
    #[arg(long, value_name = "FILE", requires = "trace")]
    pub secret: Option<PathBuf>,
}

/// The words of a command that the program traceless-lab runs. That program parses them again.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct LabArgs {
    /// Arguments of traceless-lab; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
    pub words: Vec<OsString>,
}

/// Hides which data is touched, even from an adversary with the disk.
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
    /// Say which product and parameters protect from an adversary, what that costs, and what leaks.
    /// On a terminal it puts questions. Exit code 1: no product protects
    Advise(AdviseArgs),
    #[cfg(feature = "cloud")]
    /// Say what a store needs for a load: rate, tree, hosts, requests to an engine, money
    Plan {
        #[command(subcommand)]
        command: PlanCommand,
    },
    #[cfg(feature = "volume")]
    /// Encrypted block devices that reveal only the number of writes
    Volume {
        #[command(subcommand)]
        command: VolumeCommand,
    },
    #[cfg(feature = "audit")]
    /// The adversary as a program: what do the recorded events reveal?
    Audit(AuditArgs),
    #[cfg(feature = "pager")]
    /// Run a program with little memory: the rest of its heap is paged, and page writes reveal
    /// nothing. Exit codes: the program's own; 125 the pager failed; 126, 127 as of env
    Run(Box<RunArgs>),
    #[cfg(feature = "pager")]
    /// The pager, as `run --mode process` starts it; it serves the other end of its input
    #[command(hide = true)]
    ServePages,
    #[cfg(feature = "cloud")]
    /// A store of values behind the Redis protocol that does not learn which value is requested
    Gateway(Box<GatewayArgs>),
    #[cfg(feature = "cloud")]
    /// The untrusted side of a gateway's store: it keeps the tree, and learns no name and no value
    Host(HostArgs),
    #[cfg(feature = "cloud")]
    /// The enclave, as a host starts it
    #[command(hide = true)]
    Enclave,
    /// Measure the schemes by themselves (traceless-lab)
    Bench(LabArgs),
    #[cfg(feature = "sim")]
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
