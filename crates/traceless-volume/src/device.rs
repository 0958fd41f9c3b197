//! What the front ends serve: a stretch of bytes that can be read and written at any alignment.

use std::io;

/// A block device, as NBD and FUSE see it. All methods may be called from several threads.
///
/// Errors are [`io::Error`]s whose `raw_os_error`, or kind, tells the client what happened: no
/// space, read-only, an I/O error. After a failed flush every write fails with `EROFS`.
pub trait Device: Send + Sync {
    /// Size in bytes; a multiple of [`Device::block_len`].
    fn len(&self) -> u64;

    /// Whether there is nothing to serve.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that are written as one: requests of whole blocks need no reading first.
    fn block_len(&self) -> u32;

    /// Whether writes are refused.
    fn read_only(&self) -> bool;

    /// Fills `into` with the bytes from `at` on.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes `from` at `at`. Each block is old or new as a whole, whatever happens.
    fn write(&self, at: u64, from: &[u8]) -> io::Result<()>;

    /// Makes every write that has returned durable.
    fn flush(&self) -> io::Result<()>;
}
