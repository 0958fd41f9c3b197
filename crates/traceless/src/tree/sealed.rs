//! A tree of sealed buckets in a store.

use super::open_path::{OpenPath, children};
use super::{BucketTree, Fill, Header, PendingBuckets, Shape, TreeLayout};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::durable::{Durable, load_words, save_words, take_saved};
use traceless_core::error::{Error, Place, Result};
use traceless_core::rng::Rng;
use traceless_core::seal::{Nonce, Salt, Sealer};
use traceless_core::store::Store;
use traceless_core::types::{Extent, Leaf};

/// Bytes of a subtree with neighbouring buckets.
const TOGETHER: usize = 4096;

const VERSION_LEN: usize = 8;

/// Bits of a nonce's version that hold the level.
const LEVEL_BITS: u32 = 6;

/// A tree in which each bucket is sealed as a unit. A bucket is a salt and a tag, followed by the
/// sealed part: a link to each of its children, its headers, its bodies. A leaf has no links.
///
/// The link to a bucket is its version, the number of the path write that wrote it last: so a path
/// read verifies, from the root down, that every bucket is the newest, and no other copy is
/// accepted. The links to the uppermost buckets are trusted state. Version 0 is never written: a
/// bucket with this version is empty, and its bytes are ignored.
///
/// Each path write has a nonce of its own on each level. It writes one bucket there, so the version
/// also identifies the bucket: a bucket in another's place is refused.
///
/// The sealer determines how buckets are verified. With a tag that needs a key, as described above.
/// A tag that anyone can compute is kept in the link, behind the version, which makes this a Merkle
/// tree. Without a tag, this tree verifies nothing, and a layer above must verify each block.
pub struct SealedTree<C> {
    store: Arc<dyn Store>,
    first: u64,
    name: &'static str,
    shape: Shape,
    layout: TreeLayout,
    sealer: C,
    /// Draws a salt for each path write.
    salts: Box<dyn Rng>,
    salt: Salt,
    body_len: usize,
    /// The uppermost level that has slots.
    top: usize,
    /// The links to the buckets of the uppermost level.
    roots: Vec<u8>,
    /// Bytes of a link.
    link_len: usize,
    /// Buffer for one link.
    link: Vec<u8>,
    /// Number of path writes.
    count: u64,
    path: OpenPath,
    /// Buckets that are not in the store yet, if writes are held back.
    held: Option<PendingBuckets>,
}

impl<C: Sealer> SealedTree<C> {
    /// Bytes that the tree takes in a store.
    pub fn store_len(shape: &Shape, body_len: usize, sealer: &C) -> u64 {
        Self::layout(shape, body_len, sealer).len()
    }

    /// The places of the tree's buckets.
    pub fn layout(shape: &Shape, body_len: usize, sealer: &C) -> TreeLayout {
        let overhead = |level| front_len(sealer) + children(shape, level) * link_len_of(sealer);
        TreeLayout::new(shape, body_len, overhead, TOGETHER)
    }

    /// A tree without blocks, in a part of `store` that begins at `first`; its old contents do not
    /// matter. `sealer` must never have sealed anything. `salts` draws anew at each call.
    pub fn create(
        store: Arc<dyn Store>,
        first: u64,
        name: &'static str,
        shape: Shape,
        body_len: usize,
        sealer: C,
        salts: Box<dyn Rng>,
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
        let link_len = link_len_of(&sealer);
        Ok(Self {
            roots: vec![0; shape.buckets(top) as usize * link_len],
            link: vec![0; link_len],
            path: OpenPath::new(&shape, &layout, body_len, front_len(&sealer), link_len),
            link_len,
            count: 0,
            top,
            store,
            first,
            name,
            shape,
            layout,
            sealer,
            salts,
            salt: Salt(0),
            body_len,
            held: None,
        })
    }

    /// Number of path writes so far.
    pub fn path_writes(&self) -> u64 {
        self.count
    }

