//! Threads of our own in somebody else's program, and the program's threads.

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

/// Starts a thread that no signal of the program's reaches: its handlers may touch paged memory.
/// Returns when `first` has been called in it.
pub fn spawn(
    name: &str,
    first: fn(),
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Errno> {
    let (started, starts) = channel();
    let body = move || {
        first();
        // Whoever started it waits until then.
        let _ = started.send(());
        run();
    };
    let spawned = without_signals(|| std::thread::Builder::new().name(name.to_owned()).spawn(body));
    let handle = spawned.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))?;
    starts.recv().map_err(|_| Errno::AGAIN)?;
    Ok(handle)
}

/// Runs `work` with all signals of this thread put off until it is done. A thread begins with the
/// signals that whoever started it has.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (no_signals(), no_signals());
    // SAFETY: sets of our own; what is put off is restored below.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let done = work();
    // SAFETY: the set that was in force before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut()) };
    done
}

fn no_signals() -> libc::sigset_t {
    // SAFETY: a set of signals is plain bits.
    unsafe { core::mem::zeroed() }
}

/// Processor time of this thread so far.
pub fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The threads that page faults came from and that are alive.
#[derive(Default)]
pub struct Faulting(Vec<u32>);

impl Faulting {
    /// Takes note of a thread. Tells how many there are if it is a new one.
    pub fn note(&mut self, thread: u32) -> Option<usize> {
        if self.0.contains(&thread) {
            return None;
        }
        self.0.retain(|&other| {
            rustix::fs::access(format!("/proc/self/task/{other}"), rustix::fs::Access::EXISTS)
                .is_ok()
        });
        self.0.push(thread);
        Some(self.0.len())
    }
}
