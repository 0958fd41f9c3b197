//! Circuit ORAM with the plain client, its map in memory.

use super::measure::{Moved, Stepping, Subject, WarmUp};
use super::plain::{Made, OnSealer, cached, details, ghost_tree, on_sealer, sealed_tree};
use super::{Details, Measured, measure, refuse};
use crate::args::TreeArgs;
use traceless::rng::{Seeded, System};
use traceless::scheme::circuit::{Circuit, STASH_BLOCKS, Z, shape_for};
use traceless::seal::Sealer;
use traceless::tree::{BucketTree, Shape};
use traceless_cli::failure::Failure;

pub fn measure(args: &TreeArgs) -> Result<Measured, Failure> {
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
            return on_sealer(args.seal(), OverStore(args, shape));
        }
        let (tree, moved) = ghost_tree(shape);
        Ok(Box::new(Stepping::new(circuit(args, tree)?, moved)) as Box<dyn Subject>)
    };
    let numbers = measure::measure(args, WarmUp::EveryBlock, make)?;
    Ok(Measured { details, numbers })
}

fn circuit<T: BucketTree>(args: &TreeArgs, tree: T) -> Result<Circuit<T>, Failure> {
    let labels = Box::new(Seeded::drawn(&mut System));
    Circuit::new(args.blocks, tree, STASH_BLOCKS, labels).map_err(Failure::usage)
}

struct OverStore<'a>(&'a TreeArgs, Shape);

impl OnSealer for OverStore<'_> {
    fn with<C: Sealer + 'static>(self, sealer: impl Fn() -> C) -> Made {
        let Self(args, shape) = self;
        let moved = Moved::default();
        let tree = sealed_tree(args, shape, args.block_len, sealer(), &moved)?;
        Ok(Box::new(Stepping::new(circuit(args, tree)?, move |_| moved.bytes())))
    }
}
