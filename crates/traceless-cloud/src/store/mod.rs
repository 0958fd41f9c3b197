//! Where the host keeps nodes. A node is rewritten as a whole and read slot by slot, so an engine
//! is small: versions of nodes, and one step that makes new ones current.

mod file;
mod mem;
mod places;

pub use file::{Durability, FileStore};
pub use mem::MemStore;

#[cfg(test)]
mod tests;

use crate::error::Result;
use crate::geometry::Node;

/// One version of a node, as the host knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeVersion {
    /// The node.
    pub node: Node,
    /// The random number of the round that wrote it; 0 if none did.
    pub attempt: u64,
}

/// Versions of nodes. Several threads may read while one stages.
pub trait NodeStore: Send + Sync {
    /// Reads slots, one after the other, from versions that are current or were until the last
    /// commit. Those of version 0 are zeros. Fills `into` or fails.
    fn read_slots(&self, wanted: &[(NodeVersion, u32)], into: &mut [u8]) -> Result;

    /// Reads a node. Fills `into` or fails.
    fn read_node(&self, version: NodeVersion, into: &mut [u8]) -> Result;

    /// Keeps the bytes of a new version, which nobody reads before it is committed. Staged again,
    /// it replaces what was staged of this node.
    fn stage(&self, version: NodeVersion, bytes: &[u8]) -> Result;

    /// Forgets all that is staged.
    fn abandon(&self);

    /// Makes staged versions current, all or none, and drops what was replaced by the commit
    /// before. `sequence` is one more than that of the last commit. On return it is durable, as
    /// far as the store promises.
    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result;

    /// The number of the last commit.
    fn sequence(&self) -> u64;
}

impl<S: NodeStore + ?Sized> NodeStore for std::sync::Arc<S> {
    fn read_slots(&self, wanted: &[(NodeVersion, u32)], into: &mut [u8]) -> Result {
        (**self).read_slots(wanted, into)
    }

    fn read_node(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        (**self).read_node(version, into)
    }

    fn stage(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        (**self).stage(version, bytes)
    }

    fn abandon(&self) {
        (**self).abandon();
    }

    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        (**self).commit(sequence, versions)
    }

    fn sequence(&self) -> u64 {
        (**self).sequence()
    }
}
