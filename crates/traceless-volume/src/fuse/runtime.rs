//! Set-up of a process that serves a block device to the kernel of its own machine.
//!
//! When memory is short the kernel writes dirty pages to this process. If the process then waits
//! for memory, or for a page of its own that was swapped out, both sides wait for ever. So the
//! process marks itself as sitting below writeback, and keeps its pages in memory. The latter also
//! keeps keys out of the swap.
//!
//! A server calls it first, and goes on if it lacks the right to do a part:
//!
//! ```standalone_crate
//! use traceless_volume::fuse::runtime::{Warning, become_io_flusher};
//!
//! # fn main() -> std::io::Result<()> {
//! let warnings = become_io_flusher();
//! for warning in &warnings {
//!     eprintln!("warning: {warning}");
//! }
//! let is_locked = !warnings.iter().any(|w| matches!(w, Warning::NotLocked(_)));
//! let status = std::fs::read_to_string("/proc/self/status")?;
//! let has_locked_none = status.lines().any(|line| line.starts_with("VmLck:\t       0 kB"));
//! assert_eq!(is_locked, !has_locked_none);
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::io;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::configure_io_flusher_behavior;
use rustix::thread::{CapabilitySet, capabilities};

/// A part of the set-up that failed. Serving works without it, but less safely.
#[derive(Debug)]
#[non_exhaustive]
pub enum Warning {
    /// The kernel does not know that this process sits below writeback.
    NotAFlusher(io::Error),
    /// The pages of this process may be swapped out.
    NotLocked(io::Error),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAFlusher(error) => write!(
                f,
                "writing may hang when memory runs out, as this process may not mark itself as \
                 an I/O flusher ({error}): run as root, or grant CAP_SYS_RESOURCE"
            ),
            Self::NotLocked(error) => write!(
                f,
                "memory of this process, keys included, may be swapped out ({error}): run as \
                 root, grant CAP_IPC_LOCK, or switch the swap off"
            ),
        }
    }
}

/// Prepares the calling process to serve a block device. Must be called before any thread starts:
/// the flusher mark belongs to a thread and is inherited. Each part that fails is a warning.
pub fn become_io_flusher() -> Vec<Warning> {
    let mut warnings = Vec::new();
    if let Err(errno) = configure_io_flusher_behavior(true) {
        warnings.push(Warning::NotAFlusher(errno.into()));
    }
    if let Err(error) = lock_memory() {
        warnings.push(Warning::NotLocked(error));
    }
    warnings
}

fn lock_memory() -> io::Result<()> {
    // Without the capability the call may succeed, but then the first allocation above the limit
    // fails and ends the process, which is worse than pages that can be swapped out.
    if !capabilities(None)?.effective.contains(CapabilitySet::IPC_LOCK) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // ONFAULT, as each request buffer has 16 MiB, of which little more than 1 MiB is used.
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    mlockall(flags).map_err(io::Error::from)
}
