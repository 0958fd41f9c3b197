//! `traceless run`: runs an unmodified program and pages its heap.

mod folder;
mod live;
mod memory_limit;
mod options;
mod unpaged;

use crate::args::{LockArg, ModeArg, PageCipherArg, PageSchemeArg, PolicyArg, RunArgs, WayArg};
use crate::failure::{Failure, USAGE};
use crate::output::print_error;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;
use traceless_block::detwo::Refresh;
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::{
    self, EvictMethod, Exit, Lock, PageableProgram, PagerProcess, Policy, ProgramCounters,
    ProgramError, Scheme, Settings, StaticProgram, StatsSocket, Summary, VARIABLE, find_program,
};
use traceless_pager::slots::Cipher;

pub use folder::CounterFolder;

/// The library that is preloaded into the program.
const PRELOAD: &str = "libtraceless_preload.so";

/// The exit code when the pager failed, or is missing.
const FAILED: u8 = 125;

/// Bytes that the pager may lock for itself, beside paged memory.
const OWN_MEMORY: usize = 16 << 20;

/// How often counters are written while the program runs.
const STATS_INTERVAL: Duration = Duration::from_secs(1);

/// Why a program is not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error("the library {PRELOAD} is neither beside this program nor in ../lib/traceless")]
    NoLibrary,
    #[error("the program ran, but its memory was not paged: it does not take {PRELOAD}")]
    NotPaged,
    #[error("the pager has ended, and with it the program: no other process has its pages' keys")]
    PagerEnded,
    #[error("{0}")]
    Unpaged(String),
    #[error("{0}")]
    Option(String),
    #[error("{0}")]
    MemoryLimit(String),
    #[error("{}", .0.message)]
    Dashboard(Failure),
    #[error(transparent)]
    Pager(#[from] traceless_pager::paging::Error),
    #[error("{0}: {1}")]
    Io(String, std::io::Error),
}

impl RunError {
    /// The exit code, as `env` and shells use it.
    fn code(&self) -> u8 {
        match self {
            Self::Program(ProgramError::NotExecutable(_)) => 126,
            Self::Program(ProgramError::NotFound(_)) => 127,
            Self::Option(_) => USAGE,
            Self::Dashboard(failure) => failure.code,
            _ => FAILED,
        }
    }
}

/// Runs a program, and returns the exit code: the program's own, or one that says why it did not
/// run.
pub fn run(args: &RunArgs) -> u8 {
    match try_run(args) {
        Ok(code) => code,
        Err(refused) => {
            print_error(&refused.to_string());
            refused.code()
        }
    }
}

/// A program that can be paged, and the library that pages it.
pub struct PagedCommand {
    program: PageableProgram,
    library: PathBuf,
}

impl PagedCommand {
    /// The program of that name, if it can be paged.
    pub fn find(name: &OsStr) -> Result<Self, RunError> {
        Ok(Self { program: find_program(name)?, library: library()? })
    }

    /// The command that starts the program, paged with these settings.
    pub fn command(&self, settings: &Settings) -> Command {
        let path = &self.program.path;
        let mut command = match &self.program.static_program {
            None => Command::new(path),
            Some(program) => {
                let mut command = Command::new(StaticProgram::loader());
                command.args(program.loader_arguments(&self.library, path.as_os_str()));
                command
            }
        };
        command.env("LD_PRELOAD", with_library(&self.library)).env(VARIABLE, settings.encode());
        command
    }
}

fn try_run(args: &RunArgs) -> Result<u8, RunError> {
    options::check(args).map_err(RunError::Option)?;
    let prepared = PagedCommand::find(&args.command[0])?;
    let mode = options::mode(args);
    if let (ModeArg::Process, Some(program)) = (mode, &prepared.program.static_program) {
        return Err(ProgramError::Static(program.path.clone()).into());
    }
    let folder = CounterFolder::new()?;
    let mut settings = settings(args, folder.path())?;
    settings.check()?;
    settings.lock = lock(args, &settings)?;
    memory_limit::check(&settings)?;
    if settings.export.is_some() && !settings.hides_reads() {
        print_error(
            "the server of the export observes which pages are read; --scheme path-fused or ring \
             hides that, too",
        );
    }
    let _socket = stats_socket(args, &settings, folder.path())?;
    let _dashboard = live::start(args, &mut settings, folder.path())?;
    let mut pager = match mode {
        ModeArg::Thread => None,
        ModeArg::Process => Some(pager(&settings)?),
    };
    settings.pager = pager.as_ref().map(|pager| pager.name().to_owned());
    let child = prepared
        .command(&settings)
        .args(&args.command[1..])
        .spawn()
        .map_err(|e| RunError::Io(prepared.program.path.display().to_string(), e))?;
    let process = child.id();
    let status = wait(child, args.stats.as_deref(), folder.path())?;
    let end = pager.as_mut().map(|pager| pager.exit_of(process));
    let counters = ProgramCounters::read_all(folder.path());
    if let Some(path) = &args.stats {
        write_stats(path, &counters)?;
    }
    report_late_ticks(&counters);
    let share = unpaged::check(&counters, args.strict);
    let killed = status.signal() == Some(Signal::KILL.as_raw());
    match end.filter(|_| killed) {
        Some(Exit::Failed) => return Ok(FAILED),
        Some(Exit::PagerEnded) => return Err(RunError::PagerEnded),
        _ => {}
    }
    if status.signal() == Some(Signal::SYS.as_raw()) && mode == ModeArg::Thread {
        print_error(
            "the program ended by an order that it forbids itself (seccomp). If it does so by \
             itself it runs as ever; if not, its pager needs that order: try --mode process",
        );
    }
    let code = code_of(status);
    if counters.is_empty() && code != FAILED {
        return Err(RunError::NotPaged);
    }
    share.map(|()| code)
}

