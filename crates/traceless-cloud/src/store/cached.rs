//! Keeps the nodes of the top layers in memory, before any engine.
//!
//! Every query reads a slot of the root and of one of its few children, so these nodes gain most
//! from memory. Which layers are kept follows from the tree's shape and the size of the memory
//! alone, not from requests.

use super::{CopyableStore, NodeStore, NodeVersion, Opening, SlotRead};
use crate::enclave::DamagedSlots;
use crate::error::{Error, Result};
use crate::geometry::{Geometry, Node};
use futures_util::future::join_all;
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Nodes of a layer that are kept besides the current ones: a staged one, and one that the last
/// commit replaced.
const BESIDE_CURRENT: u64 = 2;

/// A store with its top layers in memory.
///
/// A node is kept once it was committed here or read: reading it again does not access the store. A
/// new version is written to the store first, and kept once it is committed there.
pub struct CachedStore<S> {
    store: S,
    geometry: Geometry,
    layers: usize,
    cache: RwLock<LayerCache>,
}

impl<S: NodeStore> CachedStore<S> {
    /// Keeps as many whole layers, from the root on, as fit into `room` bytes. A node is read only
    /// when it is requested.
    pub fn new(store: S, geometry: Geometry, room: u64) -> Self {
        let layers = layers_in(&geometry, room);
        Self { store, geometry, layers, cache: RwLock::default() }
    }

    /// How many layers are kept.
    pub fn layers(&self) -> usize {
        self.layers
    }

    fn is_cached(&self, node: Node) -> bool {
        self.geometry.layer_of(node) < self.layers
    }

