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
    let (started, starts) = channel();
    let body = move || {
        first();
        // The thread that called `spawn` waits for this.
        let _ = started.send(());
        run();
    };
    let spawned = without_signals(|| std::thread::Builder::new().name(name.to_owned()).spawn(body));
    let handle = spawned.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))?;
    starts.recv().map_err(|_| Errno::AGAIN)?;
    Ok(handle)
}

/// Runs `work` with all signals of this thread blocked. A thread that `work` starts inherits that.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let _off = SignalsOff::new();
    work()
}

/// Blocks all signals of this thread until it is dropped.
pub struct SignalsOff(libc::sigset_t);

impl SignalsOff {
    /// Blocks the signals from now on.
    pub fn new() -> Self {
        let (mut all, mut before) = (no_signals(), no_signals());
        // SAFETY: sets of our own; the former mask is restored in the end.
        unsafe {
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        }
        Self(before)
    }
}

impl Drop for SignalsOff {
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

/// A process with threads to look at.
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
fn cpu_of(whose: TargetProcess, thread: u32) -> Option<usize> {
    const FIELDS_AFTER_THE_NAME: usize = 36;
    let text = std::fs::read_to_string(whose.path(thread) + "/stat").ok()?;
    // The name stands in brackets, and may hold anything.
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(FIELDS_AFTER_THE_NAME)?.parse().ok()
}

/// Nanoseconds that threads ran, and that they waited for a processor, ready to run.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub ran: u64,
    pub waited: u64,
}

impl Times {
    /// The sum for a thread and this one; none where the system does not provide it.
    pub fn with_this(whose: TargetProcess, thread: u32) -> Option<Self> {
        let this = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let (one, other) = (Self::of(whose, thread)?, Self::of(TargetProcess::Own, this)?);
        Some(Self { ran: one.ran + other.ran, waited: one.waited + other.waited })
    }

    fn of(whose: TargetProcess, thread: u32) -> Option<Self> {
        let text = std::fs::read_to_string(whose.path(thread) + "/schedstat").ok()?;
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok());
        Some(Self { ran: fields.next()??, waited: fields.next()?? })
    }
}

/// Where a thread of the library may run: on the processor of a program's thread, or on any other.
///
/// Waking a thread on another processor takes longer than the rest of a page fault, if that
/// processor idles. Once two threads that wake each other are apart the system leaves them apart.
pub struct Place {
    allowed: CpuSet,
    at: Option<usize>,
}

impl Place {
    /// Anywhere that this thread may run.
    pub fn anywhere() -> Self {
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        Self { allowed, at: None }
    }

    /// Moves this thread to the processor of `thread`, and returns which one that is.
    pub fn follow(&mut self, whose: TargetProcess, thread: u32) -> Option<usize> {
        let cpu = cpu_of(whose, thread).filter(|&cpu| cpu < CpuSet::MAX_CPU);
        if let Some(cpu) = cpu.filter(|&cpu| self.at != Some(cpu) && self.allowed.is_set(cpu)) {
            let mut only = CpuSet::new();
            only.set(cpu);
            self.go(Some(cpu), &only);
        }
        self.at
    }

    /// Keeps this thread away from a processor, or from none, if it may run on another one.
    pub fn keep_off(&mut self, cpu: Option<usize>) {
        let mut others = self.allowed;
        if let Some(cpu) = cpu {
            others.unset(cpu);
        }
        if others.count() > 0 {
            self.go(None, &others);
        }
    }

    /// Lets this thread run anywhere again, if it followed another one.
    pub fn stay(&mut self) {
        if self.at.is_some() {
            let anywhere = self.allowed;
            self.go(None, &anywhere);
        }
    }

    fn go(&mut self, at: Option<usize>, to: &CpuSet) {
        // A failure makes faults slower, and has no other effect.
        if sched_setaffinity(None, to).is_ok() {
            self.at = at;
        }
    }
}

/// The threads that page faults came from and that are alive.
#[derive(Default)]
pub struct Faulting(Vec<u32>);

impl Faulting {
    /// The thread, if there is one only.
    pub fn only(&self) -> Option<u32> {
        if let [thread] = self.0[..] { Some(thread) } else { None }
    }

    /// Notes a thread. If it is a new one, returns how many there are.
    pub fn note(&mut self, whose: TargetProcess, thread: u32) -> Option<usize> {
        if self.0.contains(&thread) {
            return None;
        }
        self.0.retain(|&other| whose.has(other));
        self.0.push(thread);
        Some(self.0.len())
    }

    /// Whether faults came from this thread.
    pub fn has(&self, thread: u32) -> bool {
        self.0.contains(&thread)
    }

    /// Removes threads that have ended, if there are several.
    pub fn forget_ended(&mut self, whose: TargetProcess) {
        if self.0.len() > 1 {
            self.0.retain(|&other| whose.has(other));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_goes_where_another_one_is() {
        let this = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert!(cpu_of(TargetProcess::Own, this).is_some());
        assert_eq!(cpu_of(TargetProcess::Own, u32::MAX), None);
        let mut place = Place::anywhere();
        place.keep_off(Some(0));
        let at = place.follow(TargetProcess::Own, this);
        assert_eq!(at, cpu_of(TargetProcess::Own, this));
        place.keep_off(None);
        assert_eq!(sched_getaffinity(None).unwrap(), place.allowed);
    }

    #[test]
    fn threads_are_counted_while_they_live() {
        let mut threads = Faulting::default();
        let this = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert_eq!(
            (threads.note(TargetProcess::Own, this), threads.note(TargetProcess::Own, this)),
            (Some(1), None)
        );
        assert_eq!(threads.only(), Some(this));
        assert_eq!((threads.note(TargetProcess::Own, u32::MAX), threads.only()), (Some(2), None));
        assert_eq!(
            threads.note(TargetProcess::Own, u32::MAX - 1),
            Some(2),
            "one of them never lived"
        );
        threads.forget_ended(TargetProcess::Own);
        assert!(threads.has(this) && threads.only() == Some(this));
    }
}
