//! A store that fails at a given call and at every later one.

use crate::error::{Error, Result};
use crate::store::Store;
use crate::types::Extent;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Passes on a number of calls; the next write is cut in the middle, and then every call fails.
pub struct Faulty<S> {
    inner: Arc<S>,
    left: AtomicI64,
}

impl<S: Store> Faulty<S> {
    pub fn new(inner: Arc<S>, calls: u64) -> Self {
        Self { inner, left: AtomicI64::new(calls.cast_signed()) }
    }

    pub fn has_failed(&self) -> bool {
        self.left.load(Ordering::Relaxed) < 0
    }

    fn count(&self) -> i64 {
        self.left.fetch_sub(1, Ordering::Relaxed)
    }
}

const FAILED: Error = Error::Store("planted fault");

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for Faulty<S> {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }
    fn unit(&self) -> usize {
        self.inner.unit()
    }
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        if self.count() > 0 { self.inner.read(extents, into) } else { Err(FAILED) }
    }
    fn prefetch(&self, extents: &[Extent]) {
        self.inner.prefetch(extents);
    }
    fn takes_discards(&self) -> bool {
        self.inner.takes_discards()
    }
    fn discard(&self, extents: &[Extent]) {
        self.inner.discard(extents);
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        match self.count() {
            1.. => self.inner.write(extents, from),
            0 => {
                // The first half of the extents arrives, and half of the last of them.
                let half = extents.len().div_ceil(2);
                let mut part = extents[..half].to_vec();
                part.last_mut().expect("a write has extents").len /= 2;
                let len = crate::types::total_len(&part);
                self.inner.write(&part, &from[..len])?;
                Err(FAILED)
            }
            _ => Err(FAILED),
        }
    }
    fn sync(&self) -> Result {
        if self.count() > 0 { self.inner.sync() } else { Err(FAILED) }
    }
}
