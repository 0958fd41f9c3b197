//! The tree's shape: nodes, slots, paths, epochs, and how a slot is divided into parts.
//!
//! All of it is public, and the same at gateway, host and enclave.
//!
//! The path to a leaf, and how often rounds passed through its nodes:
//!
//! ```
//! use traceless_cloud::geometry::{Geometry, Node};
//!
//! # fn main() -> traceless_cloud::Result {
//! let (inner_slots, leaf_slots, round_slots, block_len) = (20, 30, 10, 64);
//! let (roots, arity, layers) = (1, 3, 4);
//! let partition = 0;
//! let g = Geometry {
//!     roots, arity, layers, round_slots, inner_slots, leaf_slots, block_len, partition,
//! };
//! g.check()?;
//! assert_eq!((g.leaves(), g.nodes()), (27, 1 + 3 + 9 + 27));
//! let path: Vec<Node> = (0..g.layers).map(|layer| g.node(layer, 5)).collect();
//! assert_eq!(path, [Node(0), Node(1 + 2), Node(4 + 5), Node(13 + 5)]);
//! // Every round passes through the root, every 27th through a leaf.
//! assert_eq!((g.epoch(path[0], 54), g.epoch(path[3], 54)), (54, 2));
//! assert_eq!(g.tree_len(), (13 * 20 + 27 * 30) * g.slot_len() as u64);
//! # Ok(())
//! # }
//! ```

use crate::codec::{Reader, Writer};
use crate::error::{Error, Result};

/// Bytes that the paper's kernel moves at once.
pub const PIECE_LEN: usize = 32;
/// Pieces of a part, the unit that is sealed, opened and moved at once. A part of every row of a
/// node must fit into the enclave's memory, however long a block is.
pub const PART_PIECES: usize = 33;
/// Bytes of a part.
pub const PART_LEN: usize = PART_PIECES * PIECE_LEN;
/// Bytes of an authentication tag.
pub const TAG_LEN: usize = 16;
/// Bytes of the header before a block under the gateway's seal, which identifies the seal.
pub const HEADER_LEN: usize = 16;
/// Most rows of a node together with the slots that are evicted into it.
pub const ROWS_MAX: usize = 1 << 16;
/// Most layers of a tree.
pub const LAYERS_MAX: usize = 12;
const BLOCK_LEN_MAX: usize = 1 << 16;
/// Bytes of an encoded geometry.
pub const GEOMETRY_LEN: usize = 56;

/// The number of a node: layer by layer from the roots, which come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Node(pub u32);

/// The shape of a tree, or of several trees of one height.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Nodes of the first layer. With one root the host has a whole tree, as in the paper. With as
    /// many as a node has children, the host has all but the root, and the root's blocks wait at
    /// the gateway.
    pub roots: u32,
    /// Children of each node.
    pub arity: u32,
    /// Layers, including roots and leaves.
    pub layers: usize,
    /// Slots that a round brings in at a root, and from each layer to the next.
    pub round_slots: usize,
    /// Slots of an inner node.
    pub inner_slots: usize,
    /// Slots of a leaf.
    pub leaf_slots: usize,
    /// Bytes of a block.
    pub block_len: usize,
    /// The partition of the tree that a host has, if it is divided among several. It changes
    /// nothing else: each host numbers nodes as if it had the whole tree.
    pub partition: u32,
}

impl Geometry {
    /// Fails unless a tree can have this shape.
    pub fn check(&self) -> Result {
        let fits = |slots: usize| slots > 0 && slots + self.round_slots <= ROWS_MAX;
        if self.roots == 0 || self.arity < 2 || !(1..=LAYERS_MAX).contains(&self.layers) {
            return Err(Error::Parameters(
                "a tree has 1 to 12 layers, a root and 2 or more children a node",
            ));
        }
        if self.round_slots == 0 || !fits(self.inner_slots) || !fits(self.leaf_slots) {
            return Err(Error::Parameters("a node and a round have 1 to 65,536 slots together"));
        }
        let blocks = self.block_len;
        if blocks == 0 || !blocks.is_multiple_of(PIECE_LEN) || blocks > BLOCK_LEN_MAX {
            return Err(Error::Parameters("a block is a multiple of 32 bytes, at most 65,536"));
        }
        let below_one = u64::from(self.arity).checked_pow(self.layers as u32 - 1);
        let leaves = below_one.and_then(|leaves| leaves.checked_mul(u64::from(self.roots)));
        if leaves.is_none_or(|leaves| leaves > 1 << 28) {
            return Err(Error::Parameters("a tree has at most 2^28 leaves"));
        }
        Ok(())
    }

