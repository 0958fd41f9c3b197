//! `traceless-lab bench stash`

use clap::Args;
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
pub struct StashArgs {
    /// At 2^20 blocks and more, and exact to one in ten million: some minutes
    #[arg(long)]
    pub full: bool,
    /// Levels of the trees with IR-Alloc's shapes [default: 18; with --full 22]
    #[arg(long, value_name = "L", value_parser = clap::value_parser!(u8).range(16..=26))]
    pub levels: Option<u8>,
    /// Search the best allocation of a tree with IR-Alloc's shapes, with and without a sub-stash
    #[arg(long, conflicts_with = "plot")]
    pub search: bool,
    /// Measure only this allocation: a preset, or levels and slots, as in 10:1,11-19:3
    #[arg(long, value_name = "NAME", requires = "search")]
    pub allocation: Option<String>,
    /// Blocks in a stash of 200 above which accesses only empty it [default: 200 less a path of
    /// four slots a level]
    #[arg(long, value_name = "N")]
    pub above: Option<usize>,
    /// Neighbouring blocks of these trees that share a label and are accessed together
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=64))]
    pub bundle: u32,
    /// Measured accesses; as many come before as a warm-up [default: what the size needs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub accesses: Option<u64>,
    /// Seed: the same seed gives the same numbers
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// Draw the curves into this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}
