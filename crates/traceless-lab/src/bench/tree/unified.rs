//! Unified ORAM, with its map in the tree and blocks of the map in a cache: alone, below a cache,
//! or as the main tree of Rho.

use super::last_level::{CacheLines, EarlyWriteBack, ExclusiveCache};
use super::measure::{Access, MovedBytes, Stepping, TreeSubject, WarmUp};
use super::plain::{
    SealerJob, SubjectResult, cached, details, ghost_tree, sealed_tree, shape, with_sealer,
};
use super::{Details, TreeMeasurement, measure, rho};
use crate::args::{LabelKind, TreeArgs, TreeScheme, word};
use traceless::posmap::{COUNTER_BITS, CompressedLabels, Labels, PlainLabels, Plb};
use traceless::rng::{SeededRng, System};
use traceless::scheme::unified::{Sizes, Unified};
use traceless::seal::{Sealer, Secret};
use traceless::tree::{BucketTree, STASH_BLOCKS, Shape};
use traceless::types::Addr;
use traceless_cli::failure::Failure;

/// Bytes of a block in a simulation.
const GHOST_BLOCK_LEN: usize = 64;

pub fn measure(args: &TreeArgs) -> Result<TreeMeasurement, Failure> {
    let key = Secret::random(&mut System);
    match args.labels {
        LabelKind::Plain => {
            let labels = || PlainLabels::in_block(block_len(args));
            with_labels(args, labels, labels)
        }
        LabelKind::Compressed => with_labels(
            args,
            || CompressedLabels::in_block(&key, block_len(args), COUNTER_BITS),
            || Ok(CompressedLabels::flat(&key)),
        ),
    }
}

/// Bytes of a block; a simulated block has a nominal length.
fn block_len(args: &TreeArgs) -> usize {
    if args.block_len == 0 { GHOST_BLOCK_LEN } else { args.block_len }
}

fn has_cache_above(scheme: TreeScheme) -> bool {
    matches!(scheme, TreeScheme::LlcD | TreeScheme::IrDwb)
}

fn plb_len(args: &TreeArgs) -> usize {
    args.plb as usize * 1024
}

fn with_labels<L: Labels + 'static>(
    args: &TreeArgs,
    labels: impl Fn() -> traceless::Result<L>,
    top: impl Fn() -> traceless::Result<L>,
) -> Result<TreeMeasurement, Failure> {
    let setting = UnifiedSetting {
        args,
        sizes: sizes(args),
        labels: labels().map_err(Failure::usage)?,
        top: top().map_err(Failure::usage)?,
    };
    let shape = setting.shape()?;
    let details = Details {
        levels: Some(shape.levels()),
        z: Some(shape.z(0) as u8),
        cached_levels: cached(args, &shape),
        maps_in_trees: usize::from(setting.sizes.map_levels),
        labels: Some(word(&args.labels)),
        plb_bytes: Some(plb_len(args)),
        plb_ways: Some(args.plb_ways),
        llc_bytes: has_cache_above(args.scheme).then_some(args.llc as usize * 1024),
        ..details(args)
    };
    // A simulation compares with the model of the cache, which begins empty.
    let warm_up = if args.block_len == 0 { WarmUp::None } else { WarmUp::EveryBlock };
    let numbers = measure::measure(args, warm_up, || {
        if args.block_len > 0 {
            return with_sealer(args.seal(), setting);
        }
        if args.scheme == TreeScheme::Rho {
            return rho::simulated(shape, |tree| setting.unified(tree));
        }
        let (tree, moved) = ghost_tree(shape);
        setting.subject(tree, moved)
    })?;
    Ok(TreeMeasurement { details, numbers })
}

fn sizes(args: &TreeArgs) -> Sizes {
    Sizes {
        blocks: args.blocks.div_ceil(args.bundle),
        map_levels: args.maps.unwrap_or(3).min(usize::from(u8::MAX)) as u8,
        parts: args.bundle,
        bundled: args.bundle > 1,
        stash_blocks: STASH_BLOCKS,
    }
}

