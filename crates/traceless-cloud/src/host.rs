//! The untrusted side: it carries orders to the enclave, and slots to and fro.

use crate::channel::Nonce;
use crate::enclave::{Evictor, NodeBytes, Querier, Shared};
use crate::error::{Error, Result};
use crate::geometry::{Geometry, Node};
use crate::orders::Location;
use crate::store::{NodeStore, NodeVersion};
use std::sync::{Mutex, PoisonError};
use traceless::rng::Rng;

/// A query as the host sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The path.
    pub leaf: u32,
    /// A slot of each layer.
    pub locations: Vec<Location>,
    /// The same for the enclave, and which of them is meant.
    pub order: Vec<u8>,
}

/// Nodes to be made anew, as the host sees it: a round, or one node by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stage {
    /// Each node, from the root on, with the random number of who wrote it.
    pub nodes: Vec<NodeVersion>,
    /// The random number of the new versions.
    pub attempt: u64,
    /// What comes in at the first node: the slots of a round, or nothing.
    pub batch: Vec<u8>,
    /// The enclave's order for each node.
    pub orders: Vec<Vec<u8>>,
}

impl Stage {
    /// The versions that it makes.
    pub fn versions(&self) -> Vec<NodeVersion> {
        let new = |old: &NodeVersion| NodeVersion { attempt: self.attempt, ..*old };
        self.nodes.iter().map(new).collect()
    }
}

/// A host, as the gateway knows it.
pub trait Host: Send + Sync {
    /// The enclave's reply to a query.
    fn query(&self, ask: &Ask) -> Result<Vec<u8>>;

    /// Has the enclave make nodes anew. Nobody sees them before the commit.
    fn stage(&self, stage: &Stage) -> Result;

    /// Makes what was staged current, all or none. `sequence` is one more than that of the commit
    /// before.
    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result;

    /// The number of the last commit.
    fn sequence(&self) -> Result<u64>;
}

/// Host and enclave in the gateway's own process.
pub struct InProcess<S> {
    geometry: Geometry,
    store: S,
    querier: Mutex<(Querier, Vec<u8>)>,
    evictor: Mutex<(Evictor, Buffers)>,
}

/// What a round is carried in.
#[derive(Default)]
struct Buffers {
    node: Vec<u8>,
    new_node: Vec<u8>,
    carried: Vec<u8>,
    new_carried: Vec<u8>,
}

impl<S: NodeStore> InProcess<S> {
    /// A host over `store`, with an enclave that begins a session with the gateway of `nonce`.
    /// Also returns what the enclave adds to the session.
    pub fn start(
        shared: &Shared,
        store: S,
        nonce: &Nonce,
        rng: &mut dyn Rng,
    ) -> Result<(Self, Nonce)> {
        let mut own = Nonce::default();
        rng.fill(&mut own);
        let session = shared.session(nonce, &own);
        let querier = Querier::new(shared, &session);
        let slots = vec![0; shared.geometry.layers * shared.geometry.slot_len()];
        let evictor = Evictor::new(shared, &session)?;
        let host = Self {
            geometry: shared.geometry,
            store,
            querier: Mutex::new((querier, slots)),
            evictor: Mutex::new((evictor, Buffers::default())),
        };
        Ok((host, own))
    }
}

impl<S: NodeStore> Host for InProcess<S> {
    fn query(&self, ask: &Ask) -> Result<Vec<u8>> {
        let g = &self.geometry;
        if ask.leaf >= g.leaves() || ask.locations.len() != g.layers {
            return Err(Error::Malformed("no such path"));
        }
        let slot = |(layer, location): (usize, &Location)| {
            let node = g.node(layer, ask.leaf);
            (NodeVersion { node, attempt: location.attempt }, location.slot)
        };
        let wanted: Vec<(NodeVersion, u32)> = ask.locations.iter().enumerate().map(slot).collect();
        let mut querier = self.querier.lock().unwrap_or_else(PoisonError::into_inner);
        let (querier, slots) = &mut *querier;
        self.store.read_slots(&wanted, slots)?;
        querier.query(&mut ask.order.clone(), slots)
    }

    fn stage(&self, stage: &Stage) -> Result {
        let g = &self.geometry;
        let mut evictor = self.evictor.lock().unwrap_or_else(PoisonError::into_inner);
        let (evictor, buffers) = &mut *evictor;
        buffers.carried.clear();
        buffers.carried.extend_from_slice(&stage.batch);
        let last = Node(g.nodes() - 1);
        for (old, order) in stage.nodes.iter().zip(&stage.orders) {
            if old.node > last {
                return Err(Error::Malformed("no such node"));
            }
            let layer = g.layer_of(old.node);
            let goes_on = layer + 1 < g.layers && !stage.batch.is_empty();
            buffers.node.resize(g.node_len(layer), 0);
            buffers.new_node.resize(g.node_len(layer), 0);
            buffers.new_carried.resize(if goes_on { stage.batch.len() } else { 0 }, 0);
            self.store.read_node(*old, &mut buffers.node)?;
            let bytes = NodeBytes {
                node: &buffers.node,
                carried: &buffers.carried,
                new_node: &mut buffers.new_node,
                new_carried: &mut buffers.new_carried,
            };
            evictor.evict(&mut order.clone(), bytes)?;
            let new = NodeVersion { attempt: stage.attempt, ..*old };
            self.store.stage(new, &buffers.new_node)?;
            core::mem::swap(&mut buffers.carried, &mut buffers.new_carried);
        }
        Ok(())
    }

    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.store.commit(sequence, versions)
    }

    fn sequence(&self) -> Result<u64> {
        Ok(self.store.sequence())
    }
}

impl<H: Host + ?Sized> Host for std::sync::Arc<H> {
    fn query(&self, ask: &Ask) -> Result<Vec<u8>> {
        (**self).query(ask)
    }

    fn stage(&self, stage: &Stage) -> Result {
        (**self).stage(stage)
    }

    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        (**self).commit(sequence, versions)
    }

    fn sequence(&self) -> Result<u64> {
        (**self).sequence()
    }
}
