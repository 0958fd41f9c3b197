//! What can go wrong with paging.

use rustix::io::Errno;
use std::path::PathBuf;

/// Why paging does not begin, or cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This user may not handle page faults.
    #[error(
        "this user may not use userfaultfd ({0}): it takes root, CAP_SYS_PTRACE, access to \
         /dev/userfaultfd, or sysctl vm.unprivileged_userfaultfd=1"
    )]
    NotAllowed(Errno),
    /// The kernel lacks what all ways of paging need.
    #[error("this kernel's userfaultfd neither moves nor write-protects pages: 5.7 is the oldest")]
    OldKernel,
    /// The operating system refused.
    #[error("{what}: {errno}")]
    Os {
        /// What the operating system was to do.
        what: &'static str,
        /// Its error.
        errno: Errno,
    },
    /// The file that pages go to cannot be used.
    #[error("the backing file {}: it {what}: {errno}", path.display())]
    Backing {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        what: &'static str,
        /// The error of the operating system.
        errno: Errno,
    },
    /// The file that pages go to failed while it was used. Pages in it cannot be had any more.
    #[error(
        "the backing file {} failed ({cause}): it was cut or changed, or its disk is full or \
         broken; run the program once more, with a file that no other program writes to",
        path.display()
    )]
    BackingFailed {
        /// Which file.
        path: PathBuf,
        /// The error of the operating system, or the page that was changed.
        cause: std::io::Error,
    },
    /// The export that pages go to cannot be used.
    #[error("the export {address}: {what}")]
    Export {
        /// Which export.
        address: String,
        /// What is wrong with it, and what to do.
        what: String,
    },
    /// The export that pages go to failed while it was used. Pages in it cannot be had any more.
    #[error(
        "the export {address} failed ({cause}): its server is gone, or lost or changed what was \
         written; run the program once more, with an export that nothing else writes to"
    )]
    ExportFailed {
        /// Which export.
        address: String,
        /// The error of the connection or of the server, or the page that was changed.
        cause: std::io::Error,
    },
    /// Resident pages are to be locked, and may not be.
    #[error(
        "resident pages cannot be locked in memory ({0}): it takes CAP_IPC_LOCK or a limit \
         (ulimit -l) above --memory, and Linux 5.18; or take --lock auto"
    )]
    Unlocked(Errno),
    /// The configuration is not valid.
    #[error("{0}")]
    Configuration(&'static str),
    /// The process that pages has refused a request.
    #[error("{0}")]
    Refused(String),
    /// More pages are pinned, for instance by direct I/O, than may be resident in addition.
    #[error("{0} pages besides the resident ones cannot leave: they are pinned")]
    Pinned(usize),
    /// The program uses more pages than there are.
    #[error("out of paged memory: run it with a larger --memory")]
    OutOfMemory,
    /// The scheme failed: the store, or a page that was changed there.
    #[error(transparent)]
    Scheme(#[from] traceless::Error),
}

impl Error {
    pub(super) fn os(what: &'static str, errno: Errno) -> Self {
        let what = match errno {
            Errno::FBIG => "files may not be as long as this takes (ulimit -f)",
            _ => what,
        };
        Self::Os { what, errno }
    }
}

/// Shorthand for results of paging.
pub type Result<T = (), E = Error> = core::result::Result<T, E>;
