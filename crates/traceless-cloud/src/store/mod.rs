//! The host's storage of nodes. A node is rewritten as a whole and read slot by slot, so an engine
//! is small: versions of nodes, and one step that makes new versions current.
//!
//! A new version of a node, readable once it is committed:
//!
//! ```
//! use traceless_cloud::geometry::Node;
//! use traceless_cloud::params::Params;
//! use traceless_cloud::store::{MemStore, NodeStore, NodeVersion, SlotRead};
//!
//! # fn main() -> traceless_cloud::Result {
//! # let work = async {
//! let g = Params::new(1000, 64, 32)?.geometry;
//! let store = MemStore::new(g);
//! let version = NodeVersion { node: Node(0), attempt: 77 };
//! store.stage(version, &vec![1; g.node_len(0)]).await?;
//! store.commit(1, &[version]).await?;
//!
//! let mut slot = vec![0; g.slot_len()];
//! store.read_slots(&mut [SlotRead { version, slot: 3, into: &mut slot }]).await?;
//! assert_eq!(slot, vec![1; g.slot_len()]);
//! assert_eq!(store.sequence().await?, 1);
//! # Ok(())
//! # };
//! # futures_util::FutureExt::now_or_never(work).expect("a store in memory never waits")
//! # }
//! ```

mod boxed;
mod cached;
mod copyable;
mod file;
mod mem;
mod mirrored;
mod opener;
mod patient;
mod place;
mod places;
#[cfg(any(test, feature = "suite"))]
pub mod suite;
mod versions;

pub use crate::durable::Durability;
pub use crate::wire::fence::Opening;
pub use boxed::BoxedStore;
pub use cached::CachedStore;
pub(crate) use cached::layers_in;
pub use copyable::CopyableStore;
pub use file::FileStore;
pub use mem::MemStore;
pub use mirrored::MirroredStore;
pub use opener::{OpenStore, StoreFolder};
pub use patient::PatientStore;
pub use place::StorePlace;
pub use versions::{StoredVersion, Versions};

#[cfg(test)]
mod slow_engine;
#[cfg(test)]
mod tests;

use crate::codec::{Reader, Writer};
use crate::enclave::DamagedSlots;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::geometry::Node;

/// One version of a node, as the host knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeVersion {
    /// The node.
    pub node: Node,
    /// The attempt number of the round that wrote it; 0 if the node was never written.
    pub attempt: u64,
}

impl NodeVersion {
    /// Appends the version.
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u32(self.node.0).u64(self.attempt);
    }

    /// Takes a version.
    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { node: Node(from.u32()?), attempt: from.u64()? })
    }
}

/// A request to read a slot.
pub struct SlotRead<'a> {
    /// The version of the slot's node.
    pub version: NodeVersion,
    /// The slot's number in the node, below [`Geometry::slots`](crate::geometry::Geometry::slots).
    pub slot: u32,
    /// Destination of the bytes, as long as a slot.
    pub into: &'a mut [u8],
}

