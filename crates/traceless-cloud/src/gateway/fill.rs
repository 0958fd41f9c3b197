//! Writes every block of an empty tree at once.
//!
//! Written one by one, each block would cost a query and its share of a round. In an empty tree the
//! gateway can instead draw a random leaf for each block and make the leaves itself, as if
//! evictions had moved all blocks down. The host observes one write of every leaf.

use super::Gateway;
use super::index::BlockPlace;
use super::partitions::Partitions;
use crate::block_seal::BlockKeys;
use crate::error::{Error, Result};
use crate::fork_join::{ForkJoin as _, TwoThreads};
use crate::geometry::Geometry;
use crate::host_group::HostGroup;
use crate::params::Params;
use crate::store::NodeVersion;
use crate::transport_seal::{TransportKeys, Version};
use traceless_core::rng::Rng;

const NOT_EMPTY: &str = "only an empty tree can be filled at once";

/// Writes a block's first bytes into a buffer of zeros.
pub type Contents<'a> = &'a (dyn Fn(u64, &mut [u8]) + Sync);

/// A finished leaf: its version, and the slot and number of each block.
struct LeafNode {
    version: NodeVersion,
    blocks: Vec<(u32, u32)>,
}

impl Gateway {
    /// Writes all blocks of a tree that was never written to. If this fails, or the process ends
    /// meanwhile, the store must be created anew.
    pub fn fill(&mut self, contents: Contents<'_>) -> Result {
        let state = &self.state;
        // A query without a reply was counted, or is older than the running round.
        let accesses = state.queries + state.stash.len();
        if !state.partitions.are_unused() || accesses > 0 {
            return Err(Error::Store(NOT_EMPTY));
        }
        let params = state.params;
        let (by_leaf, left) = draw_leaves(&params, &mut *self.rng);
        let filler = Filler {
            geometry: params.geometry,
            block_keys: &self.block_keys,
            transport_keys: &self.transport_keys,
            hosts: &self.hosts,
            partitions: &state.partitions,
            contents,
        };
        let leaves = filler.make_leaves(&by_leaf, &mut *self.rng)?;
        for (partition, link) in self.links.iter().enumerate() {
            let is_own =
                |version: &NodeVersion| self.state.partition_of_node(version.node) == partition;
            let versions: Vec<NodeVersion> =
                leaves.iter().map(|leaf| leaf.version).filter(is_own).collect();
            link.host.commit(1, &versions)?;
        }
        for LeafNode { version, blocks } in leaves {
            let layer = params.geometry.layers - 1;
            let leaf = params.geometry.leaf_of(version.node);
            self.state.index.renew(version.node, version.attempt, &blocks);
            for (slot, id) in blocks {
                self.state.index.set_place(id, BlockPlace::Tree { leaf, layer, slot });
            }
        }
        for partition in 0..self.links.len() {
            self.state.partitions.get_mut(partition).sequence = 1;
        }
        self.save()?;
        let mut block = vec![0; params.geometry.block_len];
        for id in left.into_iter().map(u64::from) {
            block.fill(0);
            contents(id, &mut block);
            self.put(id, &block)?;
        }
        Ok(())
    }
}

/// The blocks of each leaf, and the blocks without room in their leaf.
fn draw_leaves(params: &Params, rng: &mut dyn Rng) -> (Vec<Vec<u32>>, Vec<u32>) {
    let leaves = params.geometry.leaves();
    let (mut by_leaf, mut left) = (vec![Vec::new(); leaves as usize], Vec::new());
    for id in 0..params.blocks as u32 {
        let blocks: &mut Vec<u32> = &mut by_leaf[rng.below(u64::from(leaves)) as usize];
        if blocks.len() < params.leaf_blocks { blocks.push(id) } else { left.push(id) }
    }
    (by_leaf, left)
}

/// Makes leaves.
struct Filler<'a> {
    geometry: Geometry,
    block_keys: &'a BlockKeys,
    transport_keys: &'a TransportKeys,
    hosts: &'a HostGroup,
    partitions: &'a Partitions,
    contents: Contents<'a>,
}

