//! Where the host keeps nodes. A node is rewritten as a whole and read slot by slot, so an engine
//! is small: versions of nodes, and one step that makes new ones current.

mod cached;
mod file;
mod mem;
mod places;

pub use crate::durable::Durability;
pub use cached::CachedStore;
pub use file::FileStore;
pub use mem::MemStore;

#[cfg(test)]
mod far;
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

/// A slot that is asked for.
pub struct SlotRead<'a> {
    /// The node that it is in.
    pub version: NodeVersion,
    /// Its number in the node, below [`Geometry::slots`](crate::geometry::Geometry::slots).
    pub slot: u32,
    /// Where its bytes go: as many as a slot has.
    pub into: &'a mut [u8],
}

/// Versions of nodes, in whatever keeps bytes: an *engine*.
///
/// Its caller is [`Served`](crate::host::HostedStore), one for each session of a gateway. Sessions
/// follow each other, and none begins before all futures of the last one are done.
///
/// | call | when | at the same time as |
/// |---|---|---|
/// | `read_slots` | queries came: all slots of all that came together | any other |
/// | `abandon` | a round begins | `read_slots` |
/// | `read_node`, `stage` | the enclave works on a node, see below | each other, `read_slots` |
/// | `commit` | all nodes of a round are staged | `read_slots` |
/// | `sequence` | a session begins | `read_slots` |
///
/// A round goes down a path from the root. While the enclave works on a node, the one below it is
/// read and the one above it is staged.
///
/// **Versions.** What is written under a version never changes once it is committed, so it may be
/// cached for ever. Version 0 of a node was never written and holds zeros. Readable are the current
/// version of each node, and those that the last commit replaced: queries read them until they
/// know of the commit. Whoever asks for another gets an error or the bytes of that version, never
/// anything else.
///
/// **Atomicity and durability.** Of a commit everything happens or nothing, also if the engine's
/// process, machine or connection ends in the middle of it. What is staged is not seen before, and
/// is gone when the engine is opened again. When `commit` has returned, the commit and all bytes of
/// its versions survive as much as the engine promises ([`Durability`] of the files). An error of
/// `commit` says that it may have happened or not; `sequence` says which, and must tell the truth
/// then. A gateway that sees an error plans the round anew, under another attempt.
///
/// **Futures.** They are driven by threads that wait for nothing else, with no reactor and no
/// runtime around them. An engine that needs one has its own, spawns there, and returns futures
/// that wait for what was spawned. An engine that answers at once has nothing to do with all that:
/// its `async fn` never waits. Futures of a small node are polled once before the enclave begins
/// with another, and again when it is done. How many of the slots of a `read_slots` are on their
/// way together is up to the engine. A future that is dropped before it is done may have done all,
/// a part or nothing: what `stage` left is gone with the next `abandon` or replaced by the next
/// `stage` of the node, and a `commit` is still all or nothing.
///
/// **Secrets.** There are none: an engine may log and time everything. Bytes are verified by the
/// enclave, so an engine that returns wrong ones fails a query and does nothing worse.
pub trait NodeStore: Send + Sync {
    /// Reads slots. Fills them all, or fails, and then what is in them means nothing.
    fn read_slots(&self, wanted: &mut [SlotRead<'_>]) -> impl Future<Output = Result> + Send;

    /// Reads a node. Fills `into`, which has its length, or fails.
    fn read_node(
        &self,
        version: NodeVersion,
        into: &mut [u8],
    ) -> impl Future<Output = Result> + Send;

    /// Keeps the bytes of a new version, which nobody reads before it is committed. Staged again,
    /// under the same attempt or another, it replaces what was staged of this node.
    fn stage(&self, version: NodeVersion, bytes: &[u8]) -> impl Future<Output = Result> + Send;

    /// Forgets all that is staged.
    fn abandon(&self) -> impl Future<Output = Result> + Send;

    /// Makes staged versions current, all or none, forgets what else is staged, and drops what was
    /// replaced by the commit before. Fails, and changes nothing, if `sequence` is not one more
    /// than that of the last commit or one of the versions is not staged.
    fn commit(
        &self,
        sequence: u64,
        versions: &[NodeVersion],
    ) -> impl Future<Output = Result> + Send;

    /// The number of the last commit; 0 if there was none.
    fn sequence(&self) -> impl Future<Output = Result<u64>> + Send;
}

impl<S: NodeStore + ?Sized> NodeStore for std::sync::Arc<S> {
    async fn read_slots(&self, wanted: &mut [SlotRead<'_>]) -> Result {
        (**self).read_slots(wanted).await
    }

    async fn read_node(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        (**self).read_node(version, into).await
    }

    async fn stage(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        (**self).stage(version, bytes).await
    }

    async fn abandon(&self) -> Result {
        (**self).abandon().await
    }

    async fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        (**self).commit(sequence, versions).await
    }

    async fn sequence(&self) -> Result<u64> {
        (**self).sequence().await
    }
}
