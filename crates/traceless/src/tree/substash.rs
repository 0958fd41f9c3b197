//! IR-Stash: the top of a tree in trusted memory, where its blocks can be found by address.
//!
//! Paper: ir-oram, section IV-C.

use super::{BucketTree, Header, Shape};
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::types::{Addr, Leaf};

/// A tree with its uppermost levels in trusted memory, in a set-associative cache indexed by block
/// address (the paper's S-Stash). A pointer table (TT) holds the tree structure: it has an entry
/// for each bucket, numbered level by level from the root, with a pointer for each slot. The other
/// levels are in `inner`, and an adversary observes only accesses to them.
///
/// A block is not moved in this eviction if its set is full.
pub struct Substash<T> {
    shape: Shape,
    inner: T,
    cached: usize,
    /// Slots of a path that are cached.
    split: usize,
    ways: usize,
    /// The header of the block in each way.
    headers: Vec<Header>,
    bodies: Vec<u8>,
    /// For each slot of the cached buckets, the way of its block plus one, or 0.
    table: Vec<u32>,
    /// For each cached level, the first slot of its first bucket.
    level_start: Vec<usize>,
    /// For each cached slot of the open path, its entry in the table.
    open: Vec<usize>,
    /// Number of blocks that `take_away` wrote out and `bring_back` has not read yet.
    away: Option<usize>,
}

impl<T: BucketTree> Substash<T> {
    /// The tree of `shape`, with its first `cached` levels in `sets` sets of `ways` blocks. In
    /// `inner` these levels have no slots. All cached levels are empty.
    pub fn new(
        shape: Shape,
        cached: usize,
        (sets, ways): (usize, usize),
        inner: T,
    ) -> Result<Self> {
        if cached == 0 || cached > shape.levels() || shape.only(|l| l >= cached) != *inner.shape() {
            return Err(Error::Geometry("cached and other levels are not those of one tree"));
        }
        let room = sets.checked_mul(ways).filter(|&room| room > 0 && room < u32::MAX as usize);
        let room = room.ok_or(Error::Geometry("a sub-stash has 1 to 2^32 - 2 ways"))?;
        let mut level_start = vec![0];
        for level in 0..cached {
            let slots = shape.buckets(level) as usize * shape.z(level);
            level_start.push(level_start[level] + slots);
        }
        Ok(Self {
            split: shape.path_start(cached),
            open: vec![0; shape.path_start(cached)],
            table: vec![0; level_start[cached]],
            headers: vec![Header::EMPTY; room],
            bodies: vec![0; room * inner.body_len()],
            away: None,
            level_start,
            shape,
            cached,
            ways,
            inner,
        })
    }

    /// The tree of the lower levels.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// The tree of the lower levels, mutable.
    pub fn inner_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Number of cached blocks.
    pub fn len(&self) -> usize {
        self.headers.iter().filter(|header| !header.is_empty()).count()
    }

    /// Whether no block is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of trusted memory: the cache, its tags, and the pointer table.
    pub fn memory(&self) -> usize {
        self.bodies.len() + size_of_val(&self.headers[..]) + size_of_val(&self.table[..])
    }

    /// Puts a block without contents as deep into the cached levels as there is room, as
    /// [`BareTree::place`](super::BareTree::place) does; `false` if there was none.
    pub fn place(&mut self, header: Header) -> bool {
        for level in (0..self.cached).rev() {
            let first = self.bucket_start(level, header.leaf());
            let mut slots = first..first + self.shape.z(level);
            if let Some(entry) = slots.find(|&entry| self.table[entry] == 0) {
                return self.occupy(entry, header).is_some();
            }
        }
        false
    }

    /// Writes the cached levels to `home`, a tree of exactly [these](Shape::top) levels, and
    /// empties the cache and its pointer table. All paths are written, from left to right. Until
    /// the levels are [brought back](Self::bring_back) no path can be read.
    pub fn take_away(&mut self, home: &mut dyn BucketTree) -> Result {
        self.check_home(home)?;
        self.check_here()?;
        let mut headers = vec![Header::EMPTY; self.split];
        for bucket in 0..home.shape().leaves() {
            home.read_path(Leaf(bucket), &mut headers)?;
            self.open(self.leaf_below(bucket));
            for (slot, header) in headers.iter_mut().enumerate() {
                *header = self.header_at(self.open[slot]);
                if let Some(way) = self.way_of(slot) {
                    home.body_mut(slot).copy_from_slice(self.body_of(way));
                }
            }
            home.write_path(&headers)?;
        }
        home.sync()?;
        self.away = Some(self.len());
        self.clear();
        Ok(())
    }

