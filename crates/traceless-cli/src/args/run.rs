//! `traceless run`

use super::DashboardArgs;
use super::common::parse_size;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub struct RunArgs {
    /// Pages that are in memory at a time, of 4096 bytes; at least 8. Programs with threads get
    /// four for each thread and four more, if that is more [default: 256, or what fits into an
    /// eighth of the memory limit of the control group]
    #[arg(long, value_name = "N")]
    pub resident: Option<usize>,
    /// The scheme that keeps the pages that are not in memory
    #[arg(long, value_enum, default_value = "detwo")]
    pub scheme: PageSchemeArg,
    /// Pages that are refreshed for each page that leaves, as 3, 15 or 1/2: more writes, less
    /// space. For detwo, eager, parallel and eager-parallel [default: 3]
    #[arg(long, value_name = "K")]
    pub refresh: Option<String>,
    /// Levels of a tree that are kept in trusted memory, for path, path-fused, ring and opam
    /// [default: 0]
    #[arg(long, value_name = "N")]
    pub cached: Option<usize>,
    /// All memory that is paged; the store has room for all of it
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "256M")]
    pub memory: u64,
    /// What the part of the store that is used follows from, for the schemes that refresh
    /// [default: evictions; whole with a file]
    #[arg(long, value_enum)]
    pub growth: Option<GrowthArg>,
    /// Processes that help, at least one, for eager, parallel and eager-parallel [default: 1]
    #[arg(long, value_name = "N")]
    pub helpers: Option<usize>,
    /// What pages are sealed with
    #[arg(long, value_enum, default_value = "aegis")]
    pub cipher: PageCipherArg,
    /// Which page leaves
    #[arg(long, value_enum, default_value = "fifo")]
    pub policy: PolicyArg,
    /// Where the pager is [default: thread; with a length of --pace, process]
    #[arg(long, value_enum)]
    pub mode: Option<ModeArg>,
    /// Access the store N times a second, needed or not, so that neither how many pages come and
    /// leave nor when can be learnt. With a length, when the program has ended accesses go on until
    /// their number is a multiple of M; this takes --mode process
    #[arg(long, value_name = "fixed=N/s[,length=M]")]
    pub pace: Option<String>,
    /// The file that pages go to; `memfd` for memory without a name; or an export of an NBD server:
    /// `nbd://HOST[:PORT]/EXPORT` or `nbd+unix:///EXPORT?socket=PATH`. A file's space is taken at
    /// once, unless --growth is evictions or pages. Programs that the program starts get files of
    /// their own beside it, and memory in place of an export
    #[arg(long, value_name = "FILE|URL", default_value = "memfd")]
    pub backing: PathBuf,
    /// How pages leave: the best that the kernel has, unless it is given
    #[arg(long, value_enum)]
    pub way: Option<WayArg>,
    /// Whether pages in memory are locked there, so that none is swapped out
    #[arg(long, value_enum, default_value = "auto")]
    pub lock: LockArg,
    /// Extra pages that may be in memory while pages are pinned, as by direct I/O; only where
    /// pages are moved [default: 4096]
    #[arg(long, value_name = "N")]
    pub overflow: Option<usize>,
    /// Fail with 125 in the end if more than so many percent of a program's own memory were not
    /// paged [without a number: 5]
    #[arg(
        long,
        value_name = "PERCENT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "5",
        value_parser = clap::value_parser!(u8).range(0..=100)
    )]
    pub strict: Option<u8>,
    /// Write what was counted, as JSON: each second, and in the end
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,
    /// A socket that says what is counted, as a JSON object a line, at once and then each second,
    /// to each client: `nc -U PATH`. Only this user may connect
    #[arg(long, value_name = "PATH")]
    pub stats_socket: Option<PathBuf>,
    /// Record what an adversary sees of the store, event by event (docs/trace-format.md). Helpers
    /// rest meanwhile: what is written is the same, in the same order
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub dashboard: DashboardArgs,
    /// The program, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PageSchemeArg {
    /// The insecure control: contents are hidden, places are not
    Plain,
    /// DetWoORAM: hides which pages are written, not which are read
    Detwo,
    /// Like detwo; a helper does the refreshes while the program goes on
    Eager,
    /// Like detwo; helpers share the refreshes
    Parallel,
    /// Eager and parallel at once
    EagerParallel,
    /// Path ORAM, two accesses a fault: hides which pages are read, too
    Path,
    /// Path ORAM, one access a fault
    PathFused,
    /// Ring ORAM, one access a fault
    Ring,
    /// OPAM, an insecure control: an adversary can link the visits of a page
    Opam,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum GrowthArg {
    /// All of it is used from the beginning
    Whole,
    /// How many pages have left so far, which writes show in any case
    Evictions,
    /// How many pages were away at a time: an observer learns this number, to within a quarter
    Pages,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PageCipherArg {
    /// AEGIS-256X4
    Aegis,
    /// AES-256-GCM
    Gcm,
    /// ChaCha20 with HMAC-SHA-256, as in the paging paper
    #[value(name = "chacha20-hmac")]
    ChachaHmac,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PolicyArg {
    /// The page that came first
    Fifo,
    /// The page that came first and is not in use. To learn which pages are in use, the pager takes
    /// a quarter of them away and waits for faults
    Clock,
    /// A random page
    Random,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum WayArg {
    /// The page itself is moved. Takes Linux 6.8, and the mode thread
    Move,
    /// The page is protected, copied and discarded
    Protect,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LockArg {
    /// Where the limit of locked memory (ulimit -l) allows it; otherwise a message says so
    Auto,
    /// Always: where the limit does not allow it the program is not run
    Strict,
    /// Only once the program locks memory itself
    Off,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ModeArg {
    /// In a thread of the program, and of each copy of it that it forks
    Thread,
    /// In a process of its own, which has the keys. Takes Linux 5.19, to fork a
    /// capability, and about half as long again for each fault
    Process,
}