    /// Versions of these reads that should be kept and are not, without duplicates.
    fn missing(&self, reads: &[SlotRead<'_>]) -> Vec<NodeVersion> {
        let cache = self.reading();
        let mut missing = Vec::new();
        for &SlotRead { version, .. } in reads {
            let is_missing = version.attempt != 0
                && self.is_cached(version.node)
                && cache.find(version).is_none();
            if is_missing && !missing.contains(&version) {
                missing.push(version);
            }
        }
        missing
    }

    /// Reads a node and keeps it.
    async fn fetch(&self, version: NodeVersion) -> Result {
        let len = self.geometry.node_len(self.geometry.layer_of(version.node));
        let mut bytes = self.writing().spare.pop().unwrap_or_default();
        bytes.resize(len, 0);
        self.store.read_node(version, &mut bytes).await?;
        self.writing().fill(CachedNode { version, bytes });
        Ok(())
    }

    fn reading(&self) -> RwLockReadGuard<'_, LayerCache> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> RwLockWriteGuard<'_, LayerCache> {
        self.cache.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: NodeStore> NodeStore for CachedStore<S> {
    async fn read_slots(&self, reads: &mut [SlotRead<'_>]) -> Result {
        if self.layers == 0 {
            return self.store.read_slots(reads).await;
        }
        let missing = self.missing(reads);
        // A node that cannot be read as a whole is not kept, and its slots are read one by one.
        let fetched = join_all(missing.into_iter().map(|version| self.fetch(version))).await;
        for failed in fetched.into_iter().filter_map(Result::err) {
            if !matches!(failed, Error::Io(_)) {
                return Err(failed);
            }
        }
        let mut misses = Vec::with_capacity(reads.len());
        {
            let cache = self.reading();
            for SlotRead { version, slot, into } in reads {
                let at = *slot as usize * into.len();
                if !(self.is_cached(version.node) && cache.read(*version, at, into)?) {
                    misses.push(SlotRead { version: *version, slot: *slot, into });
                }
            }
        }
        if misses.is_empty() { Ok(()) } else { self.store.read_slots(&mut misses).await }
    }

    async fn read_node(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        if self.is_cached(version.node) && self.reading().read(version, 0, into)? {
            return Ok(());
        }
        // This node is not kept: a round reads nodes to replace them.
        self.store.read_node(version, into).await
    }

    async fn read_node_to_verify(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        self.store.read_node_to_verify(version, into).await
    }

    async fn stage(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        let is_cached = self.is_cached(version.node);
        if is_cached {
            // Even if this fails, the version that was staged before must not be committed.
            self.writing().drop_staged(version.node);
        }
        self.store.stage(version, bytes).await?;
        if is_cached {
            let mut copy = self.writing().spare.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(bytes);
            self.writing().staged.push(CachedNode { version, bytes: copy });
        }
        Ok(())
    }

    fn announce(&self, versions: &[NodeVersion]) {
        let cache = self.reading();
        let is_missing = |version: &&NodeVersion| cache.find(**version).is_none();
        let missing: Vec<NodeVersion> = versions.iter().filter(is_missing).copied().collect();
        self.store.announce(&missing);
    }

    async fn finish_stages(&self) -> Result {
        self.store.finish_stages().await
    }

    async fn abandon(&self) -> Result {
        self.writing().abandon();
        self.store.abandon().await
    }

    async fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.store.commit(sequence, versions).await?;
        let cached = versions.iter().filter(|version| self.is_cached(version.node));
        self.writing().commit(cached);
        Ok(())
    }

    async fn sequence(&self) -> Result<u64> {
        self.store.sequence().await
    }

    fn judge(&self, version: NodeVersion, damaged: &DamagedSlots) {
        self.store.judge(version, damaged);
    }

    async fn remove(&self, nodes: &[Node]) -> Result {
        self.writing().remove(nodes);
        self.store.remove(nodes).await
    }

    async fn admit(&self, opening: Opening) -> Result {
        self.writing().abandon();
        self.store.admit(opening).await
    }
}

impl<S: CopyableStore> CopyableStore for CachedStore<S> {
    fn current(&self) -> Result<Vec<NodeVersion>> {
        self.store.current()
    }

    async fn restore(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.store.restore(sequence, versions).await?;
        let cached = versions.iter().filter(|version| self.is_cached(version.node));
        self.writing().commit(cached);
        Ok(())
    }
}

/// How many layers fit into `room` bytes, with the nodes besides the current ones.
pub fn layers_in(g: &Geometry, room: u64) -> usize {
    let mut left = room;
    let fits = |&layer: &usize| {
        let nodes = u64::from(g.width(layer)) + BESIDE_CURRENT;
        let rest = left.checked_sub(nodes * g.node_len(layer) as u64);
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    (0..g.layers).take_while(fits).count()
}

/// A version of a node, and its bytes.
struct CachedNode {
    version: NodeVersion,
    bytes: Vec<u8>,
}

/// The nodes in memory. A version of a node never changes, so an entry is valid at any age.
#[derive(Default)]
struct LayerCache {
    current: HashMap<Node, CachedNode>,
    /// Versions that the last commit replaced.
    previous: Vec<CachedNode>,
    /// Versions that cannot be read yet.
    staged: Vec<CachedNode>,
    /// Buffers of removed nodes, for reuse.
    spare: Vec<Vec<u8>>,
}

impl LayerCache {
    fn find(&self, version: NodeVersion) -> Option<&CachedNode> {
        let current = self.current.get(&version.node);
        current.into_iter().chain(&self.previous).find(|kept| kept.version == version)
    }

    /// Reads bytes of a version, if it is in memory or was never written.
    fn read(&self, version: NodeVersion, at: usize, into: &mut [u8]) -> Result<bool> {
        if version.attempt == 0 {
            into.fill(0);
            return Ok(true);
        }
        let Some(kept) = self.find(version) else { return Ok(false) };
        let part = kept.bytes.get(at..at + into.len()).ok_or(Error::Malformed("no such slot"))?;
        into.copy_from_slice(part);
        Ok(true)
    }

    /// Keeps a node that was read. A version that it replaces is read again on request.
    fn fill(&mut self, kept: CachedNode) {
        if let Some(other) = self.current.insert(kept.version.node, kept) {
            self.spare.push(other.bytes);
        }
    }

    fn remove(&mut self, nodes: &[Node]) {
        let of_nodes = nodes.iter().filter_map(|node| self.current.remove(node));
        self.spare.extend(of_nodes.map(|kept| kept.bytes));
    }

    fn drop_staged(&mut self, node: Node) {
        if let Some(at) = self.staged.iter().position(|kept| kept.version.node == node) {
            self.spare.push(self.staged.swap_remove(at).bytes);
        }
    }

    fn abandon(&mut self) {
        self.spare.extend(self.staged.drain(..).map(|kept| kept.bytes));
    }

    fn commit<'a>(&mut self, versions: impl Iterator<Item = &'a NodeVersion>) {
        self.spare.extend(self.previous.drain(..).map(|kept| kept.bytes));
        for version in versions {
            self.previous.extend(self.current.remove(&version.node));
            if let Some(at) = self.staged.iter().position(|kept| kept.version == *version) {
                self.current.insert(version.node, self.staged.swap_remove(at));
            }
        }
        self.abandon();
        // As many as the next round writes.
        self.spare.truncate(self.previous.len());
    }
}

#[cfg(test)]
mod tests;
