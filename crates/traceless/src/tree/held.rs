//! Buckets that were written and are not in their place yet.

use crate::types::Extent;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Sealed buckets, the newest copy of each, in the order in which they were written first.
#[derive(Default)]
pub struct Held {
    /// First byte of a bucket in the tree, and in `bytes`.
    found: BTreeMap<u64, usize>,
    extents: Vec<Extent>,
    bytes: Vec<u8>,
}

impl Held {
    /// Where they belong, as bytes of the tree.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The buckets, back to back.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.found.clear();
        self.extents.clear();
        self.bytes.clear();
    }

    /// Holds the bucket at byte `at` of the tree, instead of an older copy of it.
    pub(super) fn hold(&mut self, at: u64, bucket: &[u8]) {
        if let Some(&nth) = self.found.get(&at) {
            self.bytes[nth..nth + bucket.len()].copy_from_slice(bucket);
            return;
        }
        self.found.insert(at, self.bytes.len());
        self.extents.push(Extent::new(at, bucket.len()));
        self.bytes.extend_from_slice(bucket);
    }

    /// Puts the bucket at byte `at` into `bucket`, if it is held.
    pub(super) fn copy_to(&self, at: u64, bucket: &mut [u8]) {
        if let Some(&nth) = self.found.get(&at) {
            bucket.copy_from_slice(&self.bytes[nth..nth + bucket.len()]);
        }
    }
}
