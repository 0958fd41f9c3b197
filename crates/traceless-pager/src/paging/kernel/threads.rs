//! The library's threads in a program, and where the program's threads run.

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

/// Starts a thread that gets no signals of the program, since handlers may touch paged memory.
/// Returns when the thread has called `first`.
pub fn spawn(
    name: &str,
    first: fn(),
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Errno> {
    let _off = SignalsBlocked::all();
    spawn_quietly(name, first, run)
}

/// The same, for a thread that SIGSEGV may interrupt until it calls `first`: the C library may
/// touch paged memory as it begins.
pub fn spawn_with_early_faults(
    name: &str,
    first: fn(),
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Errno> {
    let _off = SignalsBlocked::all_but(libc::SIGSEGV);
    spawn_quietly(name, first, move || {
        core::mem::forget(SignalsBlocked::all());
        run();
    })
}

fn spawn_quietly(
    name: &str,
    first: fn(),
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Errno> {
    let (started, has_started) = channel();
    let body = move || {
        first();
        // The thread that called `spawn` waits for this.
        let _ = started.send(());
        run();
    };
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    let handle = spawned.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))?;
    has_started.recv().map_err(|_| Errno::AGAIN)?;
    Ok(handle)
}

/// Runs `work` with all signals of this thread blocked. A thread that `work` starts inherits that.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let _off = SignalsBlocked::all();
    work()
}

/// Blocks all signals of this thread until it is dropped.
pub struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    /// Blocks the signals from now on.
    pub fn all() -> Self {
        Self::but(None)
    }

    /// Blocks all signals but this one from now on.
    pub fn all_but(signal: libc::c_int) -> Self {
        Self::but(Some(signal))
    }

    fn but(signal: Option<libc::c_int>) -> Self {
        let (mut all, mut before) = (no_signals(), no_signals());
        // SAFETY: sets of our own; the former mask is restored in the end.
        unsafe {
            libc::sigfillset(&raw mut all);
            if let Some(signal) = signal {
                libc::sigdelset(&raw mut all, signal);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        }
        Self(before)
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set that was in force before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, core::ptr::null_mut());
        }
    }
}

fn no_signals() -> libc::sigset_t {
    // SAFETY: a set of signals is plain bits.
    unsafe { core::mem::zeroed() }
}

/// Processor time of this thread so far.
pub fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // A program may forbid this system call in the whole process (seccomp): then this stays zero.
    // SAFETY: a record of our own.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A process with threads.
#[derive(Clone, Copy)]
pub enum TargetProcess {
    /// This one.
    Own,
    /// The one with this number.
    Other(u32),
}

impl TargetProcess {
    /// The folder in which the system describes a thread.
    fn path(self, thread: u32) -> String {
        match self {
            Self::Own => format!("/proc/self/task/{thread}"),
            Self::Other(process) => format!("/proc/{process}/task/{thread}"),
        }
    }

    /// Whether the process has that thread.
    pub fn has(self, thread: u32) -> bool {
        rustix::fs::access(self.path(thread), rustix::fs::Access::EXISTS).is_ok()
    }
}

/// The processor that a thread runs on, or ran on last.
fn cpu_of(target: TargetProcess, thread: u32) -> Option<usize> {
    const FIELDS_AFTER_THE_NAME: usize = 36;
    let text = std::fs::read_to_string(target.path(thread) + "/stat").ok()?;
    // The name stands in brackets, and may hold anything.
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(FIELDS_AFTER_THE_NAME)?.parse().ok()
}

/// Nanoseconds that threads ran, and that they waited for a processor, ready to run.
#[derive(Clone, Copy, Debug)]
pub struct SchedTimes {
    pub run_ns: u64,
    pub wait_ns: u64,
}

impl SchedTimes {
    /// The sum for a thread and this one; none where the system does not provide it.
    pub fn with_this(target: TargetProcess, thread: u32) -> Option<Self> {
        let this = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let (one, other) = (Self::of(target, thread)?, Self::of(TargetProcess::Own, this)?);
        Some(Self { run_ns: one.run_ns + other.run_ns, wait_ns: one.wait_ns + other.wait_ns })
    }

