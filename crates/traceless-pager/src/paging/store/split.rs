//! A store of which the pages lie in a file or an export, and what is small beside them in memory:
//! these are then accessed once for each page, and not twice, and neighbours by one request.

use super::shared::SharedMemory;
use crate::paging::error::Result;
use std::io::{IoSlice, IoSliceMut};
use traceless::error::Error as StoreError;
use traceless::store::{FileStore, Store};
use traceless::types::Extent;

/// Parts that one system call reads or writes, at most.
const RUN_MAX: usize = 16;

/// A store that reads and writes parts together, each at an offset, wherever their memory is.
pub trait PartStore: Send + Sync {
    /// Size in bytes.
    fn len(&self) -> u64;

    /// Fills all parts, or fails.
    ///
    /// # Errors
    /// The store's.
    fn read_parts(&self, parts: Vec<(u64, &mut [u8])>) -> Result<(), StoreError>;

    /// Writes all parts. After an error any of them may have been written.
    ///
    /// # Errors
    /// The store's.
    fn write_parts(&self, parts: Vec<(u64, &[u8])>) -> Result<(), StoreError>;

    /// Returns when all that was written is durable.
    ///
    /// # Errors
    /// The store's.
    fn sync(&self) -> Result<(), StoreError>;
}

/// Neighbours by one system call.
impl PartStore for FileStore {
    fn len(&self) -> u64 {
        Store::len(self)
    }

    fn read_parts(&self, parts: Vec<(u64, &mut [u8])>) -> Result<(), StoreError> {
        let (mut run, mut end) = (Vec::new(), 0);
        for (at, part) in parts {
            if at != end || run.len() == RUN_MAX {
                read_run(self, end, &mut run)?;
            }
            end = at + part.len() as u64;
            run.push(IoSliceMut::new(part));
        }
        read_run(self, end, &mut run)
    }

    fn write_parts(&self, parts: Vec<(u64, &[u8])>) -> Result<(), StoreError> {
        let (mut run, mut end) = (Vec::new(), 0);
        for (at, part) in parts {
            if at != end || run.len() == RUN_MAX {
                write_run(self, end, &mut run)?;
            }
            end = at + part.len() as u64;
            run.push(IoSlice::new(part));
        }
        write_run(self, end, &mut run)
    }

    fn sync(&self) -> Result<(), StoreError> {
        Store::sync(self)
    }
}

/// Reads the parts of the file that lie one behind the other up to `end`, by one system call.
fn read_run(file: &FileStore, end: u64, run: &mut Vec<IoSliceMut>) -> Result<(), StoreError> {
    let len: usize = run.iter().map(|part| part.len()).sum();
    let mut at = end - len as u64;
    if run.len() > 1 && rustix::io::preadv(file.file(), run, at) == Ok(len) {
        run.clear();
    }
    // A single part, or a call that was cut short or failed: each part alone, with an error.
    for mut part in run.drain(..) {
        file.read(&[Extent::new(at, part.len())], &mut part)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// The same for writing.
fn write_run(file: &FileStore, end: u64, run: &mut Vec<IoSlice>) -> Result<(), StoreError> {
    let len: usize = run.iter().map(|part| part.len()).sum();
    let mut at = end - len as u64;
    if run.len() > 1 && rustix::io::pwritev(file.file(), run, at) == Ok(len) {
        run.clear();
    }
    for part in run.drain(..) {
        file.write(&[Extent::new(at, part.len())], &part)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// A store with its first bytes in another store, and all further ones in memory. Nothing in it
/// outlives the pager, so neither needs the other afterwards.
pub struct SplitStore<S> {
    first: S,
    memory: Option<SharedMemory>,
    /// The first byte that lies in memory.
    border: u64,
}

impl<S: PartStore> SplitStore<S> {
    /// A store of `len` bytes, as many as `first` has of them there.
    ///
    /// # Errors
    /// The kernel's refusal of memory.
    pub fn new(first: S, len: u64) -> Result<Self> {
        let border = first.len();
        let rest = len.saturating_sub(border);
        let memory = if rest > 0 { Some(SharedMemory::unnamed(rest)?) } else { None };
        Ok(Self { first, memory, border })
    }

    /// The lengths of an extent in the first store and in memory, and where it begins there.
    fn parts(&self, extent: Extent) -> Result<(usize, Extent), StoreError> {
        let end = extent.at.checked_add(extent.len as u64);
        if end.is_none_or(|end| end > self.len()) {
            return Err(StoreError::Store("out of range"));
        }
        let in_first = self.border.saturating_sub(extent.at).min(extent.len as u64) as usize;
        let rest = extent.at.max(self.border) - self.border;
        Ok((in_first, Extent::new(rest, extent.len - in_first)))
    }
}

impl<S: PartStore> Store for SplitStore<S> {
    fn len(&self) -> u64 {
        self.border + self.memory.as_ref().map_or(0, Store::len)
    }

    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result<(), StoreError> {
        let (mut rest, mut parts) = (into, Vec::with_capacity(extents.len()));
        for &extent in extents {
            let (in_first, in_memory) = self.parts(extent)?;
            let (of_first, next) = rest.split_at_mut(in_first);
            let (of_memory, next) = next.split_at_mut(in_memory.len);
            if let Some(memory) = self.memory.as_ref().filter(|_| in_memory.len > 0) {
                memory.read(&[in_memory], of_memory)?;
            }
            if in_first > 0 {
                parts.push((extent.at, of_first));
            }
            rest = next;
        }
        self.first.read_parts(parts)
    }

    fn write(&self, extents: &[Extent], from: &[u8]) -> Result<(), StoreError> {
        let (mut rest, mut parts) = (from, Vec::with_capacity(extents.len()));
        for &extent in extents {
            let (in_first, in_memory) = self.parts(extent)?;
            let (of_first, next) = rest.split_at(in_first);
            let (of_memory, next) = next.split_at(in_memory.len);
            if let Some(memory) = self.memory.as_ref().filter(|_| in_memory.len > 0) {
                memory.write(&[in_memory], of_memory)?;
            }
            if in_first > 0 {
                parts.push((extent.at, of_first));
            }
            rest = next;
        }
        self.first.write_parts(parts)
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.first.sync()
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
