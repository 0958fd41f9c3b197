//! What the kernel lists as mounted and attached, and unmounting it.
//!
//! Everything is read from `/proc` and `/sys`, never from the mounted folders themselves: once a
//! server has died, its folder gives errors or hangs.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::command::{FUSERMOUNT, UMOUNT, is_root};
use super::error::{Error, Result};

/// The source of our FUSE mounts in the mount table, in place of a device.
pub(super) const SOURCE_NAME: &str = "traceless";
const MOUNT_TABLE: &str = "/proc/self/mountinfo";

/// One line of the mount table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MountEntry {
    pub(super) dir: PathBuf,
    pub(super) kind: String,
    pub(super) source: PathBuf,
}

impl MountEntry {
    /// Whether this is a FUSE file system of this program, with a live or a dead server.
    pub(super) fn is_our_fuse(&self) -> bool {
        self.kind.starts_with("fuse") && self.source == Path::new(SOURCE_NAME)
    }
}

/// How to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// Only if it is not in use.
    IfIdle,
    /// Remove the name now; the file system goes once it is no longer in use.
    Lazily,
}

/// The topmost mount at `dir`, which must be free of links and dots.
pub(super) fn mounted_at(dir: &Path) -> Result<Option<MountEntry>> {
    let table = fs::read(MOUNT_TABLE).map_err(Error::io("reading", MOUNT_TABLE))?;
    // Later lines are mounted on top of earlier ones.
    Ok(parse(&table).into_iter().rfind(|mounted| mounted.dir == dir))
}

/// Unmounts `dir` as root.
pub(super) fn unmount(dir: &Path, how: How) -> Result<()> {
    let alone = OsStr::new("--internal-only");
    let outcome = match how {
        // The helper of our mounts is what runs this.
        How::IfIdle => UMOUNT.run(&[alone, dir.as_os_str()])?,
        // Resolving the path would fail if its server has died.
        How::Lazily => {
            let lazily = ["--no-canonicalize", "--lazy"].map(OsStr::new);
            UMOUNT.run(&[alone, lazily[0], lazily[1], dir.as_os_str()])?
        }
    };
    if outcome.is_busy() {
        return Err(Error::Busy { dir: dir.to_owned() });
    }
    outcome.or_fail("Unmount it by hand (`umount --lazy`) and try again.").map(|_| ())
}

/// Unmounts our FUSE file system at `dir`, if there is one.
pub(super) fn unmount_fuse(dir: &Path, how: How) -> Result<()> {
    if !mounted_at(dir)?.is_some_and(|mounted| mounted.is_our_fuse()) {
        return Ok(());
    }
    let outcome = if is_root() {
        unmount(dir, how)
    } else {
        let flags = if how == How::Lazily { "-uz" } else { "-u" };
        let outcome = FUSERMOUNT.run(&[OsStr::new(flags), dir.as_os_str()])?;
        if outcome.is_busy() {
            return Err(Error::Busy { dir: dir.to_owned() });
        }
        outcome.or_fail("Unmount it by hand (`fusermount3 -uz`).").map(|_| ())
    };
    // Another process may have unmounted it meanwhile.
    match mounted_at(dir)? {
        Some(mounted) if mounted.is_our_fuse() => outcome,
        _ => Ok(()),
    }
}

/// The file behind a loop device; `None` if the device is free.
pub(super) fn backing_file(loop_device: &Path) -> Result<Option<PathBuf>> {
    let Some(name) = loop_device.file_name() else {
        return Ok(None);
    };
    let path = Path::new("/sys/block").join(name).join("loop/backing_file");
    match fs::read(&path) {
        Ok(bytes) => {
            let bytes = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            let bytes = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
            Ok(Some(PathBuf::from(OsStr::from_bytes(bytes))))
        }
        // The device was detached between the open and the read.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
            Ok(None)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("reading", path)(error)),
    }
}

fn parse(table: &[u8]) -> Vec<MountEntry> {
    table.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

/// The fields are: number, parent, device, root, folder, options, optional fields, a dash, type,
/// source, options.
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let dir = unescape(fields.nth(4)?);
    let mut fields = fields.skip_while(|&field| field != b"-").skip(1);
    let kind = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?);
    Some(MountEntry { dir: dir.into(), kind, source: source.into() })
}

/// The table writes blanks, line ends and backslashes as a backslash and three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) if first == b'\\' => {
                bytes.push(code);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
40 22 0:35 / /mnt/with\\040blank rw,nosuid shared:2 master:3 - fuse.traceless traceless rw\n\
41 22 7:0 / /data rw - ext4 /dev/loop0 rw\n\
42 41 7:3 / /data ro - ext4 /dev/loop3 ro\n";

    #[test]
    fn the_mount_table_is_understood() {
        let table = parse(TABLE);
        assert_eq!(table.len(), 4);
        assert_eq!(table[1].dir, Path::new("/mnt/with blank"));
        assert!(table[1].is_our_fuse());
        assert!(!table[2].is_our_fuse());
        assert_eq!(table[3].source, Path::new("/dev/loop3"));
    }

    #[test]
    fn the_last_mount_is_on_top() {
        let top = parse(TABLE).into_iter().rfind(|mounted| mounted.dir == Path::new("/data"));
        assert_eq!(top.map(|mounted| mounted.source), Some("/dev/loop3".into()));
    }

    #[test]
    fn escapes_that_are_none_stay() {
        assert_eq!(unescape(b"a\\134b"), "a\\b");
        assert_eq!(unescape(b"a\\9zz"), "a\\9zz");
        assert_eq!(unescape(b"end\\04"), "end\\04");
    }
}
