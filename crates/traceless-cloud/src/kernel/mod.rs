//! Permuting the rows of a node so that nobody sees how.
//!
//! Two kernels do the same to the same plan. [`Network`] is the default: a Beneš network of
//! exchanges, whose instructions and cache lines are the same for all permutations. [`Nibbles`] is
//! the paper's: piece by piece through pages of 4-bit words, where only the order of pages is the
//! same, with its key stream mended.

mod network;
mod nibbles;
mod route;
mod slab;

pub use network::Network;
pub use nibbles::{Nibbles, ROWS_MAX as NIBBLES_ROWS_MAX, Touch};
pub use slab::{Rows, Slab};

/// Which kernel permutes, and so which outer cipher the tree has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// A Beneš network under AES-256-GCM.
    Benes,
    /// The paper's pages of nibbles under SHA-256, and a tag.
    Paper,
}
