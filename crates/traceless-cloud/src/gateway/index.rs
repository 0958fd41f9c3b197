//! The gateway's map of the tree: where each block lies, and what each slot holds.

use crate::codec::{Reader, Writer};
use crate::error::Result;
use crate::geometry::{Geometry, Node};
use crate::params::Params;
use traceless_core::rng::Rng;

/// Marks a slot that holds a dummy.
const DUMMY: u32 = u32::MAX;
/// Packed places of blocks that are in no slot.
const NOWHERE: u32 = u32::MAX;
const AT_GATEWAY: u32 = u32::MAX - 1;

/// The place of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockPlace {
    /// The block was never written.
    Nowhere,
    /// The block waits at the gateway.
    Gateway,
    /// In a slot on the path to its leaf.
    Tree {
        /// The path.
        leaf: u32,
        /// The layer.
        layer: usize,
        /// The slot in its node.
        slot: u32,
    },
}

/// Bytes that the gateway's map of a tree takes up.
pub fn index_bytes(params: &Params) -> u64 {
    let g = &params.geometry;
    let (slots, nodes) = (g.slots_in_all(), u64::from(g.nodes()));
    let numbers = params.blocks + slots + nodes;
    numbers * size_of::<u32>() as u64 + (slots.div_ceil(64) + nodes) * size_of::<u64>() as u64
}

/// The gateway's map of the tree, 12 to 16 bytes for each block.
pub struct Index {
    geometry: Geometry,
    /// How many bits a slot's number and a layer's number take in a packed place.
    slot_bits: u32,
    layer_bits: u32,
    places: Vec<u32>,
    /// The block in each slot, node by node.
    owners: Vec<u32>,
    /// One bit for each slot: whether it was read since its node was written.
    read: Vec<u64>,
    /// How many slots of each node were read. The host knows this, too.
    reads: Vec<u32>,
    /// The attempt number that each node was last written under.
    attempts: Vec<u64>,
}

impl Index {
    /// The map of a tree that was never written to.
    pub fn new(params: &Params) -> Self {
        let geometry = params.geometry;
        let bits = |count: usize| usize::BITS - (count - 1).leading_zeros();
        let (slot_bits, layer_bits) =
            (bits(geometry.inner_slots.max(geometry.leaf_slots)), bits(geometry.layers));
        let slots = geometry.slots_in_all() as usize;
        let nodes = geometry.nodes() as usize;
        Self {
            geometry,
            slot_bits,
            layer_bits,
            places: vec![NOWHERE; params.blocks as usize],
            owners: vec![DUMMY; slots],
            read: vec![0; slots.div_ceil(64)],
            reads: vec![0; nodes],
            attempts: vec![0; nodes],
        }
    }

