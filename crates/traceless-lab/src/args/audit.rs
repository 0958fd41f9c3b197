//! The command line of `traceless-lab audit`, without its implementation.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use traceless_block::registry;
use traceless_cli::args::TraceArgs;
use traceless_cli::args::audit::OutputArgs;

/// Arguments of `traceless-lab audit`.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true
)]
pub struct AuditArgs {
    #[command(subcommand)]
    pub command: Option<AuditCommand>,
    /// Audit all schemes and all planted faults: does this audit see what it should, and only that?
    ///
    /// Exit codes: 0 it does; 1 something was found in a scheme without a fault; 2 a planted fault
    /// was missed.
    #[arg(long, required = true)]
    pub self_test: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The exit codes of an audit that runs schemes, for its help.
const EXIT_CODES: &str = "\
Exit codes: 0 nothing found; 1 a finding; 2 could not run, or a planted fault was missed.";

#[derive(Subcommand, Debug)]
pub enum AuditCommand {
    /// Runs a volume's scheme over pairs of workloads and compares the recorded events
    #[command(after_long_help = EXIT_CODES)]
    Volume(AuditVolumeArgs),
    /// Runs schemes over trees at a fixed rate, and tries to distinguish their users
    #[command(after_long_help = EXIT_CODES)]
    Tree(AuditTreeArgs),
    /// Runs paged programs, and tries to distinguish them by the requests to the store
    #[command(after_long_help = EXIT_CODES)]
    Pager(AuditPagerArgs),
    /// Runs the cloud store's gateway and enclave, and tries to learn the requested blocks
    #[command(after_long_help = EXIT_CODES)]
    Cloud(AuditCloudArgs),
    /// Runs deniable images, and tries to learn from many copies whether hidden volumes are in use
    #[command(after_long_help = EXIT_CODES)]
    Deniable(AuditDeniableArgs),
    /// Measures whether the time of an operation depends on a secret, where the claim denies it
    ///
    /// Needs a machine that is not too busy: what is small is found only then.
    #[command(after_long_help = EXIT_CODES)]
    Timing(AuditTimingArgs),
    /// Runs the simulator's secure processors, and tries to distinguish programs at the memory bus
    #[command(after_long_help = EXIT_CODES)]
    Sim(AuditSimArgs),
    /// Counts false alarms: audits honest schemes with many seeds, at level quick
    ///
    /// Each seed is one scheme's, in turn. Exit codes: 0 at most one alarm; 1 more, or
    /// probabilities that are too small too often; 2 something could not be run.
    Alarms(AuditAlarmsArgs),
}

/// Arguments of all audits that run schemes.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// How much to run
    #[arg(long, value_enum, default_value_t = Level::Ci)]
    pub level: Level,
    /// Seed for the draws of schemes and users
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Audit the planted faults only: does this audit detect anything?
    #[arg(long, conflicts_with_all = ["scheme", "level", "seed"])]
    pub self_test: bool,
    /// Leave the planted faults out: for the next of many audits
    #[arg(long, conflicts_with = "self_test")]
    pub schemes_only: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Args, Debug)]
pub struct AuditVolumeArgs {
    /// The scheme, or one with a planted fault
    #[arg(long, default_value = "detwo", value_parser = volume_scheme_names())]
    pub scheme: String,
    #[command(flatten)]
    pub run: RunArgs,
    /// The user to record
    #[arg(long, value_parser = VOLUME_USERS, default_value = "random", requires = "trace")]
    pub user: String,
    #[command(flatten)]
    pub record: RecordArgs,
}

/// Arguments that record a trace instead of an audit.
#[derive(Args, Debug)]
pub struct RecordArgs {
    #[command(flatten)]
    pub trace: TraceArgs,
    /// Blocks to write, or steps to make, while recording [default: as the level has it]
    #[arg(long, value_name = "N", requires = "trace")]
    pub length: Option<u64>,
}

/// Users that `audit volume` can record.
pub const VOLUME_USERS: [&str; 7] =
    ["one", "random", "in-order", "backwards", "hot", "cold", "twice"];

/// Users that `audit tree` can record.
pub const TREE_USERS: [&str; 12] = [
    "one",
    "random",
    "in-order",
    "hot",
    "far-apart",
    "idle",
    "seldom",
    "seldom-one",
    "secret-ones",
    "secret-zeros",
    "full",
    "empty",
];

#[derive(Args, Debug)]
pub struct AuditTreeArgs {
    /// One scheme, or one with a planted fault; without it all that have none
    #[arg(long, value_parser = TREE_SCHEMES)]
    pub scheme: Option<String>,
    #[command(flatten)]
    pub run: RunArgs,
    /// The user to record
    #[arg(long, value_parser = TREE_USERS, default_value = "random", requires = "trace")]
    pub user: String,
    #[command(flatten)]
    pub record: RecordArgs,
}

#[derive(Args, Debug)]
pub struct AuditTimingArgs {
    /// The operation to measure, also one with a planted fault; without it all that have none
    #[arg(long, value_parser = TIMED)]
    pub scheme: Option<String>,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args, Debug)]
