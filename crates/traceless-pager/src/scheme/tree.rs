//! Path ORAM and Ring ORAM for pages: they hide which pages come, too, where reads of the store can
//! be seen.
//!
//! As they are, a fault is two accesses: the page that leaves is written, and the one that comes is
//! read. [`FusedPath`] makes them one. The page that comes is taken out of the tree, since it is in
//! a frame from then on; and the one that leaves needs no path of its own: it goes to a path drawn
//! anew by way of the stash, which is emptied along the path that was just read.

use super::PageScheme;
use crate::slots::Buffer;
use crate::{PAGE_LEN, Page};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use traceless::Hides;
use traceless::controller::{Controller, Stepped};
use traceless::error::{Error, Result};
use traceless::posmap::Flat;
use traceless::rng::Rng;
use traceless::scheme::path::PathOram;
use traceless::scheme::ring::{Params, Ring, RingTop, SealedRing};
use traceless::seal::{Sealer, Secret};
use traceless::store::Store;
use traceless::tree::{Engine, Header, STASH_BLOCKS, SealedTree, Shape, Treetop};
use traceless::types::{Addr, Leaf};

/// Pages that a bucket of a Path ORAM holds.
const Z: u8 = 4;

/// Slots for each page, about: half of them are empty.
const SLOTS_PER_PAGE: f64 = 1.9;

/// Buckets of a Ring ORAM.
const RING: Params = Params::Z16;

type Tree<C> = Treetop<SealedTree<C>>;

/// What a tree is made of.
pub struct TreeParts<C> {
    /// The untrusted side, as long as the scheme's `store_len` says.
    pub store: Arc<dyn Store>,
    /// Number of pages.
    pub pages: u64,
    /// Uppermost levels that are kept in trusted memory.
    pub cached: usize,
    /// Makes a sealer of a key.
    pub sealer: fn(&Secret) -> C,
    /// Source of keys and paths.
    pub rng: Box<dyn Rng>,
}

impl<C: Sealer> TreeParts<C> {
    fn key(&mut self) -> C {
        (self.sealer)(&Secret::random(&mut *self.rng))
    }

    fn tree(&mut self) -> Result<Tree<C>> {
        let (shape, cached) = (path_shape(self.pages)?, self.cached);
        let below = below(&shape, cached)?;
        let sealer = self.key();
        let tree = SealedTree::create(self.store.clone(), 0, "pages", below, PAGE_LEN, sealer)?;
        Treetop::new(shape, cached, tree)
    }
}

fn path_shape(pages: u64) -> Result<Shape> {
    Shape::for_blocks(pages, Z, SLOTS_PER_PAGE)
}

/// The levels in the store; the leaves always are.
fn below(shape: &Shape, cached: usize) -> Result<Shape> {
    if cached >= shape.levels() {
        return Err(Error::Geometry("as many levels are cached as there are"));
    }
    Ok(shape.only(|level| level >= cached))
}

/// Which pages were put away since they were zeros last.
struct Written(Vec<bool>);

impl Written {
    fn of(pages: u64) -> Result<Self> {
        let len = usize::try_from(pages).map_err(|_| Error::Geometry("too many pages"))?;
        Ok(Self(vec![false; len]))
    }

    fn set(&mut self, page: u64, written: bool) {
        self.0[page as usize] = written;
    }

    fn has(&self, page: u64) -> bool {
        self.0[page as usize]
    }
}

/// A tree ORAM as it is: two accesses a fault.
pub struct Accessed<O> {
    oram: Stepped<O>,
    written: Written,
    trusted_bytes: usize,
}

/// Path ORAM.
pub type Path<C> = Accessed<PathOram<Tree<C>>>;

/// Ring ORAM.
pub type RingOram<C> = Accessed<Ring<RingTop<SealedRing<C>>>>;

impl<C: Sealer> Path<C> {
    /// Bytes of store that so many pages take.
    pub fn store_len(pages: u64, cached: usize, sealer: &C) -> Result<u64> {
        Ok(SealedTree::store_len(&below(&path_shape(pages)?, cached)?, PAGE_LEN, sealer))
    }

    /// Pages of zeros.
    pub fn path(mut parts: TreeParts<C>) -> Result<Self> {
        let tree = parts.tree()?;
        let trusted_bytes = tree.memory() + stash_bytes(&parts);
        let oram = PathOram::new(parts.pages, vec![tree], STASH_BLOCKS, parts.rng)?;
        Ok(Self { oram: Stepped::new(oram), written: Written::of(parts.pages)?, trusted_bytes })
    }
}