/// All parts of a unified ORAM except its tree.
struct UnifiedSetting<'a, L> {
    args: &'a TreeArgs,
    sizes: Sizes,
    labels: L,
    top: L,
}

impl<L: Labels> UnifiedSetting<'_, L> {
    /// The shape for blocks and map.
    fn shape(&self) -> Result<Shape, Failure> {
        let (mut level, mut all) = (self.sizes.blocks, self.args.blocks);
        for _ in 0..self.sizes.map_levels {
            level = level.div_ceil(self.labels.fanout());
            all = all.saturating_add(level);
        }
        match self.args.levels {
            Some(_) => shape(self.args, self.args.blocks),
            None => shape(self.args, all),
        }
    }

    fn unified<T: BucketTree>(self, tree: T) -> Result<Unified<T, L>, Failure> {
        let Self { args, sizes, labels, top } = self;
        let cached_blocks = plb_len(args) / block_len(args);
        let plb = Plb::new(cached_blocks, args.plb_ways, args.block_len);
        let plb = plb.map_err(Failure::usage)?;
        let draws = Box::new(SeededRng::drawn(&mut System));
        Unified::new(sizes, tree, labels, top, plb, draws).map_err(Failure::usage)
    }
}

impl<L: Labels + 'static> UnifiedSetting<'_, L> {
    /// The ORAM over its only tree, below a cache if the scheme has one.
    fn subject<T: BucketTree + 'static>(
        self,
        tree: T,
        moved: impl Fn(u64) -> u64 + 'static,
    ) -> SubjectResult {
        let args = self.args;
        let lines = || CacheLines::new(args, block_len(args));
        Ok(match args.scheme {
            TreeScheme::LlcD => Box::new(ExclusiveCache::new(self.unified(tree)?, lines()?, moved)),
            TreeScheme::IrDwb => {
                Box::new(EarlyWriteBack::new(self.unified(tree)?, lines()?, moved))
            }
            _ => {
                let bundle = (args.bundle, args.block_len);
                Box::new(Bundles { inner: Stepping::new(self.unified(tree)?, moved), bundle })
            }
        })
    }
}

/// Blocks as parts of an ORAM's bundles: the parts per bundle, and the bytes of a part.
struct Bundles<S> {
    inner: S,
    bundle: (u64, usize),
}

impl<S: TreeSubject> TreeSubject for Bundles<S> {
    fn access(
        &mut self,
        access: Access,
        visit: &mut dyn FnMut(&mut [u8]),
    ) -> traceless::Result<u64> {
        let (blocks, len) = self.bundle;
        let (addr, nth) = (Addr(access.addr.0 / blocks), (access.addr.0 % blocks) as usize);
        let mut part = |bundle: &mut [u8]| visit(&mut bundle[nth * len..][..len]);
        self.inner.access(Access { addr, ..access }, &mut part)
    }

    fn bytes_moved(&self) -> u64 {
        self.inner.bytes_moved()
    }
}

impl<L: Labels + 'static> SealerJob for UnifiedSetting<'_, L> {
    fn with<C: Sealer + 'static>(self, sealer: impl Fn() -> C) -> SubjectResult {
        let moved = MovedBytes::default();
        let shape = self.shape()?;
        let tree = |shape| sealed_tree(self.args, shape, self.args.block_len, sealer(), &moved);
        if self.args.scheme == TreeScheme::Rho {
            let (main, small) = (tree(shape.clone())?, tree(rho::small_shape(&shape)?)?);
            let rho = rho::beside(self.unified(main)?, small)?;
            return Ok(Box::new(Stepping::new(rho, move |_| moved.bytes())));
        }
        let tree = tree(shape)?;
        self.subject(tree, move |_| moved.bytes())
    }
}
