//! A store in a file or on a block device.

use super::{ALIGN, AlignedBuf, Store};
use crate::error::Result;
use crate::types::Extent;
use core::num::NonZeroU64;
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::os::unix::fs::FileExt;
use traceless_sys::discard;

/// How a file's bytes pass through the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caching {
    /// Through the page cache.
    Buffered,
    /// Past it: the file was opened with `O_DIRECT`. A server behind a loop device needs this,
    /// since the kernel may not free cache before the very write that waits for it.
    Direct,
}

/// The bytes of an open file. The code that opens the file also locks it.
pub struct FileStore {
    file: File,
    len: u64,
    caching: Caching,
    takes_discards: bool,
}

impl FileStore {
    /// The first `len` bytes of `file`, which was opened as `caching` says.
    pub fn new(file: File, len: u64, caching: Caching) -> Self {
        Self { file, len, caching, takes_discards: false }
    }

    /// This store, which from now on passes discards on to the system: a file gets holes. Fails
    /// with [`std::io::ErrorKind::Unsupported`] where the system cannot.
    pub fn with_discards(mut self) -> Result<Self> {
        self.takes_discards = discard::takes_discards(&self.file)?;
        if !self.takes_discards {
            return Err(std::io::Error::from(std::io::ErrorKind::Unsupported).into());
        }
        Ok(self)
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether the kernel takes a request for `extent` with the bytes at `memory` as it is.
    pub fn takes(&self, extent: Extent, memory: *const u8) -> bool {
        let aligned = extent.at.is_multiple_of(ALIGN as u64)
            && extent.len.is_multiple_of(ALIGN)
            && (memory as usize).is_multiple_of(ALIGN);
        self.caching == Caching::Buffered || aligned
    }
}

/// The smallest aligned stretch around `extent`.
fn around(extent: Extent) -> Extent {
    let at = extent.at / ALIGN as u64 * ALIGN as u64;
    let end = extent.end().next_multiple_of(ALIGN as u64);
    Extent::new(at, (end - at) as usize)
}

impl Store for FileStore {
    fn len(&self) -> u64 {
        self.len
    }

    fn unit(&self) -> usize {
        match self.caching {
            Caching::Buffered => 512,
            Caching::Direct => ALIGN,
        }
    }

    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        let mut rest = into;
        for &extent in extents {
            let (part, next) = rest.split_at_mut(extent.len);
            if self.takes(extent, part.as_ptr()) {
                self.file.read_exact_at(part, extent.at)?;
            } else {
                let whole = around(extent);
                let mut bounce = AlignedBuf::zeroed(whole.len);
                self.file.read_exact_at(&mut bounce, whole.at)?;
                let skip = (extent.at - whole.at) as usize;
                part.copy_from_slice(&bounce[skip..skip + extent.len]);
            }
            rest = next;
        }
        assert!(rest.is_empty(), "extents and buffer must agree");
        Ok(())
    }

    fn prefetch(&self, extents: &[Extent]) {
        // Past the page cache a prefetched page would have no place to stay.
        if self.caching == Caching::Direct {
            return;
        }
        for extent in extents {
            // A failed hint costs only time: the extent is read later anyway.
            let _ = fadvise(
                &self.file,
                extent.at,
                NonZeroU64::new(extent.len as u64),
                Advice::WillNeed,
            );
        }
    }

    fn takes_discards(&self) -> bool {
        self.takes_discards
    }

    fn discard(&self, extents: &[Extent]) {
        for extent in extents.iter().filter(|_| self.takes_discards) {
            // If it fails, the space stays taken: nothing is lost.
            let _ = discard::discard(&self.file, extent.at, extent.len as u64);
        }
    }

    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        let mut rest = from;
        for &extent in extents {
            let (part, next) = rest.split_at(extent.len);
            if self.takes(extent, part.as_ptr()) {
                self.file.write_all_at(part, extent.at)?;
            } else {
                let whole = around(extent);
                let mut bounce = AlignedBuf::zeroed(whole.len);
                if whole != extent {
                    self.file.read_exact_at(&mut bounce, whole.at)?;
                }
                let skip = (extent.at - whole.at) as usize;
                bounce[skip..skip + extent.len].copy_from_slice(part);
                self.file.write_all_at(&bounce, whole.at)?;
            }
            rest = next;
        }
        assert!(rest.is_empty(), "extents and buffer must agree");
        Ok(())
    }

    fn sync(&self) -> Result {
        self.file.sync_data()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_extents_work_with_and_without_the_page_cache() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 << 10).unwrap();
        for caching in [Caching::Buffered, Caching::Direct] {
            let store = FileStore::new(file.try_clone().unwrap(), 64 << 10, caching);
            let extents = [Extent::new(5000, 10), Extent::new(0, 4096), Extent::new(8190, 4)];
            let data: Vec<u8> = (0..4110).map(|i| (i % 251) as u8).collect();
            store.write(&extents, &data).unwrap();
            let mut back = vec![0; data.len()];
            store.read(&extents, &mut back).unwrap();
            store.prefetch(&extents);
            assert_eq!(back, data);
            store.sync().unwrap();
            assert!(store.read(&[Extent::new(65535, 2)], &mut [0; 2]).is_err());
        }
    }

    #[test]
    fn discards_make_holes_only_if_they_are_wanted() {
        let file = tempfile::tempfile().unwrap();
        let store = FileStore::new(file, 16 << 10, Caching::Buffered);
        let (whole, hole) = (Extent::new(0, 16 << 10), Extent::new(4096, 8192));
        store.write(&[whole], &[7; 16 << 10]).unwrap();
        let holds = |store: &FileStore, in_hole: u8| {
            let mut bytes = vec![0; 16 << 10];
            store.read(&[whole], &mut bytes).unwrap();
            bytes == [vec![7; 4096], vec![in_hole; 8192], vec![7; 4096]].concat()
        };
        store.discard(&[hole]);
        assert!(!store.takes_discards() && holds(&store, 7));
        let store = match store.with_discards() {
            Err(crate::Error::Io(e)) if e.kind() == std::io::ErrorKind::Unsupported => return,
            other => other.unwrap(),
        };
        store.discard(&[hole]);
        assert!(store.takes_discards() && holds(&store, 0));
        store.write(&[hole], &[7; 8192]).unwrap();
        assert!(holds(&store, 7));
    }

    #[test]
    fn what_goes_past_the_cache_is_aligned() {
        let store = |caching| FileStore::new(tempfile::tempfile().unwrap(), 99, caching);
        let (direct, buffered) = (store(Caching::Direct), store(Caching::Buffered));
        assert_eq!((direct.len(), direct.unit(), buffered.unit()), (99, 4096, 512));
        let at = |address: usize| core::ptr::without_provenance(address);
        for (extent, memory, fits) in [
            (Extent::new(8192, 4096), at(4096), true),
            (Extent::new(8193, 4096), at(4096), false),
            (Extent::new(8192, 4095), at(4096), false),
            (Extent::new(8192, 4096), at(4097), false),
        ] {
            assert_eq!(direct.takes(extent, memory), fits);
            assert!(buffered.takes(extent, memory));
        }
        assert_eq!(around(Extent::new(5000, 10)), Extent::new(4096, 4096));
        assert_eq!(around(Extent::new(8190, 4)), Extent::new(4096, 8192));
        assert_eq!(around(Extent::new(8192, 4096)), Extent::new(8192, 4096));
    }
}
