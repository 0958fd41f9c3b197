//! Circuit ORAM with the plain client, with its map in memory.

use super::measure::{MovedBytes, Stepping, TreeSubject, WarmUp};
use super::plain::{
    SealerJob, SubjectResult, cached, details, ghost_tree, sealed_tree, with_sealer,
};
use super::{Details, TreeMeasurement, measure, refuse};
use crate::args::TreeArgs;
use traceless::rng::{SeededRng, System};
use traceless::scheme::circuit::{Circuit, STASH_BLOCKS, Z, shape_for};
use traceless::seal::Sealer;
use traceless::tree::{BucketTree, Shape};
use traceless_cli::failure::Failure;

pub fn measure(args: &TreeArgs) -> Result<TreeMeasurement, Failure> {
    refuse("circuit, whose map lies in memory", &[("--maps", args.maps.is_some())])?;
    let z = args.z.unwrap_or(Z);
    let shape =
        args.levels.map_or_else(|| shape_for(args.blocks, z), |levels| Shape::uniform(levels, z));
    let shape = shape.map_err(Failure::usage)?;
    let details = Details {
        levels: Some(shape.levels()),
        z: Some(z),
        cached_levels: cached(args, &shape),
        ..details(args)
    };
    let make = || {
        if args.block_len > 0 {
            return with_sealer(args.seal(), CircuitOverStore(args, shape));
        }
        let (tree, moved) = ghost_tree(shape);
        Ok(Box::new(Stepping::new(circuit(args, tree)?, moved)) as Box<dyn TreeSubject>)
    };
    let numbers = measure::measure(args, WarmUp::EveryBlock, make)?;
    Ok(TreeMeasurement { details, numbers })
}

fn circuit<T: BucketTree>(args: &TreeArgs, tree: T) -> Result<Circuit<T>, Failure> {
    let labels = Box::new(SeededRng::drawn(&mut System));
    Circuit::new(args.blocks, tree, STASH_BLOCKS, labels).map_err(Failure::usage)
}

struct CircuitOverStore<'a>(&'a TreeArgs, Shape);

impl SealerJob for CircuitOverStore<'_> {
    fn with<C: Sealer + 'static>(self, sealer: impl Fn() -> C) -> SubjectResult {
        let Self(args, shape) = self;
        let moved = MovedBytes::default();
        let tree = sealed_tree(args, shape, args.block_len, sealer(), &moved)?;
        Ok(Box::new(Stepping::new(circuit(args, tree)?, move |_| moved.bytes())))
    }
}
