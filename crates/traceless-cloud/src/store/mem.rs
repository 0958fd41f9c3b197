//! Nodes in memory.

use super::places::{NodePlaces, VersionPlace};
use super::{CopyableStore, NodeStore, NodeVersion, SlotRead};
use crate::error::{Error, Result};
use crate::geometry::{Geometry, Node};
use std::sync::{PoisonError, RwLock};

/// A store in memory, for tests and measurements.
pub struct MemStore {
    slot_len: usize,
    places: RwLock<NodePlaces>,
    /// The content of each place, of inner nodes and of leaves.
    bytes: [Vec<RwLock<Vec<u8>>>; 2],
}

impl MemStore {
    /// An empty store.
    pub fn new(geometry: Geometry) -> Self {
        let room = |count| (0..count).map(|_| RwLock::default()).collect();
        let bytes = NodePlaces::counts(&geometry).map(room);
        let places = RwLock::new(NodePlaces::new(geometry));
        Self { slot_len: geometry.slot_len(), places, bytes }
    }

    fn read(&self, version: NodeVersion, at: usize, into: &mut [u8]) -> Result {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = places.find(version)? else {
            into.fill(0);
            return Ok(());
        };
        let bytes = &self.bytes[places.size_of(version.node)][place as usize];
        let bytes = bytes.read().unwrap_or_else(PoisonError::into_inner);
        let part = bytes.get(at..at + into.len()).ok_or(Error::Malformed("no such slot"))?;
        into.copy_from_slice(part);
        Ok(())
    }
}

impl NodeStore for MemStore {
    async fn read_slots(&self, reads: &mut [SlotRead<'_>]) -> Result {
        for SlotRead { version, slot, into } in reads {
            self.read(*version, *slot as usize * self.slot_len, into)?;
        }
        Ok(())
    }

    async fn read_node(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        self.read(version, 0, into)
    }

    async fn stage(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        let (size, place) = {
            let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
            let place = places.stage(version)?;
            (places.size_of(version.node), place)
        };
        let mut into =
            self.bytes[size][place as usize].write().unwrap_or_else(PoisonError::into_inner);
        into.clear();
        into.extend_from_slice(bytes);
        Ok(())
    }

    async fn abandon(&self) -> Result {
        self.places.write().unwrap_or_else(PoisonError::into_inner).abandon();
        Ok(())
    }

    async fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let staged = places.staged(sequence, versions)?;
        places.commit(sequence, &staged);
        Ok(())
    }

    async fn remove(&self, nodes: &[Node]) -> Result {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        for VersionPlace { version, location } in places.remove(nodes) {
            let bytes = &self.bytes[places.size_of(version.node)][location as usize];
            *bytes.write().unwrap_or_else(PoisonError::into_inner) = Vec::new();
        }
        Ok(())
    }

    async fn sequence(&self) -> Result<u64> {
        Ok(self.places.read().unwrap_or_else(PoisonError::into_inner).sequence())
    }
}

impl CopyableStore for MemStore {
    fn current(&self) -> Result<Vec<NodeVersion>> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        Ok(places.current().map(|placed| placed.version).collect())
    }

    async fn restore(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let staged = places.copied(sequence, versions)?;
        places.commit(sequence, &staged);
        Ok(())
    }
}
