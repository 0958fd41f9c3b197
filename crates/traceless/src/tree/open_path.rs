//! The open path of a sealed tree.

use super::fill::fill_slots;
use super::{HEADER_LEN, Header, Shape, TreeLayout};
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::types::{Extent, Leaf, push_extent};

/// The last path that was read.
pub struct OpenPath {
    pub leaf: Leaf,
    pub extents: Vec<Extent>,
    /// The path that will be read next, if it is known.
    ahead: Option<Leaf>,
    extents_ahead: Vec<Extent>,
    /// The buckets of the open path, from the root down; opened and sealed in place.
    pub bytes: Vec<u8>,
    link_len: usize,
    levels: Vec<LevelPlace>,
    /// For each slot, the first byte of its body.
    pub bodies: Vec<usize>,
}

/// First bytes of the parts of a bucket.
#[derive(Clone, Copy)]
struct LevelPlace {
    front: usize,
    links: usize,
    headers: usize,
    end: usize,
}

impl OpenPath {
    /// The path buffer of a tree with buckets of `front_len` bytes in front of the sealed part, and
    /// links of `link_len` bytes.
    pub fn new(
        shape: &Shape,
        layout: &TreeLayout,
        body_len: usize,
        front_len: usize,
        link_len: usize,
    ) -> Self {
        let mut end = 0;
        let (mut levels, mut bodies) = (Vec::new(), Vec::new());
        for level in 0..shape.levels() {
            let (front, z) = (end, shape.z(level));
            end += layout.bucket_len(level);
            let links = (front + front_len).min(end);
            let headers = (links + children(shape, level) * link_len).min(end);
            levels.push(LevelPlace { front, links, headers, end });
            bodies.extend((0..z).map(|nth| headers + z * HEADER_LEN + nth * body_len));
        }
        Self {
            leaf: Leaf(0),
            extents: Vec::with_capacity(shape.levels()),
            ahead: None,
            extents_ahead: Vec::with_capacity(shape.levels()),
            bytes: vec![0; end],
            link_len,
            levels,
            bodies,
        }
    }

    /// The bucket of a level, as it lies in the store.
    pub fn whole_bucket(&mut self, level: usize) -> &mut [u8] {
        let LevelPlace { front, end, .. } = self.levels[level];
        &mut self.bytes[front..end]
    }

    /// The unsealed front of the bucket of a level, and its sealed part.
    pub fn bucket(&mut self, level: usize) -> (&mut [u8], &mut [u8]) {
        let LevelPlace { front, links, end, .. } = self.levels[level];
        self.bytes[front..end].split_at_mut(links - front)
    }

    /// Computes the extents of the path of `leaf`, which will be read next, in a tree that begins
    /// at byte `first`. The open path stays open.
    pub fn look_ahead(
        &mut self,
        shape: &Shape,
        layout: &TreeLayout,
        first: u64,
        leaf: Leaf,
    ) -> &[Extent] {
        self.ahead = Some(leaf);
        self.extents_ahead.clear();
        for level in (0..shape.levels()).filter(|&l| shape.z(l) > 0) {
            let at = first + layout.bucket_at(level, shape.bucket(leaf, level));
            push_extent(&mut self.extents_ahead, Extent::new(at, layout.bucket_len(level)));
        }
        &self.extents_ahead
    }

    /// Whether the extents of the path of `leaf` are known, because
    /// [`look_ahead`](Self::look_ahead) was called for it last.
    pub fn is_ahead(&self, leaf: Leaf) -> bool {
        self.ahead == Some(leaf)
    }

    /// Makes the path of the last `look_ahead` the open path.
    pub fn turn(&mut self) {
        self.leaf = self.ahead.take().expect("it was looked for");
        core::mem::swap(&mut self.extents, &mut self.extents_ahead);
    }

    /// The link to a child of the bucket of a level.
    #[inline]
    pub fn link(&self, level: usize, branch: usize) -> &[u8] {
        &self.bytes[self.levels[level].links + branch * self.link_len..][..self.link_len]
    }

    /// The link to a child of the bucket of a level, mutable.
    #[inline]
    pub fn link_mut(&mut self, level: usize, branch: usize) -> &mut [u8] {
        &mut self.bytes[self.levels[level].links + branch * self.link_len..][..self.link_len]
    }

    /// Puts headers and bodies into the bucket of a level.
    pub fn fill(&mut self, level: usize, headers: &[Header], bodies: &[u8]) {
        let LevelPlace { headers: at, end, .. } = self.levels[level];
        fill_slots(&mut self.bytes[at..end], headers, bodies);
    }

    /// Copies the headers of all slots to `headers`.
    pub fn read_headers(&self, shape: &Shape, headers: &mut [Header]) {
        for (level, place) in self.levels.iter().enumerate() {
            let headers = &mut headers[shape.path_start(level)..shape.path_start(level + 1)];
            Header::read_all(headers, &self.bytes[place.headers..place.end]);
        }
    }

    /// Copies `headers` to all slots.
    pub fn write_headers(&mut self, shape: &Shape, headers: &[Header]) {
        for (level, place) in self.levels.iter().enumerate() {
            let headers = &headers[shape.path_start(level)..shape.path_start(level + 1)];
            Header::write_all(headers, &mut self.bytes[place.headers..place.end]);
        }
    }
}

/// Number of buckets below a bucket of `level`.
pub fn children(shape: &Shape, level: usize) -> usize {
    if level + 1 < shape.levels() { shape.arity() as usize } else { 0 }
}
