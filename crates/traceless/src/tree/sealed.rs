//! A tree of sealed buckets in a store.

use super::{BucketTree, HEADER_LEN, Header, Held, Shape, TreeLayout};
use crate::durable::{Durable, load_words, save_words};
use crate::error::{Error, Place, Result};
use crate::seal::Sealer;
use crate::store::Store;
use crate::types::{Extent, Leaf, push_extent};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

/// Bytes that lie together, in subtrees.
const TOGETHER: usize = 4096;

const VERSION_LEN: usize = 8;

/// Bits of a nonce that tell the level.
const LEVEL_BITS: u32 = 6;

/// A tree whose unit of sealing is the bucket: a tag, then, sealed, the versions of its children,
/// its headers, its bodies. A leaf has no children, and no versions.
///
/// A bucket's version is the number of the path write that wrote it last, and its parent holds it:
/// so a path read verifies, from the root down, that every bucket is the newest, and no other copy
/// is accepted. The versions of the uppermost buckets are trusted state. Version 0 is never
/// written: such a bucket is empty, and its bytes are not looked at.
///
/// Each path write is a nonce of its own on each level. It wrote one bucket there, so the version
/// also tells which bucket is meant: a bucket in another's place is refused.
pub struct SealedTree<C> {
    store: Arc<dyn Store>,
    first: u64,
    name: &'static str,
    shape: Shape,
    layout: TreeLayout,
    sealer: C,
    body_len: usize,
    /// The uppermost level that has slots.
    top: usize,
    /// The versions of its buckets.
    roots: Vec<u64>,
    /// Path writes made.
    count: u64,
    path: OpenPath,
    /// What is not in the store yet, if writes are held back.
    held: Option<Held>,
}

/// The path read last.
struct OpenPath {
    leaf: Leaf,
    extents: Vec<Extent>,
    /// Its buckets, from the root down; opened and sealed where they are.
    bytes: Vec<u8>,
    levels: Vec<LevelPlace>,
    /// Of each slot: first byte of its body.
    bodies: Vec<usize>,
}

/// First bytes of the parts of a bucket.
#[derive(Clone, Copy)]
struct LevelPlace {
    tag: usize,
    versions: usize,
    headers: usize,
    end: usize,
}

impl<C: Sealer> SealedTree<C> {
    /// Bytes that such a tree takes on a store.
    pub fn store_len(shape: &Shape, body_len: usize, sealer: &C) -> u64 {
        Self::layout(shape, body_len, sealer).len()
    }

    /// Where the buckets of such a tree lie.
    pub fn layout(shape: &Shape, body_len: usize, sealer: &C) -> TreeLayout {
        let overhead = |level| sealer.tag_len() + children(shape, level) * VERSION_LEN;
        TreeLayout::new(shape, body_len, overhead, TOGETHER)
    }

    /// A tree without blocks, in a part of `store` that begins at `first` and whose bytes do not
    /// matter. `sealer` must never have sealed anything.
    pub fn create(
        store: Arc<dyn Store>,
        first: u64,
        name: &'static str,
        shape: Shape,
        body_len: usize,
        sealer: C,
    ) -> Result<Self> {
        let layout = Self::layout(&shape, body_len, &sealer);
        if store.len() < first + layout.len() {
            return Err(Error::Geometry("the store is smaller than the tree"));
        }
        let top = (0..shape.levels()).find(|&l| shape.z(l) > 0);
        let top = top.ok_or(Error::Geometry("a tree has slots"))?;
        if (top..shape.levels()).any(|l| shape.z(l) == 0) {
            return Err(Error::Geometry("only the uppermost levels may be without slots"));
        }
        Ok(Self {
            roots: vec![0; shape.buckets(top) as usize],
            path: OpenPath::new(&shape, &layout, body_len, sealer.tag_len()),
            count: 0,
            top,
            store,
            first,
            name,
            shape,
            layout,
            sealer,
            body_len,
            held: None,
        })
    }

    /// Path writes made so far.
    pub fn path_writes(&self) -> u64 {
        self.count
    }

    /// Bytes of a path on the store.
    pub fn path_len(&self) -> usize {
        self.path.bytes.len()
    }

