//! Permutes the rows of a node without revealing the permutation.
//!
//! Both kernels carry out the same plan. [`Network`] is the default: a Beneš network of exchanges
//! with the same instructions and cache lines for all permutations. [`Nibbles`] is the paper's
//! kernel: piece by piece through pages of 4-bit words, where only the order of pages is the same,
//! with a corrected key stream.
//!
//! A network reverses the rows of a slab. Its control bits are secret, its exchanges are always the
//! same:
//!
//! ```
//! use traceless_cloud::fork_join::OneThread;
//! use traceless_cloud::kernel::{Network, Slab};
//!
//! # fn main() -> traceless_cloud::Result {
//! let network = Network::new(5);
//! let mut slab = Slab::new(5)?;
//! for row in 0..5 {
//!     slab.row_mut(row).fill(row as u8);
//! }
//! let control = network.route(&[4, 3, 2, 1, 0]);
//! network.permute(&control, &mut Vec::new(), &mut slab, &OneThread);
//! let first_bytes: Vec<u8> = (0..5).map(|row| slab.row(row)[0]).collect();
//! assert_eq!(first_bytes, [4, 3, 2, 1, 0]);
//! # Ok(())
//! # }
//! ```

mod network;
mod nibbles;
mod route;
mod slab;

pub use network::Network;
pub use nibbles::{Nibbles, ROWS_MAX as NIBBLES_ROWS_MAX, Touch};
pub use slab::{Rows, Slab};

/// The kernel that permutes, which also determines the cipher of the transport seal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// A Beneš network under AES-256-GCM.
    Benes,
    /// The paper's pages of nibbles, encrypted with SHA-256, and a tag.
    Paper,
}
