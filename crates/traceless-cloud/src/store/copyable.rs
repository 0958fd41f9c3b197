//! What a store must do to be copied to another store, or to be the copy.

use super::{NodeStore, NodeVersion};
use crate::error::Result;

/// A store that can be the first or the second of two copies.
pub trait CopyableStore: NodeStore {
    /// The current version of each node that was ever written.
    fn current(&self) -> Result<Vec<NodeVersion>>;

    /// Makes staged versions current, like a commit, and the number of the last commit `sequence`:
    /// that of the store which they are copied from. Fails, without a change, if the number is
    /// smaller than the own one, or if one of the versions is not staged.
    fn restore(
        &self,
        sequence: u64,
        versions: &[NodeVersion],
    ) -> impl Future<Output = Result> + Send;
}
