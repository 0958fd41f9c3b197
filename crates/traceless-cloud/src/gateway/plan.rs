//! The plan of an eviction: which row goes where in the renewed nodes.
//!
//! No block is lost for want of room: a full node leaves blocks in the node above, and a root
//! leaves them at the gateway, which still has their bytes. This happens with the probability that
//! the parameters were chosen for, and the host cannot observe it.

use super::index::{BlockPlace, Index};
use crate::geometry::Node;
use crate::params::Params;
use traceless_core::rng::Rng;

/// A block that moves down the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MovingBlock {
    /// The block.
    pub id: u32,
    /// The leaf of its path.
    pub leaf: u32,
}

/// The plan for one node.
#[derive(Debug)]
pub struct NodePlan {
    /// The node.
    pub node: Node,
    /// The target of each row: first the node's slots, then the carried slots.
    pub dest: Vec<u32>,
    /// The node's new content: slots and blocks.
    pub blocks: Vec<(u32, MovingBlock)>,
}

/// A row that holds a real block.
#[derive(Clone, Copy)]
struct Row {
    row: u32,
    block: MovingBlock,
}

/// How many of `stashed` blocks round `round` can take without overflowing a node of its path.
/// After a round that had to leave blocks behind, this may exceed the average.
pub fn room(index: &Index, params: &Params, round: u64, stashed: usize) -> usize {
    let allowed = LayerRoom::of(index, params, round);
    stashed.min(allowed.into[0])
}

/// The plan of round `round`, which brings in `batch`. The batch must fit ([`room`]).
pub fn plan_round(
    index: &Index,
    params: &Params,
    round: u64,
    batch: &[MovingBlock],
    rng: &mut dyn Rng,
) -> Vec<NodePlan> {
    let g = &params.geometry;
    let allowed = LayerRoom::of(index, params, round);
    assert!(batch.len() <= allowed.into[0], "no more than there is room for");
    let mut arriving = batch.to_vec();
    let mut plans = Vec::with_capacity(g.layers);
    for layer in 0..g.layers {
        let node = g.node(layer, g.evicted(round));
        let own = rows_of(index, params, node);
        let from_above = arriving
            .iter()
            .enumerate()
            .map(|(i, &block)| Row { row: (g.slots(layer) + i) as u32, block });
        let (mut stay, mut down) = (Vec::new(), Vec::new());
        for row in own.into_iter().chain(from_above) {
            // A leaf passes nothing on, and there is no node below it to look up.
            let is_room = down.len() < allowed.down[layer];
            if is_room && goes_below(params, round, layer, row.block) {
                down.push(row);
            } else {
                stay.push(row);
            }
        }
        assert!(stay.len() <= params.capacity(layer), "what arrives was limited");
        plans.push(place_rows(params, node, g.round_slots, &stay, &down, rng));
        arriving = down.into_iter().map(|row| row.block).collect();
    }
    plans
}

/// The plan of a node that is renewed outside a round.
pub fn plan_node(index: &Index, params: &Params, node: Node, rng: &mut dyn Rng) -> NodePlan {
    let stay = rows_of(index, params, node);
    place_rows(params, node, 0, &stay, &[], rng)
}

/// How many blocks may enter each layer of a round's path, and how many may leave it downwards.
struct LayerRoom {
    into: Vec<usize>,
    down: Vec<usize>,
}

impl LayerRoom {
    /// Computed from the leaf up. Arriving blocks are assumed to stay, as it is not known yet how
    /// many go on.
    fn of(index: &Index, params: &Params, round: u64) -> Self {
        let g = &params.geometry;
        let (mut into, mut down) = (vec![0; g.layers], vec![0; g.layers]);
        let mut into_below = 0;
        for layer in (0..g.layers).rev() {
            let rows = rows_of(index, params, g.node(layer, g.evicted(round)));
            let below = |row: &&Row| goes_below(params, round, layer, row.block);
            down[layer] = into_below;
            // `take(0)` keeps `goes_below` from being called for a leaf, which has no node below.
            let stay = rows.len() - rows.iter().filter(below).take(down[layer]).count();
            into[layer] = g.round_slots.min(params.capacity(layer).saturating_sub(stay));
            into_below = into[layer];
        }
        Self { into, down }
    }
}

fn rows_of(index: &Index, params: &Params, node: Node) -> Vec<Row> {
    let real = index.blocks_of(node).map(|(slot, id)| {
        let BlockPlace::Tree { leaf, layer, slot: known } = index.place(id) else {
            panic!("a block in a slot is in the tree");
        };
        assert!(known == slot && layer == params.geometry.layer_of(node), "both maps agree");
        Row { row: slot, block: MovingBlock { id, leaf } }
    });
    real.collect()
}

/// Whether a block's path goes through the next node of a round's path.
fn goes_below(params: &Params, round: u64, layer: usize, block: MovingBlock) -> bool {
    let g = &params.geometry;
    g.node(layer + 1, block.leaf) == g.node(layer + 1, g.evicted(round))
}

