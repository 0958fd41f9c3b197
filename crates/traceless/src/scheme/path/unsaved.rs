//! A Path ORAM in memory that is never reopened: it has no cost for crash safety.

use super::{PathGeometry, PathOram};
use crate::controller::SteppedOram;
use crate::tree::{Contents, SealedTree, Treetop};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use traceless_core::error::Result;
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::seal::{Aegis, Secret};
use traceless_core::store::MemStore;

/// The type that [`in_memory`] returns.
pub type Unsaved = SteppedOram<PathOram<Tree>>;

type Tree = Treetop<SealedTree<Aegis>>;

/// Makes a Path ORAM with sealed trees in memory; the key is never stored.
pub fn in_memory(geometry: &PathGeometry, rng: &mut dyn Rng) -> Result<Unsaved> {
    assemble(geometry, rng).map(SteppedOram::new)
}

/// Makes a Path ORAM like [`in_memory`] and fills it with every block.
pub fn in_memory_filled(
    geometry: &PathGeometry,
    rng: &mut dyn Rng,
    contents: Contents<'_>,
) -> Result<Unsaved> {
    let mut path = assemble(geometry, rng)?;
    path.fill(contents)?;
    Ok(SteppedOram::new(path))
}

fn assemble(geometry: &PathGeometry, rng: &mut dyn Rng) -> Result<PathOram<Tree>> {
    geometry.check()?;
    let mut trees = Vec::new();
    for tree in geometry.trees() {
        let store = Arc::new(MemStore::with_room(tree.layout.len())?);
        let key = Aegis::new(&Secret::random(rng));
        let (shape, salts) = (tree.below(), rng.fork());
        let below = SealedTree::create(store, 0, tree.name, shape, tree.body_len, key, salts)?;
        trees.push(Treetop::new(tree.shape, tree.cached, below)?);
    }
    let leaves = Box::new(SeededRng::drawn(rng));
    let stash_blocks = geometry.stash_blocks as usize;
    PathOram::new(geometry.blocks, trees, stash_blocks, leaves)
}