    /// Reads the levels that [`take_away`](Self::take_away) wrote, and rebuilds cache and pointer
    /// table.
    pub fn bring_back(&mut self, home: &mut dyn BucketTree) -> Result {
        self.check_home(home)?;
        let away = self.away.ok_or(Error::State("the cached levels are here"))?;
        // Blocks that a failed attempt has left.
        self.clear();
        let mut headers = vec![Header::EMPTY; self.split];
        for bucket in 0..home.shape().leaves() {
            home.read_path(Leaf(bucket), &mut headers)?;
            self.open(self.leaf_below(bucket));
            for (slot, &header) in headers.iter().enumerate() {
                let entry = self.open[slot];
                // Paths share their upper buckets.
                if header.is_empty() || self.table[entry] != 0 {
                    continue;
                }
                let way = self.occupy(entry, header);
                let way = way.ok_or(Error::State("a sub-stash with other sets wrote this"))?;
                let at = way * self.inner.body_len();
                self.bodies[at..at + self.inner.body_len()].copy_from_slice(home.body(slot));
            }
        }
        if self.len() != away {
            return Err(Error::State("the cached levels were not written to this tree"));
        }
        self.away = None;
        Ok(())
    }

    fn clear(&mut self) {
        self.headers.fill(Header::EMPTY);
        self.bodies.fill(0);
        self.table.fill(0);
    }

    /// A leaf below a bucket of the last cached level.
    fn leaf_below(&self, bucket: u64) -> Leaf {
        let span = self.shape.leaves() / self.shape.buckets(self.cached - 1);
        Leaf(bucket * span)
    }

    fn check_home(&self, home: &dyn BucketTree) -> Result {
        let is_fit = *home.shape() == self.shape.top(self.cached);
        if !is_fit || home.body_len() != self.inner.body_len() {
            return Err(Error::Geometry("a home has the cached levels, and nothing else"));
        }
        Ok(())
    }

    fn check_here(&self) -> Result {
        if self.away.is_some() { Err(Error::Suspended) } else { Ok(()) }
    }

    fn bucket_start(&self, level: usize, leaf: Leaf) -> usize {
        let bucket = self.shape.bucket(leaf, level) as usize;
        self.level_start[level] + bucket * self.shape.z(level)
    }

    /// Fills `open` with the table entries of the path of `leaf`.
    fn open(&mut self, leaf: Leaf) {
        for level in 0..self.cached {
            let first = self.bucket_start(level, leaf);
            let slots = self.shape.path_start(level)..self.shape.path_start(level + 1);
            for (entry, slot) in (first..).zip(slots) {
                self.open[slot] = entry;
            }
        }
    }

    fn header_at(&self, entry: usize) -> Header {
        match self.table[entry].checked_sub(1) {
            Some(way) => self.headers[way as usize],
            None => Header::EMPTY,
        }
    }

    /// The way that holds the block of a cached slot of the open path.
    fn way_of(&self, slot: usize) -> Option<usize> {
        self.table[self.open[slot]].checked_sub(1).map(|way| way as usize)
    }

    /// The ways of the set of `addr`.
    fn set(&self, addr: Addr) -> core::ops::Range<usize> {
        let sets = (self.headers.len() / self.ways) as u64;
        let first = (spread(addr.0) % sets) as usize * self.ways;
        first..first + self.ways
    }

    /// Assigns an uncached block to a free way of its set, and points the table entry to it.
    fn occupy(&mut self, entry: usize, header: Header) -> Option<usize> {
        let way = self.set(header.addr()).find(|&way| self.headers[way].is_empty())?;
        self.headers[way] = header;
        self.table[entry] = way as u32 + 1;
        Some(way)
    }

    fn find_way(&self, addr: Addr) -> Option<usize> {
        self.set(addr).find(|&way| self.headers[way].is_of(addr))
    }

    fn body_of(&self, way: usize) -> &[u8] {
        &self.bodies[way * self.inner.body_len()..][..self.inner.body_len()]
    }

