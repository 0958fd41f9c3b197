//! Schemes for pages: where a page goes when it leaves its frame, and what else is written then.
//!
//! Two programs put away different pages, and an observer of the store sees the same writes:
//!
//! ```
//! use std::sync::Arc;
//! use traceless::{rng::System, seal::Secret};
//! use traceless::store::{MemStore, WatchedStore};
//! use traceless::trace::{Event, Op, Recorder};
//! use traceless_block::detwo::Refresh;
//! use traceless_pager::PAGE_LEN;
//! use traceless_pager::scheme::{Areas, DetWo, PageScheme};
//! use traceless_pager::slots::Cipher;
//!
//! /// The writes to the store while these pages leave their frames.
//! fn writes(leaving: &[u64]) -> traceless::Result<Vec<Event>> {
//!     let (pages, refresh) = (64, Refresh::new(2, 1)?);
//!     let recorder = Arc::new(Recorder::default());
//!     let store = MemStore::new(Areas::store_len(pages, refresh));
//!     let store = Arc::new(WatchedStore::new(store, recorder.clone()));
//!     let key = Secret::random(&mut System);
//!     let areas = Areas::new(store, pages, refresh, Cipher::default(), &key, Box::new(System))?;
//!     let mut scheme = DetWo::new(areas);
//!     for &page in leaving {
//!         scheme.swap(Some(page), None, &mut [1; PAGE_LEN])?;
//!     }
//!     Ok(recorder.take().into_iter().filter(|event| event.op == Op::Write).collect())
//! }
//!
//! # fn main() -> traceless::Result {
//! assert_eq!(writes(&[0, 1, 2, 3])?, writes(&[9, 9, 9, 60])?);
//! assert_ne!(writes(&[0, 1, 2, 3])?, writes(&[0, 1, 2])?);
//! # Ok(())
//! # }
//! ```

mod deferred;
mod detwo;
mod fused;
mod main_area;
mod opam;
mod places;
mod plain;
mod refresh;
#[cfg(all(test, feature = "std"))]
mod tests;
mod tree;

pub use deferred::DeferredDetWo;
pub use detwo::{Areas, DetWo, Numbers};
pub use fused::{Exchange, FusedPath, FusedRing, FusedTree, PathExchange};
pub use main_area::{Growth, MainArea};
pub use opam::{Opam, OpamTree};
pub use plain::Plain;
pub use refresh::{Journal, NoJournal, PaddedLine, RefreshPool, RefreshQueue};
pub use tree::{
    PagesMoved, Path, TreeParts, TreeSize, drawn_path_leaves, drawn_ring_leaves, path_leaves,
    ring_leaves,
};

use crate::Page;
use traceless::Hides;
use traceless::error::{Error, Result};

/// A scheme for the pages that are not in a frame. Object-safe.
pub trait PageScheme: Send {
    /// Number of pages.
    fn pages(&self) -> u64;

    /// Puts the page `out` away, and brings the page `wanted`. `frame` holds `out` before, if it is
    /// given, and `wanted` afterwards, if it is given; a page that was never put away is zeros.
    /// After a failure neither `frame` nor the scheme is of any use.
    fn swap(&mut self, out: Option<u64>, wanted: Option<u64>, frame: &mut Page) -> Result;

    /// The same as [`swap`](Self::swap), with a dummy access in place of a page that is not given:
    /// what an observer sees is the same with two pages, one or none. Fails for a scheme that hides
    /// nothing.
    fn swap_with_dummies(
        &mut self,
        out: Option<u64>,
        wanted: Option<u64>,
        frame: &mut Page,
    ) -> Result {
        let _ = (out, wanted, frame);
        Err(Error::Store("a scheme that hides nothing has no dummy accesses"))
    }

    /// Whether the page was put away since it was zeros last.
    fn holds(&self, page: u64) -> bool;

    /// Whether the scheme has something of the page, if only contents that were forgotten: then it
    /// must be brought before it is put away again.
    fn has_remains(&self, page: u64) -> bool {
        self.holds(page)
    }

    /// Reads a page, which stays in the scheme.
    fn look(&mut self, page: u64, frame: &mut Page) -> Result {
        self.swap(None, Some(page), frame)
    }

    /// Does what may wait until the program goes on. Called after each swap.
    fn settle(&mut self) -> Result {
        Ok(())
    }

    /// Forgets the page's contents: it is zeros when it comes next. Nothing is written.
    fn forget(&mut self, page: u64);

    /// What the scheme hides: the claim that tests and the auditor check.
    fn hides(&self) -> Hides;

    /// Bytes of trusted memory that the scheme takes, its buffers included.
    fn trusted_bytes(&self) -> usize;

    /// Keeps helper threads off this processor, on which the program runs.
    fn keep_off(&self, cpu: Option<usize>) {
        let _ = cpu;
    }

    /// Nanoseconds of processor time of helpers; 0 without any.
    fn helper_cpu_ns(&self) -> u64 {
        0
    }
}
