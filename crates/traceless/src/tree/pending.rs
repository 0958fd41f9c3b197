//! Buckets that were written but are not in their places in the store yet.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use traceless_core::error::Result;
use traceless_core::store::Store;
use traceless_core::types::{Extent, push_extent};

/// Sealed buckets, the newest copy of each, in the order of their first writes.
#[derive(Default)]
pub struct PendingBuckets {
    /// Maps a bucket's first byte in the area to its first byte in `bytes`.
    found: BTreeMap<u64, usize>,
    extents: Vec<Extent>,
    bytes: Vec<u8>,
}

impl PendingBuckets {
    /// Where the buckets belong, as bytes of the area.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The buckets, back to back.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Writes all buckets to their places in the area of `store` that begins at `first`, and clears
    /// this list.
    pub fn write_to(&mut self, store: &dyn Store, first: u64) -> Result {
        if !self.bytes.is_empty() {
            store.write(&extents_at(first, &self.extents), &self.bytes)?;
            self.found.clear();
            self.extents.clear();
            self.bytes.clear();
        }
        Ok(())
    }

    /// Adds the bucket at byte `at` of the area, or replaces an older copy of it.
    pub fn hold(&mut self, at: u64, bucket: &[u8]) {
        if let Some(&nth) = self.found.get(&at) {
            self.bytes[nth..nth + bucket.len()].copy_from_slice(bucket);
            return;
        }
        self.found.insert(at, self.bytes.len());
        self.extents.push(Extent::new(at, bucket.len()));
        self.bytes.extend_from_slice(bucket);
    }

    /// Copies the bucket at byte `at` to `bucket`, if it is pending.
    pub fn copy_to(&self, at: u64, bucket: &mut [u8]) {
        if let Some(&nth) = self.found.get(&at) {
            bucket.copy_from_slice(&self.bytes[nth..nth + bucket.len()]);
        }
    }
}

/// Shifts the extents of a tree to the store in which the tree begins at `first`.
pub fn extents_at(first: u64, extents: &[Extent]) -> Vec<Extent> {
    let mut moved = Vec::with_capacity(extents.len());
    for e in extents {
        push_extent(&mut moved, Extent::new(first + e.at, e.len));
    }
    moved
}
