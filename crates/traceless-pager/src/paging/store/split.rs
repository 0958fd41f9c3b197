//! A store of which the pages lie in a file, and what is small beside them in memory: the file is
//! then accessed once for each page, and not twice, and by one system call for neighbours.

use super::shared::SharedMemory;
use crate::paging::error::Result;
use std::io::{IoSlice, IoSliceMut};
use traceless::error::Error as StoreError;
use traceless::store::{FileStore, Store};
use traceless::types::Extent;

/// Parts that one system call reads or writes, at most.
const RUN_MAX: usize = 16;

/// A store with its first bytes in a file, and all further ones in memory. Nothing in it outlives
/// the pager, so neither needs the other afterwards.
pub struct SplitStore {
    file: FileStore,
    memory: SharedMemory,
    /// The first byte that lies in memory.
    border: u64,
}

impl SplitStore {
    /// A store of `len` bytes, as many as the file has of them in the file.
    pub fn new(file: FileStore, len: u64) -> Result<Self> {
        let border = file.len();
        Ok(Self { file, memory: SharedMemory::unnamed(len.saturating_sub(border))?, border })
    }

    /// Reads the parts of the file that lie one behind the other up to `end`, by one system call.
    fn read_run(&self, end: u64, run: &mut Vec<IoSliceMut>) -> Result<(), StoreError> {
        let len: usize = run.iter().map(|part| part.len()).sum();
        let mut at = end - len as u64;
        if run.len() > 1 && rustix::io::preadv(self.file.file(), run, at) == Ok(len) {
            run.clear();
        }
        // A single part, or a call that was cut short or failed: each part alone, with an error.
        for mut part in run.drain(..) {
            self.file.read(&[Extent::new(at, part.len())], &mut part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// The same for writing.
    fn write_run(&self, end: u64, run: &mut Vec<IoSlice>) -> Result<(), StoreError> {
        let len: usize = run.iter().map(|part| part.len()).sum();
        let mut at = end - len as u64;
        if run.len() > 1 && rustix::io::pwritev(self.file.file(), run, at) == Ok(len) {
            run.clear();
        }
        for part in run.drain(..) {
            self.file.write(&[Extent::new(at, part.len())], &part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// The parts of an extent: in the file, and in memory.
    fn parts(&self, extent: Extent) -> (Extent, Extent) {
        let in_file = self.border.saturating_sub(extent.at).min(extent.len as u64) as usize;
        let rest = extent.at.max(self.border) - self.border;
        (Extent::new(extent.at, in_file), Extent::new(rest, extent.len - in_file))
    }
}

impl Store for SplitStore {
    fn len(&self) -> u64 {
        self.border + self.memory.len()
    }

    fn unit(&self) -> usize {
        self.file.unit()
    }

    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result<(), StoreError> {
        let (mut rest, mut run, mut end) = (into, Vec::new(), 0);
        for &extent in extents {
            let (in_file, in_memory) = self.parts(extent);
            let (of_file, next) = rest.split_at_mut(in_file.len);
            let (of_memory, next) = next.split_at_mut(in_memory.len);
            self.memory.read(&[in_memory], of_memory)?;
            rest = next;
            if in_file.len == 0 {
                continue;
            }
            if in_file.at != end || run.len() == RUN_MAX {
                self.read_run(end, &mut run)?;
            }
            end = in_file.end();
            run.push(IoSliceMut::new(of_file));
        }
        self.read_run(end, &mut run)
    }

    fn write(&self, extents: &[Extent], from: &[u8]) -> Result<(), StoreError> {
        let (mut rest, mut run, mut end) = (from, Vec::new(), 0);
        for &extent in extents {
            let (in_file, in_memory) = self.parts(extent);
            let (of_file, next) = rest.split_at(in_file.len);
            let (of_memory, next) = next.split_at(in_memory.len);
            self.memory.write(&[in_memory], of_memory)?;
            rest = next;
            if in_file.len == 0 {
                continue;
            }
            if in_file.at != end || run.len() == RUN_MAX {
                self.write_run(end, &mut run)?;
            }
            end = in_file.end();
            run.push(IoSlice::new(of_file));
        }
        self.write_run(end, &mut run)
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.file.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless::store::Caching;

    #[test]
    fn bytes_come_back_on_both_sides_of_the_border_and_across() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        let store = FileStore::new(file, 100, Caching::Buffered);
        let store = SplitStore::new(store, 150).unwrap();
        assert_eq!(store.len(), 150);
        let bytes: Vec<u8> = (1..=150).collect();
        store.write(&[Extent::new(90, 20), Extent::new(0, 90)], &bytes[..110]).unwrap();
        store.write(&[Extent::new(110, 40)], &bytes[110..]).unwrap();
        let mut back = [0; 150];
        store.read(&[Extent::new(0, 150)], &mut back).unwrap();
        assert_eq!((&back[..90], &back[90..110]), (&bytes[20..110], &bytes[..20]));
        assert_eq!(&back[110..], &bytes[110..]);
        for (at, len) in [(140, 11), (90, 61), (u64::MAX, 1)] {
            let mut into = vec![0; len];
            assert!(store.read(&[Extent::new(at, len)], &mut into).is_err(), "{at} {len}");
            assert!(store.write(&[Extent::new(at, len)], &into).is_err(), "{at} {len}");
        }
        // Neighbours in the file, each with bytes in memory behind it.
        let run: Vec<Extent> =
            (0..40).flat_map(|nth| [Extent::new(nth * 2, 2), Extent::new(100 + nth, 1)]).collect();
        store.write(&run, &bytes[..120]).unwrap();
        let mut back = [0; 120];
        store.read(&run, &mut back).unwrap();
        assert_eq!(back[..], bytes[..120]);
        let mut front = [0; 6];
        store.read(&[Extent::new(0, 6)], &mut front).unwrap();
        assert_eq!(front, [1, 2, 4, 5, 7, 8]);
        store.sync().unwrap();
    }
}
