//! What can go wrong between a volume and a mounted file system, and what to do about it.

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

    /// A user who is not root mounts FUSE through a setuid helper, which is not installed.
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
        /// Where the file system was to appear.
        dir: PathBuf,
        /// What was answered.
        source: io::Error,
    },

    /// The serving threads ended in another way than by an unmount.
    #[error(
        "the FUSE server of {} stopped: {source}. Unmount the folder and export again",
        dir.display()
    )]
    Server {
        /// Where the file system was mounted.
        dir: PathBuf,
        /// How it ended.
        source: io::Error,
    },

    /// There is no loop driver.
    #[error("there is no /dev/loop-control: load the kernel module (`modprobe loop`)")]
    LoopMissing,

    /// Only root may do this.
    #[error(
        "{what} needs root: run as root, or export the file and use it directly (`traceless \
         volume export`)"
    )]
    RootNeeded {
        /// What was asked for.
        what: &'static str,
    },

    /// A command that we call is not installed.
    #[error("{command} was not found: install it (`apt install {package}`)")]
    CommandMissing {
        /// The command.
        command: &'static str,
        /// The Debian package that holds it.
        package: &'static str,
    },

    /// A command that we called failed.
    #[error("`{line}` failed{}: {stderr}\n{advice}", ending(*code))]
    CommandFailed {
        /// The command with its arguments.
        line: String,
        /// Its exit code; none if a signal ended it.
        code: Option<i32>,
        /// What it said.
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
        /// What was found.
        kind: String,
    },

    /// A file system cannot be made on a volume that refuses writes.
    #[error("a read-only volume cannot be formatted: open it for writing, or leave out the mkfs")]
    ReadOnly,

    /// The folder to mount on is missing or something else.
    #[error("{} is not a folder: create it first", dir.display())]
    NotAFolder {
        /// The folder asked for.
        dir: PathBuf,
    },

    /// Something is mounted there already.
    #[error(
        "something is mounted at {} already: unmount it, or choose another folder",
        dir.display()
    )]
    AlreadyMounted {
        /// The folder asked for.
        dir: PathBuf,
    },

    /// No volume is mounted there.
    #[error("no volume is mounted at {}", dir.display())]
    NotMounted {
        /// The folder asked for.
        dir: PathBuf,
    },

    /// Files below the folder are open. Nothing was undone.
    #[error(
        "{} is in use: close the programs that use it (`fuser -vm` lists them) and try again",
        dir.display()
    )]
    Busy {
        /// The folder asked for.
        dir: PathBuf,
    },

    /// The loop device is held by somebody else, so that the volume cannot be closed yet.
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
        /// The daemon.
        pid: u32,
        /// How long we waited.
        seconds: u32,
    },

    /// A record cannot be read, or not by this version.
    #[error(
        "{} cannot be used: {reason}. Unmount by hand (`umount`, `losetup -d`) and delete it",
        path.display()
    )]
    Record {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// There is no folder for the records of this user.
    #[error("XDG_RUNTIME_DIR is not set: log in properly, or name a runtime folder")]
    NoRuntimeFolder,

    /// Anything else that the system refused.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// The answer.
        source: io::Error,
    },
}

impl Error {
    /// Wraps an [`io::Error`] with what was tried.
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
