//! Rho: a small tree beside the tree of a unified ORAM, sized in proportion to the paper's.

use super::measure::{Stepping, TreeSubject};
use super::plain::ghost_tree;
use traceless::posmap::Labels;
use traceless::rng::{SeededRng, System};
use traceless::scheme::rho::{PATTERN, Rho, SMALL_LEVELS, SMALL_TAGS, SMALL_Z};
use traceless::scheme::unified::Unified;
use traceless::tree::{BucketTree, GhostTree, STASH_BLOCKS, Shape};
use traceless_cli::failure::Failure;

/// Levels of the paper's main tree.
const MAIN_LEVELS: usize = 25;

/// The shape of the small tree beside a main tree: the difference in levels is the paper's.
pub fn small_shape(main: &Shape) -> Result<Shape, Failure> {
    let levels = main.levels().saturating_sub(MAIN_LEVELS - SMALL_LEVELS).max(2);
    Shape::uniform(levels, SMALL_Z).map_err(Failure::usage)
}

/// Rho over both trees. The small tree has as many tags per slot as in the paper.
pub fn beside<T: BucketTree, S: BucketTree, L: Labels>(
    main: Unified<T, L>,
    small: S,
) -> Result<Rho<T, S, L>, Failure> {
    let of_paper = Shape::uniform(SMALL_LEVELS, SMALL_Z).map_err(Failure::usage)?.slots();
    let (sets, ways) = SMALL_TAGS;
    let slots = small.shape().slots();
    let sets = (sets as u64 * slots / of_paper).max(1) as usize;
    // The smallest trees have fewer slots than a set has ways.
    let ways = ways.min(slots as usize);
    let draws = Box::new(SeededRng::drawn(&mut System));
    Rho::new(main, small, (sets, ways), STASH_BLOCKS, draws).map_err(Failure::usage)
}

/// Rho over simulated trees. One step in three is a path of the main tree.
pub fn simulated<L: Labels + 'static>(
    shape: Shape,
    unified: impl FnOnce(GhostTree<()>) -> Result<Unified<GhostTree<()>, L>, Failure>,
) -> Result<Box<dyn TreeSubject>, Failure> {
    let (small, small_moved) = ghost_tree(small_shape(&shape)?);
    let (main, main_moved) = ghost_tree(shape);
    let rho = beside(unified(main)?, small)?;
    Ok(Box::new(Stepping::new(rho, move |steps: u64| {
        let of_main = steps.div_ceil(u64::from(PATTERN));
        main_moved(of_main) + small_moved(steps - of_main)
    })))
}