/// Serves the counters in `folder` to clients of the socket, if there is to be one.
fn stats_socket(
    args: &RunArgs,
    settings: &Settings,
    folder: &Path,
) -> Result<Option<StatsSocket>, RunError> {
    let Some(path) = &args.stats_socket else { return Ok(None) };
    let socket = StatsSocket::start(path, folder, settings.store_len()?);
    socket.map(Some).map_err(|e| RunError::Io(path.display().to_string(), e))
}

/// Says how many ticks of a constant rate were late, if any were: an observer of the store learns
/// of them.
fn report_late_ticks(programs: &[ProgramCounters]) {
    let sum = |of: fn(&Summary) -> u64| programs.iter().map(|one| of(&one.summary)).sum::<u64>();
    let late = sum(|one| one.ticks_late);
    if late > 0 {
        let delay = programs.iter().map(|one| one.summary.tick_delay_max_ns).max().unwrap_or(0);
        print_error(&format!(
            "{late} of {} ticks were late, by up to {} ms, and an observer of the store learns \
             that: take a lower rate, or a machine with less load",
            sum(|one| one.ticks),
            delay.div_ceil(1_000_000),
        ));
    }
}

/// Starts this program once more, as the pager process.
fn pager(settings: &Settings) -> Result<PagerProcess, RunError> {
    let own = std::env::current_exe().map_err(|e| RunError::Io("/proc/self/exe".into(), e))?;
    let mut command = Command::new(own);
    command.arg("serve-pages");
    Ok(PagerProcess::start(command, settings)?)
}

/// Runs as the pager process, and returns its exit code.
pub fn serve() -> u8 {
    let serves = || {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        let input = rustix::io::dup(rustix::stdio::stdin())
            .map_err(|e| RunError::Io("standard input".into(), e.into()))?;
        let settings = Settings::decode(&text)?;
        match paging::lock_this_process() {
            Err(e) if settings.lock == Lock::Strict => Err(paging::Error::Unlocked(e))?,
            // The process that started this one has reported it already.
            _ => {}
        }
        Ok::<(), RunError>(paging::serve(settings, input)?)
    };
    match serves() {
        Ok(()) => 0,
        Err(refused) => {
            print_error(&refused.to_string());
            refused.code()
        }
    }
}

/// Whether resident pages are to be locked: the user's choice, as far as the limits allow it. This
/// is tried before the program begins, so that a message is printed only once.
fn lock(args: &RunArgs, settings: &Settings) -> Result<Lock, RunError> {
    let wanted = match args.lock {
        LockArg::Auto => Lock::Auto,
        LockArg::Strict => Lock::Strict,
        LockArg::Off => return Ok(Lock::Off),
    };
    let allowed = match options::mode(args) {
        ModeArg::Thread => {
            paging::may_lock(settings.pages * PAGE_LEN + settings.tree_memory()? + OWN_MEMORY)
        }
        // The pager process locks all its memory, present and future.
        ModeArg::Process => paging::may_lock_all(),
    };
    match allowed {
        Ok(()) => Ok(wanted),
        Err(e) if wanted == Lock::Strict => Err(paging::Error::Unlocked(e).into()),
        Err(e) => {
            print_error(&format!(
                "pages in memory may be swapped out: locking them is not allowed ({e}); it takes \
                 CAP_IPC_LOCK or a limit (ulimit -l) above --memory. --lock off says nothing"
            ));
            Ok(Lock::Off)
        }
    }
}

/// The exit code of a program, or 128 plus the signal that ended it, as in shells.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
}