    /// The geometry as bytes.
    pub fn encode(&self) -> [u8; GEOMETRY_LEN] {
        let sizes =
            [self.layers, self.round_slots, self.inner_slots, self.leaf_slots, self.block_len];
        let mut out = Writer::with_capacity(GEOMETRY_LEN);
        // Older programs refuse a partition: to them it is a part of the number of roots.
        out.u32(self.roots).u32(self.partition).u64(u64::from(self.arity));
        for size in sizes {
            out.u64(size as u64);
        }
        out.into_array()
    }

    /// Decodes untrusted bytes. An impossible shape is an error.
    pub fn decode(bytes: &[u8; GEOMETRY_LEN]) -> Result<Self> {
        let mut from = Reader::new(bytes);
        let (roots, partition) = (from.u32()?, from.u32()?);
        let mut number = || {
            // All numbers of a shape are smaller.
            u32::try_from(from.u64()?)
                .map_err(|_| Error::Parameters("a tree's numbers have 32 bits"))
        };
        let geometry = Self {
            roots,
            arity: number()?,
            layers: number()? as usize,
            round_slots: number()? as usize,
            inner_slots: number()? as usize,
            leaf_slots: number()? as usize,
            block_len: number()? as usize,
            partition,
        };
        geometry.check()?;
        Ok(geometry)
    }

    /// Fails unless a store was made for this shape and partition.
    pub fn check_store(&self, made_for: &Self) -> Result {
        if self == made_for {
            return Ok(());
        }
        let is_other_partition = *self == Self { partition: self.partition, ..*made_for };
        Err(Error::Parameters(if is_other_partition {
            "the store has another partition of the tree: name hosts and stores in the same order \
             at each start"
        } else {
            "the store is of another tree"
        }))
    }

    /// How many leaves the tree has.
    pub fn leaves(&self) -> u32 {
        self.width(self.layers - 1)
    }

    /// How many nodes a layer has.
    pub fn width(&self, layer: usize) -> u32 {
        self.roots * self.arity.pow(layer as u32)
    }

    /// How many nodes the tree has.
    pub fn nodes(&self) -> u32 {
        self.first(self.layers)
    }

    /// The first node of a layer.
    fn first(&self, layer: usize) -> u32 {
        (0..layer).map(|above| self.width(above)).sum()
    }

    /// How many slots a node of a layer has.
    pub fn slots(&self, layer: usize) -> usize {
        if layer + 1 == self.layers { self.leaf_slots } else { self.inner_slots }
    }

    /// The index, below [`Geometry::roots`], of the root on the path to a leaf.
    pub fn root(&self, leaf: u32) -> usize {
        (leaf % self.roots) as usize
    }

    /// The index, below [`Geometry::roots`], of the root above a node.
    pub fn root_of(&self, node: Node) -> usize {
        self.root(node.0 - self.first(self.layer_of(node)))
    }

    /// The nodes of the tree with this root, in the order of their numbers.
    pub fn nodes_of(&self, root: usize) -> impl Iterator<Item = Node> {
        (0..self.layers).flat_map(move |layer| {
            let own = (root as u32..self.width(layer)).step_by(self.roots as usize);
            own.map(move |within| Node(self.first(layer) + within))
        })
    }

    /// The node of a layer on the path to a leaf. The leaf's low digits choose first, so that the
    /// paths to 0, 1, 2 ... come in reverse-lexicographic order.
    pub fn node(&self, layer: usize, leaf: u32) -> Node {
        Node(self.first(layer) + leaf % self.width(layer))
    }

    /// The leaf with this node of the last layer.
    pub fn leaf_of(&self, node: Node) -> u32 {
        node.0 - self.first(self.layers - 1)
    }

    /// The layer of a node.
    pub fn layer_of(&self, node: Node) -> usize {
        let below = |&layer: &usize| self.first(layer + 1) > node.0;
        (0..self.layers).find(below).expect("a node of this tree")
    }

    /// The leaf that round `round` evicts to.
    pub fn evicted(&self, round: u64) -> u32 {
        (round % u64::from(self.leaves())) as u32
    }

    /// A node's epoch: how many rounds before round `round` passed through it.
    pub fn epoch(&self, node: Node, round: u64) -> u64 {
        let layer = self.layer_of(node);
        let offset = u64::from(node.0 - self.first(layer));
        match round.checked_sub(offset + 1) {
            Some(since) => since / u64::from(self.width(layer)) + 1,
            None => 0,
        }
    }

    /// How many slots the tree has.
    pub fn slots_in_all(&self) -> u64 {
        (0..self.layers).map(|i| u64::from(self.width(i)) * self.slots(i) as u64).sum()
    }

    /// Bytes of a block under the gateway's seal.
    pub fn sealed_len(&self) -> usize {
        HEADER_LEN + self.block_len + TAG_LEN
    }

    /// How many parts a slot has.
    pub fn parts(&self) -> usize {
        self.sealed_len().div_ceil(PART_LEN)
    }

    /// Bytes of a part without its tag. All parts but the last have the same length.
    pub fn part_len(&self, part: usize) -> usize {
        PART_LEN.min(self.sealed_len() - part * PART_LEN)
    }