    /// Bytes that the map takes up.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.places[..])
            + size_of_val(&self.owners[..])
            + size_of_val(&self.read[..])
            + size_of_val(&self.reads[..])
            + size_of_val(&self.attempts[..])
    }

    /// The place of a block.
    pub fn place(&self, id: u32) -> BlockPlace {
        match self.places[id as usize] {
            NOWHERE => BlockPlace::Nowhere,
            AT_GATEWAY => BlockPlace::Gateway,
            packed => BlockPlace::Tree {
                leaf: packed >> (self.slot_bits + self.layer_bits),
                layer: (packed >> self.slot_bits & ((1 << self.layer_bits) - 1)) as usize,
                slot: packed & ((1 << self.slot_bits) - 1),
            },
        }
    }

    /// Changes the place of a block.
    pub fn set_place(&mut self, id: u32, place: BlockPlace) {
        self.places[id as usize] = match place {
            BlockPlace::Nowhere => NOWHERE,
            BlockPlace::Gateway => AT_GATEWAY,
            BlockPlace::Tree { leaf, layer, slot } => {
                leaf << (self.slot_bits + self.layer_bits) | (layer as u32) << self.slot_bits | slot
            }
        };
    }

    /// The attempt number that a node was last written under.
    pub fn attempt(&self, node: Node) -> u64 {
        self.attempts[node.0 as usize]
    }

    /// How often a node was read since it was written.
    pub fn reads(&self, node: Node) -> usize {
        self.reads[node.0 as usize] as usize
    }

    /// The real blocks of a node with their slots.
    pub fn blocks_of(&self, node: Node) -> impl Iterator<Item = (u32, u32)> + '_ {
        let slots = self.geometry.slots(self.geometry.layer_of(node));
        let owners = &self.owners[self.first_slot(node)..][..slots];
        let real = owners.iter().enumerate().filter(|(_, owner)| **owner != DUMMY);
        real.map(|(slot, &owner)| (slot as u32, owner))
    }

    /// Marks a slot as read, so that it is not read again before its node is renewed. From now on
    /// it counts as a dummy.
    pub fn take(&mut self, node: Node, slot: u32) {
        let at = self.first_slot(node) + slot as usize;
        let bit = 1 << (at % 64);
        assert!(self.read[at / 64] & bit == 0, "no slot is read twice");
        self.read[at / 64] |= bit;
        self.reads[node.0 as usize] += 1;
        self.owners[at] = DUMMY;
    }

    /// A slot holds a dummy from now on, without being read.
    pub fn clear(&mut self, node: Node, slot: u32) {
        let at = self.first_slot(node) + slot as usize;
        self.owners[at] = DUMMY;
    }

    /// A random unread dummy of a node; all are equally likely. There is one as long as the node
    /// was read less often than it has dummies.
    pub fn dummy(&self, node: Node, rng: &mut dyn Rng) -> u32 {
        let first = self.first_slot(node);
        let slots = self.geometry.slots(self.geometry.layer_of(node)) as u64;
        loop {
            let slot = rng.below(slots) as usize;
            let at = first + slot;
            if self.owners[at] == DUMMY && self.read[at / 64] >> (at % 64) & 1 == 0 {
                return slot as u32;
            }
        }
    }

    /// Records that a node was renewed: no slot is read, and it holds these blocks in these slots.
    pub fn renew(&mut self, node: Node, attempt: u64, blocks: &[(u32, u32)]) {
        let first = self.first_slot(node);
        let slots = self.geometry.slots(self.geometry.layer_of(node));
        for at in first..first + slots {
            self.owners[at] = DUMMY;
            self.read[at / 64] &= !(1 << (at % 64));
        }
        for &(slot, id) in blocks {
            self.owners[first + slot as usize] = id;
        }
        self.reads[node.0 as usize] = 0;
        self.attempts[node.0 as usize] = attempt;
    }

    /// Appends the whole map.
    pub fn save(&self, out: &mut Writer) {
        out.u32s(&self.places);
        out.u32s(&self.owners);
        out.u64s(&self.read);
        out.u32s(&self.reads);
        out.u64s(&self.attempts);
    }

    /// Restores a saved map.
    pub fn load(&mut self, from: &mut Reader<'_>) -> Result {
        from.u32s(&mut self.places)?;
        from.u32s(&mut self.owners)?;
        from.u64s(&mut self.read)?;
        from.u32s(&mut self.reads)?;
        from.u64s(&mut self.attempts)
    }

    fn first_slot(&self, node: Node) -> usize {
        let g = &self.geometry;
        let inner = (g.nodes() - g.leaves()) as usize;
        let node = node.0 as usize;
        node.min(inner) * g.inner_slots + node.saturating_sub(inner) * g.leaf_slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_reports_as_many_bytes_as_it_saves() {
        for blocks in [1, 3000] {
            let index = Index::new(&Params::new(blocks, 64, 4).unwrap());
            let mut saved = Writer::default();
            index.save(&mut saved);
            assert_eq!(index.bytes(), saved.as_bytes().len());
        }
    }

    #[test]
    fn places_round_trip_and_take_few_bytes() {
        for (data, block_len) in
            [(1_u64 << 30, 1024), (4 << 30, 1024), (10 << 30, 1024), (20 << 30, 8192)]
        {
            let blocks = data / block_len as u64;
            let params = Params::new(blocks, block_len, 32).unwrap();
            let g = params.geometry;
            let mut index = Index::new(&params);
            assert!(index.bytes() as f64 <= 17.0 * blocks as f64, "{}", index.bytes());
            let deepest = BlockPlace::Tree {
                leaf: g.leaves() - 1,
                layer: g.layers - 1,
                slot: g.leaf_slots as u32 - 1,
            };
            let root = BlockPlace::Tree { leaf: 0, layer: 0, slot: 0 };
            for place in [deepest, root, BlockPlace::Gateway, BlockPlace::Nowhere] {
                index.set_place(7, place);
                assert_eq!(index.place(7), place);
            }
        }
    }
}