/// Storage of versions of nodes: an *engine*.
///
/// Its caller is a [`HostedStore`](crate::host::HostedStore), one for each session of a gateway.
/// Sessions follow each other, and none begins before all futures of the last one are done.
///
/// | call | when | at the same time as |
/// |---|---|---|
/// | `read_slots` | queries arrive: all slots of all queries sent together | any other |
/// | `abandon`, `announce` | a round begins | `read_slots` |
/// | `read_node`, `stage` | the enclave works on a node, see below | each other, `read_slots` |
/// | `finish_stages` | the last node of a round is staged | `read_slots` |
/// | `commit` | all nodes of a round are staged | `read_slots` |
/// | `admit` | a session begins, but for the one that opened the store | nothing |
/// | `sequence` | a session begins, a round is to be committed | `read_slots` |
/// | `read_node`, `remove` | a tree moves to another host, trees have moved | any other |
///
/// A round goes down a path from the root. While the enclave works on a node, the one below it is
/// read and the one above it is staged. An engine that is far away reads all of them from the
/// beginning, and need not have stored a staged node before `finish_stages`: otherwise a round
/// takes several of its round trips for each node.
///
/// **Versions.** The bytes of a version never change once it is committed, so they may be cached
/// forever. Version 0 of a node was never written and holds zeros. Readable are the current version
/// of each node, and the versions that the last commit replaced: queries read them until they know
/// of the commit. A read of another version returns an error or the bytes of that version, never
/// anything else.
///
/// **Atomicity and durability.** A commit takes effect completely or not at all, even if the
/// engine's process, machine or connection ends in the middle of it. A staged version is not
/// readable before its commit, and is gone when the engine is opened again. Once `commit` has
/// returned, the commit and all bytes of its versions survive as much as the engine promises
/// ([`Durability`] of the files). After an error of `commit` it may have happened or not;
/// `sequence` must then return the truth. After an error the gateway plans the round again, under
/// another attempt.
///
/// **Futures.** They are driven by threads that wait for nothing else, without a reactor or a
/// runtime. An engine that needs one has its own, spawns there, and returns futures that wait for
/// the spawned task. An engine that answers at once needs none of this: its `async fn` never waits.
/// Futures of a small node are polled once before the enclave begins with another node, and again
/// when it is done. The engine decides how many slots of a `read_slots` it reads concurrently. A
/// future that is dropped early may have done all, a part or nothing: bytes left by `stage` are
/// removed by the next `abandon` or replaced by the next `stage` of the node, and a `commit` is
/// still all or nothing.
///
/// **Damage.** A slot that cannot be read may be wrong bytes, or [`Error::Io`] for the whole call:
/// then the host reads slot by slot what can be read. The enclave verifies all bytes. If a slot is
/// wrong in two replies one after the other, its block is lost; so a passing failure must not be
/// kept in a cache, and an engine that cannot be reached returns another error.
///
/// **Secrets.** There are none: an engine may log and time everything.
pub trait NodeStore: Send + Sync {
    /// Reads slots. Fills them all, or fails; then their contents are unspecified.
    fn read_slots(&self, reads: &mut [SlotRead<'_>]) -> impl Future<Output = Result> + Send;

    /// Reads a node. Fills `into`, which has the node's length, or fails.
    fn read_node(
        &self,
        version: NodeVersion,
        into: &mut [u8],
    ) -> impl Future<Output = Result> + Send;

    /// Reads a node as it lies in the store, past all caches, to find damage.
    fn read_node_to_verify(
        &self,
        version: NodeVersion,
        into: &mut [u8],
    ) -> impl Future<Output = Result> + Send {
        self.read_node(version, into)
    }

    /// Stores the bytes of a new version, which is not readable before its commit. Staging a node
    /// again, under the same attempt or another, replaces its staged version.
    fn stage(&self, version: NodeVersion, bytes: &[u8]) -> impl Future<Output = Result> + Send;

    /// The versions that are read next, one after the other. An engine that is far away begins to
    /// read all of them.
    fn announce(&self, _versions: &[NodeVersion]) {}

    /// Waits until all staged versions are stored. After an error none of them may be committed.
    fn finish_stages(&self) -> impl Future<Output = Result> + Send {
        std::future::ready(Ok(()))
    }

    /// Drops all staged versions.
    fn abandon(&self) -> impl Future<Output = Result> + Send;

    /// Makes staged versions current, all or none; drops all other staged versions and the versions
    /// that the previous commit replaced. Fails, without a change, if `sequence` is not one more
    /// than that of the last commit, or if one of the versions is not staged.
    fn commit(
        &self,
        sequence: u64,
        versions: &[NodeVersion],
    ) -> impl Future<Output = Result> + Send;

    /// The number of the last commit; 0 if there was none.
    fn sequence(&self) -> impl Future<Output = Result<u64>> + Send;

    /// Takes the enclave's verdict about a node that was read: which of its slots are damaged. A
    /// store with a second copy reads these from the other copy next time.
    fn judge(&self, _version: NodeVersion, _damaged: &DamagedSlots) {}

    /// Removes all versions of nodes of trees that have moved to another host. The room that they
    /// took is free when this returns, or later. An engine that cannot do this leaves them alone.
    fn remove(&self, _nodes: &[Node]) -> impl Future<Output = Result> + Send {
        std::future::ready(Ok(()))
    }

    /// Begins the session of a gateway, if the store is open already. An engine that several hosts
    /// reach takes the store from the other hosts, and fails with [`Error::Fenced`] if one of them
    /// has admitted a newer opening.
    fn admit(&self, _opening: Opening) -> impl Future<Output = Result> + Send {
        std::future::ready(Ok(()))
    }
}

impl<S: NodeStore + ?Sized> NodeStore for std::sync::Arc<S> {
    async fn read_slots(&self, reads: &mut [SlotRead<'_>]) -> Result {
        (**self).read_slots(reads).await
    }

    async fn read_node(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        (**self).read_node(version, into).await
    }

    async fn read_node_to_verify(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        (**self).read_node_to_verify(version, into).await
    }

    async fn stage(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        (**self).stage(version, bytes).await
    }

    fn announce(&self, versions: &[NodeVersion]) {
        (**self).announce(versions);
    }

    async fn finish_stages(&self) -> Result {
        (**self).finish_stages().await
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

    fn judge(&self, version: NodeVersion, damaged: &DamagedSlots) {
        (**self).judge(version, damaged);
    }

    async fn remove(&self, nodes: &[Node]) -> Result {
        (**self).remove(nodes).await
    }

    async fn admit(&self, opening: Opening) -> Result {
        (**self).admit(opening).await
    }
}