    /// Goes on after `count` path writes: no fewer than were made.
    pub fn skip_to(&mut self, count: u64) {
        assert!(count >= self.count, "versions never come again");
        self.count = count;
    }

    /// The path write whose nonce this is, for sealers that choose a key by it.
    pub fn path_write_of(nonce: u64) -> u64 {
        nonce >> LEVEL_BITS
    }

    /// The sealer, to be given another key.
    pub fn sealer_mut(&mut self) -> &mut C {
        &mut self.sealer
    }

    /// From now on writes wait in memory until [`write_held`](Self::write_held): what lies in the
    /// store stays as it is.
    pub fn hold_back(&mut self) {
        self.held = Some(Held::default());
    }

    /// What waits, if writes are held back.
    pub fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// Writes what waits to its place.
    pub fn write_held(&mut self) -> Result {
        let Some(held) = &mut self.held else { return Ok(()) };
        if !held.bytes().is_empty() {
            self.store.write(&extents_at(self.first, held.extents()), held.bytes())?;
            held.clear();
        }
        Ok(())
    }

    fn open_bucket(&mut self, level: usize, version: u64) -> Result {
        let (tag, body) = self.path.bucket(level);
        if version == 0 {
            body.fill(0);
            return Ok(());
        }
        self.sealer.open_in_place(nonce(version, level), &[], body, tag).map_err(|_| {
            let above: u64 = (0..level).map(|l| self.shape.buckets(l)).sum();
            let slot = above + self.shape.bucket(self.path.leaf, level);
            Error::Tampered { place: Place { area: self.name, slot, block: None } }
        })
    }

    /// Replaces what was read by what waits: the same is read whatever waits.
    fn read_held(&mut self) {
        let Some(held) = &self.held else { return };
        for level in self.top..self.shape.levels() {
            let at = self.layout.bucket_at(level, self.shape.bucket(self.path.leaf, level));
            held.copy_to(at, self.path.whole_bucket(level));
        }
    }
}

impl<C: Sealer> BucketTree for SealedTree<C> {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn body_len(&self) -> usize {
        self.body_len
    }

    fn read_path(&mut self, leaf: Leaf, headers: &mut [Header]) -> Result {
        self.path.locate(&self.shape, &self.layout, self.first, leaf);
        // Many short stretches: one after the other would wait for each in turn.
        self.store.prefetch(&self.path.extents);
        self.store.read(&self.path.extents, &mut self.path.bytes)?;
        self.read_held();
        let mut version = self.roots[self.shape.bucket(leaf, self.top) as usize];
        for level in self.top..self.shape.levels() {
            self.open_bucket(level, version)?;
            if level + 1 < self.shape.levels() {
                let branch = self.shape.branch(leaf, level + 1);
                version = u64::from_le_bytes(*self.path.child_version(level, branch));
            }
        }
        self.path.headers(&self.shape, |nth, bytes| headers[nth] = Header::from_bytes(bytes));
        Ok(())
    }

    fn expect(&mut self, leaf: Leaf) {
        self.path.locate(&self.shape, &self.layout, self.first, leaf);
        self.store.prefetch(&self.path.extents);
    }

    #[inline]
    fn body(&self, slot: usize) -> &[u8] {
        &self.path.bytes[self.path.bodies[slot]..][..self.body_len]
    }

    #[inline]
    fn body_mut(&mut self, slot: usize) -> &mut [u8] {
        &mut self.path.bytes[self.path.bodies[slot]..][..self.body_len]
    }

    #[inline]
    fn copy_body(&mut self, from: usize, to: usize) {
        let (from, to) = (self.path.bodies[from], self.path.bodies[to]);
        self.path.bytes.copy_within(from..from + self.body_len, to);
    }

