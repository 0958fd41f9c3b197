//! What a process needs that serves a block device to the kernel it runs on.
//!
//! When memory runs short the kernel writes dirty pages out, to us. If we then wait for memory, or
//! for a page of ours that was swapped out, both sides wait for ever. So the process tells the
//! kernel that it sits below writeback, and keeps its pages in memory. The latter also keeps keys
//! out of the swap.

use std::fmt;
use std::io;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::configure_io_flusher_behavior;
use rustix::thread::{CapabilitySet, capabilities};

/// Something that could not be set up. Serving works without it, less safely.
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

/// Prepares the calling process to serve a block device. Call it before any thread is started:
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
    // fails and ends the process: worse than pages that can be swapped.
    if !capabilities(None)?.effective.contains(CapabilitySet::IPC_LOCK) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // On fault: the request buffers are 16 MiB each, of which little more than 1 MiB is used.
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    mlockall(flags).map_err(io::Error::from)
}
