//! The interface of what the front ends serve: bytes that are read and written at any alignment.
//!
//! A disk in memory, which each front end could serve:
//!
//! ```
//! use std::io;
//! use std::sync::Mutex;
//! use traceless_volume::device::Device;
//!
//! struct Ram(Mutex<Vec<u8>>);
//!
//! impl Device for Ram {
//! #   fn block_len(&self) -> u32 { 4096 }
//! #   fn read_only(&self) -> bool { false }
//! #   fn flush(&self) -> io::Result<()> { Ok(()) }
//!     fn len(&self) -> u64 {
//!         self.0.lock().expect("no panic").len() as u64
//!     }
//!     fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
//!         into.copy_from_slice(&self.0.lock().expect("no panic")[at as usize..][..into.len()]);
//!         Ok(())
//!     }
//!     fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
//!         self.0.lock().expect("no panic")[at as usize..][..from.len()].copy_from_slice(from);
//!         Ok(())
//!     }
//!     // `block_len`, `read_only` and `flush` are a line each.
//! }
//!
//! # fn main() -> io::Result<()> {
//! let disk: &dyn Device = &Ram(Mutex::new(vec![0; 8192]));
//! disk.write(4095, b"ab")?;
//! let mut read = [0; 4];
//! disk.read(4094, &mut read)?;
//! assert_eq!(&read, b"\0ab\0");
//! # Ok(())
//! # }
//! ```

use std::io;
use traceless_core::types::Extent;

/// Bytes of zeros that are written at a time, between multiples of this length.
const ZEROS_LEN: u64 = 1 << 20;

/// A block device, as the NBD, FUSE and ublk front ends use it. All methods may be called from
/// several threads.
///
/// Errors are [`io::Error`]s. Their `raw_os_error`, or kind, is what the client gets: no space,
/// read-only, an I/O error. After a failed flush every write fails with `EROFS`.
pub trait Device: Send + Sync {
    /// Size in bytes; a multiple of [`Device::block_len`].
    fn len(&self) -> u64;

    /// Whether there is nothing to serve.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of a block, the unit of writing: requests for whole blocks need no reading first.
    fn block_len(&self) -> u32;

    /// Whether writes are refused.
    fn read_only(&self) -> bool;

    /// Fills `into` with the bytes from `at` on.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes `from` at `at`. Even after a failure or a crash each block is as a whole old or new.
    fn write(&self, at: u64, from: &[u8]) -> io::Result<()>;

    /// Fills `into` with several places, back to back. If the device can fetch them together, this
    /// takes less time than one after the other.
    fn read_many(&self, places: &[Extent], into: &mut [u8]) -> io::Result<()> {
        let mut rest = into;
        for place in places {
            let (part, next) = rest.split_at_mut(place.len);
            self.read(place.at, part)?;
            rest = next;
        }
        Ok(())
    }

    /// Writes to several places, in order, what `from` holds back to back. After an error any of it
    /// may have been written; each block is as a whole old or new.
    fn write_many(&self, places: &[Extent], from: &[u8]) -> io::Result<()> {
        let mut rest = from;
        for place in places {
            let (part, next) = rest.split_at(place.len);
            self.write(place.at, part)?;
            rest = next;
        }
        Ok(())
    }

    /// Whether a discard only marks its blocks, so that it costs far less than writing zeros. Front
    /// ends offer discards to their clients if so.
    fn keeps_discards(&self) -> bool {
        false
    }

    /// Makes `len` bytes at `at` read as zeros, as a write of zeros would. If the device keeps
    /// discards, whole blocks are discarded, and parts of blocks are written.
    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        let zeros = vec![0; len.min(ZEROS_LEN) as usize];
        let end = at.checked_add(len).ok_or(io::ErrorKind::InvalidInput)?;
        let mut at = at;
        while at < end {
            let part = (ZEROS_LEN - at % ZEROS_LEN).min(end - at);
            self.write(at, &zeros[..part as usize])?;
            at += part;
        }
        Ok(())
    }

    /// Makes every write that has returned durable.
    fn flush(&self) -> io::Result<()>;
}
