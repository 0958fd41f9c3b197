//! Ring ORAM, with its map in memory.

use super::measure::{CountingStore, MovedBytes, Stepping, TreeSubject, WarmUp};
use super::plain::{SealerJob, SubjectResult, details, with_sealer};
use super::{Details, TreeMeasurement, measure, refuse};
use crate::args::TreeArgs;
use traceless::rng::{SeededRng, System};
use traceless::scheme::ring::{GhostRing, Params, Ring, RingTop, RingTree, SealedRing};
use traceless::seal::Sealer;
use traceless::tree::Shape;
use traceless_cli::failure::Failure;

pub fn measure(args: &TreeArgs) -> Result<TreeMeasurement, Failure> {
    refuse("ring, whose map lies in memory", &[("--maps", args.maps.is_some())])?;
    let params = params(args)?;
    let shape = args
        .levels
        .map_or_else(|| params.shape_for(args.blocks), |levels| Shape::uniform(levels, 1));
    let shape = shape.map_err(Failure::usage)?;
    let cached = args.cached.unwrap_or(0).min(shape.levels() - 1);
    let below = shape.only(|level| level >= cached);
    let mut details = Details {
        cached_levels: cached,
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
        let moved = MovedBytes::default();
        if args.block_len > 0 {
            return with_sealer(args.seal(), RingOverStore { args, params, shape, below, cached });
        }
        let tree = GhostRing::new(params, below, moved.clone()).map_err(Failure::usage)?;
        subject(args, RingTop::new(shape, cached, tree).map_err(Failure::usage)?, moved)
    };
    let numbers = measure::measure(args, WarmUp::EveryBlock, make)?;
    Ok(TreeMeasurement { details, numbers })
}

/// The parameters with `--z` blocks per bucket.
fn params(args: &TreeArgs) -> Result<Params, Failure> {
    let presets = [Params::Z4, Params::Z8, Params::Z16, Params::Z32];
    let z = args.z.unwrap_or(Params::Z16.z);
    let params = presets.into_iter().find(|params| params.z == z);
    params.ok_or_else(|| Failure::usage("buckets of ring hold 4, 8, 16 or 32 blocks"))
}

fn subject<T: RingTree + 'static>(
    args: &TreeArgs,
    tree: T,
    moved: MovedBytes,
) -> Result<Box<dyn TreeSubject>, Failure> {
    let ring = Ring::new(args.blocks, tree, Box::new(SeededRng::drawn(&mut System)));
    let ring = ring.map_err(Failure::usage)?;
    Ok(Box::new(Stepping::new(ring, move |_| moved.bytes())))
}

struct RingOverStore<'a> {
    args: &'a TreeArgs,
    params: Params,
    shape: Shape,
    /// The shape without the cached levels.
    below: Shape,
    cached: usize,
}

impl SealerJob for RingOverStore<'_> {
    fn with<C: Sealer + 'static>(self, sealer: impl Fn() -> C) -> SubjectResult {
        let Self { args, params, shape, below, cached } = self;
        let (moved, sealers) = (MovedBytes::default(), [sealer(), sealer()]);
        let len = SealedRing::store_len(params, &below, args.block_len, &sealers[0]);
        let store = CountingStore::new(len, &moved);
        let salts = Box::new(System);
        let tree = SealedRing::create(store, 0, params, below, args.block_len, sealers, salts);
        let tree = RingTop::new(shape, cached, tree.map_err(Failure::usage)?);
        subject(args, tree.map_err(Failure::usage)?, moved)
    }
}
