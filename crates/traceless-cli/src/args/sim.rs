//! `traceless sim`

use super::{DashboardArgs, LabArgs, ProgressArgs, TraceArgs};
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub enum SimCommand {
    /// Run one workload and print what it took
    Trace(SimTraceArgs),
    /// Record the memory accesses of a program, behind a first cache, as a workload
    Record(RecordArgs),
    /// Simulate a figure or table of a paper, and print what becomes of its claims
    Run(SimRunArgs),
    /// Like `run` for several experiments, with several runs at a time, or spread over machines
    Sweep(SimSweepArgs),
    /// Measure how fast the simulator is (traceless-lab)
    #[command(hide = true)]
    Floors(LabArgs),
}

#[derive(Args, Debug)]
pub struct SimTraceArgs {
    /// The workload: a file, unpacked if gzip or zstd packed it, or a name like `uniform` or
    /// `table-2/mcf`; docs/workloads.md has them all. Several run at the same time, each on a core
    /// of its own, with memory of its own
    #[arg(value_name = "WORKLOAD", required = true)]
    pub workloads: Vec<String>,
    /// Operations that a core runs at most [default: a whole file, or a million]
    #[arg(long, value_name = "N", value_parser = some)]
    pub length: Option<u64>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Its format [default: `packed` if it begins so, ChampSim's if its name says so, else USIMM's]
    #[arg(long, value_enum)]
    pub format: Option<WorkloadFormat>,
    /// How memory is reached: `dram` (addresses reveal everything), `path`, `recursive`, `unified`,
    /// `compressed`, `baseline`, `rho`, `ir-alloc`, `ir-stash`, `ir-dwb`, `ir-oram`, `bundled`,
    /// `llc-d`, `llc-d+ir-stash+ir-alloc` or `ring`
    #[arg(long, value_name = "NAME")]
    pub scheme: String,
    /// The machine, as TOML; docs/simulator.md says what it has [default: USIMM's with four
    /// channels for `dram`, otherwise that of the IR-ORAM paper]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub trace: TraceArgs,
    #[command(flatten)]
    pub dashboard: DashboardArgs,
    /// Check each command on the memory's bus against every constraint. Takes 80 bytes a command
    #[arg(long)]
    pub check: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct RecordArgs {
    /// The workload to write
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Misses of the first cache to leave out at the beginning
    #[arg(long, value_name = "N", default_value = "0", value_parser = count)]
    pub skip: u64,
    /// Misses to record; then the program is ended. All of them if this is not given
    #[arg(long, value_name = "N", value_parser = some)]
    pub misses: Option<u64>,
    /// The tool that watches the program
    #[arg(long, value_enum, default_value_t = RecorderName::Lackey)]
    pub with: RecorderName,
    /// KiB of the first cache
    #[arg(long, value_name = "KIB", default_value_t = 256)]
    pub l1_kib: u64,
    /// Lines of a set of the first cache
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub l1_ways: u32,
    #[command(flatten)]
    pub progress: ProgressArgs,
    /// Print what was recorded as JSON
    #[arg(long)]
    pub json: bool,
    /// The program, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct SimRunArgs {
    /// What to simulate: a file as in experiments/
    #[arg(value_name = "FILE")]
    pub experiment: PathBuf,
    #[command(flatten)]
    pub extent: ExtentArgs,
    /// Make one run only, counted from 0, and no report
    #[arg(long, value_name = "N")]
    pub only: Option<usize>,
    #[command(flatten)]
    pub trace: TraceArgs,
    #[command(flatten)]
    pub dashboard: DashboardArgs,
    #[command(flatten)]
    pub progress: ProgressArgs,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct SimSweepArgs {
    /// What to simulate: files as in experiments/
    #[arg(value_name = "FILE", required = true)]
    pub experiments: Vec<PathBuf>,
    #[command(flatten)]
    pub extent: ExtentArgs,
    /// Runs at a time. At full size each takes up to 3 GB of memory
    #[arg(long, value_name = "N", default_value = "1", value_parser = some_jobs)]
    pub jobs: usize,
    /// Simulate nothing: print one command for each run. When all are done, `sweep` finds their
    /// results in DIR
    #[arg(long)]
    pub print_commands: bool,
    /// Simulate nothing: write a script for Slurm's sbatch that makes all runs as one array
    #[arg(long, value_name = "SCRIPT")]
    pub slurm: Option<PathBuf>,
    /// Make share I of N of the runs, counted from 0, and no report: for N processes, on as many
    /// machines as there are
    #[arg(long, value_name = "I/N", conflicts_with_all = ["print_commands", "slurm"])]
    pub shard: Option<String>,
    /// Simulate nothing: join the shards in these folders, put their results into --out, and report
    #[arg(long, value_name = "DIR", num_args = 1..)]
    #[arg(conflicts_with_all = ["print_commands", "slurm", "shard"])]
    pub merge: Vec<PathBuf>,
    #[command(flatten)]
    pub dashboard: DashboardArgs,
    #[command(flatten)]
    pub progress: ProgressArgs,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// How much of each experiment is simulated, and where its results lie.
#[derive(Args, Debug)]
pub struct ExtentArgs {
    /// How much of each experiment to simulate
    #[arg(long, value_enum, default_value = "quick")]
    pub level: Level,
    /// Time N records of each workload, instead of the level's number
    #[arg(long, value_name = "N", value_parser = some)]
    pub records: Option<u64>,
    /// Folder for results and reports. Runs with a result there are not made again
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// How much of an experiment is simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Level {
    /// Seconds, on small machines
    Quick,
    /// As much as the paper does, where it says how much
    Full,
}

impl Level {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum RecorderName {
    /// Valgrind's tool lackey
    Lackey,
    /// A plugin of QEMU's user mode: much faster, and needs a C compiler
    Qemu,
}

fn some_jobs(text: &str) -> Result<usize, String> {
    usize::try_from(some(text)?).map_err(|e| e.to_string())
}

/// A number of at least one.
fn some(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err("it is 1 or more".to_owned()),
        number => Ok(number),
    }
}

/// A number that may end in K, M or G: thousands, millions, billions.
fn count(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1_000),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1_000_000),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|e| format!("{e}"))?;
    number.checked_mul(unit).ok_or_else(|| "too large".to_owned())
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum WorkloadFormat {
    /// What `traceless sim record` writes
    Packed,
    /// Lines of `<before> R|W <address>`
    Usimm,
    /// Lines of `<before> <read> [<written back>]`
    Ramulator,
    /// Instructions of 64 bytes; a first cache is put before them
    #[value(name = "champsim")]
    ChampSim,
    /// What Valgrind's lackey prints with `--trace-mem=yes`; a first cache is put before it, too
    Lackey,
}