    fn of(target: TargetProcess, thread: u32) -> Option<Self> {
        let text = std::fs::read_to_string(target.path(thread) + "/schedstat").ok()?;
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok());
        Some(Self { run_ns: fields.next()??, wait_ns: fields.next()?? })
    }
}

/// Where a thread of the library may run: on the processor of a program's thread, or on any other.
///
/// Waking a thread on another processor takes longer than the rest of a page fault, if that
/// processor idles. Once two threads that wake each other are apart the system leaves them apart.
pub struct ThreadAffinity {
    allowed: CpuSet,
    following: Option<usize>,
}

impl ThreadAffinity {
    /// Anywhere that this thread may run.
    pub fn unrestricted() -> Self {
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        Self { allowed, following: None }
    }

    /// Moves this thread to the processor of `thread`, and returns which one that is.
    pub fn follow(&mut self, target: TargetProcess, thread: u32) -> Option<usize> {
        let cpu = cpu_of(target, thread).filter(|&cpu| cpu < CpuSet::MAX_CPU);
        if let Some(cpu) =
            cpu.filter(|&cpu| self.following != Some(cpu) && self.allowed.is_set(cpu))
        {
            let mut only = CpuSet::new();
            only.set(cpu);
            self.set(Some(cpu), &only);
        }
        self.following
    }

    /// Keeps this thread away from a processor, or from none, if it may run on another one.
    pub fn avoid(&mut self, cpu: Option<usize>) {
        let mut cpus = self.allowed;
        if let Some(cpu) = cpu {
            cpus.unset(cpu);
        }
        if cpus.count() > 0 {
            self.set(None, &cpus);
        }
    }

    /// Lets this thread run anywhere again, if it followed another one.
    pub fn stop_following(&mut self) {
        if self.following.is_some() {
            let anywhere = self.allowed;
            self.set(None, &anywhere);
        }
    }

    fn set(&mut self, following: Option<usize>, to: &CpuSet) {
        // A failure makes faults slower, and has no other effect.
        if sched_setaffinity(None, to).is_ok() {
            self.following = following;
        }
    }
}

/// The threads that page faults came from and that are alive.
#[derive(Default)]
pub struct FaultingThreads(Vec<u32>);

impl FaultingThreads {
    /// The thread, if there is one only.
    pub fn only(&self) -> Option<u32> {
        if let [thread] = self.0[..] { Some(thread) } else { None }
    }

    /// Notes a thread. If it is a new one, returns how many there are.
    pub fn insert(&mut self, target: TargetProcess, thread: u32) -> Option<usize> {
        if self.0.contains(&thread) {
            return None;
        }
        self.0.retain(|&other| target.has(other));
        self.0.push(thread);
        Some(self.0.len())
    }

    /// Whether faults came from this thread.
    pub fn contains(&self, thread: u32) -> bool {
        self.0.contains(&thread)
    }

    /// Removes threads that have ended, if there are several.
    pub fn remove_ended(&mut self, target: TargetProcess) {
        if self.0.len() > 1 {
            self.0.retain(|&other| target.has(other));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_follows_another_to_its_processor() {
        let this = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert!(cpu_of(TargetProcess::Own, this).is_some());
        assert_eq!(cpu_of(TargetProcess::Own, u32::MAX), None);
        let mut affinity = ThreadAffinity::unrestricted();
        affinity.avoid(Some(0));
        let at = affinity.follow(TargetProcess::Own, this);
        assert_eq!(at, cpu_of(TargetProcess::Own, this));
        affinity.avoid(None);
        assert_eq!(sched_getaffinity(None).unwrap(), affinity.allowed);
    }

    #[test]
    fn faulting_threads_are_counted_while_they_run() {
        let mut threads = FaultingThreads::default();
        let this = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert_eq!(
            (threads.insert(TargetProcess::Own, this), threads.insert(TargetProcess::Own, this)),
            (Some(1), None)
        );
        assert_eq!(threads.only(), Some(this));
        assert_eq!((threads.insert(TargetProcess::Own, u32::MAX), threads.only()), (Some(2), None));
        assert_eq!(
            threads.insert(TargetProcess::Own, u32::MAX - 1),
            Some(2),
            "one of them never lived"
        );
        threads.remove_ended(TargetProcess::Own);
        assert!(threads.contains(this) && threads.only() == Some(this));
    }
}
