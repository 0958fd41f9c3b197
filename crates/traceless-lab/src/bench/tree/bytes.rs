//! Bytes that unified ORAM moves in a simulation, compared with a formula.

use super::measure::MovedBytes;
use super::plain::{LINE_LEN, ROW_LEN};
use crate::report::failed;
use traceless::controller::Controller;
use traceless::posmap::{COUNTER_BITS, CompressedLabels, Plb};
use traceless::rng::{Rng, SeededRng, System};
use traceless::scheme::traffic::{PAPER_BLOCK_LEN, PAPER_BUCKET, bytes_moved};
use traceless::scheme::unified::{Sizes, Unified};
use traceless::seal::Secret;
use traceless::tree::{GhostTree, STASH_BLOCKS, Shape};
use traceless::types::Addr;
use traceless_cli::failure::Failure;

/// The distance of two numbers: the larger over the smaller.
pub fn ratio_distance(a: f64, b: f64) -> f64 {
    (a / b).max(b / a)
}

/// A tree with buckets as in the paper and a leaf for each block, but with fewer blocks, so that it
/// fits in memory.
const BLOCKS: u64 = 1 << 18;
const LEVELS: usize = 19;

const REQUESTS: u64 = 50_000;

/// The distance of the simulated bytes from `2 · PathLen · Σ i·w_i`, where `w_i` of the requests
/// took i paths. A simulated slot counts as many bytes as in the paper, in buckets of Z.
pub fn observed_over_calculated() -> Result<f64, Failure> {
    let moved = MovedBytes::default();
    let shape = Shape::uniform(LEVELS, PAPER_BUCKET.z as u8).map_err(failed)?;
    let tree = GhostTree::new(shape, ROW_LEN, moved.clone());
    let key = Secret::random(&mut System);
    let labels = CompressedLabels::in_block(&key, PAPER_BLOCK_LEN as usize, COUNTER_BITS);
    let plb = Plb::new(512, 4, 0).map_err(failed)?;
    let sizes = Sizes {
        blocks: BLOCKS,
        map_levels: 3,
        parts: 1,
        bundled: false,
        stash_blocks: STASH_BLOCKS,
    };
    let (labels, top) = (labels.map_err(failed)?, CompressedLabels::flat(&key));
    let draws = Box::new(SeededRng::new(1));
    let mut oram = Unified::new(sizes, tree, labels, top, plb, draws).map_err(failed)?;
    let (mut rng, mut requests) = (SeededRng::new(2), vec![]);
    for id in 0..REQUESTS {
        oram.submit(id, Addr(rng.below(BLOCKS))).map_err(failed)?;
        let mut paths = 1;
        while oram.step(&mut |_, _| {}).map_err(failed)?.finished.is_none() {
            paths += 1;
        }
        requests.resize(requests.len().max(paths + 1), 0);
        requests[paths] += 1;
    }
    let buckets = moved.bytes() / LINE_LEN / PAPER_BUCKET.z;
    let moved = buckets * PAPER_BUCKET.path_len(1, PAPER_BLOCK_LEN);
    let path_len = PAPER_BUCKET.path_len(LEVELS as u32, PAPER_BLOCK_LEN);
    let calculated = bytes_moved(path_len, &requests);
    Ok(ratio_distance(moved as f64, calculated as f64))
}