impl<C: Sealer> RingOram<C> {
    /// Bytes of store that so many pages take.
    pub fn store_len(pages: u64, cached: usize, sealer: &C) -> Result<u64> {
        let shape = below(&RING.shape_for(pages)?, cached)?;
        Ok(SealedRing::store_len(RING, &shape, PAGE_LEN, sealer))
    }

    /// Pages of zeros.
    pub fn ring(mut parts: TreeParts<C>) -> Result<Self> {
        let shape = RING.shape_for(parts.pages)?;
        let below = below(&shape, parts.cached)?;
        let (metadata, slots) = (parts.key(), parts.key());
        let store = parts.store.clone();
        let tree = SealedRing::create(store, 0, RING, below, PAGE_LEN, metadata, slots)?;
        let tree = RingTop::new(shape, parts.cached, tree)?;
        let trusted_bytes = tree.memory() + stash_bytes(&parts);
        let oram = Ring::new(parts.pages, tree, parts.rng)?;
        Ok(Self { oram: Stepped::new(oram), written: Written::of(parts.pages)?, trusted_bytes })
    }
}

/// Bytes of stash, labels and marks.
fn stash_bytes<C>(parts: &TreeParts<C>) -> usize {
    STASH_BLOCKS * PAGE_LEN + parts.pages as usize * 5
}

impl<O: Controller> PageScheme for Accessed<O> {
    fn pages(&self) -> u64 {
        self.written.0.len() as u64
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

/// Path ORAM with one access a fault: the path of the page that comes is read, and written with
/// what waits in the stash, the page that leaves among it.
pub struct FusedPath<C> {
    engine: Engine<Tree<C>>,
    /// The path of each page that was put away, also when it is in a frame again.
    map: Flat,
    /// Whether the page is in the tree or the stash.
    inside: Written,
    written: Written,
    rng: Box<dyn Rng>,
    buffer: Buffer,
    trusted_bytes: usize,
}

impl<C: Sealer> FusedPath<C> {
    /// Pages of zeros.
    pub fn new(mut parts: TreeParts<C>) -> Result<Self> {
        let tree = parts.tree()?;
        let trusted_bytes = tree.memory() + stash_bytes(&parts) + parts.pages as usize;
        let (inside, written) = (Written::of(parts.pages)?, Written::of(parts.pages)?);
        Ok(Self {
            map: Flat::new(written.0.len()),
            engine: Engine::new(tree, STASH_BLOCKS),
            inside,
            written,
            rng: parts.rng,
            buffer: Buffer::default(),
            trusted_bytes,
        })
    }

    fn draw(&mut self) -> Leaf {
        Leaf(self.rng.below(self.engine.shape().leaves()))
    }

    /// The path to read for a page: its own once, and any one if it has none.
    fn path_of(&mut self, wanted: Option<u64>) -> Leaf {
        let drawn = self.draw();
        let own = wanted.filter(|&page| self.inside.has(page));
        own.and_then(|page| self.map.label(Addr(page))).unwrap_or(drawn)
    }
}

impl<C: Sealer> PageScheme for FusedPath<C> {
    fn pages(&self) -> u64 {
        self.written.0.len() as u64
    }

    fn swap(&mut self, out: Option<u64>, wanted: Option<u64>, frame: &mut Page) -> Result {
        let leaf = self.path_of(wanted);
        self.engine.fetch(leaf)?;
        if let Some(page) = wanted {
            self.engine.remove(Addr(page), self.buffer.body());
            if !self.written.has(page) {
                self.buffer.body().fill(0);
            }
            self.inside.set(page, false);
        }
        if let Some(page) = out {
            let leaf = self.draw();
            self.engine.put(Header::new(Addr(page), leaf), frame)?;
            self.map.remap(Addr(page), leaf);
            self.inside.set(page, true);
            self.written.set(page, true);
        }
        self.engine.evict()?;
        if wanted.is_some() {
            frame.copy_from_slice(self.buffer.body());
        }
        Ok(())
    }

    fn holds(&self, page: u64) -> bool {
        self.written.has(page)
    }

    fn look(&mut self, page: u64, frame: &mut Page) -> Result {
        // What is read is taken out.
        self.swap(None, Some(page), frame)?;
        self.swap(Some(page), None, frame)
    }

    fn forget(&mut self, page: u64) {
        // What is in the tree stays there until the page comes: it is taken out then, as any other.
        self.written.set(page, false);
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }

    fn trusted_bytes(&self) -> usize {
        self.trusted_bytes
    }
}