    /// Offset of a part in its slot. Its tag follows the part.
    pub fn part_at(&self, part: usize) -> usize {
        part * (PART_LEN + TAG_LEN)
    }

    /// Offset of the end of a part and its tag in the slot.
    pub fn part_end(&self, part: usize) -> usize {
        self.part_at(part) + self.part_len(part) + TAG_LEN
    }

    /// Bytes of a slot as the host stores it.
    pub fn slot_len(&self) -> usize {
        self.sealed_len() + self.parts() * TAG_LEN
    }

    /// Offset of a node in the tree's bytes, which are in order of node numbers.
    pub fn node_at(&self, node: Node) -> u64 {
        let layer = self.layer_of(node);
        let above = (0..layer).map(|i| u64::from(self.width(i)) * self.node_len(i) as u64);
        let beside = u64::from(node.0 - self.first(layer)) * self.node_len(layer) as u64;
        above.sum::<u64>() + beside
    }

    /// Bytes of the whole tree.
    pub fn tree_len(&self) -> u64 {
        self.slots_in_all() * self.slot_len() as u64
    }

    /// Bytes of a node of a layer.
    pub fn node_len(&self, layer: usize) -> usize {
        self.slots(layer) * self.slot_len()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn small() -> Geometry {
        Geometry {
            roots: 1,
            arity: 3,
            layers: 4,
            round_slots: 10,
            inner_slots: 20,
            leaf_slots: 25,
            block_len: 64,
            partition: 0,
        }
    }

    /// The shape of [`small`] without its root.
    pub(crate) fn rootless() -> Geometry {
        Geometry { roots: 3, layers: 3, ..small() }
    }

    #[test]
    fn a_nodes_epoch_counts_its_rounds() {
        for g in [small(), rootless(), Geometry { layers: 1, ..rootless() }] {
            count_visits(&g);
        }
    }

    fn count_visits(g: &Geometry) {
        let mut visits = vec![0; g.nodes() as usize];
        for round in 0..200 {
            for node in 0..g.nodes() {
                assert_eq!(g.epoch(Node(node), round), visits[node as usize], "{node} {round}");
            }
            for layer in 0..g.layers {
                let node = g.node(layer, g.evicted(round));
                assert_eq!(g.layer_of(node), layer);
                visits[node.0 as usize] += 1;
            }
        }
    }

    #[test]
    fn eviction_paths_alternate_at_the_top_layers_first() {
        let g = small();
        let children: Vec<Node> = (0..4).map(|round| g.node(1, g.evicted(round))).collect();
        assert_eq!(children, [Node(1), Node(2), Node(3), Node(1)]);
        assert_eq!((g.nodes(), g.leaves()), (40, 27));
        assert_eq!(g.slots_in_all(), 13 * 20 + 27 * 25);
        let g = rootless();
        assert_eq!((g.nodes(), g.leaves(), g.slots_in_all()), (39, 27, 12 * 20 + 27 * 25));
        for leaf in 0..27 {
            assert!((0..3).all(|layer| g.root_of(g.node(layer, leaf)) == g.root(leaf)));
            let below = |layer: usize| g.node(layer, leaf).0 + 1;
            assert!((0..3).all(|layer| Node(below(layer)) == small().node(layer + 1, leaf)));
            assert_eq!(Node(g.root(leaf) as u32), g.node(0, leaf));
        }
    }

    #[test]
    fn parts_cover_a_whole_slot() {
        for (block_len, parts) in [(32, 1), (1024, 1), (2048, 2), (4096, 4), (8192, 8)] {
            let g = Geometry { block_len, partition: parts as u32, ..small() };
            assert_eq!(Geometry::decode(&g.encode()).unwrap(), g);
            assert_eq!(g.parts(), parts);
            let len: usize = (0..parts).map(|part| g.part_len(part)).sum();
            assert_eq!(len, g.sealed_len());
            assert_eq!(g.part_end(parts - 1), g.slot_len());
            assert!((0..parts).all(|part| g.part_len(part).is_multiple_of(PIECE_LEN)));
        }
    }

    #[test]
    fn impossible_trees_are_refused() {
        let wrong = [
            Geometry { arity: 1, ..small() },
            Geometry { layers: 0, ..small() },
            Geometry { roots: 0, ..small() },
            Geometry { roots: 1 << 30, ..small() },
            Geometry { layers: 13, ..small() },
            Geometry { round_slots: 0, ..small() },
            Geometry { leaf_slots: ROWS_MAX, ..small() },
            Geometry { block_len: 33, ..small() },
            Geometry { block_len: 0, ..small() },
            Geometry { arity: 1 << 20, ..small() },
        ];
        for g in wrong {
            assert!(matches!(g.check(), Err(Error::Parameters(_))), "{g:?}");
            assert!(Geometry::decode(&g.encode()).is_err());
        }
    }
}
