//! A store in an anonymous file that is mapped: other processes may read and change it meanwhile.

use super::streaming;
use crate::paging::error::{Error, Result};
use crate::paging::kernel::locking::StoreRegion;
use crate::paging::kernel::memory::{Mapping, lengthen};
use crate::paging::kernel::own_files::OwnFile;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, memfd_create};
use traceless::error::Error as StoreError;
use traceless::store::Store;
use traceless::types::Extent;

/// A store in shared memory. A process that keeps the file open keeps the contents.
pub struct SharedMemory {
    // Declared before the mapping, so that the region is removed before the memory is unmapped.
    _region: StoreRegion,
    mapping: Mapping,
    file: OwnFile,
}

impl SharedMemory {
    /// A store of `len` bytes in an anonymous file.
    pub fn unnamed(len: u64) -> Result<Self> {
        let file = memfd_create("traceless-pages", MemfdFlags::CLOEXEC)
            .map_err(|e| Error::os("memory without a name", e))?;
        lengthen(&file, len).map_err(|e| Error::os("memory without a name", e))?;
        Self::map(file, len)
    }

    fn map(file: OwnedFd, len: u64) -> Result<Self> {
        let size = usize::try_from(len).map_err(|_| Error::Configuration("too many pages"))?;
        let mapping = Mapping::shared(file.as_fd(), size)?;
        let region = StoreRegion::new(mapping.start(), size)?;
        Ok(Self { _region: region, mapping, file: OwnFile::at_high_number(file) })
    }

    fn place(&self, extent: Extent) -> Result<*mut u8, StoreError> {
        match usize::try_from(extent.end()) {
            Ok(end) if end <= self.mapping.size() => Ok(self.mapping.at(end - extent.len)),
            _ => Err(StoreError::Store("out of range")),
        }
    }
}

impl Store for SharedMemory {
    fn len(&self) -> u64 {
        self.mapping.size() as u64
    }

    fn unit(&self) -> usize {
        64 // A line; what runs in this memory does not outlive it.
    }

    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result<(), StoreError> {
        let mut rest = into;
        for &extent in extents {
            let (part, next) = rest.split_at_mut(extent.len);
            let from = self.place(extent)?;
            // SAFETY: both are as long; `part` is private, so they do not overlap. Other processes
            // may change the source meanwhile: then the copy is any bytes, which callers of a store
            // expect.
            unsafe { core::ptr::copy_nonoverlapping(from, part.as_mut_ptr(), part.len()) };
            rest = next;
        }
        Ok(())
    }

    fn write(&self, extents: &[Extent], from: &[u8]) -> Result<(), StoreError> {
        let mut rest = from;
        for &extent in extents {
            let (part, next) = rest.split_at(extent.len);
            let into = self.place(extent)?;
            // SAFETY: both are as long, and do not overlap. No code has a reference to the
            // destination; calls that overlap are the caller's to order.
            unsafe { streaming::copy(part.as_ptr(), into, part.len()) };
            rest = next;
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(rustix::fs::fdatasync(&self.file).map_err(std::io::Error::from)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_out_of_range_extents_are_refused() {
        let store = SharedMemory::unnamed(8192).unwrap();
        assert_eq!(store.len(), 8192);
        store.write(&[Extent::new(1, 2), Extent::new(8190, 2)], b"abcd").unwrap();
        let mut out = [0; 4];
        store.read(&[Extent::new(8190, 2), Extent::new(0, 2)], &mut out).unwrap();
        assert_eq!(&out, b"cd\0a");
        assert!(store.read(&[Extent::new(8191, 2)], &mut [0; 2]).is_err());
        assert!(store.write(&[Extent::new(u64::MAX, 0)], &[]).is_err());
        store.sync().unwrap();
    }
}
