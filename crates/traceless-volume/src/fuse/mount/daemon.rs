//! The daemon that serves an exported file, as other processes handle it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::fuse::error::{Error, Result};

/// A process, identified by its number and its start time, as numbers are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Daemon {
    /// Its process number.
    pub pid: u32,
    /// Its start time, in clock ticks since the machine started.
    pub started_ticks: u64,
}

impl Daemon {
    /// The process that has the number `pid` at present.
    pub fn of(pid: u32) -> Result<Self> {
        let path = PathBuf::from(format!("/proc/{pid}/stat"));
        let stat = fs::read_to_string(&path).map_err(Error::io("reading", &path))?;
        let started_ticks = started_ticks(&stat)
            .ok_or_else(|| Error::io("understanding", &path)(io::ErrorKind::InvalidData.into()))?;
        Ok(Self { pid, started_ticks })
    }

    /// Whether the process still runs.
    pub fn is_alive(&self) -> bool {
        self.open().is_some_and(|handle| !has_exited(&handle, 0))
    }

    /// Ends the process with SIGTERM, and waits until it has exited. Returns false if it was gone
    /// already. The limit should be generous: closing a volume syncs it.
    pub fn stop(&self, limit_seconds: u32) -> Result<bool> {
        let Some(handle) = self.open() else {
            return Ok(false);
        };
        if has_exited(&handle, 0) {
            return Ok(false);
        }
        match pidfd_send_signal(&handle, Signal::TERM) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(errno) => return Err(self.io("ending")(errno.into())),
        }
        if has_exited(&handle, limit_seconds) {
            return Ok(true);
        }
        Err(Error::DaemonStuck { pid: self.pid, seconds: limit_seconds })
    }

    /// A handle on the process. It never comes to mean a later process with the same number.
    fn open(&self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Compared after the handle was opened, so the number has not passed to another process
        // before.
        Self::of(self.pid).is_ok_and(|now| now == *self).then_some(handle)
    }

    fn io(&self, doing: &'static str) -> impl FnOnce(io::Error) -> Error + use<> {
        Error::io(doing, format!("/proc/{}", self.pid))
    }
}

/// Waits up to `limit_seconds` for a process to exit, and returns whether it has.
fn has_exited(handle: &OwnedFd, limit_seconds: u32) -> bool {
    let limit = Timespec { tv_sec: limit_seconds.into(), tv_nsec: 0 };
    loop {
        let mut handles = [PollFd::new(handle, PollFlags::IN)];
        match poll(&mut handles, Some(&limit)) {
            Ok(ready) => return ready > 0,
            // This process got a signal. Waiting anew only makes the limit longer.
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// The start time, field 22 of `stat`. Field 2, the program's name, may contain blanks and
/// brackets.
fn started_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_alive() {
        let we = Daemon::of(std::process::id()).expect("we run");
        assert!(we.is_alive());
        assert!(we.started_ticks > 0);
    }

    #[test]
    fn another_process_with_our_number_is_not_signalled() {
        let we = Daemon::of(std::process::id()).expect("we run");
        let earlier = Daemon { started_ticks: we.started_ticks - 1, ..we };
        assert!(!earlier.is_alive());
        assert!(!earlier.stop(1).expect("there is nothing to stop"));
    }

    #[test]
    fn the_name_of_the_program_does_not_confuse() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(started_ticks(stat), Some(4711));
    }
}