    /// Bytes of a path on the store.
    pub fn path_len(&self) -> usize {
        self.path.bytes.len()
    }

    /// Sets the number of path writes to `count`, which must not be lower.
    pub fn skip_to(&mut self, count: u64) {
        assert!(count >= self.count, "versions never come again");
        self.count = count;
    }

    /// The path write to which a nonce's version belongs, for sealers that choose a key by it.
    pub fn path_write_of(nonce: u64) -> u64 {
        nonce >> LEVEL_BITS
    }

    /// The sealer, mutable, to give it another key.
    pub fn sealer_mut(&mut self) -> &mut C {
        &mut self.sealer
    }

    /// From now on writes wait in memory until [`write_pending`](Self::write_pending), and the
    /// store does not change.
    pub fn hold_back(&mut self) {
        self.held = Some(PendingBuckets::default());
    }

    /// The pending buckets, if writes are held back.
    pub fn held(&self) -> Option<&PendingBuckets> {
        self.held.as_ref()
    }

    /// Writes the pending buckets to their places.
    pub fn write_pending(&mut self) -> Result {
        let Some(held) = &mut self.held else { return Ok(()) };
        held.write_to(&*self.store, self.first)
    }

    /// Opens the bucket of a level on the open path. Its parent must be open.
    fn open_bucket(&mut self, level: usize) -> Result {
        let bucket = self.shape.bucket(self.path.leaf, level);
        self.link.copy_from_slice(match level.checked_sub(1).filter(|_| level > self.top) {
            None => &self.roots[bucket as usize * self.link_len..][..self.link_len],
            Some(parent) => self.path.link(parent, self.shape.branch(self.path.leaf, level)),
        });
        let (version, apart) = self.link.split_at(VERSION_LEN);
        let version = u64::from_le_bytes(version.try_into().expect("a version's bytes"));
        let (front, body) = self.path.bucket(level);
        if version == 0 {
            body.fill(0);
            return Ok(());
        }
        let (salt, tag) = Salt::split(front);
        let tag = if apart.is_empty() { tag } else { apart };
        let nonce = Nonce::new(numbered(version, level), salt);
        let opened = self.sealer.open_in_place(nonce, &[], body, tag);
        opened.map_err(|_| self.tampered(level))
    }

    /// Seals bucket number `bucket` of a level, and puts its link into its parent, which is sealed
    /// after it.
    fn seal_bucket(&mut self, level: usize, bucket: u64) {
        self.link[..VERSION_LEN].copy_from_slice(&self.count.to_le_bytes());
        let (front, body) = self.path.bucket(level);
        let tag = self.salt.put(front);
        let apart = &mut self.link[VERSION_LEN..];
        let tag = if apart.is_empty() { tag } else { apart };
        let nonce = Nonce::new(numbered(self.count, level), self.salt);
        self.sealer.seal_in_place(nonce, &[], body, tag);
        if level == self.top {
            let root = bucket as usize * self.link_len;
            self.roots[root..root + self.link_len].copy_from_slice(&self.link);
        } else {
            let branch = (bucket % u64::from(self.shape.arity())) as usize;
            self.path.link_mut(level - 1, branch).copy_from_slice(&self.link);
        }
    }

    /// Seals the open path with the given headers, and returns the extents and bytes to write. For
    /// callers that write the path together with other data, instead of
    /// [`write_path`](BucketTree::write_path).
    pub fn seal_path(&mut self, headers: &[Header]) -> (&[Extent], &[u8]) {
        let leaf = self.path.leaf;
        self.count_write();
        self.path.write_headers(&self.shape, headers);
        self.salt = self.salts.salt();
        // From the leaf up: a parent is sealed with the links to its children.
        for level in (self.top..self.shape.levels()).rev() {
            self.seal_bucket(level, self.shape.bucket(leaf, level));
        }
        (&self.path.extents, &self.path.bytes)
    }

    /// Counts a path write.
    fn count_write(&mut self) {
        self.count += 1;
        assert!(self.count < 1 << (64 - LEVEL_BITS), "no tree lives that long");
    }

