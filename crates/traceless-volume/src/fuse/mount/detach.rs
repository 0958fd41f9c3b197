//! Unmounts a mounted volume, also one that is only partly there.
//!
//! Each step first checks whether there is something to undo, so that an unmount can be repeated
//! after it failed half-way or after the daemon was killed.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use serde::Serialize;

use super::record::{MountRecord, find, forget, resolve};
use crate::fuse::command::{LOSETUP, is_root};
use crate::fuse::error::{Error, Result};
use crate::fuse::export::FILE_NAME;
use crate::fuse::mounts::{How, backing_file, mounted_at, unmount, unmount_fuse};

/// The time for a daemon to exit: it syncs the volume, and stores can be slow.
const DAEMON_EXIT_SECONDS_MAX: u32 = 600;
/// The interval and number of checks whether a loop device is free: 10 s in all.
const LOOP_LOOK: Duration = Duration::from_millis(10);
const LOOP_LOOKS_MAX: u32 = 1000;

/// The outcome of one step of an unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The part was there, and was undone.
    Done,
    /// The part was not there.
    AlreadyGone,
    /// The part was removed although it was in use or did not answer; its users get errors.
    Forced,
}

/// The outcome of an unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The mounted file system.
    pub dir: Step,
    /// The loop device.
    pub loop_device: Step,
    /// The FUSE file system of the daemon.
    pub fuse: Step,
    /// The daemon.
    pub daemon: Step,
}

impl Report {
    /// Whether every part was there and was undone in order.
    pub fn is_clean(&self) -> bool {
        [self.dir, self.loop_device, self.fuse, self.daemon].iter().all(|&step| step == Step::Done)
    }
}

/// Unmounts the volume recorded for `dir`, and waits until it is closed.
///
/// Fails with [`Error::NotMounted`] if there is no record, and with [`Error::Busy`] if files are
/// open: then nothing was undone. If the daemon is dead, what it left is removed by force. After
/// any other error the record stays, and the call can be repeated.
///
/// The daemon notices that its file system is unmounted, and may get SIGTERM: after either of them
/// it must close the volume.
pub fn detach(runtime: &Path, dir: &Path) -> Result<Report> {
    let dir = resolve(dir)?;
    let Some(record) = find(runtime, &dir)? else {
        return Err(Error::NotMounted { dir });
    };
    if !is_root() {
        return Err(Error::RootNeeded { what: "unmounting a file system" });
    }
    let daemon = record.daemon();
    let serving = daemon.is_alive();
    let dir_step = release_dir(&record, serving)?;
    let loop_step = release_loop(&record, dir_step)?;
    let fuse_step = release_fuse(&record)?;
    // The daemon ends by itself once its file system is gone. The signal is for one that does not.
    let stopped = daemon.stop(DAEMON_EXIT_SECONDS_MAX)?;
    let daemon_step = if serving || stopped { Step::Done } else { Step::AlreadyGone };
    remove_folder(&record.fuse_dir)?;
    forget(runtime, &dir)?;
    Ok(Report { dir: dir_step, loop_device: loop_step, fuse: fuse_step, daemon: daemon_step })
}

fn release_dir(record: &MountRecord, serving: bool) -> Result<Step> {
    let mounted = mounted_at(&record.dir)?;
    if mounted.is_none_or(|mounted| mounted.source != record.loop_device) {
        return Ok(Step::AlreadyGone);
    }
    match unmount(&record.dir, How::IfIdle) {
        Ok(()) => Ok(Step::Done),
        Err(error) if serving => Err(error),
        // Without its daemon the file system can be neither read nor written, so force loses
        // nothing.
        Err(_) => unmount(&record.dir, How::Lazily).map(|()| Step::Forced),
    }
}

fn release_loop(record: &MountRecord, dir: Step) -> Result<Step> {
    if !is_on_our_file(record)? {
        return Ok(Step::AlreadyGone);
    }
    let detached = LOSETUP.run(&[OsStr::new("--detach"), record.loop_device.as_os_str()])?;
    // A busy loop device goes with its last user. After a forced unmount that may take too long.
    if dir == Step::Forced {
        return Ok(Step::Forced);
    }
    for _ in 0..LOOP_LOOKS_MAX {
        if !is_on_our_file(record)? {
            return Ok(Step::Done);
        }
        sleep(LOOP_LOOK);
    }
    detached.or_fail("Detach it by hand (`losetup --detach`) and try again.")?;
    Err(Error::LoopBusy { loop_device: record.loop_device.clone() })
}

/// Whether the loop device still has our file: its number may have been given away since.
fn is_on_our_file(record: &MountRecord) -> Result<bool> {
    let Some(file) = backing_file(&record.loop_device)? else {
        return Ok(false);
    };
    // Once the FUSE file system is unmounted, the kernel shows the file's path from its own root.
    Ok(file == record.fuse_dir.join(FILE_NAME) || file == Path::new("/").join(FILE_NAME))
}

fn release_fuse(record: &MountRecord) -> Result<Step> {
    if !mounted_at(&record.fuse_dir)?.is_some_and(|mounted| mounted.is_our_fuse()) {
        return Ok(Step::AlreadyGone);
    }
    if unmount_fuse(&record.fuse_dir, How::IfIdle).is_ok() {
        return Ok(Step::Done);
    }
    unmount_fuse(&record.fuse_dir, How::Lazily).map(|()| Step::Forced)
}

fn remove_folder(path: &Path) -> Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("deleting", path)(error))
        }
        _ => Ok(()),
    }
}
