//! A Path ORAM in memory that nobody opens again: it pays for no crash.

use super::{Geometry, PathOram};
use crate::controller::Stepped;
use crate::error::Result;
use crate::rng::{Rng, Seeded};
use crate::seal::{Aegis, Secret};
use crate::store::MemStore;
use crate::tree::{Contents, SealedTree, Treetop};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What [`in_memory`] makes.
pub type Unsaved = Stepped<PathOram<Tree>>;

type Tree = Treetop<SealedTree<Aegis>>;

/// One whose trees lie sealed in memory, under a key that it forgets.
pub fn in_memory(geometry: &Geometry, rng: &mut dyn Rng) -> Result<Unsaved> {
    assemble(geometry, rng).map(Stepped::new)
}

/// The same, filled with every block.
pub fn in_memory_filled(
    geometry: &Geometry,
    rng: &mut dyn Rng,
    contents: Contents<'_>,
) -> Result<Unsaved> {
    let mut path = assemble(geometry, rng)?;
    path.fill(contents)?;
    Ok(Stepped::new(path))
}

fn assemble(geometry: &Geometry, rng: &mut dyn Rng) -> Result<PathOram<Tree>> {
    geometry.check()?;
    let mut trees = Vec::new();
    for tree in geometry.trees() {
        let store = Arc::new(MemStore::with_room(tree.layout.len())?);
        let key = Aegis::new(&Secret::random(rng));
        let (shape, salts) = (tree.below(), rng.fork());
        let below = SealedTree::create(store, 0, tree.name, shape, tree.body_len, key, salts)?;
        trees.push(Treetop::new(tree.shape, tree.cached, below)?);
    }
    let leaves = Box::new(Seeded::drawn(rng));
    let stash_blocks = geometry.stash_blocks as usize;
    PathOram::new(geometry.blocks, trees, stash_blocks, leaves)
}