/// Real rows that stay get random slots; all choices are equally likely. Rows that go on come first
/// in the carried slots. Dummies fill the rest.
fn place_rows(
    params: &Params,
    node: Node,
    carried: usize,
    stay: &[Row],
    down: &[Row],
    rng: &mut dyn Rng,
) -> NodePlan {
    let slots = params.geometry.slots(params.geometry.layer_of(node));
    let mut free: Vec<u32> = (0..slots as u32).collect();
    let mut dest = vec![u32::MAX; slots + carried];
    let mut blocks = Vec::with_capacity(stay.len());
    for (i, row) in stay.iter().enumerate() {
        // The first i entries of `free` are drawn already.
        free.swap(i, i + rng.below((slots - i) as u64) as usize);
        dest[row.row as usize] = free[i];
        blocks.push((free[i], row.block));
    }
    for (i, row) in down.iter().enumerate() {
        dest[row.row as usize] = (slots + i) as u32;
    }
    let left = free[stay.len()..].iter().copied().chain((slots + down.len()) as u32..);
    for (to, left) in dest.iter_mut().filter(|to| **to == u32::MAX).zip(left) {
        *to = left;
    }
    NodePlan { node, dest, blocks }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::rng::SeededRng;

    fn apply(index: &mut Index, params: &Params, plans: &[NodePlan], attempt: u64) {
        for plan in plans {
            let layer = params.geometry.layer_of(plan.node);
            let blocks: Vec<(u32, u32)> =
                plan.blocks.iter().map(|(slot, block)| (*slot, block.id)).collect();
            index.renew(plan.node, attempt, &blocks);
            for &(slot, MovingBlock { id, leaf }) in &plan.blocks {
                index.set_place(id, BlockPlace::Tree { leaf, layer, slot });
            }
        }
    }

    /// Runs rounds that take random blocks out of the tree and bring them back, as in the
    /// simulation of the notes. Returns the most blocks in a node that is not a leaf, and the most
    /// carried at once.
    fn full(params: &Params, rounds: u64, seed: u64) -> (usize, usize) {
        let g = params.geometry;
        let mut index = Index::new(params);
        let mut rng = SeededRng::new(seed);
        let mut next = 0;
        let (mut fullest, mut widest) = (0, 0);
        let mut stashed = Vec::new();
        for round in 0..rounds {
            let mut queries = 0;
            while queries < params.round_blocks {
                let id = if next < params.blocks { next } else { rng.below(params.blocks) } as u32;
                next += 1;
                match index.place(id) {
                    BlockPlace::Gateway => continue,
                    BlockPlace::Nowhere => {}
                    BlockPlace::Tree { leaf, layer, slot } => {
                        let node = g.node(layer, leaf);
                        if index.reads(node) == params.reads_max(layer) {
                            let plan = plan_node(&index, params, node, &mut rng);
                            apply(&mut index, params, &[plan], round + 1);
                            continue;
                        }
                        index.take(node, slot);
                    }
                }
                index.set_place(id, BlockPlace::Gateway);
                stashed.push(MovingBlock { id, leaf: rng.below(u64::from(g.leaves())) as u32 });
                queries += 1;
            }
            let tree = g.root(g.evicted(round));
            let goes = |block: &mut MovingBlock| g.root(block.leaf) == tree;
            let mut batch: Vec<MovingBlock> = stashed.extract_if(.., goes).collect();
            let room = room(&index, params, round, batch.len());
            for left in batch.drain(room..) {
                index.set_place(left.id, BlockPlace::Nowhere);
            }
            let plans = plan_round(&index, params, round, &batch, &mut rng);
            for plan in &plans {
                let mut to = plan.dest.clone();
                to.sort_unstable();
                assert!(to.into_iter().eq(0..plan.dest.len() as u32), "a permutation");
                let layer = g.layer_of(plan.node);
                let real = plan.blocks.len();
                if layer + 1 < g.layers {
                    fullest = fullest.max(real);
                }
                widest = widest.max(room);
            }
            apply(&mut index, params, &plans, round + 1);
        }
        (fullest, widest)
    }

    #[test]
    fn plans_keep_both_maps_consistent() {
        for params in [Params::new(3000, 32, 2), Params::printed(3000, 32, 2)] {
            full(&params.unwrap(), 400, 1);
        }
    }

    #[test]
    fn full_nodes_leave_blocks_in_the_node_above() {
        let mut params = Params::new(3000, 32, 2).unwrap();
        // A third of the needed room: rounds bring in fewer blocks, and none is lost.
        params.leaf_blocks /= 3;
        let (fullest, _) = full(&params, 400, 2);
        assert!(fullest <= params.inner_blocks);
    }

    /// The notes' simulation of 2^20 blocks: at most 2382 real blocks in layers 0 and 1.
    #[test]
    fn node_loads_agree_with_the_model() {
        for params in [Params::new(1 << 18, 32, 32), Params::printed(1 << 18, 32, 32)] {
            let params = params.unwrap();
            let (fullest, widest) = full(&params, 600, 3);
            assert!((2200..=2450).contains(&fullest), "{fullest}");
            assert!((640..=params.geometry.round_slots).contains(&widest), "{widest}");
        }
    }
}
