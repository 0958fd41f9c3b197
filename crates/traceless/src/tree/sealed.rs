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
/// its headers, its bodies.
///
/// A bucket's version is the number of the path write that wrote it last, and its parent holds it:
/// so a path read verifies, from the root down, that every bucket is the newest, and no other copy
/// is accepted. The versions of the uppermost buckets are trusted state. Version 0 is never
/// written: such a bucket is empty, and its bytes are not looked at.
///
/// Each path write is a nonce of its own on each level.
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
    sealed: Vec<u8>,
    plain: Vec<u8>,
    /// Of each level: its bucket in `sealed`, and in `plain`.
    levels: Vec<LevelPlace>,
    /// Of each slot: its body in `plain`.
    bodies: Vec<usize>,
}

#[derive(Clone, Copy)]
struct LevelPlace {
    sealed: usize,
    plain: usize,
    /// First byte after the bucket in `plain`.
    plain_end: usize,
    /// Its headers in `plain`.
    headers: usize,
}

impl<C: Sealer> SealedTree<C> {
    /// Bytes that such a tree takes on a store.
    pub fn store_len(shape: &Shape, body_len: usize, sealer: &C) -> u64 {
        Self::layout(shape, body_len, sealer).len()
    }

    /// Where the buckets of such a tree lie.
    pub fn layout(shape: &Shape, body_len: usize, sealer: &C) -> TreeLayout {
        let overhead = sealer.tag_len() + shape.arity() as usize * VERSION_LEN;
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
        self.path.sealed.len()
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
        let OpenPath { leaf, sealed, plain, levels, .. } = &mut self.path;
        let (place, tag_len) = (levels[level], self.sealer.tag_len());
        let plain = &mut plain[place.plain..place.plain_end];
        if version == 0 {
            plain.fill(0);
            return Ok(());
        }
        let (tag, sealed) = sealed[place.sealed..].split_at(tag_len);
        let bucket = self.shape.bucket(*leaf, level);
        let nonce = nonce(version, level);
        let whole =
            self.sealer.open(nonce, &bucket.to_le_bytes(), &sealed[..plain.len()], tag, plain);
        whole.map_err(|_| {
            let above: u64 = (0..level).map(|l| self.shape.buckets(l)).sum();
            Error::Tampered { place: Place { area: self.name, slot: above + bucket, block: None } }
        })
    }

    /// Replaces what was read by what waits: the same is read whatever waits.
    fn read_held(&mut self) {
        let Some(held) = &self.held else { return };
        for level in self.top..self.shape.levels() {
            let at = self.layout.bucket_at(level, self.shape.bucket(self.path.leaf, level));
            let place = self.path.levels[level].sealed;
            held.copy_to(at, &mut self.path.sealed[place..][..self.layout.bucket_len(level)]);
        }
    }

    fn seal_bucket(&mut self, level: usize) {
        let OpenPath { leaf, sealed, plain, levels, .. } = &mut self.path;
        let (place, tag_len) = (levels[level], self.sealer.tag_len());
        let plain = &plain[place.plain..place.plain_end];
        let (tag, sealed) = sealed[place.sealed..].split_at_mut(tag_len);
        let bucket = self.shape.bucket(*leaf, level).to_le_bytes();
        self.sealer.seal(nonce(self.count, level), &bucket, plain, &mut sealed[..plain.len()], tag);
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
        self.store.read(&self.path.extents, &mut self.path.sealed)?;
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

    fn body(&self, slot: usize) -> &[u8] {
        &self.path.plain[self.path.bodies[slot]..][..self.body_len]
    }

    fn body_mut(&mut self, slot: usize) -> &mut [u8] {
        &mut self.path.plain[self.path.bodies[slot]..][..self.body_len]
    }

    fn copy_body(&mut self, from: usize, to: usize) {
        let (from, to) = (self.path.bodies[from], self.path.bodies[to]);
        self.path.plain.copy_within(from..from + self.body_len, to);
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
            self.seal_bucket(level);
        }
        let root = self.shape.bucket(leaf, self.top) as usize;
        self.roots[root] = self.count;
        match &mut self.held {
            None => self.store.write(&self.path.extents, &self.path.sealed),
            Some(held) => {
                for level in self.top..self.shape.levels() {
                    let at = self.layout.bucket_at(level, self.shape.bucket(leaf, level));
                    let place = self.path.levels[level].sealed;
                    held.hold(at, &self.path.sealed[place..][..self.layout.bucket_len(level)]);
                }
                Ok(())
            }
        }
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
        let versions = shape.arity() as usize * VERSION_LEN;
        let (mut sealed, mut plain) = (0, 0);
        let (mut levels, mut bodies) = (Vec::new(), Vec::new());
        for level in 0..shape.levels() {
            let (len, z) = (layout.bucket_len(level), shape.z(level));
            let plain_end = plain + len.saturating_sub(tag_len);
            let headers = plain + versions;
            levels.push(LevelPlace { sealed, plain, plain_end, headers });
            bodies.extend((0..z).map(|nth| headers + z * HEADER_LEN + nth * body_len));
            (sealed, plain) = (sealed + len, plain_end);
        }
        Self {
            leaf: Leaf(0),
            extents: Vec::with_capacity(shape.levels()),
            sealed: vec![0; sealed],
            plain: vec![0; plain],
            levels,
            bodies,
        }
    }

    fn locate(&mut self, shape: &Shape, layout: &TreeLayout, first: u64, leaf: Leaf) {
        self.leaf = leaf;
        self.extents.clear();
        for level in (0..shape.levels()).filter(|&l| shape.z(l) > 0) {
            let at = first + layout.bucket_at(level, shape.bucket(leaf, level));
            push_extent(&mut self.extents, Extent::new(at, layout.bucket_len(level)));
        }
    }

    fn child_version(&mut self, level: usize, branch: usize) -> &mut [u8; VERSION_LEN] {
        let at = self.levels[level].plain + branch * VERSION_LEN;
        (&mut self.plain[at..at + VERSION_LEN]).try_into().expect("the bytes of a version")
    }

    fn headers(&mut self, shape: &Shape, mut each: impl FnMut(usize, &mut [u8])) {
        let mut slot = 0;
        for level in 0..shape.levels() {
            let z = shape.z(level);
            let first = self.levels[level].headers;
            for nth in 0..z {
                each(slot, &mut self.plain[first + nth * HEADER_LEN..][..HEADER_LEN]);
                slot += 1;
            }
        }
    }
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