/// The settings that the arguments give, with counters in a folder.
pub fn settings(args: &RunArgs, counters: &Path) -> Result<Settings, RunError> {
    let pages = usize::try_from(args.memory.div_ceil(PAGE_LEN as u64)).unwrap_or(usize::MAX);
    let absolute = |path: &PathBuf| {
        std::path::absolute(path).map_err(|e| RunError::Io(path.display().to_string(), e))
    };
    let export = options::export(args).map_err(RunError::Option)?;
    let backing = options::has_file(args).then_some(&args.backing);
    let default = Settings::default();
    let refresh = args.refresh.as_deref().map_or(Ok(default.refresh), Refresh::parse);
    Ok(Settings {
        resident: args.resident.unwrap_or_else(|| memory_limit::default_resident(default.resident)),
        pages,
        scheme: match args.scheme {
            PageSchemeArg::Plain => Scheme::Plain,
            PageSchemeArg::Detwo => Scheme::DetWo,
            PageSchemeArg::Eager => Scheme::Eager,
            PageSchemeArg::Parallel => Scheme::Parallel,
            PageSchemeArg::EagerParallel => Scheme::EagerParallel,
            PageSchemeArg::Path => Scheme::Path,
            PageSchemeArg::PathFused => Scheme::PathFused,
            PageSchemeArg::Ring => Scheme::Ring,
            PageSchemeArg::Opam => Scheme::Opam,
        },
        refresh: refresh.map_err(traceless_pager::paging::Error::from)?,
        growth: options::growth(args),
        helpers: args.helpers.unwrap_or(default.helpers),
        cached: args.cached.unwrap_or(default.cached),
        cipher: cipher(args.cipher),
        policy: match args.policy {
            PolicyArg::Fifo => Policy::Fifo,
            PolicyArg::Clock => Policy::Clock,
            PolicyArg::Random => Policy::Random,
        },
        evict_method: args.way.map(|way| match way {
            WayArg::Move => EvictMethod::Move,
            WayArg::Protect => EvictMethod::Protect,
        }),
        overflow: args.overflow.unwrap_or(default.overflow),
        backing: backing.map(absolute).transpose()?,
        export,
        trace: args.trace.as_ref().map(absolute).transpose()?,
        activity: None,
        counters: Some(counters.into()),
        ocalls: false,
        start: None,
        lock: default.lock,
        fault_limit: 0,
        pager: None,
        pace: options::pace(args).map_err(RunError::Option)?,
        starter: Some(std::process::id()),
    })
}

/// The pager's type for a cipher of the command line.
pub fn cipher(cipher: PageCipherArg) -> Cipher {
    match cipher {
        PageCipherArg::Aegis => Cipher::Aegis,
        PageCipherArg::Gcm => Cipher::Gcm,
        PageCipherArg::ChachaHmac => Cipher::ChaChaHmac,
    }
}

/// The path of the preloaded library: beside this program, or where packages install it.
fn library() -> Result<PathBuf, RunError> {
    let own = std::env::current_exe().map_err(|e| RunError::Io("/proc/self/exe".into(), e))?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let places = [beside.join(PRELOAD), beside.join("../lib/traceless").join(PRELOAD)];
    places.into_iter().find(|path| path.is_file()).ok_or(RunError::NoLibrary)
}

/// The value of `LD_PRELOAD`: our library first, then the libraries that it named before.
fn with_library(library: &Path) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(preloads) = std::env::var_os("LD_PRELOAD").filter(|preloads| !preloads.is_empty()) {
        list.push(":");
        list.push(preloads);
    }
    list
}

/// Waits for the program. Signals to stop are passed on: the program decides what they do.
fn wait(mut child: Child, stats: Option<&Path>, folder: &Path) -> Result<ExitStatus, RunError> {
    let failed = |e| RunError::Io("waiting".into(), e);
    let pid = Pid::from_child(&child);
    // A terminal sends SIGINT and SIGQUIT to both processes; this one only must not end first.
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT]).map_err(failed)?;
    let handle = signals.handle();
    let passing = std::thread::spawn(move || {
        for signal in signals.forever() {
            let to_pass = match signal {
                SIGTERM => Signal::TERM,
                SIGHUP => Signal::HUP,
                _ => continue,
            };
            let _ = kill_process(pid, to_pass);
        }
    });
    if let Some(path) = stats {
        while child.try_wait().map_err(failed)?.is_none() {
            write_stats(path, &ProgramCounters::read_all(folder))?;
            wait_a_little(&mut child)?;
        }
    }
    let end = child.wait().map_err(failed)?;
    handle.close();
    let _ = passing.join();
    Ok(end)
}

/// Waits up to an interval, in short steps, so that a program that ends early causes no delay.
fn wait_a_little(child: &mut Child) -> Result<(), RunError> {
    const STEP: Duration = Duration::from_millis(10);
    for _ in 0..STATS_INTERVAL.as_millis() / STEP.as_millis() {
        if child.try_wait().map_err(|e| RunError::Io("waiting".into(), e))?.is_some() {
            break;
        }
        std::thread::sleep(STEP);
    }
    Ok(())
}

fn write_stats(path: &Path, counters: &[ProgramCounters]) -> Result<(), RunError> {
    let failed = |e: std::io::Error| RunError::Io(path.display().to_string(), e);
    let text = serde_json::to_string_pretty(counters).map_err(|e| failed(e.into()))?;
    std::fs::write(path, text + "\n").map_err(failed)
}
