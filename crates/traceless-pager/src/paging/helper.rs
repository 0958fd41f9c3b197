//! A process that helps another one.
//!
//! Not a thread: whenever a page leaves, every processor on which a thread of the program runs must
//! forget where it was, and be told so. That takes longer than the fault itself, and a process with
//! memory of its own is spared it.

use super::files::OwnFile;
use super::locking::keep_a_clone;
use super::threads::without_signals;
use rustix::fd::{AsRawFd, RawFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// The process, of which this one is the parent.
pub struct Helper {
    id: libc::pid_t,
    /// Open as long as this program runs: when it is not, the helper ends.
    _alive: OwnFile,
}

/// What a helper asks now and then.
pub struct Parent(libc::c_int);

impl Parent {
    /// Whether the program that it helps is still the one that it was.
    pub fn is_there(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, of our own.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 0 }
    }
}

/// Copies of a process that runs tests are made one after the other: while one test has memory that
/// is copied with the process, another's copy would be taken for its.
#[cfg(test)]
pub static COPIES: std::sync::Mutex<()> = std::sync::Mutex::new(());

impl Helper {
    /// Starts a process that does `work`, and nothing else, with one file of this process at most.
    ///
    /// # Safety
    /// Other threads of this process may hold locks for ever in the new one: `work` takes none,
    /// and allocates nothing.
    pub unsafe fn start(keep: Option<RawFd>, work: impl FnOnce(&Parent)) -> Result<Self, Errno> {
        let (reads, writes) = pipe_with(PipeFlags::CLOEXEC)?;
        let writes = OwnFile::out_of_the_way(writes);
        #[cfg(test)]
        let _turn = COPIES.lock();
        without_signals(|| {
            // Without a signal for its end: whoever waits for any child does not wait for this one.
            // SAFETY: like fork, with no thread's memory shared.
            match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } {
                -1 => Err(last_error()),
                0 => {
                    let fd = reads.as_raw_fd();
                    keep_only(fd, keep);
                    keep_a_clone();
                    work(&Parent(fd));
                    // SAFETY: it ends the process without anything of the program's.
                    unsafe { libc::_exit(0) }
                }
                id => Ok(Self { id: id as libc::pid_t, _alive: writes }),
            }
        })
    }

    /// Whether it runs.
    pub fn is_there(&self) -> bool {
        // SAFETY: all zeros are such a record; it is of our own.
        let mut ended: libc::siginfo_t = unsafe { core::mem::zeroed() };
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
        // SAFETY: as above. Its end stays to be waited for.
        let asked = unsafe { libc::waitid(libc::P_PID, self.id as _, &raw mut ended, flags) };
        // SAFETY: a record that the kernel has filled, or zeros.
        asked == 0 && unsafe { ended.si_pid() } == 0
    }

    /// Ends it, as a crash does.
    #[cfg(test)]
    pub fn kill(&self) {
        // SAFETY: a process of our own that was not waited for.
        unsafe { libc::kill(self.id, libc::SIGKILL) };
    }

    /// Waits for its end.
    pub fn wait(&self) {
        // SAFETY: a process that nobody else waits for.
        while unsafe { libc::waitpid(self.id, core::ptr::null_mut(), libc::__WALL) } == -1
            && last_error() == Errno::INTR
        {}
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::AGAIN)
}

/// Closes all files but these: whoever waits for the program's output to end must not wait for us.
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