impl Filler<'_> {
    /// Makes the leaves with these blocks, on two threads, and hands them to the host.
    fn make_leaves(&self, by_leaf: &[Vec<u32>], rng: &mut dyn Rng) -> Result<Vec<LeafNode>> {
        let (lower, upper) = by_leaf.split_at(by_leaf.len() / 2);
        let (mut rng_one, mut rng_other) = (rng.fork(), rng.fork());
        let (mut first, mut second) = (Ok(Vec::new()), Ok(Vec::new()));
        TwoThreads.join(&mut || first = self.make_range(0, lower, &mut *rng_one), &mut || {
            second = self.make_range(lower.len(), upper, &mut *rng_other);
        });
        let mut nodes = first?;
        nodes.append(&mut second?);
        Ok(nodes)
    }

    fn make_range(
        &self,
        start: usize,
        leaves: &[Vec<u32>],
        rng: &mut dyn Rng,
    ) -> Result<Vec<LeafNode>> {
        let g = &self.geometry;
        let mut bytes = vec![0; g.node_len(g.layers - 1)];
        let mut plain = Vec::new();
        let mut nodes = Vec::with_capacity(leaves.len());
        for (leaf, ids) in (start as u32..).zip(leaves) {
            let blocks = draw_slots(g.leaf_slots, ids, rng);
            plain.clear();
            plain.resize(blocks.len() * g.block_len, 0);
            for (block, &(_, id)) in plain.chunks_exact_mut(g.block_len).zip(&blocks) {
                (self.contents)(u64::from(id), block);
            }
            // Drawn when the leaf's content is final, so copies of this process share no attempt.
            let attempt = rng.salt().0.max(1);
            let version = NodeVersion { node: g.node(g.layers - 1, leaf), attempt };
            self.seal(version, (&blocks, &plain), &mut bytes);
            self.hosts.host(self.partitions.of_root(g.root(leaf))).place(version, &bytes)?;
            nodes.push(LeafNode { version, blocks });
        }
        Ok(nodes)
    }

    /// A leaf's bytes: blocks in their slots, zeros in all other slots.
    fn seal(
        &self,
        version: NodeVersion,
        (blocks, plain): (&[(u32, u32)], &[u8]),
        bytes: &mut [u8],
    ) {
        let g = &self.geometry;
        let NodeVersion { node, attempt } = version;
        let block_seal = self.block_keys.round(0, attempt);
        let transport_seal =
            self.transport_keys.seal(Version { node, epoch: 0, attempt, carried: false });
        let mut owners = vec![None; g.leaf_slots];
        for (&(slot, id), block) in blocks.iter().zip(plain.chunks_exact(g.block_len)) {
            owners[slot as usize] = Some((id, block));
        }
        let mut plain = vec![0; g.sealed_len()];
        for ((number, slot), owner) in (0..).zip(bytes.chunks_exact_mut(g.slot_len())).zip(owners) {
            match owner {
                Some((id, block)) => {
                    block_seal.seal(number as u16, u64::from(id), block, &mut plain);
                }
                None => plain.fill(0),
            }
            transport_seal.seal_slot(g, number, &plain, slot);
        }
    }
}

/// A distinct random slot for each block; all choices are equally likely.
fn draw_slots(slots: usize, ids: &[u32], rng: &mut dyn Rng) -> Vec<(u32, u32)> {
    let mut free: Vec<u32> = (0..slots as u32).collect();
    let draw = |(i, &id): (usize, &u32)| {
        free.swap(i, i + rng.below((slots - i) as u64) as usize);
        (free[i], id)
    };
    ids.iter().enumerate().map(draw).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{BLOCK, gateway_over, in_memory, params};
    use super::{NOT_EMPTY, draw_leaves};
    use crate::error::Error;
    use crate::kernel::Choice;
    use crate::store::MemStore;
    use traceless_core::rng::SeededRng;

    fn contents(id: u64, block: &mut [u8]) {
        block[..8].copy_from_slice(&(id * 31 + 1).to_le_bytes());
    }

    #[test]
    fn a_filled_tree_has_every_block_and_accepts_writes() {
        let mut gateway = in_memory(3000, 5);
        gateway.fill(&contents).unwrap();
        assert_eq!(gateway.counts().queries, 0, "no queries but for what found no room");
        let mut expected = [0; BLOCK];
        for id in (0..3000).chain(0..3000) {
            contents(id, &mut expected);
            assert_eq!(gateway.get(id).unwrap(), expected, "{id}");
        }
        gateway.put(7, &[9; BLOCK]).unwrap();
        for id in 100..2000 {
            gateway.get(id).unwrap();
        }
        assert_eq!(gateway.get(7).unwrap(), [9; BLOCK]);
        assert!(matches!(gateway.fill(&contents), Err(Error::Store(_))), "it is not empty");
    }

    #[test]
    fn only_an_empty_tree_can_be_filled() {
        let mut filled = in_memory(3000, 5);
        filled.fill(&contents).unwrap();
        assert_eq!(filled.counts().queries, 0, "nothing but its filling tells");
        let (mut written, mut after_dummy) = (in_memory(200, 7), in_memory(200, 8));
        written.put(7, &[9; BLOCK]).unwrap();
        after_dummy.dummy().unwrap();
        for gateway in [&mut filled, &mut written, &mut after_dummy] {
            assert!(matches!(gateway.fill(&contents), Err(Error::Store(NOT_EMPTY))));
        }
        assert_eq!(written.get(7).unwrap(), [9; BLOCK]);
    }

    /// With hardly any room, leaves get as many blocks as they may hold; the rest is put singly.
    #[test]
    fn blocks_without_room_in_their_leaf_are_written_one_by_one() {
        let mut params = params(200);
        params.leaf_blocks = params.blocks as usize / params.geometry.leaves() as usize;
        let (by_leaf, left) = draw_leaves(&params, &mut SeededRng::new(9));
        assert_eq!(by_leaf.iter().map(Vec::len).max(), Some(params.leaf_blocks));
        let mut all = [by_leaf.concat(), left].concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..200));

        let mut gateway = gateway_over(params, MemStore::new(params.geometry), Choice::Benes, 9);
        gateway.fill(&contents).unwrap();
        let put = gateway.counts().queries;
        assert!(put > 0 && put < 100, "{put}");
        let mut expected = [0; BLOCK];
        for id in 0..200 {
            contents(id, &mut expected);
            assert_eq!(gateway.get(id).unwrap(), expected, "{id}");
        }
    }
}
