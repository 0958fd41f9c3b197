//! Code that the schemes with the plain client share: their trees, and how these are sealed.

use super::Details;
use super::measure::{CountingStore, MovedBytes, TreeSubject};
use crate::args::{Seal, TreeArgs};
use traceless::rng::System;
use traceless::seal::{Aead, Aegis, HashSeal, NoSeal, Sealer, Secret};
use traceless::tree::{GhostTree, SealedTree, Shape, Treetop};
use traceless_cli::failure::Failure;

/// Slots for each block, at least: so a tree is at most 5/8 full.
pub const SLOTS_PER_BLOCK: f64 = 1.6;

/// Bytes of a row of the DRAM that a simulated tree lies in.
pub const ROW_LEN: usize = 8192;

/// Bytes of a slot of a simulated tree.
pub const LINE_LEN: u64 = 64;

/// A job that can be done with any sealer.
pub trait SealerJob {
    /// Does the job; each call of `sealer` returns a sealer with a new key.
    fn with<C: Sealer + 'static>(self, sealer: impl Fn() -> C) -> SubjectResult;

    /// Does the job with tags that travel with blocks.
    fn with_pmmac(self) -> SubjectResult
    where
        Self: Sized,
    {
        Err(Failure::usage("--seal pmmac is for --scheme path alone: labels in trees need more"))
    }
}

/// A scheme to measure, or the reason why it cannot be made.
pub type SubjectResult = Result<Box<dyn TreeSubject>, Failure>;

/// Does the job with the sealer for `seal`.
pub fn with_sealer(seal: Seal, job: impl SealerJob) -> SubjectResult {
    match seal {
        Seal::None => job.with(|| NoSeal),
        Seal::Aead => job.with(|| Aead::new(&Secret::random(&mut System))),
        Seal::Aegis => job.with(|| Aegis::new(&Secret::random(&mut System))),
        Seal::Merkle => job.with(|| HashSeal::new(&Secret::random(&mut System))),
        Seal::Pmmac => job.with_pmmac(),
    }
}

/// The details that follow from the arguments. A simulation seals nothing.
pub fn details(args: &TreeArgs) -> Details {
    let cipher = match args.seal() {
        Seal::None => None,
        Seal::Aead => Some("AES-256-GCM, a tag a bucket"),
        Seal::Aegis => Some("AEGIS-256, a tag a bucket"),
        Seal::Merkle => Some("AES-256-CTR, SHA-256, a hash a bucket"),
        Seal::Pmmac => Some("AES-256-CTR, AEGIS-256, a tag a block"),
    };
    Details::new(cipher.filter(|_| args.block_len > 0))
}

/// Cached levels of a tree of this shape; a simulated tree has none.
pub fn cached(args: &TreeArgs, shape: &Shape) -> usize {
    if args.block_len == 0 { 0 } else { args.cached.unwrap_or(10).min(shape.levels() - 1) }
}

/// The shape for `blocks` blocks of the user or of a map.
pub fn shape(args: &TreeArgs, blocks: u64) -> Result<Shape, Failure> {
    let z = args.z.unwrap_or(4);
    match args.levels.filter(|_| blocks == args.blocks) {
        Some(levels) => Shape::uniform(levels, z),
        None => Shape::for_blocks(blocks, z, SLOTS_PER_BLOCK),
    }
    .map_err(Failure::usage)
}

pub type OverStore<C> = Treetop<SealedTree<C>>;

/// A tree over a store in memory that counts moved bytes.
pub fn sealed_tree<C: Sealer>(
    args: &TreeArgs,
    shape: Shape,
    body_len: usize,
    sealer: C,
    moved: &MovedBytes,
) -> Result<OverStore<C>, Failure> {
    let cached = cached(args, &shape);
    let below = shape.only(|level| level >= cached);
    let store = CountingStore::new(SealedTree::store_len(&below, body_len, &sealer), moved);
    let salts = Box::new(System);
    let tree = SealedTree::create(store, 0, "tree", below, body_len, sealer, salts);
    Treetop::new(shape, cached, tree.map_err(Failure::usage)?).map_err(Failure::usage)
}

/// A simulated tree, and a function from its number of paths to the bytes moved.
pub fn ghost_tree(shape: Shape) -> (GhostTree<()>, impl Fn(u64) -> u64 + 'static) {
    let path_len = shape.path_slots() as u64 * LINE_LEN;
    (GhostTree::new(shape, ROW_LEN, ()), move |paths| 2 * path_len * paths)
}
