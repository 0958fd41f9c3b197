//! Discards: stretches of a file or a block device that hold nothing of use any more, so that the
//! system may use their space for something else.
//!
//! A hole in a file reads as zeros. After a discard a device may return anything there.
//!
//! ```
//! use std::os::unix::fs::FileExt;
//! use traceless_sys::discard::{discard, takes_discards};
//!
//! # fn main() -> std::io::Result<()> {
//! let file = tempfile::tempfile()?;
//! file.write_all_at(&[7; 8192], 0)?;
//! if takes_discards(&file)? {
//!     discard(&file, 4096, 4096)?;
//!     let mut bytes = [1; 8192];
//!     file.read_exact_at(&mut bytes, 0)?;
//!     assert_eq!((bytes[4095], bytes[4096], bytes[8191]), (7, 0, 0));
//! }
//! # Ok(())
//! # }
//! ```

use rustix::fs::{FallocateFlags, FileType, fallocate, fstat};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use std::fs::File;
use std::io;

/// `BLKDISCARD` of `linux/fs.h`. The argument is the first byte and the length.
const DISCARD: Opcode = opcode::none(0x12, 119);

/// A hole; the file keeps its length.
const HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// An aligned place that no device reaches.
const BEYOND: u64 = 1 << 62;

/// Gives up the bytes `at..at + len` of a file, or of a block device, that is open for writing. On
/// a device both are multiples of its sectors.
pub fn discard(file: &File, at: u64, len: u64) -> io::Result<()> {
    if is_device(file)? {
        discard_on_device(file, at, len)?;
    } else {
        fallocate(file, HOLE, at, len)?;
    }
    Ok(())
}

/// Whether the file system or the device of an open file takes discards. Nothing is discarded.
pub fn takes_discards(file: &File) -> io::Result<bool> {
    let tried = if is_device(file)? {
        // A device that takes discards refuses this one because of its place.
        discard_on_device(file, BEYOND, 4096).or_else(|e| match e {
            Errno::INVAL => Ok(()),
            other => Err(other),
        })
    } else {
        fallocate(file, HOLE, file.metadata()?.len().next_multiple_of(4096), 4096)
    };
    match tried {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY) => Ok(false),
        Err(other) => Err(other.into()),
    }
}

fn is_device(file: &File) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::BlockDevice)
}

fn discard_on_device(file: &File, at: u64, len: u64) -> rustix::io::Result<()> {
    // SAFETY: the kernel's BLKDISCARD reads two numbers of 64 bits, as this argument has them, and
    // touches no memory of this process otherwise.
    unsafe { ioctl(file, Setter::<DISCARD, [u64; 2]>::new([at, len])) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn a_file_loses_the_bytes_and_the_space_of_a_hole() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![7; 1 << 20], 0).unwrap();
        file.sync_all().unwrap();
        if !takes_discards(&file).unwrap() {
            return;
        }
        let before = file.metadata().unwrap();
        discard(&file, 65536, 1 << 19).unwrap();
        let after = file.metadata().unwrap();
        assert_eq!((after.len(), before.len()), (1 << 20, 1 << 20));
        assert!(after.blocks() + 1000 < before.blocks(), "{} {}", after.blocks(), before.blocks());
        let mut bytes = vec![1; 1 << 20];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let is_right = |(at, &byte): (usize, &u8)| {
            byte == if (65536..65536 + (1 << 19)).contains(&at) { 0 } else { 7 }
        };
        assert!(bytes.iter().enumerate().all(is_right));
    }

    #[test]
    fn what_is_neither_takes_none() {
        let null = File::options().write(true).open("/dev/null").unwrap();
        assert!(discard(&null, 0, 4096).is_err());
        let reading = File::open("/proc/version").unwrap();
        assert!(!takes_discards(&reading).is_ok_and(|takes| takes));
    }
}
