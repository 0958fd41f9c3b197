//! Trees of buckets: path-shaped memory, and the engine of the tree schemes.
//!
//! A *path* leads from the root to a leaf. A [`BucketTree`] reads one path at a time into trusted
//! memory, where its slots are numbered from the root down, and writes it back. An [`Engine`] adds
//! the stash and decides which block goes where.
//!
//! Files: `shape`, `layout` (where buckets lie); `BucketTree`: one open path at a time; `sealed`
//! (in a store; `open_path`: its buckets), `fill`: all blocks at once, `bare` (in memory, and
//! simulated), `treetop` (cached levels); `substash`: cached levels, searched by address; `stash`;
//! `pending`: changed buckets that are not written yet; `path_witness`: receives the paths that
//! are accessed;
//! `engine`: fetch, take, evict, dummy; `engine/pass`: Circuit ORAM's eviction; `order`: of evicted
//! paths; `drains`: when an access only empties a stash; `ir_alloc`: shapes, and the search for
//! more; `occupancy`: how full tree and stash are.
//!
//! An access of Path ORAM: the path of a block is fetched, the block gets another label, and the
//! path is written back, with its blocks as deep as their labels allow.
//!
//! ```
//! use traceless::Addr;
//! use traceless::tree::{BareTree, Engine, STASH_BLOCKS, Shape};
//! use traceless::types::Leaf;
//!
//! # fn main() -> traceless::Result {
//! let tree = BareTree::new(Shape::uniform(5, 4)?, 64);
//! let mut engine = Engine::new(tree, STASH_BLOCKS);
//!
//! engine.fetch(Leaf(3))?;
//! let nth = engine.take(Addr(7), Leaf(9))?;
//! engine.stash_mut().body_mut(nth).fill(1);
//! engine.evict()?;
//!
//! // The next access to this block reads the path of its new label.
//! engine.fetch(Leaf(9))?;
//! let nth = engine.take(Addr(7), Leaf(2))?;
//! assert_eq!(engine.stash().body(nth), [1; 64]);
//! engine.evict()?;
//! # Ok(())
//! # }
//! ```

mod bare;
mod drains;
mod engine;
mod fill;
pub mod ir_alloc;
mod layout;
pub mod occupancy;
mod open_path;
mod order;
mod path_witness;
mod pending;
mod sealed;
mod shape;
mod stash;
mod substash;
mod treetop;

pub use bare::{BareTree, GhostTree};
pub use drains::{DRAINS_IN_A_ROW, Drains};
pub use engine::{Engine, STASH_BLOCKS};
pub use fill::{Contents, Fill};
pub use layout::{DrawnLeaves, HEADER_LEN, TreeLayout};
pub use order::EvictionOrder;
pub use path_witness::{ObservedTree, PathWitness};
pub use pending::{PendingBuckets, extents_at};
pub use sealed::SealedTree;
pub use shape::{ARITY_MAX, LEVELS_MAX, Shape, Z_MAX};
pub use stash::Stash;
pub use substash::Substash;
pub use treetop::Treetop;

use traceless_core::error::Result;
use traceless_core::types::{Addr, Leaf};

/// Blocks of one tree, at most, including the blocks of its position map.
pub const TREE_BLOCKS_MAX: u64 = u32::MAX as u64 - 1;

/// What a slot holds: a block's address and leaf label, or nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Header(u64);

impl Header {
    /// An empty slot. Zero, so that bytes that were never written are empty slots.
    pub const EMPTY: Self = Self(0);

    /// The block `addr` on the path of `leaf`.
    #[inline]
    pub fn new(addr: Addr, leaf: Leaf) -> Self {
        debug_assert!(addr.0 < TREE_BLOCKS_MAX && leaf.0 < 1 << 32, "checked by the scheme");
        Self((addr.0 + 1) | leaf.0 << 32)
    }

    /// Whether the slot is empty.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The block's address. Meaningless for empty slots.
    #[inline]
    pub fn addr(self) -> Addr {
        Addr(u64::from(self.0 as u32).wrapping_sub(1))
    }

    /// The block's leaf label.
    #[inline]
    pub fn leaf(self) -> Leaf {
        Leaf(self.0 >> 32)
    }

    /// Whether the slot holds the block `addr`.
    #[inline]
    pub fn is_of(self, addr: Addr) -> bool {
        u64::from(self.0 as u32) == addr.0 + 1
    }

