//! The untrusted side: it carries orders to the enclave, and slots to and fro.

use crate::channel::Nonce;
use crate::enclave::{Evictor, NodeBytes, Querier, Session, Shared};
use crate::error::{Error, Result};
use crate::geometry::{Geometry, Node};
use crate::orders::Location;
use crate::store::{NodeStore, NodeVersion};
use std::sync::{Mutex, MutexGuard, PoisonError};
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
///
/// [`Error::SessionLost`] means that the enclave is gone and with it all that was staged: after
/// [`Host::renew`] everything can be sent again.
pub trait Host: Send + Sync {
    /// The enclave's reply to a query.
    fn query(&self, ask: &Ask) -> Result<Vec<u8>>;

    /// The replies to queries, in order: each as if it were asked for alone, up to the first that
    /// fails.
    fn query_many(&self, asks: &[Ask]) -> Vec<Result<Vec<u8>>> {
        let mut replies = Vec::with_capacity(asks.len());
        for ask in asks {
            let reply = self.query(ask);
            let failed = reply.is_err();
            replies.push(reply);
            if failed {
                break;
            }
        }
        replies
    }

    /// Has the enclave make nodes anew. Nobody sees them before the commit.
    fn stage(&self, stage: &Stage) -> Result;

    /// Makes what was staged current, all or none. `sequence` is one more than that of the commit
    /// before.
    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result;

    /// The number of the last commit.
    fn sequence(&self) -> Result<u64>;

    /// Begins a session in place of one that was lost. Returns what gateway and enclave add to it.
    fn renew(&self) -> Result<(Nonce, Nonce)> {
        Err(Error::SessionLost)
    }

    /// Fails with [`Error::Fenced`] if another gateway has the store. Sends nothing as long as
    /// nothing speaks for that.
    fn check(&self) -> Result {
        Ok(())
    }
}

/// An enclave that has its keys, as its host knows it.
pub trait Enclave: Send + Sync {
    /// The reply to an order that has the bytes of its slots beside it, from the root on.
    fn query(&self, order: &[u8], slots: &[u8]) -> Result<Vec<u8>>;

    /// Makes a node anew as the order says.
    fn evict(&self, order: &[u8], bytes: NodeBytes<'_>) -> Result;
}

impl<E: Enclave + ?Sized> Enclave for Box<E> {
    fn query(&self, order: &[u8], slots: &[u8]) -> Result<Vec<u8>> {
        (**self).query(order, slots)
    }

    fn evict(&self, order: &[u8], bytes: NodeBytes<'_>) -> Result {
        (**self).evict(order, bytes)
    }
}

/// An enclave in the host's own process.
pub struct Inside {
    querier: Mutex<Querier>,
    evictor: Mutex<Evictor>,
}

impl Inside {
    /// An enclave for a session.
    pub fn new(shared: &Shared, session: &Session) -> Result<Self> {
        let querier = Mutex::new(Querier::new(shared, session));
        Ok(Self { querier, evictor: Mutex::new(Evictor::new(shared, session)?) })
    }
}

impl Enclave for Inside {
    fn query(&self, order: &[u8], slots: &[u8]) -> Result<Vec<u8>> {
        lock(&self.querier).query(&mut order.to_vec(), slots)
    }

    fn evict(&self, order: &[u8], bytes: NodeBytes<'_>) -> Result {
        lock(&self.evictor).evict(&mut order.to_vec(), bytes)
    }
}

/// Host and enclave in the gateway's own process.
pub type InProcess<S> = Served<S, Inside>;

/// A store with an enclave beside it.
pub struct Served<S, E> {
    geometry: Geometry,
    store: S,
    enclave: E,
    slots: Mutex<Vec<u8>>,
    buffers: Mutex<Buffers>,
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
        let enclave = Inside::new(shared, &session)?;
        Ok((Self::new(shared.geometry, store, enclave), own))
    }
}

impl<S: NodeStore, E: Enclave> Served<S, E> {
    /// The store of a tree of this shape, and an enclave in a session with its gateway.
    pub fn new(geometry: Geometry, store: S, enclave: E) -> Self {
        let slots = Mutex::new(vec![0; geometry.layers * geometry.slot_len()]);
        Self { geometry, store, enclave, slots, buffers: Mutex::default() }
    }

    /// The enclave.
    pub fn enclave(&self) -> &E {
        &self.enclave
    }
}

impl<S: NodeStore, E: Enclave> Host for Served<S, E> {
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
        let mut slots = lock(&self.slots);
        self.store.read_slots(&wanted, &mut slots)?;
        self.enclave.query(&ask.order, &slots)
    }

    fn stage(&self, stage: &Stage) -> Result {
        let g = &self.geometry;
        let mut buffers = lock(&self.buffers);
        // What was staged before and not committed never will be.
        self.store.abandon();
        let buffers = &mut *buffers;
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
            self.enclave.evict(order, bytes)?;
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
    fn query_many(&self, asks: &[Ask]) -> Vec<Result<Vec<u8>>> {
        (**self).query_many(asks)
    }

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

    fn renew(&self) -> Result<(Nonce, Nonce)> {
        (**self).renew()
    }

    fn check(&self) -> Result {
        (**self).check()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
