//! A process that refreshes pages for the program.
//!
//! Not a thread: whenever a page leaves, every processor on which a thread of the program runs must
//! flush the page's address from its TLB. That takes longer than the fault itself, and a process
//! with memory of its own is spared it.

use crate::paging::kernel::locking::protect_clone;
use crate::paging::kernel::own_files::OwnFile;
use crate::paging::kernel::threads::without_signals;
use rustix::fd::{AsRawFd, RawFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// A helper process, a child of this one.
pub struct Helper {
    id: libc::pid_t,
    /// The writing end of a pipe, open as long as this program runs: when it closes, the helper
    /// ends.
    _alive: OwnFile,
}

/// The program that a helper works for, which the helper checks now and then.
pub struct Parent(libc::c_int);

impl Parent {
    /// Whether the program still runs.
    pub fn is_running(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, of our own.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 0 }
    }
}

/// Tests copy their process one at a time: while one test has memory that is inherited by copies, a
/// copy that another test makes would have that memory, too.
#[cfg(test)]
pub static FORK_TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

impl Helper {
    /// Starts a process that only does `work`, with at most one file of this process.
    ///
    /// # Safety
    /// Locks that other threads of this process hold are never released in the new one: `work`
    /// takes none, and allocates nothing.
    pub unsafe fn start(keep: Option<RawFd>, work: impl FnOnce(&Parent)) -> Result<Self, Errno> {
        let (reads, writes) = pipe_with(PipeFlags::CLOEXEC)?;
        let writes = OwnFile::at_high_number(writes);
        #[cfg(test)]
        let _turn = FORK_TURN.lock();
        without_signals(|| {
            // No signal at its end: a program that waits for any child does not get this one.
            // SAFETY: like fork, with no thread's memory shared.
            match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } {
                -1 => Err(last_error()),
                0 => {
                    let fd = reads.as_raw_fd();
                    keep_only(fd, keep);
                    protect_clone();
                    work(&Parent(fd));
                    // SAFETY: it ends the process without anything of the program's.
                    unsafe { libc::_exit(0) }
                }
                id => Ok(Self { id: id as libc::pid_t, _alive: writes }),
            }
        })
    }

    /// Whether the helper runs.
    pub fn is_running(&self) -> bool {
        // SAFETY: all zeros are a valid record; it is our own.
        let mut ended: libc::siginfo_t = unsafe { core::mem::zeroed() };
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
        // SAFETY: a record of our own. `WNOWAIT` leaves the child to be waited for.
        let waited = unsafe { libc::waitid(libc::P_PID, self.id as _, &raw mut ended, flags) };
        // SAFETY: a record that the kernel has filled, or zeros.
        waited == 0 && unsafe { ended.si_pid() } == 0
    }

    /// Kills the helper, as a crash does.
    #[cfg(test)]
    pub fn kill(&self) {
        // SAFETY: a process of our own that was not waited for.
        unsafe { libc::kill(self.id, libc::SIGKILL) };
    }

    /// Waits for the helper's end.
    pub fn wait(&self) {
        // SAFETY: a process that no other code waits for.
        while unsafe { libc::waitpid(self.id, core::ptr::null_mut(), libc::__WALL) } == -1
            && last_error() == Errno::INTR
        {}
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::AGAIN)
}

/// Closes all files but these: a process that reads the program's output to its end must not wait
/// for a helper.
fn keep_only(one: RawFd, other: Option<RawFd>) {
    let other = other.unwrap_or(one);
    let mut from = 0;
    for kept in [one.min(other), one.max(other)] {
        close_all(from, kept - 1);
        from = kept + 1;
    }
    close_all(from, RawFd::MAX);
}

fn close_all(first: RawFd, last: RawFd) {
    if first <= last {
        // SAFETY: nothing in the new process uses these files. Where the kernel is too old they
        // stay open, and nothing else is lost.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}
