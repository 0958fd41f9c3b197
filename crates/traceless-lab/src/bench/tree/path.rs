//! Path ORAM, with its map in memory or in further trees.

use super::measure::{Access, MovedBytes, Stepping, TreeSubject, WarmUp};
use super::plain::{
    OverStore, SealerJob, SubjectResult, cached, details, ghost_tree, sealed_tree, shape,
    with_sealer,
};
use super::{Details, TreeMeasurement, measure, refuse};
use crate::args::TreeArgs;
use traceless::controller::Controller;
use traceless::posmap::LABEL_LEN;
use traceless::rng::{Rng, SeededRng, System};
use traceless::scheme::path::PathOram;
use traceless::scheme::pmmac::Pmmac;
use traceless::seal::{Aegis, MaskSeal, Salt, Sealer, Secret, TAG_LEN};
use traceless::tree::{GhostTree, Header, STASH_BLOCKS};
use traceless::types::{Addr, Leaf};
use traceless_cli::failure::Failure;

pub fn measure(args: &TreeArgs) -> Result<TreeMeasurement, Failure> {
    let (shape, maps) = (shape(args, args.blocks)?, args.maps.unwrap_or(0));
    let numbers = if args.block_len == 0 {
        refuse("a simulated Path ORAM", &[("--maps", maps > 0)])?;
        measure::measure(args, WarmUp::None, || dummies(args))?
    } else {
        let make = || with_sealer(args.seal(), OverStores(args));
        measure::measure(args, WarmUp::EveryBlock, make)?
    };
    let details = Details {
        levels: Some(shape.levels()),
        z: Some(shape.z(0) as u8),
        cached_levels: cached(args, &shape),
        maps_in_trees: maps,
        ..details(args)
    };
    Ok(TreeMeasurement { details, numbers })
}

/// One tree for the blocks, and one for each map.
struct OverStores<'a>(&'a TreeArgs);

impl SealerJob for OverStores<'_> {
    fn with<C: Sealer + 'static>(self, sealer: impl Fn() -> C) -> SubjectResult {
        let moved = MovedBytes::default();
        let path = self.path(self.0.block_len, sealer, &moved)?;
        Ok(Box::new(Stepping::new(path, move |_| moved.bytes())))
    }

    /// PMMAC, which is safe only with all labels in trusted memory.
    fn with_pmmac(self) -> SubjectResult {
        refuse("PMMAC, which needs the whole map in memory", &[("--maps", self.maps() > 0)])?;
        let (moved, key) = (MovedBytes::default(), || Secret::random(&mut System));
        let block_len = self.0.block_len + Salt::LEN + TAG_LEN;
        let path = self.path(block_len, || MaskSeal::new(&key()), &moved)?;
        let pmmac = Pmmac::new(path, Aegis::new(&key()), Box::new(System));
        let pmmac = pmmac.map_err(Failure::usage)?;
        Ok(Box::new(Stepping::new(pmmac, move |_| moved.bytes())))
    }
}

impl OverStores<'_> {
    fn maps(&self) -> usize {
        self.0.maps.unwrap_or(0)
    }

    fn path<C: Sealer>(
        &self,
        block_len: usize,
        sealer: impl Fn() -> C,
        moved: &MovedBytes,
    ) -> Result<PathOram<OverStore<C>>, Failure> {
        let args = self.0;
        let (mut trees, mut blocks) = (vec![], args.blocks);
        for nth in 0..=self.maps() {
            let len = if nth == 0 { block_len } else { args.map_block_len };
            if nth > 0 {
                blocks = blocks.div_ceil((len / LABEL_LEN).max(1) as u64);
            }
            trees.push(sealed_tree(args, shape(args, blocks)?, len, sealer(), moved)?);
        }
        let labels = Box::new(SeededRng::drawn(&mut System));
        PathOram::new(args.blocks, trees, STASH_BLOCKS, labels).map_err(Failure::usage)
    }
}

/// A simulated tree that holds all blocks already and serves dummies only. The labels are in the
/// tree, so that no map as large as the tree is needed.
struct Dummies<M> {
    path: PathOram<GhostTree<()>>,
    steps: u64,
    moved: M,
}

fn dummies(args: &TreeArgs) -> Result<Box<dyn TreeSubject>, Failure> {
    let shape = shape(args, args.blocks)?;
    let (leaves, mut rng) = (shape.leaves(), SeededRng::new(1));
    let (mut tree, moved) = ghost_tree(shape);
    for addr in 0..args.blocks {
        let header = Header::new(Addr(addr), Leaf(rng.below(leaves)));
        if !tree.place(header) {
            return Err(Failure::usage("the tree is too full: choose more --levels"));
        }
    }
    let path = PathOram::new(1, vec![tree], STASH_BLOCKS, Box::new(SeededRng::new(2)));
    let path = path.map_err(Failure::usage)?;
    Ok(Box::new(Dummies { path, steps: 0, moved }))
}

impl<M: Fn(u64) -> u64> TreeSubject for Dummies<M> {
    fn access(&mut self, _: Access, _: &mut dyn FnMut(&mut [u8])) -> traceless::Result<u64> {
        self.path.step(&mut |_, _| {})?;
        self.steps += 1;
        Ok(1)
    }

    fn bytes_moved(&self) -> u64 {
        (self.moved)(self.steps)
    }
}
