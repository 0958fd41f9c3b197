//! Mounts a file system from an exported file.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::fuse::capabilities::check_mount;
use crate::fuse::command::{BLKID, LOSETUP, MKFS_EXT4, MOUNT};
use crate::fuse::error::{Error, Result};
use crate::fuse::mounts::mounted_at;

/// Bytes of the loop device's sectors and of the file system's blocks: a block of the volume.
const BLOCK_BYTES: &str = "4096";
/// Writes all tables of the file system at once, not in the background for hours, and discards
/// nothing.
const MKFS_EXTENDED: &str = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
/// A read must not write an access time, as an observer sees writes.
const MOUNT_WRITABLE: &str = "nodiscard,noatime";
/// umount(8) runs `umount.` and this, if it finds that program.
const UNMOUNT_HELPER: &str = "traceless";
const MOUNT_READ_ONLY: &str = "ro,noatime";
/// `noload` skips the journal, as a device that refuses writes cannot replay it.
const MOUNT_READ_ONLY_DIRTY: &str = "ro,noatime,noload";

/// Options of [`attach`].
#[derive(Debug, Clone, Default)]
pub struct AttachOptions {
    /// Make a new file system first. Refused if the volume holds data of a known type.
    pub mkfs: bool,
    /// Write nothing, not even the replay of a journal.
    pub read_only: bool,
    /// Further options of mount(8), as `nosuid,nodev`.
    pub further: String,
}

/// What [`attach`] mounted. Dropping this value unmounts nothing: [`detach`](super::detach()) does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The loop device.
    pub loop_device: PathBuf,
    /// The folder of the file system, as an absolute path without links.
    pub dir: PathBuf,
}

/// Mounts the file system in `file` at the folder `dir`, and reports each step to `progress`. If a
/// step fails, the steps before it are undone. Must not run in the process that serves `file`.
pub fn attach(
    file: &Path,
    dir: &Path,
    options: &AttachOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<Attachment> {
    check_mount(options.mkfs)?;
    if options.mkfs && options.read_only {
        return Err(Error::ReadOnly);
    }
    let dir = check_dir(dir)?;
    progress("attaching a loop device");
    let loop_device = set_up_loop(file, options.read_only)?;
    match format_and_mount(&loop_device, &dir, options, progress) {
        Ok(()) => Ok(Attachment { loop_device, dir }),
        Err(error) => {
            progress("detaching the loop device again");
            // The first error is the one to report.
            let _ = LOSETUP.run(&[OsStr::new("--detach"), loop_device.as_os_str()]);
            Err(error)
        }
    }
}

/// Checks whether a file system can be mounted at `dir`, and returns its path without links.
pub fn check_dir(dir: &Path) -> Result<PathBuf> {
    if !dir.is_dir() {
        return Err(Error::NotAFolder { dir: dir.to_owned() });
    }
    let dir = dir.canonicalize().map_err(Error::io("finding", dir))?;
    if mounted_at(&dir)?.is_some() {
        return Err(Error::AlreadyMounted { dir });
    }
    Ok(dir)
}

fn set_up_loop(file: &Path, read_only: bool) -> Result<PathBuf> {
    let mut arguments = vec![
        OsStr::new("--find"),
        OsStr::new("--show"),
        OsStr::new("--direct-io=on"),
        OsStr::new("--sector-size"),
        OsStr::new(BLOCK_BYTES),
    ];
    if read_only {
        arguments.push(OsStr::new("--read-only"));
    }
    arguments.push(file.as_os_str());
    let outcome = LOSETUP.run(&arguments)?.or_fail(
        "If no loop device is free, detach one (`losetup --all` lists them); if the file cannot \
         be opened, look whether the daemon still runs.",
    )?;
    Ok(PathBuf::from(outcome.stdout))
}

fn format_and_mount(
    loop_device: &Path,
    dir: &Path,
    options: &AttachOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    if options.mkfs {
        check_blank(loop_device)?;
        progress("making a file system");
        make_file_system(loop_device)?;
    }
    progress("mounting the file system");
    let further = options.further.as_str();
    if !options.read_only {
        return mount(loop_device, dir, &[further, MOUNT_WRITABLE]);
    }
    let Err(error) = mount(loop_device, dir, &[further, MOUNT_READ_ONLY]) else {
        return Ok(());
    };
    if mount(loop_device, dir, &[further, MOUNT_READ_ONLY_DIRTY]).is_err() {
        return Err(error);
    }
    progress("it was not unmounted cleanly: what its journal holds is not shown");
    Ok(())
}

/// Fails if the device holds data of a known type, as making a file system would destroy it.
fn check_blank(loop_device: &Path) -> Result<()> {
    const NOTHING_FOUND: i32 = 2;
    let outcome = BLKID.run(&[
        OsStr::new("--probe"),
        OsStr::new("--output"),
        OsStr::new("export"),
        loop_device.as_os_str(),
    ])?;
    if outcome.code == Some(NOTHING_FOUND) {
        return Ok(());
    }
    let outcome =
        outcome.or_fail("The volume could not be read; look at the daemon's messages.")?;
    let value = |key: &str| outcome.stdout.lines().find_map(|line| line.strip_prefix(key));
    let kind = value("TYPE=").or_else(|| value("PTTYPE=")).unwrap_or("unknown");
    Err(Error::NotBlank { kind: kind.to_owned() })
}

fn make_file_system(loop_device: &Path) -> Result<()> {
    let arguments = ["-q", "-b", BLOCK_BYTES, "-E", MKFS_EXTENDED].map(OsStr::new);
    let arguments = [&arguments[..], &[loop_device.as_os_str()]].concat();
    MKFS_EXT4
        .run(&arguments)?
        .or_fail(
            "The volume may be too small, or its store failing; look at the daemon's messages.",
        )
        .map(|_| ())
}

/// Later options win. umount(8) finds the helper that also closes the volume by its name.
fn mount(loop_device: &Path, dir: &Path, options: &[&str]) -> Result<()> {
    let options: Vec<&str> = options.iter().copied().filter(|part| !part.is_empty()).collect();
    let options = format!("{},helper={UNMOUNT_HELPER}", options.join(","));
    let arguments = ["-t", "ext4", "-o", &options].map(OsStr::new);
    let arguments = [&arguments[..], &[loop_device.as_os_str(), dir.as_os_str()]].concat();
    MOUNT
        .run(&arguments)?
        .or_fail(
            "If the volume is new, make a file system on it first; if it is damaged, export it \
             and check it (`fsck.ext4`).",
        )
        .map(|_| ())
}
