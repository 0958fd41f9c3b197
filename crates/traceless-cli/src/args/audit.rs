//! The command line of `traceless audit`: definitions only.

use super::LabArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// The arguments of `traceless audit`.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true
)]
pub struct AuditArgs {
    #[command(subcommand)]
    pub command: Option<AuditCommand>,
    /// Audit all schemes and all planted faults (traceless-lab): does this audit find every planted
    /// fault, and nothing else?
    ///
    /// Exit codes: 0 it does; 1 something was found in a scheme without a fault; 2 a planted fault
    /// was missed.
    #[arg(long, required = true)]
    pub self_test: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Subcommand, Debug)]
pub enum AuditCommand {
    /// Compares two recorded traces: are they equal, and if not, where do they part?
    ///
    /// Traces that differ, but look drawn at random, are judged by statistics, unless an option
    /// says what must be equal. Exit codes: 0 they reveal nothing of their users; 1 they do; 2 a
    /// file is missing; 3 nothing was found, but there are too few events to judge; 4 a file is not
    /// a trace.
    Compare(CompareArgs),
    /// Writes another tool's recording, or a trace, as a trace file
    ///
    /// Exit codes: 0 it is written; 2 a file is missing; 4 a file cannot be read in its format.
    Convert(ConvertArgs),
    /// Shows what two snapshots of one image reveal
    ///
    /// Exit codes: 0 it ran; 2 a file is missing; 4 these are not two snapshots of one image.
    Diff(DiffArgs),
    /// Runs a volume's scheme over pairs of workloads (traceless-lab)
    Volume(LabArgs),
    /// Runs the tree schemes, and tries to distinguish their users (traceless-lab)
    Tree(LabArgs),
    /// Runs paged programs, and tries to distinguish them (traceless-lab)
    Pager(LabArgs),
    /// Runs the cloud store's gateway and enclave (traceless-lab)
    Cloud(LabArgs),
    /// Measures whether times depend on a secret (traceless-lab)
    Timing(LabArgs),
    /// Runs the simulator's secure processors (traceless-lab)
    Sim(LabArgs),
    /// Measures the size of traces, and the auditor's speed (traceless-lab)
    #[command(hide = true)]
    Floors(LabArgs),
    /// Counts false alarms over many seeds (traceless-lab)
    #[command(hide = true)]
    Alarms(LabArgs),
}

/// How a report is printed.
#[derive(Args, Debug, Default)]
pub struct OutputArgs {
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Write the report as a page, with pictures of two users side by side
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
    /// The requests behind the first trace: do its events depend on them?
    #[arg(long, value_name = "A.secret", conflicts_with_all = MUST_BE_EQUAL)]
    pub secret_a: Option<PathBuf>,
    /// The requests behind the second trace
    #[arg(long, value_name = "B.secret", conflicts_with_all = MUST_BE_EQUAL)]
    pub secret_b: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Do not judge differences by statistics: the traces must be equal
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

/// Options that require equal traces, so that statistics cannot excuse a difference.
const MUST_BE_EQUAL: [&str; 4] = ["equal", "reads", "times", "exact_order"];

/// How to read a recording.
#[derive(Args, Debug)]
pub struct SourceArgs {
    /// The tool that made the recording (docs/recording.md) [default: detected from its first
    /// lines]
    #[arg(long, value_parser = FORMATS)]
    pub format: Option<String>,
    /// Take the whole events of a trace that is cut or damaged
    #[arg(long)]
    pub prefix: bool,
}

/// The formats that can be read.
pub const FORMATS: [&str; 6] = ["trace", "blkparse", "bpftrace", "s3", "redis", "page-faults"];

#[derive(Args, Debug)]
pub struct ConvertArgs {
    /// The recording
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
