//! Errors of a ublk block device, and advice for each.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// A result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a device could not be made, or why it ended. Every message ends with what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel offers no ublk.
    #[error(
        "there is no /dev/ublk-control: load the kernel module (`modprobe ublk_drv`, Linux 6.5 or \
         later), or serve over NBD instead (`traceless volume serve`)"
    )]
    Missing,

    /// This user may not make block devices.
    #[error(
        "/dev/ublk-control may not be opened by this user: run as root, or serve over NBD instead \
         (`traceless volume serve`)"
    )]
    Denied,

    /// The kernel refused a step.
    #[error("ublk: {what}: {source}. `dmesg` may tell more; it takes Linux 6.5 or later")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },

    /// The device is in use.
    #[error("{} is in use: unmount it first, then stop the server again", .0.display())]
    Busy(PathBuf),

    /// A thread that answers requests ended on its own.
    #[error("{} is gone, as its server failed: {source}. Start it again", device.display())]
    Server {
        /// The device that was served.
        device: PathBuf,
        /// The error that ended it.
        source: io::Error,
    },
}

impl Error {
    pub(super) fn refused(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Refused { what, source }
    }

    /// The error for a failure to make a device.
    pub(super) fn of_making(source: io::Error) -> Self {
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => Self::Missing,
            Some(Errno::ACCESS | Errno::PERM) => Self::Denied,
            _ => Self::Refused { what: "making a device", source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_part_is_named() {
        assert!(matches!(Error::of_making(Errno::NOENT.into()), Error::Missing));
        assert!(matches!(Error::of_making(Errno::PERM.into()), Error::Denied));
        let other = Error::of_making(Errno::INVAL.into());
        assert!(other.to_string().contains("Invalid argument"), "{other}");
    }
}