    /// Decodes a header that [`to_bytes`](Self::to_bytes) encoded.
    #[inline]
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self(u64::from_le_bytes(bytes.try_into().expect("a header's bytes")))
    }

    /// Encodes the header for a store.
    #[inline]
    pub(crate) fn to_bytes(self) -> [u8; HEADER_LEN] {
        self.0.to_le_bytes()
    }

    /// Reads the headers at the beginning of a bucket.
    #[inline]
    fn read_all(headers: &mut [Self], bytes: &[u8]) {
        // A copy of constant length is inlined; a call for so few bytes takes far longer.
        match headers.len() {
            0 => {}
            1 => Self::read_some(&mut headers[..1], &bytes[..HEADER_LEN]),
            2 => Self::read_some(&mut headers[..2], &bytes[..2 * HEADER_LEN]),
            3 => Self::read_some(&mut headers[..3], &bytes[..3 * HEADER_LEN]),
            4 => Self::read_some(&mut headers[..4], &bytes[..4 * HEADER_LEN]),
            z => Self::read_some(headers, &bytes[..z * HEADER_LEN]),
        }
    }

    #[inline]
    fn read_some(headers: &mut [Self], bytes: &[u8]) {
        for (header, bytes) in headers.iter_mut().zip(bytes.chunks_exact(HEADER_LEN)) {
            *header = Self::from_bytes(bytes);
        }
    }

    /// Writes the headers at the beginning of a bucket.
    #[inline]
    fn write_all(headers: &[Self], bytes: &mut [u8]) {
        // Constant lengths, as in `read_all`.
        match headers.len() {
            0 => {}
            1 => Self::write_some(&headers[..1], &mut bytes[..HEADER_LEN]),
            2 => Self::write_some(&headers[..2], &mut bytes[..2 * HEADER_LEN]),
            3 => Self::write_some(&headers[..3], &mut bytes[..3 * HEADER_LEN]),
            4 => Self::write_some(&headers[..4], &mut bytes[..4 * HEADER_LEN]),
            z => Self::write_some(headers, &mut bytes[..z * HEADER_LEN]),
        }
    }

    #[inline]
    fn write_some(headers: &[Self], bytes: &mut [u8]) {
        for (header, bytes) in headers.iter().zip(bytes.chunks_exact_mut(HEADER_LEN)) {
            bytes.copy_from_slice(&header.to_bytes());
        }
    }
}

impl core::fmt::Debug for Header {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.is_empty() {
            return f.write_str("empty");
        }
        write!(f, "block {} on path {}", self.addr().0, self.leaf().0)
    }
}

/// The trusted side's view of path-shaped untrusted memory. Object-safe.
///
/// At any time one path is *open*: the last one that was read. Its slots are numbered from the root
/// down, `shape().path_slots()` of them.
pub trait BucketTree: Send {
    /// Levels, and slots per bucket on each.
    fn shape(&self) -> &Shape;

    /// Bytes of a block's body; 0 in a simulation.
    fn body_len(&self) -> usize;

    /// Announces that the path of `leaf` will be read soon, so that memory can fetch it early. This
    /// is as visible to an observer as the read; it affects only times, and the default does
    /// nothing.
    fn prefetch(&mut self, _leaf: Leaf) {}

    /// Announces that the path of `leaf` is likely to be read next, but need not be: only for trees
    /// that no adversary watches, as in simulations.
    fn expect(&mut self, _leaf: Leaf) {}

    /// Reads the path of `leaf`, and fills in the headers of its slots. Fails if a bucket does not
    /// verify.
    fn read_path(&mut self, leaf: Leaf, headers: &mut [Header]) -> Result;

    /// The body in a slot of the open path.
    fn body(&self, slot: usize) -> &[u8];

    /// The body in a slot of the open path, mutable.
    fn body_mut(&mut self, slot: usize) -> &mut [u8];

    /// Copies a body from one slot of the open path to another.
    fn copy_body(&mut self, from: usize, to: usize);

    /// Whether an outside block may be put into an empty slot of the open path; if so, the caller
    /// writes its body there next. A tree that shares memory between buckets may have to
    /// refuse.
    #[inline]
    fn admit(&mut self, slot: usize, header: Header) -> bool {
        let _ = (slot, header);
        true
    }

    /// Notes that the block in a slot of the open path was moved out of the path.
    #[inline]
    fn vacate(&mut self, slot: usize) {
        let _ = slot;
    }

    /// The body of a block that trusted memory holds and finds by address. No path is open.
    fn find(&mut self, addr: Addr) -> Option<&mut [u8]> {
        let _ = addr;
        None
    }

    /// Removes a block that trusted memory finds by address; returns its header and copies its
    /// body.
    fn extract(&mut self, addr: Addr, body: &mut [u8]) -> Option<Header> {
        let _ = (addr, body);
        None
    }

    /// Writes the whole open path, with `headers` as the headers of its slots.
    fn write_path(&mut self, headers: &[Header]) -> Result;

    /// Makes every written path durable.
    fn sync(&mut self) -> Result;
}
