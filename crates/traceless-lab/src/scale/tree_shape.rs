//! The shape of a tree of any size.

use serde::Serialize;
use traceless_cloud::costs::Costs;
use traceless_cloud::kernel::Choice;
use traceless_cloud::params::{ARITY, Params};

/// What the times of queries and rounds depend on.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct TreeShape {
    /// Layers of nodes, from the roots.
    pub layers: usize,
    /// Trees, each of which one host has.
    pub roots: usize,
    /// Queries after which a round is due.
    pub round_blocks: usize,
    /// Slots that a round opens and seals: of a path, and the ones that move down it.
    pub round_slots: usize,
    /// Bytes of the messages of a query, and of a round.
    pub query_len: f64,
    pub round_len: f64,
    /// Bytes at the hosts for each byte of data.
    pub space: f64,
}

impl TreeShape {
    /// The tree for `blocks` blocks of `block_len` bytes, with at least `hosts` roots.
    ///
    /// Beyond what a gateway's map of 32 bits a block can have, it is the tree of an eighth of the
    /// blocks with one more layer, which adds as much as the last one did: leaves hold as many
    /// blocks, so all nodes have the same sizes.
    pub fn of(
        blocks: u64,
        block_len: usize,
        lambda: u32,
        hosts: usize,
    ) -> traceless_cloud::Result<Self> {
        match Params::new(blocks, block_len, lambda) {
            Ok(params) => Ok(Self::of_params(&params, hosts)),
            Err(_) if blocks > u64::from(u32::MAX) / 64 => {
                let arity = u64::from(ARITY);
                let of = |blocks| Self::of(blocks, block_len, lambda, hosts);
                let (smaller, smallest) =
                    (of(blocks.div_ceil(arity))?, of(blocks.div_ceil(arity * arity))?);
                Ok(smaller.grown_from(&smallest))
            }
            Err(error) => Err(error),
        }
    }

    /// The shape of a tree with these parameters.
    pub fn of_params(params: &Params, hosts: usize) -> Self {
        let (g, costs) = (&params.geometry, Costs::of(params, Choice::Benes));
        let round_slots = (0..g.layers).map(|layer| g.slots(layer) + g.round_slots).sum();
        Self {
            layers: g.layers,
            roots: hosts.max(g.roots as usize),
            round_blocks: params.round_blocks,
            round_slots,
            query_len: costs.query_messages as f64,
            round_len: costs.round_messages as f64,
            space: params.space(),
        }
    }

    /// The tree that is as much larger than this one as this one is larger than `smaller`.
    fn grown_from(&self, smaller: &Self) -> Self {
        Self {
            layers: 2 * self.layers - smaller.layers,
            round_slots: 2 * self.round_slots - smaller.round_slots,
            query_len: 2.0 * self.query_len - smaller.query_len,
            round_len: 2.0 * self.round_len - smaller.round_len,
            ..*self
        }
    }

    /// Of the requests for `names` values, the share that is for blocks at the gateway.
    ///
    /// A block waits for the round of its root, half as many rounds as there are roots in the mean,
    /// and then for the end of this round.
    pub fn hits(&self, names: u64) -> f64 {
        let waiting = (self.roots as f64 / 2.0 + 1.0) * self.round_blocks as f64;
        // Blocks that are requested again wait once.
        1.0 - (-waiting / names as f64).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_trees_have_the_same_nodes_and_more_layers() {
        let of = |blocks| TreeShape::of(blocks, 1024, 32, 1).unwrap();
        let (smaller, small, large) = (of(1_250_000), of(10_000_000), of(80_000_000));
        let grown = small.grown_from(&smaller);
        assert_eq!((grown.layers, grown.round_blocks), (large.layers, large.round_blocks));
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.01;
        assert!(near(grown.round_slots as f64, large.round_slots as f64), "{grown:?} {large:?}");
        assert!(near(grown.query_len, large.query_len) && near(grown.round_len, large.round_len));
        assert!(near(grown.space, large.space));
        let largest = of(1_000_000_000_000);
        assert_eq!(largest.layers, of(1_000_000_000_000 / 8u64.pow(5)).layers + 5);
        assert!(TreeShape::of(1000, 1000, 32, 1).is_err(), "blocks are multiples of 32 bytes");
    }
}
