//! A store in memory.

use super::{Pages, Store};
use crate::error::{Error, Result};
use crate::types::Extent;
use alloc::vec::Vec;
use std::sync::RwLock;
use traceless_sys::ct::prefetch;

/// Bytes in memory, zero at first.
pub struct MemStore(RwLock<Pages>);

impl MemStore {
    /// A store of `len` zero bytes.
    pub fn new(len: u64) -> Self {
        Self(RwLock::new(Pages::zeroed(len as usize)))
    }

    /// Like [`new`](Self::new), but fails if there is not enough memory.
    pub fn with_room(len: u64) -> Result<Self> {
        let pages = usize::try_from(len).ok().and_then(Pages::try_zeroed);
        Ok(Self(RwLock::new(pages.ok_or(Error::Geometry("there is not enough memory"))?)))
    }

    /// A store that holds `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let store = Self::new(bytes.len() as u64);
        store.0.write().expect("no store panics").copy_from_slice(bytes);
        store
    }

    /// A copy of all bytes, as an adversary gets by imaging the disk.
    pub fn snapshot(&self) -> Vec<u8> {
        self.0.read().expect("no store panics").to_vec()
    }
}

fn range(extent: Extent, len: usize) -> Result<core::ops::Range<usize>> {
    let end = usize::try_from(extent.end()).map_err(|_| Error::Store("out of range"))?;
    if end > len {
        return Err(Error::Store("out of range"));
    }
    Ok(end - extent.len..end)
}

impl Store for MemStore {
    fn len(&self) -> u64 {
        self.0.read().expect("no store panics").len() as u64
    }

    fn unit(&self) -> usize {
        64 // A line; memory is not torn by a power cut, it is gone.
    }

    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        let bytes = self.0.read().expect("no store panics");
        let mut rest = into;
        for &extent in extents {
            let (part, next) = rest.split_at_mut(extent.len);
            part.copy_from_slice(&bytes[range(extent, bytes.len())?]);
            rest = next;
        }
        assert!(rest.is_empty(), "extents and buffer must agree");
        Ok(())
    }

    fn prefetch(&self, extents: &[Extent]) {
        let bytes = self.0.read().expect("no store panics");
        for extent in extents {
            prefetch(&bytes, extent.at as usize, extent.len);
        }
    }

    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        let mut bytes = self.0.write().expect("no store panics");
        let len = bytes.len();
        let mut rest = from;
        for &extent in extents {
            let (part, next) = rest.split_at(extent.len);
            bytes[range(extent, len)?].copy_from_slice(part);
            rest = next;
        }
        assert!(rest.is_empty(), "extents and buffer must agree");
        Ok(())
    }

    fn sync(&self) -> Result {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn holds_bytes_and_no_more() {
        for len in [0, 1, 5000, 3 << 20] {
            let store = MemStore::new(len);
            assert_eq!((store.len(), store.snapshot()), (len, vec![0; len as usize]));
            assert!(store.read(&[Extent::new(len, 1)], &mut [0]).is_err());
            assert!(store.write(&[Extent::new(len, 1)], &[1]).is_err());
        }
        let store = MemStore::from_bytes(&[1, 2, 3]);
        store.write(&[Extent::new(1, 1)], &[7]).unwrap();
        assert_eq!(store.snapshot(), [1, 7, 3]);
    }

    #[test]
    fn the_last_byte_is_within() {
        let store = MemStore::from_bytes(&[1, 2, 3]);
        let mut last = [0];
        store.read(&[Extent::new(2, 1)], &mut last).unwrap();
        assert_eq!((last, store.unit(), store.is_empty()), ([3], 64, false));
        assert!(MemStore::new(0).is_empty());
    }
}
