//! Errors of exporting and mounting a volume, and advice for each.

use std::io;
use std::path::PathBuf;

/// A result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an export, a mount or an unmount failed. Every message ends with what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel offers no FUSE.
    #[error(
        "there is no /dev/fuse: load the kernel module (`modprobe fuse`), or serve over NBD \
         instead (`traceless volume serve`), which needs no kernel support"
    )]
    FuseMissing,

    /// This user may not open `/dev/fuse`.
    #[error(
        "/dev/fuse may not be opened by this user: run as root, or serve over NBD instead \
         (`traceless volume serve`)"
    )]
    FuseDenied,

    /// Without root, mounting FUSE takes a setuid helper, which is not installed.
    #[error(
        "fusermount3 was not found: install it (`apt install fuse3`), run as root, or serve over \
         NBD instead (`traceless volume serve`)"
    )]
    FusermountMissing,

    /// The kernel or fusermount3 refused to mount.
    #[error(
        "mounting FUSE at {} failed: {source}. Look at the folder's owner, and at \
         user_allow_other in /etc/fuse.conf if root was to be let in",
        dir.display()
    )]
    FuseMount {
        /// The folder of the FUSE file system.
        dir: PathBuf,
        /// The error of the kernel or of fusermount3.
        source: io::Error,
    },

    /// The serving threads ended without an unmount.
    #[error(
        "the FUSE server of {} stopped: {source}. Unmount the folder and export again",
        dir.display()
    )]
    Server {
        /// The folder of the FUSE file system.
        dir: PathBuf,
        /// The error that ended them.
        source: io::Error,
    },

    /// There is no loop driver.
    #[error("there is no /dev/loop-control: load the kernel module (`modprobe loop`)")]
    LoopMissing,

    /// Only root may do `what`.
    #[error(
        "{what} needs root: run as root, or export the file and use it directly (`traceless \
         volume export`)"
    )]
    RootNeeded {
        /// The operation that was refused.
        what: &'static str,
    },

    /// A command that this module runs is not installed.
    #[error("{command} was not found: install it (`apt install {package}`)")]
    CommandMissing {
        /// The command.
        command: &'static str,
        /// The Debian package that contains it.
        package: &'static str,
    },

    /// A command that this module ran failed.
    #[error("`{line}` failed{}: {stderr}\n{advice}", ending(*code))]
    CommandFailed {
        /// The command with its arguments.
        line: String,
        /// Its exit code; `None` if a signal ended it.
        code: Option<i32>,
        /// The command's standard error.
        stderr: String,
        /// What to do next.
        advice: &'static str,
    },

    /// The volume was to be formatted, but holds data already.
    #[error(
        "the volume already holds data of type {kind}: mount it without making a file system, or \
         export it and erase it first (`wipefs --all`)"
    )]
    NotBlank {
        /// The type of the data.
        kind: String,
    },

    /// A file system cannot be made on a volume that refuses writes.
    #[error("a read-only volume cannot be formatted: open it for writing, or leave out the mkfs")]
    ReadOnly,

    /// The folder to mount on is missing, or is not a folder.
    #[error("{} is not a folder: create it first", dir.display())]
    NotAFolder {
        /// The folder to mount on.
        dir: PathBuf,
    },

    /// Something is mounted at the folder already.
    #[error(
        "something is mounted at {} already: unmount it, or choose another folder",
        dir.display()
    )]
    AlreadyMounted {
        /// The folder to mount on.
        dir: PathBuf,
    },

    /// No volume is mounted at the folder.
    #[error("no volume is mounted at {}", dir.display())]
    NotMounted {
        /// The folder to unmount.
        dir: PathBuf,
    },

    /// Files below the folder are open. Nothing was unmounted.
    #[error(
        "{} is in use: close the programs that use it (`fuser -vm` lists them) and try again",
        dir.display()
    )]
    Busy {
        /// The folder to unmount.
        dir: PathBuf,
    },

    /// Another program uses the loop device, so the volume cannot be closed yet.
    #[error(
        "{} is still in use: unmount what else is on it and try again",
        loop_device.display()
    )]
    LoopBusy {
        /// The loop device.
        loop_device: PathBuf,
    },

    /// The daemon got SIGTERM but has not exited.
    #[error(
        "process {pid} is still closing the volume after {seconds} s: wait for it, then unmount \
         again. Ending it by force loses nothing that was flushed"
    )]
    DaemonStuck {
        /// The daemon's process number.
        pid: u32,
        /// How long the caller waited, in seconds.
        seconds: u32,
    },

    /// A record cannot be read, or another version wrote it.
    #[error(
        "{} cannot be used: {reason}. Unmount by hand (`umount`, `losetup -d`) and delete it",
        path.display()
    )]
    Record {
        /// The record's path.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// There is no folder for the records of this user.
    #[error("XDG_RUNTIME_DIR is not set: log in properly, or name a runtime folder")]
    NoRuntimeFolder,

    /// Any other operation that the system refused.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// Wraps an [`io::Error`] together with the operation and the file.
    pub(super) fn io(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }
}

fn ending(code: Option<i32>) -> String {
    code.map_or_else(|| " by a signal".to_owned(), |code| format!(" with code {code}"))
}