    fn write_path(&mut self, headers: &[Header]) -> Result {
        let leaf = self.path.leaf;
        self.count += 1;
        assert!(self.count < 1 << (64 - LEVEL_BITS), "no tree lives that long");
        self.path
            .headers(&self.shape, |nth, bytes| bytes.copy_from_slice(&headers[nth].to_bytes()));
        for level in self.top..self.shape.levels() {
            if level + 1 < self.shape.levels() {
                let branch = self.shape.branch(leaf, level + 1);
                *self.path.child_version(level, branch) = self.count.to_le_bytes();
            }
            let (tag, body) = self.path.bucket(level);
            self.sealer.seal_in_place(nonce(self.count, level), &[], body, tag);
        }
        let root = self.shape.bucket(leaf, self.top) as usize;
        self.roots[root] = self.count;
        let Some(held) = &mut self.held else {
            return self.store.write(&self.path.extents, &self.path.bytes);
        };
        for level in self.top..self.shape.levels() {
            let at = self.layout.bucket_at(level, self.shape.bucket(leaf, level));
            held.hold(at, self.path.whole_bucket(level));
        }
        Ok(())
    }

    fn sync(&mut self) -> Result {
        self.store.sync()
    }
}

impl<C: Sealer> Durable for SealedTree<C> {
    fn save(&self, out: &mut Vec<u8>) {
        save_words(&[self.count], out);
        save_words(&self.roots, out);
    }

    fn load(&mut self, from: &mut &[u8]) -> Result {
        load_words(core::slice::from_mut(&mut self.count), from)?;
        load_words(&mut self.roots, from)
    }
}

impl OpenPath {
    fn new(shape: &Shape, layout: &TreeLayout, body_len: usize, tag_len: usize) -> Self {
        let mut end = 0;
        let (mut levels, mut bodies) = (Vec::new(), Vec::new());
        for level in 0..shape.levels() {
            let (tag, z) = (end, shape.z(level));
            end += layout.bucket_len(level);
            let versions = (tag + tag_len).min(end);
            let headers = versions + children(shape, level) * VERSION_LEN;
            levels.push(LevelPlace { tag, versions, headers, end });
            bodies.extend((0..z).map(|nth| headers + z * HEADER_LEN + nth * body_len));
        }
        Self {
            leaf: Leaf(0),
            extents: Vec::with_capacity(shape.levels()),
            bytes: vec![0; end],
            levels,
            bodies,
        }
    }

    /// The bucket of a level, as it lies in the store.
    fn whole_bucket(&mut self, level: usize) -> &mut [u8] {
        let LevelPlace { tag, end, .. } = self.levels[level];
        &mut self.bytes[tag..end]
    }

    /// Tag and body of the bucket of a level.
    fn bucket(&mut self, level: usize) -> (&mut [u8], &mut [u8]) {
        let LevelPlace { tag, versions, end, .. } = self.levels[level];
        let (tag, body) = self.bytes[tag..end].split_at_mut(versions - tag);
        (tag, body)
    }

    fn locate(&mut self, shape: &Shape, layout: &TreeLayout, first: u64, leaf: Leaf) {
        self.leaf = leaf;
        self.extents.clear();
        for level in (0..shape.levels()).filter(|&l| shape.z(l) > 0) {
            let at = first + layout.bucket_at(level, shape.bucket(leaf, level));
            push_extent(&mut self.extents, Extent::new(at, layout.bucket_len(level)));
        }
    }

    #[inline]
    fn child_version(&mut self, level: usize, branch: usize) -> &mut [u8; VERSION_LEN] {
        let at = self.levels[level].versions + branch * VERSION_LEN;
        (&mut self.bytes[at..at + VERSION_LEN]).try_into().expect("the bytes of a version")
    }

    fn headers(&mut self, shape: &Shape, mut each: impl FnMut(usize, &mut [u8])) {
        let mut slot = 0;
        for level in 0..shape.levels() {
            let z = shape.z(level);
            let first = self.levels[level].headers;
            for nth in 0..z {
                each(slot, &mut self.bytes[first + nth * HEADER_LEN..][..HEADER_LEN]);
                slot += 1;
            }
        }
    }
}

/// Buckets below one of `level`.
fn children(shape: &Shape, level: usize) -> usize {
    if level + 1 < shape.levels() { shape.arity() as usize } else { 0 }
}

/// The extents of a tree, as bytes of the store in which it begins at `first`.
pub fn extents_at(first: u64, extents: &[Extent]) -> Vec<Extent> {
    let mut moved = Vec::with_capacity(extents.len());
    for e in extents {
        push_extent(&mut moved, Extent::new(first + e.at, e.len));
    }
    moved
}

fn nonce(version: u64, level: usize) -> u64 {
    version << LEVEL_BITS | level as u64
}
