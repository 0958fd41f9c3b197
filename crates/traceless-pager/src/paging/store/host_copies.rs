//! A store that is reached as in Figure 1 of the paging paper, to be compared with: the pager has
//! no access to the memory where pages lie. It puts a page into memory that it shares with a host,
//! and calls the host, which gets the address, to copy the page on; here the host is the kernel. So
//! all bytes are copied twice, and each piece is a call. The design of the paper's section 3 avoids
//! both.

use crate::paging::error::{Error, Result};
use crate::paging::kernel::memory::{Mapping, lengthen};
use crate::paging::kernel::own_files::OwnFile;
use rustix::fd::AsRawFd;
use rustix::fs::{MemfdFlags, memfd_create};
use std::sync::{Mutex, MutexGuard};
use traceless::error::Error as StoreError;
use traceless::store::Store;
use traceless::types::Extent;

/// Bytes of the memory that is shared with the host.
const SHARED_LEN: usize = 1 << 16;

/// A store in memory of a host that copies.
pub struct HostCopyStore {
    shared: Mutex<Mapping>,
    host: OwnFile,
    len: u64,
}

impl HostCopyStore {
    /// A store of `len` bytes.
    pub fn new(len: u64) -> Result<Self> {
        let failed = |e| Error::os("memory of a host", e);
        let host = memfd_create("traceless-host", MemfdFlags::CLOEXEC).map_err(failed)?;
        lengthen(&host, len).map_err(failed)?;
        let shared = Mutex::new(Mapping::shared_with_forks(SHARED_LEN)?);
        Ok(Self { shared, host: OwnFile::at_high_number(host), len })
    }

    fn shared(&self) -> MutexGuard<'_, Mapping> {
        self.shared.lock().expect("copying does not panic")
    }

    /// Pieces of an extent that fit into the shared memory: offset and length of each.
    fn pieces(&self, extent: Extent) -> Result<impl Iterator<Item = (i64, usize)>, StoreError> {
        if extent.end() > self.len {
            return Err(StoreError::Store("out of range"));
        }
        let starts = (0..extent.len).step_by(SHARED_LEN);
        Ok(starts.map(move |at| {
            let offset = i64::try_from(extent.at + at as u64).expect("the kernel made the file");
            (offset, SHARED_LEN.min(extent.len - at))
        }))
    }
}

/// The outcome of a call of the host: all bytes were copied, or an error.
fn whole(copied: isize, len: usize) -> Result<(), StoreError> {
    match usize::try_from(copied) {
        Ok(copied) if copied == len => Ok(()),
        Ok(_) => Err(StoreError::Store("the host copied a part only")),
        Err(_) => Err(std::io::Error::last_os_error().into()),
    }
}

impl Store for HostCopyStore {
    fn len(&self) -> u64 {
        self.len
    }

    fn unit(&self) -> usize {
        64 // A line; what runs in this memory does not outlive it.
    }

    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result<(), StoreError> {
        let (shared, mut rest) = (self.shared(), into);
        for &extent in extents {
            for (offset, len) in self.pieces(extent)? {
                let (part, next) = rest.split_at_mut(len);
                // SAFETY: the mapping is at least that long, and no code has a reference into it.
                let copied =
                    unsafe { libc::pread(self.host.as_raw_fd(), shared.at(0).cast(), len, offset) };
                whole(copied, len)?;
                // SAFETY: both are as long; `part` is private, so they do not overlap.
                unsafe { core::ptr::copy_nonoverlapping(shared.at(0), part.as_mut_ptr(), len) };
                rest = next;
            }
        }
        Ok(())
    }

    fn write(&self, extents: &[Extent], from: &[u8]) -> Result<(), StoreError> {
        let (shared, mut rest) = (self.shared(), from);
        for &extent in extents {
            for (offset, len) in self.pieces(extent)? {
                let (part, next) = rest.split_at(len);
                // SAFETY: both are as long, do not overlap, and no code has a reference to the
                // destination.
                unsafe { core::ptr::copy_nonoverlapping(part.as_ptr(), shared.at(0), len) };
                // SAFETY: the mapping is at least that long; the kernel only reads it.
                let copied = unsafe {
                    libc::pwrite(self.host.as_raw_fd(), shared.at(0).cast(), len, offset)
                };
                whole(copied, len)?;
                rest = next;
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(rustix::fs::fdatasync(&self.host).map_err(std::io::Error::from)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_out_of_range_extents_are_refused() {
        let len = 2 * SHARED_LEN + 100;
        let store = HostCopyStore::new(len as u64).unwrap();
        let bytes: Vec<u8> = (0..len - 3).map(|nth| (nth % 251) as u8).collect();
        store.write(&[Extent::new(3, len - 10), Extent::new(len as u64 - 7, 7)], &bytes).unwrap();
        let mut out = vec![0; len];
        store.read(&[Extent::new(0, len)], &mut out).unwrap();
        assert_eq!((&out[..3], &out[3..]), (&[0; 3][..], &bytes[..]));
        assert!(store.read(&[Extent::new(len as u64, 1)], &mut [0]).is_err());
        assert!(store.write(&[Extent::new(len as u64 - 1, 2)], &[0; 2]).is_err());
        store.sync().unwrap();
    }
}
