//! The command line of `traceless audit`, without anything behind it.

use super::LabArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What `traceless audit` is called with.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true
)]
pub struct AuditArgs {
    #[command(subcommand)]
    pub command: Option<AuditCommand>,
    /// Audit all schemes and all planted faults (traceless-lab): does this audit see what it
    /// should, and only that?
    ///
    /// Exit codes: 0 it does; 1 something was found in a scheme without a fault; 2 a planted fault
    /// was missed.
    #[arg(long, required = true)]
    pub self_test: bool,
    #[command(flatten)]
    pub shown: ShownArgs,
}

#[derive(Subcommand, Debug)]
pub enum AuditCommand {
    /// Compares two recorded traces: are they equal, and if not, where do they part?
    ///
    /// Traces that differ, but look drawn at random, are judged by statistics, unless it is said
    /// what must be equal. Exit codes: 0 they tell nothing of their users; 1 they do; 2 a file is
    /// missing; 3 nothing was found, but too little was seen; 4 a file is not a trace.
    Compare(CompareArgs),
    /// Writes what another tool recorded, or a trace, as a trace file
    ///
    /// Exit codes: 0 it is written; 2 a file is missing; 4 a file cannot be read as what it is.
    Convert(ConvertArgs),
    /// Tells what two snapshots of one image reveal
    ///
    /// Exit codes: 0 it ran; 2 a file is missing; 4 these are not two snapshots of one image.
    Diff(DiffArgs),
    /// Runs a volume's scheme over pairs of workloads (traceless-lab)
    Volume(LabArgs),
    /// Runs schemes that lie in trees, and tries to tell their users apart (traceless-lab)
    Tree(LabArgs),
    /// Runs paged programs, and tries to tell them apart (traceless-lab)
    Pager(LabArgs),
    /// Runs the cloud store's gateway and enclave (traceless-lab)
    Cloud(LabArgs),
    /// Measures whether times tell of a secret (traceless-lab)
    Timing(LabArgs),
    /// Runs the simulator's secure processors (traceless-lab)
    Sim(LabArgs),
    /// Measures how small traces are, and how fast (traceless-lab)
    #[command(hide = true)]
    Floors(LabArgs),
    /// Counts false alarms of many seeds (traceless-lab)
    #[command(hide = true)]
    Alarms(LabArgs),
}

/// How a report is told.
#[derive(Args, Debug, Default)]
pub struct ShownArgs {
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Write it as a page, with pictures of two users side by side
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct CompareArgs {
    /// The first trace (docs/trace-format.md has the format)
    #[arg(value_name = "A.trace")]
    pub a: PathBuf,
    /// The second trace
    #[arg(value_name = "B.trace")]
    pub b: PathBuf,
    #[command(flatten)]
    pub source: SourceArgs,
    /// What was asked for in the first one: do its events tell of it?
    #[arg(long, value_name = "A.secret", conflicts_with_all = MUST_BE_EQUAL)]
    pub secret_a: Option<PathBuf>,
    /// What was asked for in the second one
    #[arg(long, value_name = "B.secret", conflicts_with_all = MUST_BE_EQUAL)]
    pub secret_b: Option<PathBuf>,
    #[command(flatten)]
    pub shown: ShownArgs,
    /// Do not judge by statistics what differs: it must be equal
    #[arg(long)]
    pub equal: bool,
    /// Compare reads too
    #[arg(long)]
    pub reads: bool,
    /// Compare times too, event by event
    #[arg(long)]
    pub times: bool,
    /// Compare event by event: the order between two syncs, and how requests are cut, too
    #[arg(long)]
    pub exact_order: bool,
}

/// Options that say that traces must be equal, which no statistics can change.
const MUST_BE_EQUAL: [&str; 4] = ["equal", "reads", "times", "exact_order"];

/// How to read what was recorded.
#[derive(Args, Debug)]
pub struct SourceArgs {
    /// What recorded it (docs/recording.md) [default: what its first lines look like]
    #[arg(long, value_parser = FORMATS)]
    pub format: Option<String>,
    /// Take what is whole of a trace that is cut or damaged
    #[arg(long)]
    pub prefix: bool,
}

/// What can be read.
pub const FORMATS: [&str; 6] = ["trace", "blkparse", "bpftrace", "s3", "redis", "page-faults"];

#[derive(Args, Debug)]
pub struct ConvertArgs {
    /// What was recorded
    #[arg(value_name = "IN")]
    pub from: PathBuf,
    /// The trace file to write
    #[arg(value_name = "OUT.trace")]
    pub to: PathBuf,
    #[command(flatten)]
    pub source: SourceArgs,
}

#[derive(Args, Debug)]
pub struct DiffArgs {
    /// The earlier copy
    #[arg(value_name = "OLD.img")]
    pub old: PathBuf,
    /// The later copy, of the same length
    #[arg(value_name = "NEW.img")]
    pub new: PathBuf,
    /// Print the result as JSON, with every stretch
    #[arg(long)]
    pub json: bool,
    /// List every stretch, not only the first 20
    #[arg(long)]
    pub all: bool,
}
