//! What this machine and this user allow, found out before anything is tried.

use std::fs::OpenOptions;
use std::path::Path;

use serde::Serialize;

use super::command::{FUSERMOUNT, LOSETUP, MKFS_EXT4, MOUNT, UMOUNT, is_root};
use super::error::{Error, Result};
use super::export::check_fuse;

const LOOP_CONTROL: &str = "/dev/loop-control";

/// What is available. The `missing_*` methods return errors with advice for the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Capabilities {
    /// The process runs as root.
    pub root: bool,
    /// `/dev/fuse` can be opened.
    pub fuse: bool,
    /// The setuid helper for mounting FUSE without root is installed.
    pub fusermount: bool,
    /// `/dev/loop-control` exists.
    pub loop_devices: bool,
    /// `losetup`, `mount` and `umount` are installed.
    pub mount: bool,
    /// `mkfs.ext4` is installed.
    pub mkfs: bool,
}

/// Finds out what is available. Changes nothing.
pub fn capabilities() -> Capabilities {
    Capabilities {
        root: is_root(),
        fuse: check_fuse().is_ok(),
        fusermount: FUSERMOUNT.path().is_some(),
        loop_devices: Path::new(LOOP_CONTROL).exists(),
        mount: [LOSETUP, MOUNT, UMOUNT].iter().all(|tool| tool.path().is_some()),
        mkfs: MKFS_EXT4.path().is_some(),
    }
}

impl Capabilities {
    /// What exporting a file lacks.
    pub fn missing_for_export(&self) -> Vec<Error> {
        let mut missing = Vec::new();
        if !self.fuse {
            missing.extend(check_fuse().err());
        }
        if !self.root && !self.fusermount {
            missing.push(Error::FusermountMissing);
        }
        missing
    }

    /// What mounting a file system lacks; with `mkfs`, also what making one lacks.
    pub fn missing_for_mount(&self, mkfs: bool) -> Vec<Error> {
        let mut missing = self.missing_for_export();
        missing.extend(check_mount(mkfs).err());
        missing
    }
}

/// Fails with the first thing that a loop device with a file system on it lacks.
pub(super) fn check_mount(mkfs: bool) -> Result<()> {
    if !is_root() {
        return Err(Error::RootNeeded { what: "mounting a file system" });
    }
    if OpenOptions::new().read(true).write(true).open(LOOP_CONTROL).is_err() {
        return Err(Error::LoopMissing);
    }
    for tool in [LOSETUP, MOUNT, UMOUNT] {
        tool.check()?;
    }
    if mkfs { MKFS_EXT4.check() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_house_lacks_nothing() {
        let all = Capabilities {
            root: true,
            fuse: true,
            fusermount: false,
            loop_devices: true,
            mount: true,
            mkfs: true,
        };
        assert!(all.missing_for_export().is_empty());
    }

    #[test]
    fn what_is_missing_comes_with_advice() {
        let none = Capabilities {
            root: false,
            fuse: true,
            fusermount: false,
            loop_devices: false,
            mount: false,
            mkfs: false,
        };
        let missing = none.missing_for_export();
        assert!(matches!(missing[..], [Error::FusermountMissing]));
        assert!(missing[0].to_string().contains("apt install fuse3"));
    }
}
