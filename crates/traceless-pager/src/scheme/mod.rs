//! Schemes for pages: where a page goes that leaves its frame, and what else is written then.

mod deferred;
mod detwo;
mod fused;
mod opam;
mod plain;
#[cfg(all(test, feature = "std"))]
mod tests;
mod tree;

pub use deferred::{DeferredDetWo, RefreshTurns, Turns};
pub use detwo::{Areas, DetWo, Numbers};
pub use fused::{Exchange, FusedPath, FusedRing, FusedTree, PathExchange};
pub use opam::{Opam, OpamTree};
pub use plain::Plain;
pub use tree::{Path, TreeParts, TreeSize, path_leaves, ring_leaves};

use crate::Page;
use traceless::Hides;
use traceless::error::Result;

/// Pages that are not in a frame. Object-safe.
pub trait PageScheme: Send {
    /// Number of pages.
    fn pages(&self) -> u64;

    /// One page goes and another one comes. `frame` holds the page `out`, if one goes, and then the
    /// page `wanted`, if one comes; one that was never put away is zeros. After a failure neither
    /// `frame` nor the scheme is of any use.
    fn swap(&mut self, out: Option<u64>, wanted: Option<u64>, frame: &mut Page) -> Result;

    /// Whether the page was put away since it was zeros last.
    fn holds(&self, page: u64) -> bool;

    /// Reads a page, which stays where it is.
    fn look(&mut self, page: u64, frame: &mut Page) -> Result {
        self.swap(None, Some(page), frame)
    }

    /// What may wait until the program goes on: called after each swap.
    fn settle(&mut self) -> Result {
        Ok(())
    }

    /// The page's contents do not matter any more: it is zeros when it comes next. Nothing is
    /// written.
    fn forget(&mut self, page: u64);

    /// What the claim covers.
    fn hides(&self) -> Hides;

    /// Bytes of trusted memory that it takes, buffers with it.
    fn trusted_bytes(&self) -> usize;

    /// Threads that help it are not to run on this processor: the program does.
    fn keep_off(&self, cpu: Option<usize>) {
        let _ = cpu;
    }

    /// Processor time of threads that help it.
    fn helper_cpu_ns(&self) -> u64 {
        0
    }
}
