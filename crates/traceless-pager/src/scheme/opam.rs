//! OPAM, **insecure**: a Path ORAM that loads and evicts in separate accesses, and leaks by the
//! paths it takes. It is there to be compared with, as in the paging paper.
//!
//! Reconstructed from what the paging paper says of "`InvisiPage`" (Aga, Narayanasamy, ISCA'19):
//! derived from Path ORAM, with resident pages in place of a client's cache. How the original
//! evicts is an assumption of ours, and so is this leak; Roy et al. (FOCI'20) attack the original.
//!
//! To bring a page, its path is read and not written: a copy of the page stays there, and is
//! dropped when a bucket with it is written next. A page that leaves draws a path, which is read
//! and written with it. **So the path that is read for a page is the one that was written when it
//! left**: an observer of both knows which visit of the page this is.

use super::fused::{Exchange, FusedTree, PathExchange};
use super::tree::TreeParts;
use crate::Page;
use crate::slots::Buffer;
use traceless::Hides;
use traceless::error::Result;
use traceless::seal::Sealer;
use traceless::tree::Header;
use traceless::types::Addr;

/// OPAM: insecure.
pub type Opam<C> = FusedTree<OpamTree<C>>;

/// The tree of an [`Opam`].
pub struct OpamTree<C> {
    path: PathExchange<C>,
    /// The page that comes, while another one leaves.
    buffer: Buffer,
}

impl<C: Sealer> Opam<C> {
    /// A scheme with pages of zeros. [`TreeSize::path`](super::TreeSize::path) calculates how large
    /// the store must be.
    pub fn opam(parts: TreeParts<C>) -> Result<Self> {
        let pages = parts.pages;
        let (path, trusted_bytes) = PathExchange::new(parts)?;
        Self::of(OpamTree { path, buffer: Buffer::default() }, pages, trusted_bytes)
    }
}

impl<C: Sealer> OpamTree<C> {
    /// Reads the path of a page into the buffer, and does not change the path.
    fn page_in(&mut self, page: u64) -> Result {
        let Self { path, buffer } = self;
        let (any, own) = (path.draw(), path.map.take(Addr(page)));
        let was_in_stash = path.engine.extract(Addr(page), buffer.body()).is_some();
        path.engine.fetch(own.unwrap_or(any))?;
        let is_there = |leaf| path.engine.copy_out(Header::new(Addr(page), leaf), buffer.body());
        if !was_in_stash && !own.is_some_and(is_there) {
            buffer.body().fill(0);
        }
        path.engine.leave();
        Ok(())
    }

    /// Reads and writes the path that a page goes to.
    fn page_out(&mut self, page: u64, frame: &Page) -> Result {
        let Self { path, .. } = self;
        let leaf = path.draw();
        path.engine.fetch(leaf)?;
        // Drops copies that stayed when their pages came, also of this page, on any path.
        let map = &path.map;
        path.engine.retain(|header| map.label(header.addr()) == Some(header.leaf()));
        path.map.remap(Addr(page), leaf);
        path.engine.put(Header::new(Addr(page), leaf), frame)?;
        path.engine.evict()
    }
}

impl<C: Sealer> Exchange for OpamTree<C> {
    fn holds(&self, page: u64) -> bool {
        self.path.holds(page)
    }

    fn exchange(&mut self, out: Option<u64>, wanted: Option<u64>, frame: &mut Page) -> Result {
        if let Some(page) = wanted {
            self.page_in(page)?;
        }
        if let Some(page) = out {
            self.page_out(page, frame)?;
        }
        if wanted.is_some() {
            frame.copy_from_slice(self.buffer.body());
        }
        Ok(())
    }

    fn hides(&self) -> Hides {
        Hides::Nothing
    }
}
