//! Tree ORAMs for pages: they hide which pages come, too, from an observer of reads of the store.
//!
//! Path ORAM as it is takes two accesses a fault: the page that leaves is written, and the one that
//! comes is read. [`FusedTree`](super::FusedTree) trees take one.

use super::PageScheme;
use crate::{PAGE_LEN, Page};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use traceless::Hides;
use traceless::controller::{Controller, SteppedOram};
use traceless::error::{Error, Result};
use traceless::rng::Rng;
use traceless::scheme::path::PathOram;
use traceless::scheme::ring::{Params, SealedRing};
use traceless::seal::{Sealer, Secret};
use traceless::store::Store;
use traceless::tree::{DrawnLeaves, STASH_BLOCKS, SealedTree, Shape, TreeLayout, Treetop};
use traceless::types::{Addr, Leaf};

/// Pages that a bucket of a Path ORAM holds.
const Z: u8 = 4;

/// Slots for each page, about: half of them are empty.
const SLOTS_PER_PAGE: f64 = 1.9;

/// The parameters of buckets of a Ring ORAM.
pub(super) const RING: Params = Params::Z16;

/// Bytes in memory beside the body of a page in a slot: address, label, tag, place.
const BESIDE_BODY: usize = 64;

/// Bytes of a page's label.
const LABEL_LEN: usize = 4;

/// A tree with any number of uppermost levels in trusted memory.
pub(super) type Tree<C> = Treetop<SealedTree<C>>;

/// The parts that a tree is made of.
pub struct TreeParts<C> {
    /// The untrusted store, as long as [`TreeSize`] says.
    pub store: Arc<dyn Store>,
    /// Number of pages.
    pub pages: u64,
    /// Uppermost levels that are kept in trusted memory.
    pub cached: usize,
    /// Makes a sealer of a key.
    pub sealer: fn(&Secret) -> C,
    /// Source of keys and paths.
    pub rng: Box<dyn Rng>,
    /// Draws a fresh salt for each path that is written.
    pub salts: Box<dyn Rng>,
}

impl<C: Sealer> TreeParts<C> {
    /// A sealer under a fresh key.
    pub(super) fn key(&mut self) -> C {
        (self.sealer)(&Secret::random(&mut *self.rng))
    }

    /// A tree without pages, and the bytes of memory that the whole scheme takes.
    pub(super) fn tree(&mut self) -> Result<(Tree<C>, usize)> {
        let (shape, cached) = (path_shape(self.pages)?, self.cached);
        let below = below(&shape, cached)?;
        let sealer = self.key();
        let memory = TreeSize::path(self.pages, cached, &sealer)?.memory;
        let (store, salts) = (self.store.clone(), self.salts.fork());
        let tree = SealedTree::create(store, 0, "pages", below, PAGE_LEN, sealer, salts)?;
        Ok((Treetop::new(shape, cached, tree)?, memory))
    }
}

/// How much memory and store a tree of pages takes, and how many pages an access moves.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TreeSize {
    /// Bytes of trusted memory, a little more than are used: cached levels, the open path, the
    /// stash, labels and marks.
    pub memory: usize,
    /// Bytes of the store.
    pub store: u64,
    /// Pages that an access moves, on average.
    pub moved: PagesMoved,
}

/// Pages that are read from a store and written to it, on average.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PagesMoved {
    /// Pages read.
    pub read: f64,
    /// Pages written.
    pub written: f64,
}

impl TreeSize {
    /// The size of a Path ORAM, fused or not, or of OPAM.
    pub fn path<C: Sealer>(pages: u64, cached: usize, sealer: &C) -> Result<Self> {
        let shape = path_shape(pages)?;
        let below = below(&shape, cached)?;
        let slots = |level| shape.z(level) * (PAGE_LEN + BESIDE_BODY);
        let top: usize =
            (0..cached).map(|level| shape.buckets(level) as usize * slots(level)).sum();
        let path: usize = (cached..shape.levels()).map(slots).sum();
        let store = SealedTree::store_len(&below, PAGE_LEN, sealer);
        let slots = (cached..shape.levels()).map(|level| shape.z(level)).sum::<usize>() as f64;
        let moved = PagesMoved { read: slots, written: slots };
        Ok(Self { memory: top + path + beside_tree(pages, STASH_BLOCKS)?, store, moved })
    }

    /// The size of a Ring ORAM.
    pub fn ring<C: Sealer>(pages: u64, cached: usize, sealer: &C) -> Result<Self> {
        let shape = RING.shape_for(pages)?;
        let below = below(&shape, cached)?;
        let buckets: usize = (0..cached).map(|level| shape.buckets(level) as usize).sum();
        let slot = PAGE_LEN + BESIDE_BODY;
        // Slots read, buckets written, and metadata: for each slot, the bytes beside its body.
        let path = shape.levels() * (usize::from(RING.z) + RING.slots() + 1) * slot;
        let top = buckets * RING.slots() * slot + cached * usize::from(RING.z) * PAGE_LEN;
        let store = SealedRing::store_len(RING, &below, PAGE_LEN, sealer);
        // A slot of each bucket; and for each path that is evicted, what its buckets hold and have
        // room for. Buckets that are rewritten early add a few hundredths.
        let (levels, rate) = ((shape.levels() - cached) as f64, f64::from(RING.rate));
        let moved = PagesMoved {
            read: levels * (1.0 + f64::from(RING.z) / rate),
            written: levels * RING.slots() as f64 / rate,
        };
        Ok(Self {
            memory: top + path + beside_tree(pages, RING.stash_blocks.into())?,
            store,
            moved,
        })
    }
}