    fn body_of_mut(&mut self, way: usize) -> &mut [u8] {
        let len = self.inner.body_len();
        &mut self.bodies[way * len..][..len]
    }
}

/// Spreads neighbouring addresses over the sets. The paper takes MD5; any function will do that
/// spreads addresses evenly, since an adversary does not observe the sets.
fn spread(addr: u64) -> u64 {
    let x = (addr ^ (addr >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl<T: BucketTree> BucketTree for Substash<T> {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn body_len(&self) -> usize {
        self.inner.body_len()
    }

    fn expect(&mut self, leaf: Leaf) {
        self.inner.expect(leaf);
    }

    fn read_path(&mut self, leaf: Leaf, headers: &mut [Header]) -> Result {
        self.check_here()?;
        let (top, below) = headers.split_at_mut(self.split);
        self.inner.read_path(leaf, below)?;
        self.open(leaf);
        for (header, &entry) in top.iter_mut().zip(&self.open) {
            *header = self.header_at(entry);
        }
        Ok(())
    }

    fn body(&self, slot: usize) -> &[u8] {
        match slot.checked_sub(self.split) {
            None => self.body_of(self.way_of(slot).expect("a slot with a block")),
            Some(below) => self.inner.body(below),
        }
    }

    fn body_mut(&mut self, slot: usize) -> &mut [u8] {
        match slot.checked_sub(self.split) {
            None => {
                let way = self.way_of(slot).expect("a slot with a block");
                self.body_of_mut(way)
            }
            Some(below) => self.inner.body_mut(below),
        }
    }

    /// Within the cached levels only the pointers change: the block stays in its way.
    fn copy_body(&mut self, from: usize, to: usize) {
        match (from.checked_sub(self.split), to.checked_sub(self.split)) {
            (None, None) => {
                let (from, to) = (self.open[from], self.open[to]);
                self.table[to] = core::mem::take(&mut self.table[from]);
            }
            (None, Some(below)) => {
                let way = self.way_of(from).expect("a slot with a block");
                let at = way * self.inner.body_len();
                let body = &self.bodies[at..at + self.inner.body_len()];
                self.inner.body_mut(below).copy_from_slice(body);
                self.vacate(from);
            }
            (Some(from), Some(to)) => self.inner.copy_body(from, to),
            (Some(_), None) => unreachable!("blocks of a path only move away from the root"),
        }
    }

    fn admit(&mut self, slot: usize, header: Header) -> bool {
        match slot.checked_sub(self.split) {
            None => self.occupy(self.open[slot], header).is_some(),
            Some(below) => self.inner.admit(below, header),
        }
    }

    fn vacate(&mut self, slot: usize) {
        match slot.checked_sub(self.split) {
            None => {
                let entry = core::mem::take(&mut self.table[self.open[slot]]);
                let way = entry.checked_sub(1).expect("a slot with a block") as usize;
                self.headers[way] = Header::EMPTY;
            }
            Some(below) => self.inner.vacate(below),
        }
    }

    fn find(&mut self, addr: Addr) -> Option<&mut [u8]> {
        let way = self.find_way(addr)?;
        Some(self.body_of_mut(way))
    }

    fn extract(&mut self, addr: Addr, body: &mut [u8]) -> Option<Header> {
        let way = self.find_way(addr)?;
        body.copy_from_slice(self.body_of(way));
        let header = core::mem::take(&mut self.headers[way]);
        // Its bucket is on its path; the table has no pointers from ways to buckets.
        let pointer = way as u32 + 1;
        for level in 0..self.cached {
            let first = self.bucket_start(level, header.leaf());
            let slots = &mut self.table[first..first + self.shape.z(level)];
            slots.iter_mut().filter(|entry| **entry == pointer).for_each(|entry| *entry = 0);
        }
        Some(header)
    }

    fn write_path(&mut self, headers: &[Header]) -> Result {
        let (top, below) = headers.split_at(self.split);
        debug_assert!(
            top.iter().zip(&self.open).all(|(header, &entry)| *header == self.header_at(entry)),
            "blocks came and went one by one"
        );
        self.inner.write_path(below)
    }

    fn sync(&mut self) -> Result {
        self.inner.sync()
    }
}

#[cfg(all(test, feature = "std"))]
mod tests;
