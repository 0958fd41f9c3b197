//! An unsealed tree in memory, for cached levels and simulations.

use super::fill::fill_slots;
use super::{BucketTree, Fill, HEADER_LEN, Header, Shape, TreeLayout};
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::clock::Clock;
use traceless_core::durable::{Durable, take_saved};
use traceless_core::error::Result;
use traceless_core::store::Pages;
use traceless_core::trace::{Event, Op, Surface, Witness};
use traceless_core::types::Leaf;
use traceless_sys::ct;

/// Bytes of a subtree with neighbouring buckets.
const TOGETHER: usize = 4096;

/// A tree in memory; an open path is edited in place.
pub struct BareTree {
    shape: Shape,
    layout: TreeLayout,
    body_len: usize,
    bytes: Pages,
    /// For each slot of a path: its level, and the offset of its body in the bucket.
    slots: Vec<SlotPlace>,
    /// First byte of each bucket of the open path, and of the expected path.
    open: Vec<usize>,
    ahead: Vec<usize>,
    ahead_leaf: Option<Leaf>,
}

#[derive(Clone, Copy)]
struct SlotPlace {
    level: u32,
    body: u32,
}

impl BareTree {
    /// An empty tree of blocks with bodies of `body_len` bytes.
    pub fn new(shape: Shape, body_len: usize) -> Self {
        Self::try_new(shape, body_len).expect("the memory is there")
    }

    /// Like [`new`](Self::new), but `None` if there is not enough memory.
    pub fn try_new(shape: Shape, body_len: usize) -> Option<Self> {
        let layout = TreeLayout::new(&shape, body_len, |_| 0, TOGETHER);
        let place = |level: usize, nth: usize| SlotPlace {
            level: level as u32,
            body: (shape.z(level) * HEADER_LEN + nth * body_len) as u32,
        };
        let of_level = |level| (0..shape.z(level)).map(move |nth| place(level, nth));
        Some(Self {
            slots: (0..shape.levels()).flat_map(of_level).collect(),
            open: vec![0; shape.levels()],
            ahead: vec![0; shape.levels()],
            ahead_leaf: None,
            bytes: Pages::try_zeroed(usize::try_from(layout.len()).ok()?)?,
            layout,
            shape,
            body_len,
        })
    }

    /// Bytes of memory that the tree takes once every path was touched.
    pub fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// Puts a block without contents as deep on its path as there is room; `false` if there was
    /// none. This fills a tree in one pass over its blocks.
    pub fn place(&mut self, header: Header) -> bool {
        for level in (0..self.shape.levels()).rev() {
            let bucket = self.layout.bucket_at(level, self.shape.bucket(header.leaf(), level));
            for nth in 0..self.shape.z(level) {
                let at = bucket as usize + nth * HEADER_LEN;
                let slot = &mut self.bytes[at..at + HEADER_LEN];
                if Header::from_bytes(slot).is_empty() {
                    slot.copy_from_slice(&header.to_bytes());
                    return true;
                }
            }
        }
        false
    }

    /// Computes the places of a path's buckets, and prefetches their headers.
    #[inline]
    fn look_ahead(&mut self, leaf: Leaf) {
        let bytes: &[u8] = &self.bytes;
        for (level, at) in self.ahead.iter_mut().enumerate() {
            *at = self.layout.bucket_at(level, self.shape.bucket(leaf, level)) as usize;
            if self.shape.z(level) > 0 {
                ct::prefetch(bytes, *at, self.shape.z(level) * HEADER_LEN);
            }
        }
        self.ahead_leaf = Some(leaf);
    }

    #[inline]
    fn at(&self, slot: usize) -> usize {
        let place = self.slots[slot];
        self.open[place.level as usize] + place.body as usize
    }
}

impl BucketTree for BareTree {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn body_len(&self) -> usize {
        self.body_len
    }

    #[inline]
    fn prefetch(&mut self, leaf: Leaf) {
        if self.ahead_leaf != Some(leaf) {
            self.look_ahead(leaf);
        }
    }

    #[inline]
    fn expect(&mut self, leaf: Leaf) {
        self.prefetch(leaf);
    }

    #[inline]
    fn read_path(&mut self, leaf: Leaf, headers: &mut [Header]) -> Result {
        self.prefetch(leaf);
        core::mem::swap(&mut self.open, &mut self.ahead);
        self.ahead_leaf = None;
        for (level, &at) in self.open.iter().enumerate() {
            let slots = self.shape.path_start(level)..self.shape.path_start(level + 1);
            Header::read_all(&mut headers[slots], &self.bytes[at..]);
        }
        Ok(())
    }

    #[inline]
    fn body(&self, slot: usize) -> &[u8] {
        let at = self.at(slot);
        &self.bytes[at..at + self.body_len]
    }

    #[inline]
    fn body_mut(&mut self, slot: usize) -> &mut [u8] {
        let at = self.at(slot);
        &mut self.bytes[at..at + self.body_len]
    }