/// Where in the store each leaf's bucket begins, in order of leaves, for a tree without cached
/// levels. An observer of the store knows by these which path is accessed. For a Path ORAM, fused
/// or not, and for OPAM.
pub fn path_leaves<C: Sealer>(pages: u64, sealer: &C) -> Result<Vec<u64>> {
    let shape = path_shape(pages)?;
    Ok(leaves_of(&shape, &SealedTree::layout(&shape, PAGE_LEN, sealer)))
}

/// Where in the store each leaf's metadata begins, for a Ring ORAM, which reads it with each path.
pub fn ring_leaves<C: Sealer>(pages: u64, sealer: &C) -> Result<Vec<u64>> {
    let shape = RING.shape_for(pages)?;
    Ok(leaves_of(&shape, &SealedRing::metadata_layout(RING, &shape, sealer)))
}

/// The leaves that paths show to an observer of the store, with so many levels cached. For a Path
/// ORAM, fused or not.
pub fn drawn_path_leaves<C: Sealer>(pages: u64, cached: usize, sealer: &C) -> Result<DrawnLeaves> {
    let below = below(&path_shape(pages)?, cached)?;
    Ok(DrawnLeaves::new(0, &below, SealedTree::layout(&below, PAGE_LEN, sealer)))
}

/// The same for a Ring ORAM.
pub fn drawn_ring_leaves<C: Sealer>(pages: u64, cached: usize, sealer: &C) -> Result<DrawnLeaves> {
    let below = below(&RING.shape_for(pages)?, cached)?;
    Ok(DrawnLeaves::new(0, &below, SealedRing::metadata_layout(RING, &below, sealer)))
}

fn leaves_of(shape: &Shape, layout: &TreeLayout) -> Vec<u64> {
    let last = shape.levels() - 1;
    let at = |leaf| layout.bucket_at(last, shape.bucket(Leaf(leaf), last));
    (0..shape.leaves()).map(at).collect()
}

/// Bytes of a stash, of labels, and of marks.
fn beside_tree(pages: u64, stash_blocks: usize) -> Result<usize> {
    let pages = usize::try_from(pages).map_err(|_| Error::Geometry("too many pages"))?;
    Ok((stash_blocks + 1) * (PAGE_LEN + BESIDE_BODY) + pages * (LABEL_LEN + size_of::<bool>()))
}

/// The buckets of a Path ORAM for so many pages.
pub(super) fn path_shape(pages: u64) -> Result<Shape> {
    Shape::for_blocks(pages, Z, SLOTS_PER_PAGE)
}

/// The levels in the store; the leaves are always among them.
pub(super) fn below(shape: &Shape, cached: usize) -> Result<Shape> {
    if cached >= shape.levels() {
        return Err(Error::Geometry("as many levels are cached as there are"));
    }
    Ok(shape.only(|level| level >= cached))
}

/// Which pages were put away since they were zeros last.
pub(super) struct WrittenPages(Vec<bool>);

impl WrittenPages {
    pub(super) fn of(pages: u64) -> Result<Self> {
        let len = usize::try_from(pages).map_err(|_| Error::Geometry("too many pages"))?;
        Ok(Self(vec![false; len]))
    }

    pub(super) fn pages(&self) -> u64 {
        self.0.len() as u64
    }

    pub(super) fn set(&mut self, page: u64, written: bool) {
        self.0[page as usize] = written;
    }

    pub(super) fn has(&self, page: u64) -> bool {
        self.0[page as usize]
    }
}

/// Path ORAM as it is: two accesses a fault.
pub struct Path<C> {
    oram: SteppedOram<PathOram<Tree<C>>>,
    written: WrittenPages,
    trusted_bytes: usize,
}

impl<C: Sealer> Path<C> {
    /// A scheme with pages of zeros. [`TreeSize::path`] calculates how large the store must be.
    pub fn new(mut parts: TreeParts<C>) -> Result<Self> {
        let (tree, trusted_bytes) = parts.tree()?;
        let oram = PathOram::new(parts.pages, vec![tree], STASH_BLOCKS, parts.rng)?;
        Ok(Self {
            oram: SteppedOram::new(oram),
            written: WrittenPages::of(parts.pages)?,
            trusted_bytes,
        })
    }
}

impl<C: Sealer> PageScheme for Path<C> {
    fn pages(&self) -> u64 {
        self.written.pages()
    }

    fn swap(&mut self, out: Option<u64>, wanted: Option<u64>, frame: &mut Page) -> Result {
        if let Some(page) = out {
            self.oram.access(Addr(page), |body| body.copy_from_slice(frame))?;
            self.written.set(page, true);
        }
        if let Some(page) = wanted {
            self.oram.access(Addr(page), |body| frame.copy_from_slice(body))?;
            if !self.written.has(page) {
                frame.fill(0);
            }
        }
        Ok(())
    }

    fn swap_with_dummies(
        &mut self,
        out: Option<u64>,
        wanted: Option<u64>,
        frame: &mut Page,
    ) -> Result {
        for page in [out, wanted] {
            if page.is_none() {
                self.oram.controller_mut().step(&mut |_, _| {})?;
            }
        }
        self.swap(out, wanted, frame)
    }

    fn holds(&self, page: u64) -> bool {
        self.written.has(page)
    }

    fn forget(&mut self, page: u64) {
        self.written.set(page, false);
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }

    fn trusted_bytes(&self) -> usize {
        self.trusted_bytes
    }
}
