//! The untrusted side, in bytes.
//!
//! Files: the trait `Store`; `mem`, `file`, `watched`; `area`: slots in stripes; `buffer`: aligned
//! memory; `pages`: huge pages.

mod area;
mod buffer;
#[cfg(feature = "std")]
mod file;
#[cfg(feature = "std")]
mod mem;
mod pages;
mod watched;

pub use area::{Area, Cursor, Run, SlotLayout};
pub use buffer::{ALIGN, AlignedBuf};
#[cfg(feature = "std")]
pub use file::{Caching, FileStore};
#[cfg(feature = "std")]
pub use mem::MemStore;
pub(crate) use pages::Pages;
pub use watched::WatchedStore;

use crate::error::Result;
use crate::types::Extent;
use alloc::sync::Arc;

/// Bytes that somebody else holds, sees and may change.
///
/// One call is one round trip. Methods take `&self`, so that threads may share a store; calls that
/// overlap in bytes are the caller's to order.
pub trait Store: Send + Sync {
    /// Size in bytes.
    fn len(&self) -> u64;

    /// Whether there is nothing in it.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that are written as one: a write of whole units reads nothing, and is not torn within
    /// a unit.
    fn unit(&self) -> usize {
        512
    }

    /// Fills `into` with the extents back to back, or fails: never a short read.
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result;

    /// Tells that these extents will be read soon, so that none of them need wait for another. It
    /// changes nothing but times, and may do nothing.
    fn prefetch(&self, _extents: &[Extent]) {}

    /// Writes `from`, which holds the extents back to back. After an error, or a crash before the
    /// next sync, any part of it may have been written.
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result;

    /// Returns when every write that had returned before this call is durable. After an error
    /// nothing is known about what was written since the last sync.
    fn sync(&self) -> Result;
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store + ?Sized> Store for Arc<S> {
    fn len(&self) -> u64 {
        (**self).len()
    }
    fn is_empty(&self) -> bool {
        (**self).is_empty()
    }
    fn unit(&self) -> usize {
        (**self).unit()
    }
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        (**self).read(extents, into)
    }
    fn prefetch(&self, extents: &[Extent]) {
        (**self).prefetch(extents);
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        (**self).write(extents, from)
    }
    fn sync(&self) -> Result {
        (**self).sync()
    }
}
