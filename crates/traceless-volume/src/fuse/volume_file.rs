//! The rules of the FUSE file system: a root folder with one file, which has the device's bytes.
//!
//! Sizes, owners and times never change, so the kernel may cache them. All times are zero, as they
//! must not reveal when a volume was used.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use fuser::{Errno, FileAttr, FileHandle, FileType, INodeNo, OpenFlags};
use rustix::fs::{FallocateFlags, OFlags};

use crate::device::Device;
use crate::guarded::GuardedDevice;

/// The inode number of the file.
pub(super) const FILE: INodeNo = INodeNo(2);

/// The file system of one device.
pub(super) struct VolumeFile {
    pub(super) device: GuardedDevice,
    uid: u32,
    gid: u32,
}

impl VolumeFile {
    /// Shows `device` as a file that belongs to the user of this process.
    pub(super) fn new(device: Arc<dyn Device>) -> Self {
        Self {
            device: GuardedDevice::new(device),
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
        }
    }

    /// The attributes that `stat` returns.
    pub(super) fn attributes(&self, ino: INodeNo) -> Result<FileAttr, Errno> {
        let (kind, perm, size, nlink) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o700, 0, 2),
            FILE if self.device.read_only() => (FileType::RegularFile, 0o400, self.device.len(), 1),
            FILE => (FileType::RegularFile, 0o600, self.device.len(), 1),
            _ => return Err(Errno::ENOENT),
        };
        Ok(FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: self.device.block_len(),
            flags: 0,
        })
    }

    /// How many of `wanted` bytes at `at` lie inside the file.
    pub(super) fn inside(&self, at: u64, wanted: usize) -> usize {
        let left = self.device.len().saturating_sub(at);
        usize::try_from(left).map_or(wanted, |left| wanted.min(left))
    }

    /// Checks a change of size. An open with `O_TRUNC` arrives as size 0 without a handle. It has
    /// no effect, as on a block device: refusing it would break `dd` and `cp`. The reply repeats
    /// the true size, so that the kernel never takes the file for shorter; otherwise a loop device
    /// would read zeros.
    pub(super) fn check_size(
        &self,
        size: Option<u64>,
        handle: Option<FileHandle>,
    ) -> Result<(), Errno> {
        match size {
            None => Ok(()),
            Some(_) if self.device.read_only() => Err(Errno::EROFS),
            Some(size) if size == self.device.len() => Ok(()),
            Some(0) if handle.is_none() => Ok(()),
            Some(_) => Err(Errno::EPERM),
        }
    }

    /// Writes the part that fits, as a block device does: fails only if nothing fits.
    pub(super) fn write_at(&self, at: u64, data: &[u8], flags: OpenFlags) -> Result<u32, Errno> {
        if self.device.read_only() {
            return Err(Errno::EROFS);
        }
        let count = self.inside(at, data.len());
        if count == 0 {
            return if data.is_empty() { Ok(0) } else { Err(Errno::ENOSPC) };
        }
        self.device.call(|device| device.write(at, &data[..count]))?;
        // For direct I/O the kernel leaves O_SYNC and O_DSYNC to the server.
        if flags.0 as u32 & OFlags::DSYNC.bits() != 0 {
            self.device.flush()?;
        }
        Ok(count as u32)
    }

    /// Answers `fallocate`. All space is allocated already, and a refusal would make the C library
    /// rewrite every block. A hole, and a range of zeros, are discards; where the device keeps none
    /// they are refused, and a loop device then writes zeros instead.
    pub(super) fn allocate(&self, at: u64, len: u64, mode: FallocateFlags) -> Result<(), Errno> {
        let kind = mode - FallocateFlags::KEEP_SIZE;
        let discards = [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE].contains(&kind);
        let is_known = kind.is_empty() || discards && self.device.keeps_discards();
        if !is_known {
            return Err(Errno::EOPNOTSUPP);
        }
        if at.checked_add(len).is_none_or(|end| end > self.device.len()) {
            return Err(Errno::ENOSPC);
        }
        if !discards {
            return Ok(());
        }
        if self.device.read_only() {
            return Err(Errno::EROFS);
        }
        self.device.call(|device| device.discard(at, len))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    struct TwoBlocks;

    impl Device for TwoBlocks {
        fn len(&self) -> u64 {
            8192
        }

        fn block_len(&self) -> u32 {
            4096
        }

        fn read_only(&self) -> bool {
            false
        }

        fn read(&self, _at: u64, _into: &mut [u8]) -> io::Result<()> {
            Ok(())
        }

        fn write(&self, _at: u64, _from: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    #[test]
    fn the_end_cuts_requests_short() {
        let file = VolumeFile::new(Arc::new(TwoBlocks));
        assert_eq!(file.inside(8191, 4096), 1);
        assert_eq!(file.inside(8192, 4096), 0);
        assert_eq!(file.inside(u64::MAX, 4096), 0);
        assert_eq!(file.write_at(8191, &[1, 2], OpenFlags(0)), Ok(1));
        assert_eq!(file.write_at(8192, &[1], OpenFlags(0)), Err(Errno::ENOSPC));
    }

    #[test]
    fn a_synchronous_write_flushes() {
        let file = VolumeFile::new(Arc::new(TwoBlocks));
        let flags = |flags: OFlags| OpenFlags(flags.bits().cast_signed());
        assert_eq!(file.write_at(0, &[1], flags(OFlags::RDWR)), Ok(1));
        assert_eq!(file.write_at(0, &[1], flags(OFlags::SYNC)), Err(Errno::ENOSPC));
        assert_eq!(file.write_at(0, &[1], flags(OFlags::DSYNC)), Err(Errno::ENOSPC));
    }

    #[test]
    fn only_an_open_may_truncate_and_it_does_nothing() {
        let file = VolumeFile::new(Arc::new(TwoBlocks));
        assert_eq!(file.check_size(Some(0), None), Ok(()));
        assert_eq!(file.check_size(Some(0), Some(FileHandle(1))), Err(Errno::EPERM));
        assert_eq!(file.check_size(Some(4096), None), Err(Errno::EPERM));
        assert_eq!(file.check_size(Some(8192), Some(FileHandle(1))), Ok(()));
    }
}
