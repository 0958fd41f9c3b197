//! Ring ORAM, its map in memory.

use super::measure::{Counted, Moved, Stepping, Subject, WarmUp};
use super::plain::{Made, OnSealer, details, on_sealer};
use super::{Details, Measured, measure, refuse};
use crate::args::TreeArgs;
use crate::failure::Failure;
use traceless::rng::{Seeded, System};
use traceless::scheme::ring::{GhostRing, Params, Ring, RingTree, SealedRing};
use traceless::seal::Sealer;
use traceless::tree::Shape;

pub fn measure(args: &TreeArgs) -> Result<Measured, Failure> {
    let cached = args.cached.is_some_and(|cached| cached > 0);
    let options = [("--maps", args.maps.is_some()), ("--cached", cached)];
    refuse("ring, whose map lies in memory and whose tree does not", &options)?;
    let params = params(args)?;
    let shape = args
        .levels
        .map_or_else(|| params.shape_for(args.blocks), |levels| Shape::uniform(levels, 1));
    let shape = shape.map_err(Failure::usage)?;
    let mut details = Details {
        levels: Some(shape.levels()),
        z: Some(params.z),
        dummies: Some(params.dummies),
        eviction_rate: Some(params.rate),
        ..details(args)
    };
    if details.encrypted {
        details.cipher = "AES-256-GCM, a tag a slot";
    }
    let make = || {
        let moved = Moved::default();
        if args.block_len > 0 {
            return on_sealer(args.seal(), OverStore { args, params, shape });
        }
        let tree = GhostRing::new(params, shape, moved.clone()).map_err(Failure::usage)?;
        subject(args, tree, moved)
    };
    let numbers = measure::measure(args, WarmUp::EveryBlock, make)?;
    Ok(Measured { details, numbers })
}

/// Those with buckets of as many blocks.
fn params(args: &TreeArgs) -> Result<Params, Failure> {
    let known = [Params::Z4, Params::Z8, Params::Z16, Params::Z32];
    let wanted = args.z.unwrap_or(Params::Z16.z);
    let found = known.into_iter().find(|params| params.z == wanted);
    found.ok_or_else(|| Failure::usage("buckets of ring hold 4, 8, 16 or 32 blocks"))
}

fn subject<T: RingTree + 'static>(
    args: &TreeArgs,
    tree: T,
    moved: Moved,
) -> Result<Box<dyn Subject>, Failure> {
    let ring = Ring::new(args.blocks, tree, Box::new(Seeded::drawn(&mut System)));
    let ring = ring.map_err(Failure::usage)?;
    Ok(Box::new(Stepping::new(ring, move |_| moved.bytes())))
}

struct OverStore<'a> {
    args: &'a TreeArgs,
    params: Params,
    shape: Shape,
}

impl OnSealer for OverStore<'_> {
    fn with<C: Sealer + 'static>(self, sealer: impl Fn() -> C) -> Made {
        let Self { args, params, shape } = self;
        let (moved, slots) = (Moved::default(), sealer());
        let len = SealedRing::store_len(params, &shape, args.block_len, &slots);
        let store = Counted::new(len, &moved);
        let tree = SealedRing::create(store, 0, params, shape, args.block_len, sealer(), slots);
        subject(args, tree.map_err(Failure::usage)?, moved)
    }
}
