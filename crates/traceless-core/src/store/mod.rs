//! The untrusted side: stores of bytes.
//!
//! Files: the trait `Store`; `mem`, `file`, `watched`; `area`: slots in stripes; `run`: slots that
//! are read or written together; `buffer`: aligned memory; `pages`: huge pages; `record_pair`: a
//! record in two places, written in turns; `folder`: durable names of files.
//!
//! One call reads or writes several extents. Their bytes lie back to back in the buffer:
//!
//! ```
//! use traceless_core::store::{Caching, FileStore, Store};
//! use traceless_core::types::Extent;
//!
//! # fn main() -> traceless_core::Result {
//! let file = tempfile::tempfile()?;
//! file.set_len(1 << 20)?;
//! let store = FileStore::new(file, 1 << 20, Caching::Buffered);
//!
//! store.write(&[Extent::new(0, 3), Extent::new(4096, 2)], b"abcde")?;
//! store.sync()?;
//! let mut bytes = [0; 4];
//! store.read(&[Extent::new(1, 2), Extent::new(4096, 2)], &mut bytes)?;
//! assert_eq!(&bytes, b"bcde");
//! # Ok(())
//! # }
//! ```

mod area;
mod buffer;
#[cfg(feature = "std")]
mod file;
#[cfg(feature = "std")]
mod folder;
#[cfg(feature = "std")]
mod mem;
mod pages;
mod place_audit;
mod record_pair;
mod run;
mod turns;
mod watched;

pub use area::{Area, SlotLayout};
pub use buffer::{ALIGN, AlignedBuf};
#[cfg(feature = "std")]
pub use file::{Caching, FileStore};
#[cfg(feature = "std")]
pub use folder::{folder_of, sync_folder_of};
#[cfg(feature = "std")]
pub use mem::MemStore;
pub use pages::Pages;
pub use place_audit::{DrawnPlaces, DrawnSlots, PlaceAudit};
pub use record_pair::RecordPair;
pub use run::{Cursor, Run};
pub use turns::SlotTurns;
pub use watched::WatchedStore;

use crate::error::Result;
use crate::types::Extent;
use alloc::sync::Arc;

/// Bytes in the hands of the adversary, which observes every access and may change them.
///
/// One call is one round trip. Methods take `&self`, so that threads may share a store; the caller
/// orders calls that overlap in bytes.
pub trait Store: Send + Sync {
    /// Size in bytes.
    fn len(&self) -> u64;

    /// Whether the store has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that are written as one: a write of whole units needs no read, and a crash does not
    /// tear it within a unit.
    fn unit(&self) -> usize {
        512
    }

    /// Fills `into` with the extents back to back, or fails: never a short read.
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result;

    /// Notifies the store that these extents will be read soon, so that it can fetch them together.
    /// This affects only times; the default does nothing.
    fn prefetch(&self, _extents: &[Extent]) {}

    /// Whether [`discard`](Self::discard) does something.
    fn takes_discards(&self) -> bool {
        false
    }

    /// Gives up the bytes of these extents: until they are written again they may read as anything,
    /// also after a crash. A store that fails to do it keeps them; the default does nothing.
    fn discard(&self, _extents: &[Extent]) {}

    /// Writes `from`, which holds the extents back to back. After an error, or a crash before the
    /// next sync, any part of it may have been written.
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result;

    /// Returns when every write that returned before this call is durable. After an error the
    /// writes since the last sync are in an unknown state.
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
    fn takes_discards(&self) -> bool {
        (**self).takes_discards()
    }
    fn discard(&self, extents: &[Extent]) {
        (**self).discard(extents);
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        (**self).write(extents, from)
    }
    fn sync(&self) -> Result {
        (**self).sync()
    }
}
