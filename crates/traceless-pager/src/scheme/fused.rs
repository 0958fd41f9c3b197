//! Tree ORAMs with one access a fault.
//!
//! A page is in the tree or in a frame, never in both. So the page that comes is taken out of the
//! tree, and its path is read once. The page that leaves needs no path of its own: it gets a random
//! leaf and goes to the stash, which is emptied along paths that are accessed anyway.

use super::PageScheme;
use super::tree::{RING, Tree, TreeParts, TreeSize, WrittenPages, below};
use crate::{PAGE_LEN, Page};
use alloc::boxed::Box;
use traceless::Hides;
use traceless::error::{Error, Result};
use traceless::posmap::Flat;
use traceless::rng::Rng;
use traceless::scheme::ring::{Ring, RingTop, SealedRing};
use traceless::seal::Sealer;
use traceless::tree::{Engine, Header, STASH_BLOCKS};
use traceless::types::{Addr, Leaf};

/// A tree that removes a page when it is read. Object-safe.
pub trait Exchange: Send {
    /// Whether a page is in the tree or the stash: it was put here, and did not come since.
    fn holds(&self, page: u64) -> bool;

    /// Takes the page `out` from `frame`, if it is given, and then leaves the page `wanted` there,
    /// if it is given; zeros if the tree does not have it. `out` must not be in the tree.
    fn exchange(&mut self, out: Option<u64>, wanted: Option<u64>, frame: &mut Page) -> Result;

    /// What the tree hides.
    fn hides(&self) -> Hides;
}

/// A tree of this kind as a scheme for pages.
pub struct FusedTree<T> {
    tree: T,
    written: WrittenPages,
    trusted_bytes: usize,
}

impl<T: Exchange> FusedTree<T> {
    pub(super) fn of(tree: T, pages: u64, trusted_bytes: usize) -> Result<Self> {
        Ok(Self { tree, written: WrittenPages::of(pages)?, trusted_bytes })
    }

    /// Refuses to put away a page that the tree has, and to bring one that is in a frame.
    fn check(&self, out: Option<u64>, wanted: Option<u64>) -> Result {
        let is_in_frame = |page: &u64| self.written.has(*page) && !self.tree.holds(*page);
        let misplaced = out.filter(|&page| self.tree.holds(page)).or(wanted.filter(is_in_frame));
        misplaced.map_or(Ok(()), |page| Err(Error::Misplaced { addr: Addr(page) }))
    }
}

impl<T: Exchange> PageScheme for FusedTree<T> {
    fn pages(&self) -> u64 {
        self.written.pages()
    }

    fn swap(&mut self, out: Option<u64>, wanted: Option<u64>, frame: &mut Page) -> Result {
        self.check(out, wanted)?;
        self.tree.exchange(out, wanted, frame)?;
        if let Some(page) = out {
            self.written.set(page, true);
        }
        if wanted.is_some_and(|page| !self.written.has(page)) {
            frame.fill(0);
        }
        Ok(())
    }

    /// An exchange is one access, whichever pages are given.
    fn swap_with_dummies(
        &mut self,
        out: Option<u64>,
        wanted: Option<u64>,
        frame: &mut Page,
    ) -> Result {
        if self.hides() == Hides::Nothing {
            return Err(Error::Store("OPAM has no dummy accesses: it shows which page comes"));
        }
        self.swap(out, wanted, frame)
    }

    fn holds(&self, page: u64) -> bool {
        self.written.has(page)
    }

    fn has_remains(&self, page: u64) -> bool {
        self.tree.holds(page)
    }

    fn look(&mut self, page: u64, frame: &mut Page) -> Result {
        // Reading a page removes it, so it is put back.
        self.swap(None, Some(page), frame)?;
        self.swap(Some(page), None, frame)
    }

    fn forget(&mut self, page: u64) {
        // The tree keeps the old contents until the page comes: they are removed then, and not
        // used.
        self.written.set(page, false);
    }

