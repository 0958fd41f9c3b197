//! The command line, without anything behind it: the build makes man pages and completions of it.

#[cfg(feature = "audit")]
pub mod audit;
mod common;
#[cfg(feature = "cloud")]
mod gateway;
#[cfg(feature = "cloud")]
mod host;
#[cfg(feature = "pager")]
mod run;
mod shares;
#[cfg(feature = "sim")]
mod sim;
#[cfg(feature = "volume")]
mod volume;

#[cfg(feature = "audit")]
pub use audit::AuditArgs;
pub use common::*;
#[cfg(feature = "cloud")]
pub use gateway::*;
#[cfg(feature = "cloud")]
pub use host::*;
#[cfg(feature = "pager")]
pub use run::*;
pub use shares::*;
#[cfg(feature = "sim")]
pub use sim::*;
#[cfg(feature = "volume")]
pub use volume::*;

use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
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

/// The words of a command that the program traceless-lab runs. It reads them again.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct LabArgs {
    /// What traceless-lab is given; --help lists it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
    pub words: Vec<OsString>,
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
    #[cfg(feature = "volume")]
    /// Encrypted block devices whose writes tell nothing but their number
    Volume {
        #[command(subcommand)]
        command: VolumeCommand,
    },
    #[cfg(feature = "audit")]
    /// The adversary as a program: what do the recorded events tell?
    Audit(AuditArgs),
    #[cfg(feature = "pager")]
    /// Run a program with little memory: the rest of its heap is paged, and page writes tell
    /// nothing. Exit codes: the program's own; 125 the pager failed; 126, 127 as of env
    Run(RunArgs),
    #[cfg(feature = "pager")]
    /// What `run --mode process` starts: the pager, for whoever holds the other end of its input
    #[command(hide = true)]
    ServePages,
    #[cfg(feature = "cloud")]
    /// A store of values that does not see which one is asked for, behind the Redis protocol
    Gateway(Box<GatewayArgs>),
    #[cfg(feature = "cloud")]
    /// The untrusted side of a gateway's store: it keeps the tree, and sees no name and no value
    Host(HostArgs),
    #[cfg(feature = "cloud")]
    /// What a host starts as its enclave
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
