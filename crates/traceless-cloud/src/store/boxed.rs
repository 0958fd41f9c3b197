//! A store of a kind that is chosen when the program runs.

use super::{CopyableStore, NodeStore, NodeVersion, Opening, SlotRead};
use crate::enclave::DamagedSlots;
use crate::error::Result;
use crate::geometry::Node;
use futures_util::future::BoxFuture;

/// Any store. Each call allocates its future: nothing beside a call for all slots of all queries of
/// a message, or for a whole node.
pub struct BoxedStore(Box<dyn AnyStore>);

impl BoxedStore {
    /// Boxes a store.
    pub fn new(store: impl CopyableStore + 'static) -> Self {
        Self(Box::new(store))
    }
}

impl NodeStore for BoxedStore {
    async fn read_slots(&self, reads: &mut [SlotRead<'_>]) -> Result {
        self.0.read_slots(reads).await
    }

    async fn read_node(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        self.0.read_node(version, into).await
    }

    async fn read_node_to_verify(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        self.0.read_node_to_verify(version, into).await
    }

    async fn stage(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        self.0.stage(version, bytes).await
    }

    fn announce(&self, versions: &[NodeVersion]) {
        self.0.announce(versions);
    }

    async fn finish_stages(&self) -> Result {
        self.0.finish_stages().await
    }

    async fn abandon(&self) -> Result {
        self.0.abandon().await
    }

    async fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.0.commit(sequence, versions).await
    }

    async fn sequence(&self) -> Result<u64> {
        self.0.sequence().await
    }

    fn judge(&self, version: NodeVersion, damaged: &DamagedSlots) {
        self.0.judge(version, damaged);
    }

    async fn remove(&self, nodes: &[Node]) -> Result {
        self.0.remove(nodes).await
    }

    async fn admit(&self, opening: Opening) -> Result {
        self.0.admit(opening).await
    }
}

impl CopyableStore for BoxedStore {
    fn current(&self) -> Result<Vec<NodeVersion>> {
        self.0.current()
    }

    async fn restore(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.0.restore(sequence, versions).await
    }
}

/// [`CopyableStore`] without types that differ from store to store.
trait AnyStore: Send + Sync {
    fn read_slots<'a, 'b: 'a>(&'a self, reads: &'a mut [SlotRead<'b>]) -> BoxFuture<'a, Result>;
    fn read_node<'a>(&'a self, version: NodeVersion, into: &'a mut [u8]) -> BoxFuture<'a, Result>;
    fn read_node_to_verify<'a>(
        &'a self,
        version: NodeVersion,
        into: &'a mut [u8],
    ) -> BoxFuture<'a, Result>;
    fn stage<'a>(&'a self, version: NodeVersion, bytes: &'a [u8]) -> BoxFuture<'a, Result>;
    fn announce(&self, versions: &[NodeVersion]);
    fn finish_stages(&self) -> BoxFuture<'_, Result>;
    fn abandon(&self) -> BoxFuture<'_, Result>;
    fn commit<'a>(&'a self, sequence: u64, versions: &'a [NodeVersion]) -> BoxFuture<'a, Result>;
    fn sequence(&self) -> BoxFuture<'_, Result<u64>>;
    fn judge(&self, version: NodeVersion, damaged: &DamagedSlots);
    fn remove<'a>(&'a self, nodes: &'a [Node]) -> BoxFuture<'a, Result>;
    fn admit(&self, opening: Opening) -> BoxFuture<'_, Result>;
    fn current(&self) -> Result<Vec<NodeVersion>>;
    fn restore<'a>(&'a self, sequence: u64, versions: &'a [NodeVersion]) -> BoxFuture<'a, Result>;
}

impl<S: CopyableStore> AnyStore for S {
    fn read_slots<'a, 'b: 'a>(&'a self, reads: &'a mut [SlotRead<'b>]) -> BoxFuture<'a, Result> {
        Box::pin(NodeStore::read_slots(self, reads))
    }

    fn read_node<'a>(&'a self, version: NodeVersion, into: &'a mut [u8]) -> BoxFuture<'a, Result> {
        Box::pin(NodeStore::read_node(self, version, into))
    }

    fn read_node_to_verify<'a>(
        &'a self,
        version: NodeVersion,
        into: &'a mut [u8],
    ) -> BoxFuture<'a, Result> {
        Box::pin(NodeStore::read_node_to_verify(self, version, into))
    }

    fn stage<'a>(&'a self, version: NodeVersion, bytes: &'a [u8]) -> BoxFuture<'a, Result> {
        Box::pin(NodeStore::stage(self, version, bytes))
    }

    fn announce(&self, versions: &[NodeVersion]) {
        NodeStore::announce(self, versions);
    }

    fn finish_stages(&self) -> BoxFuture<'_, Result> {
        Box::pin(NodeStore::finish_stages(self))
    }

    fn abandon(&self) -> BoxFuture<'_, Result> {
        Box::pin(NodeStore::abandon(self))
    }

    fn commit<'a>(&'a self, sequence: u64, versions: &'a [NodeVersion]) -> BoxFuture<'a, Result> {
        Box::pin(NodeStore::commit(self, sequence, versions))
    }

    fn sequence(&self) -> BoxFuture<'_, Result<u64>> {
        Box::pin(NodeStore::sequence(self))
    }

    fn judge(&self, version: NodeVersion, damaged: &DamagedSlots) {
        NodeStore::judge(self, version, damaged);
    }

    fn remove<'a>(&'a self, nodes: &'a [Node]) -> BoxFuture<'a, Result> {
        Box::pin(NodeStore::remove(self, nodes))
    }

    fn admit(&self, opening: Opening) -> BoxFuture<'_, Result> {
        Box::pin(NodeStore::admit(self, opening))
    }

    fn current(&self) -> Result<Vec<NodeVersion>> {
        CopyableStore::current(self)
    }

    fn restore<'a>(&'a self, sequence: u64, versions: &'a [NodeVersion]) -> BoxFuture<'a, Result> {
        Box::pin(CopyableStore::restore(self, sequence, versions))
    }
}