    fn hides(&self) -> Hides {
        self.tree.hides()
    }

    fn trusted_bytes(&self) -> usize {
        self.trusted_bytes
    }
}

/// Path ORAM with one access a fault: the path of the page that comes is read, and written with
/// blocks of the stash, the page that leaves among them.
pub type FusedPath<C> = FusedTree<PathExchange<C>>;

/// The tree of a [`FusedPath`].
pub struct PathExchange<C> {
    pub(super) engine: Engine<Tree<C>>,
    /// The leaf of each page that is in the tree or the stash.
    pub(super) map: Flat,
    rng: Box<dyn Rng>,
}

impl<C: Sealer> PathExchange<C> {
    pub(super) fn new(mut parts: TreeParts<C>) -> Result<(Self, usize)> {
        let (tree, trusted_bytes) = parts.tree()?;
        let pages = usize::try_from(parts.pages).map_err(|_| Error::Geometry("too many pages"))?;
        let (map, engine) = (Flat::new(pages), Engine::new(tree, STASH_BLOCKS));
        Ok((Self { engine, map, rng: parts.rng }, trusted_bytes))
    }

    pub(super) fn draw(&mut self) -> Leaf {
        Leaf(self.rng.below(self.engine.shape().leaves()))
    }
}

impl<C: Sealer> FusedPath<C> {
    /// A scheme with pages of zeros. [`TreeSize::path`] calculates how large the store must be.
    pub fn path(parts: TreeParts<C>) -> Result<Self> {
        let pages = parts.pages;
        let (tree, trusted_bytes) = PathExchange::new(parts)?;
        Self::of(tree, pages, trusted_bytes)
    }
}

impl<C: Sealer> Exchange for PathExchange<C> {
    fn holds(&self, page: u64) -> bool {
        self.map.label(Addr(page)).is_some()
    }

    fn exchange(&mut self, out: Option<u64>, wanted: Option<u64>, frame: &mut Page) -> Result {
        let (any, new) = (self.draw(), self.draw());
        // The page's own leaf, which is used once, or a random one if it has none.
        let leaf = wanted.and_then(|page| self.map.take(Addr(page))).unwrap_or(any);
        self.engine.fetch(leaf)?;
        if let Some(page) = out {
            self.engine.put(Header::new(Addr(page), new), frame)?;
            self.map.remap(Addr(page), new);
        }
        if let Some(page) = wanted {
            self.engine.remove(Addr(page), frame);
        }
        self.engine.evict()
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }
}

/// Ring ORAM with one access a fault: one slot of each bucket is read on the path of the page that
/// comes, and the page that leaves waits for an eviction.
pub type FusedRing<C> = FusedTree<Ring<RingTop<SealedRing<C>>>>;

impl<C: Sealer> FusedRing<C> {
    /// A scheme with pages of zeros. [`TreeSize::ring`] calculates how large the store must be.
    pub fn ring(mut parts: TreeParts<C>) -> Result<Self> {
        let shape = RING.shape_for(parts.pages)?;
        let below = below(&shape, parts.cached)?;
        let sealers = [parts.key(), parts.key()];
        let trusted_bytes = TreeSize::ring(parts.pages, parts.cached, &sealers[0])?.memory;
        let store = parts.store.clone();
        let tree = SealedRing::create(store, 0, RING, below, PAGE_LEN, sealers, parts.salts)?;
        let tree = RingTop::new(shape, parts.cached, tree)?;
        Self::of(Ring::new(parts.pages, tree, parts.rng)?, parts.pages, trusted_bytes)
    }
}

impl<C: Sealer> Exchange for Ring<RingTop<SealedRing<C>>> {
    fn holds(&self, page: u64) -> bool {
        self.holds(Addr(page))
    }

    fn exchange(&mut self, out: Option<u64>, wanted: Option<u64>, frame: &mut Page) -> Result {
        self.exchange(out.map(Addr), wanted.map(Addr), frame)
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }
}
