//! A store in memory.

use super::Store;
use crate::error::{Error, Result};
use crate::types::Extent;
use alloc::vec;
use alloc::vec::Vec;
use std::sync::RwLock;

/// Bytes in memory, zero at first.
pub struct MemStore(RwLock<Vec<u8>>);

impl MemStore {
    /// A store of `len` zero bytes.
    pub fn new(len: u64) -> Self {
        Self(RwLock::new(vec![0; len as usize]))
    }

    /// A store that holds `bytes`.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(RwLock::new(bytes))
    }

    /// A copy of everything: what somebody who images the disk takes home.
    pub fn snapshot(&self) -> Vec<u8> {
        self.0.read().expect("no store panics").clone()
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