    #[inline]
    fn copy_body(&mut self, from: usize, to: usize) {
        let (from, to) = (self.at(from), self.at(to));
        self.bytes.copy_within(from..from + self.body_len, to);
    }

    #[inline]
    fn write_path(&mut self, headers: &[Header]) -> Result {
        for (level, &at) in self.open.iter().enumerate() {
            let slots = self.shape.path_start(level)..self.shape.path_start(level + 1);
            Header::write_all(&headers[slots], &mut self.bytes[at..]);
        }
        Ok(())
    }

    fn sync(&mut self) -> Result {
        Ok(())
    }
}

impl Fill for BareTree {
    fn fill_bucket(
        &mut self,
        level: usize,
        bucket: u64,
        headers: &[Header],
        bodies: &[u8],
    ) -> Result {
        let at = self.layout.bucket_at(level, bucket) as usize;
        let len = self.layout.bucket_len(level);
        fill_slots(&mut self.bytes[at..at + len], headers, bodies);
        Ok(())
    }
}

impl Durable for BareTree {
    fn save(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes);
    }

    fn load(&mut self, from: &mut &[u8]) -> Result {
        let len = self.bytes.len();
        self.bytes.copy_from_slice(take_saved(from, len)?);
        Ok(())
    }
}

/// A tree of blocks without bodies, 8 bytes a slot, which reports to a witness the events on a
/// memory bus: every slot of a path is read, and every slot is written.
pub struct GhostTree<W, C = ()> {
    tree: BareTree,
    /// The simulated layout of the slots, each as long as a line of memory.
    lines: TreeLayout,
    leaf: Leaf,
    witness: W,
    clock: C,
}

/// Simulated bytes of a slot.
const LINE_LEN: usize = 64;

impl<W: Witness> GhostTree<W> {
    /// An empty tree; events carry no time. Subtrees of `row_len` bytes lie together.
    pub fn new(shape: Shape, row_len: usize, witness: W) -> Self {
        Self::with_clock(shape, row_len, witness, ())
    }
}

impl<W: Witness, C: Clock> GhostTree<W, C> {
    /// An empty tree; events carry the time of `clock`.
    pub fn with_clock(shape: Shape, row_len: usize, witness: W, clock: C) -> Self {
        let lines = TreeLayout::new(&shape, LINE_LEN - HEADER_LEN, |_| 0, row_len);
        Self { tree: BareTree::new(shape, 0), lines, leaf: Leaf(0), witness, clock }
    }

    /// Puts a block as deep on its path as there is room, without an event; `false` if there was
    /// none.
    pub fn place(&mut self, header: Header) -> bool {
        self.tree.place(header)
    }

    /// Simulated bytes of the tree.
    pub fn len(&self) -> u64 {
        self.lines.len()
    }

    /// Whether the tree has no slots.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn record(&self, op: Op) {
        let time = self.clock.now();
        let shape = &self.tree.shape;
        for level in 0..shape.levels() {
            self.see_bucket(time, op, level, shape.bucket(self.leaf, level));
        }
    }

    #[inline]
    fn see_bucket(&self, time: u64, op: Op, level: usize, bucket: u64) {
        let bucket = self.lines.bucket_at(level, bucket);
        for nth in 0..self.tree.shape.z(level) {
            let at = bucket + (nth * LINE_LEN) as u64;
            let len = LINE_LEN as u32;
            self.witness.record(Event { time, surface: Surface::Dram, op, at, len });
        }
    }
}

impl<W: Witness, C: Clock + Send> BucketTree for GhostTree<W, C> {
    fn shape(&self) -> &Shape {
        self.tree.shape()
    }

    fn body_len(&self) -> usize {
        0
    }

    fn expect(&mut self, leaf: Leaf) {
        self.tree.expect(leaf);
    }

    #[inline]
    fn read_path(&mut self, leaf: Leaf, headers: &mut [Header]) -> Result {
        self.leaf = leaf;
        self.record(Op::Read);
        self.tree.read_path(leaf, headers)
    }

    #[inline]
    fn body(&self, _: usize) -> &[u8] {
        &[]
    }

    #[inline]
    fn body_mut(&mut self, _: usize) -> &mut [u8] {
        &mut []
    }

    #[inline]
    fn copy_body(&mut self, _: usize, _: usize) {}

    #[inline]
    fn write_path(&mut self, headers: &[Header]) -> Result {
        self.record(Op::Write);
        self.tree.write_path(headers)
    }

    fn sync(&mut self) -> Result {
        Ok(())
    }
}

impl<W: Witness, C: Clock + Send> Fill for GhostTree<W, C> {
    fn fill_bucket(
        &mut self,
        level: usize,
        bucket: u64,
        headers: &[Header],
        bodies: &[u8],
    ) -> Result {
        self.see_bucket(self.clock.now(), Op::Write, level, bucket);
        self.tree.fill_bucket(level, bucket, headers, bodies)
    }
}