pub struct AuditPagerArgs {
    /// One scheme, or one with a planted fault; without it all that have none
    #[arg(long, value_parser = PAGER_SCHEMES)]
    pub scheme: Option<String>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// Values of `audit pager --scheme`.
pub const PAGER_SCHEMES: [&str; 19] = [
    "detwo",
    "eager",
    "path",
    "path-fused",
    "ring",
    "detwo-fixed",
    "eager-fixed",
    "path-fixed",
    "path-fused-fixed",
    "ring-fixed",
    "plain",
    "opam",
    "mutant:skips-clean",
    "mutant:reads-ahead",
    "mutant:skips-unwritten",
    "mutant:path-skips-clean",
    "mutant:idle-stops",
    "mutant:path-idle-stops",
    "mutant:lone-pages",
];

#[derive(Args, Debug)]
pub struct AuditCloudArgs {
    /// One part, or one with a planted fault; without it all that have none
    #[arg(long, value_parser = CLOUD_PARTS)]
    pub scheme: Option<String>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// Values of `audit cloud --scheme`.
pub const CLOUD_PARTS: [&str; 19] = [
    "gateway-fixed",
    "gateway-fixed-copies",
    "gateway-fixed-together",
    "gateway-demand",
    "gateway-fixed-divided",
    "gateway-demand-divided",
    "enclave",
    "mutant:sound-gateway",
    "mutant:hits-send-nothing",
    "mutant:idle-stops",
    "mutant:errors-send-nothing",
    "mutant:batches-at-once",
    "mutant:prefers-half",
    "mutant:root-at-hand",
    "mutant:sound-enclave",
    "mutant:checks-chosen",
    "mutant:takes-replays",
    "mutant:moves-straight",
    "mutant:printed-stream",
];

#[derive(Args, Debug)]
pub struct AuditDeniableArgs {
    /// Hidden volumes of the one user, or a planted fault; without it all that have none
    #[arg(long, value_parser = DENIABLE_USERS)]
    pub scheme: Option<String>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// Values of `audit deniable --scheme`.
pub const DENIABLE_USERS: [&str; 8] = [
    "hidden-1",
    "hidden-3",
    "hidden-15",
    "mutant:sound-lane",
    "mutant:empty-zeros",
    "mutant:weak-filler",
    "mutant:skips-empty",
    "mutant:writes-at-once",
];

#[derive(Args, Debug)]
pub struct AuditSimArgs {
    /// One scheme, or one with a planted fault; without it all that have none
    #[arg(long, value_parser = SIM_SCHEMES)]
    pub scheme: Option<String>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// Values of `audit timing --scheme`.
pub const TIMED: [&str; 8] = [
    "oblivious",
    "oblivious-sealed",
    "scan",
    "tags",
    "mutant:remembers-last",
    "mutant:stops-at-hit",
    "mutant:skips-unwritten",
    "mutant:compares-early",
];

/// Values of `audit sim --scheme`.
pub const SIM_SCHEMES: [&str; 36] = [
    "path",
    "recursive",
    "recursive:no-plb",
    "unified",
    "compressed",
    "baseline",
    "rho",
    "ir-alloc",
    "ir-stash",
    "ir-dwb",
    "ir-dwb:queue",
    "ir-oram",
    "bundled",
    "llc-d",
    "llc-d+ir-stash+ir-alloc",
    "ring",
    "mutant:sound-path",
    "mutant:skips-dummies",
    "mutant:reads-only",
    "mutant:evicts-at-once",
    "mutant:forgets-remap",
    "mutant:leaf-of-block",
    "mutant:sound-pair",
    "mutant:plb-beside-trees",
    "mutant:no-pattern",
    "mutant:sound-pace",
    "mutant:t-of-program",
    "mutant:early-at-once",
    "mutant:early-later",
    "mutant:evicts-between",
    "mutant:abort-ends-slot",
    "mutant:reads-before-answer",
    "mutant:t-per-program",
    "fetch-slots",
    "ir-stash:as-printed",
    "ir-oram:as-printed",
];

/// Values of `audit tree --scheme`.
pub const TREE_SCHEMES: [&str; 30] = [
    "path",
    "recursive",
    "unified",
    "compressed",
    "circuit",
    "ring",
    "ir-alloc",
    "ir-stash",
    "bundled",
    "rho",
    "llc-d",
    "ir-dwb",
    "mutant:sound-path",
    "mutant:forgets-remap",
    "mutant:remaps-to-previous",
    "mutant:prefers-half",
    "mutant:one-half",
    "mutant:prefers-even",
    "mutant:remaps-near",
    "mutant:leaf-of-block",
    "mutant:returns-early",
    "mutant:skips-dummies",
    "mutant:dummy-for-block",
    "mutant:one-dummy-path",
    "mutant:reads-only",
    "mutant:evicts-at-once",
    "mutant:sound-pair",
    "mutant:plb-beside-trees",
    "mutant:no-pattern",
    "mutant:searches-first",
];

fn volume_scheme_names() -> PossibleValuesParser {
    PossibleValuesParser::new(volume_schemes())
}

/// What `audit volume --scheme` may name.
pub fn volume_schemes() -> Vec<&'static str> {
    registry::KINDS.iter().map(|kind| kind.name).chain(OTHER_VOLUME_SCHEMES).collect()
}

/// What `audit volume --scheme` may name besides the kinds of block scheme.
const OTHER_VOLUME_SCHEMES: [&str; 16] = [
    "sq:paper-cadence",
    "linear",
    "mutant:sound",
    "mutant:skips-clean",
    "mutant:literal-wrap",
    "mutant:coalesces",
    "mutant:sound-sq",
    "mutant:keeps-older",
    "mutant:skips-fakes",
    "mutant:sound-discards",
    "mutant:skips-unchanged",
    "mutant:notes-rewrites",
    "mutant:skips-repeats",
    "mutant:sound-random",
    "mutant:own-slot",
    "mutant:prefers-free",
];

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Level {
    /// About a second
    Quick,
    /// Some seconds
    Ci,
    /// Minutes
    Release,
}

impl Level {
    /// The level's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Ci => "ci",
            Self::Release => "release",
        }
    }
}

#[derive(Args, Debug)]
pub struct AuditAlarmsArgs {
    /// How many seeds
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    pub first: u64,
    /// Keep each seed's verdict in this file, and skip seeds with a verdict in it
    #[arg(long)]
    pub file: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}
