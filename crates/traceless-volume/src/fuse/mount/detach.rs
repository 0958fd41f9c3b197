//! From a mounted file system back to nothing, whatever is left of it.
//!
//! Each step looks first whether there is something of ours to undo, so that an unmount which
//! failed half-way, or whose daemon was killed, can be repeated.

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

/// How long a daemon may take to exit: it syncs the volume, and stores can be slow.
const DAEMON_EXIT_SECONDS_MAX: u32 = 600;
/// How often, and how many times, we look whether a loop device is free: 10 s in all.
const LOOP_LOOK: Duration = Duration::from_millis(10);
const LOOP_LOOKS_MAX: u32 = 1000;

/// What one step of an unmount found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// It was there and is gone.
    Done,
    /// It was not there.
    AlreadyGone,
    /// It was taken away although it was in use or did not answer; users of it see errors.
    Forced,
}

/// What an unmount did.
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
    /// Whether everything was there and could be undone in order.
    pub fn is_clean(&self) -> bool {
        [self.dir, self.loop_device, self.fuse, self.daemon].iter().all(|&step| step == Step::Done)
    }
}

/// Unmounts what is recorded for `dir`, and waits until the volume is closed.
///
/// Fails with [`Error::NotMounted`] if nothing is recorded, and with [`Error::Busy`] if files
/// are open: then nothing was undone. If the daemon is dead, what it left is taken away by force.
/// After any other error the record stays, and the call can be repeated.
///
/// The daemon sees its file system go, and SIGTERM: it must answer both by closing the volume.
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
    // The daemon ends by itself now; the signal is for one that looks the other way.
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
        // Nobody can read or write it any more, so there is nothing to protect.
        Err(_) => unmount(&record.dir, How::Lazily).map(|()| Step::Forced),
    }
}

fn release_loop(record: &MountRecord, dir: Step) -> Result<Step> {
    if !is_on_our_file(record)? {
        return Ok(Step::AlreadyGone);
    }
    let detached = LOSETUP.run(&[OsStr::new("--detach"), record.loop_device.as_os_str()])?;
    // In use, it goes when its last user does: not in our time if those were left behind.
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

/// Whether the loop device is still ours: its number may have been given to somebody else.
fn is_on_our_file(record: &MountRecord) -> Result<bool> {
    let Some(file) = backing_file(&record.loop_device)? else {
        return Ok(false);
    };
    // A file in a file system that has lost its name is shown from that file system's root.
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