    /// Checks the labels of headers that no tag authenticates: they may hold anything.
    fn check_headers(&self, headers: &[Header]) -> Result {
        for level in self.top..self.shape.levels() {
            let slots = self.shape.path_start(level)..self.shape.path_start(level + 1);
            if headers[slots].iter().any(|h| h.leaf().0 >= self.shape.leaves()) {
                return Err(self.tampered(level));
            }
        }
        Ok(())
    }

    /// The error for a bucket on the open path that does not verify.
    fn tampered(&self, level: usize) -> Error {
        let above: u64 = (0..level).map(|l| self.shape.buckets(l)).sum();
        let slot = above + self.shape.bucket(self.path.leaf, level);
        Error::Tampered { place: Place { area: self.name, slot, block: None } }
    }

    /// Replaces the buckets that were read by pending copies. The reads do not depend on which
    /// buckets are pending.
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

    fn prefetch(&mut self, leaf: Leaf) {
        // Many short extents: without a prefetch each would wait for the one before it.
        let extents = self.path.look_ahead(&self.shape, &self.layout, self.first, leaf);
        self.store.prefetch(extents);
    }

    fn read_path(&mut self, leaf: Leaf, headers: &mut [Header]) -> Result {
        if !self.path.is_ahead(leaf) {
            self.prefetch(leaf);
        }
        self.path.turn();
        self.store.read(&self.path.extents, &mut self.path.bytes)?;
        self.read_held();
        for level in self.top..self.shape.levels() {
            self.open_bucket(level)?;
        }
        self.path.read_headers(&self.shape, headers);
        if self.sealer.tag_len() == 0 { self.check_headers(headers) } else { Ok(()) }
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
        self.seal_path(headers);
        let leaf = self.path.leaf;
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

/// Counts as many path writes as there are leaves: each bucket has the number of the last leaf
/// below it.
impl<C: Sealer> Fill for SealedTree<C> {
    fn fill_bucket(
        &mut self,
        level: usize,
        bucket: u64,
        headers: &[Header],
        bodies: &[u8],
    ) -> Result {
        let waits = self.held.as_ref().is_some_and(|held| !held.bytes().is_empty());
        assert!(!waits, "a tree is filled before anything waits");
        if level + 1 == self.shape.levels() {
            self.count_write();
        }
        self.path.fill(level, headers, bodies);
        self.salt = self.salts.salt();
        self.seal_bucket(level, bucket);
        let at = self.first + self.layout.bucket_at(level, bucket);
        let extent = Extent::new(at, self.layout.bucket_len(level));
        let whole = self.path.whole_bucket(level);
        self.store.write(&[extent], whole)?;
        whole.fill(0);
        Ok(())
    }
}

impl<C: Sealer> Durable for SealedTree<C> {
    fn save(&self, out: &mut Vec<u8>) {
        save_words(&[self.count], out);
        out.extend_from_slice(&self.roots);
    }

    fn load(&mut self, from: &mut &[u8]) -> Result {
        load_words(core::slice::from_mut(&mut self.count), from)?;
        let roots = take_saved(from, self.roots.len())?;
        self.roots.copy_from_slice(roots);
        Ok(())
    }
}

/// Bytes in front of a bucket's sealed part: its salt, and its tag if the bucket holds it.
fn front_len(sealer: &impl Sealer) -> usize {
    Salt::LEN + own_tag_len(sealer)
}

/// Bytes of a tag that the bucket itself holds.
fn own_tag_len(sealer: &impl Sealer) -> usize {
    if sealer.tag_is_public() { 0 } else { sealer.tag_len() }
}

fn link_len_of(sealer: &impl Sealer) -> usize {
    VERSION_LEN + sealer.tag_len() - own_tag_len(sealer)
}

/// The version of a bucket's nonce.
fn numbered(version: u64, level: usize) -> u64 {
    version << LEVEL_BITS | level as u64
}
