//! The untrusted side: it carries orders to the enclave, and slots to and fro.

use crate::channel::Nonce;
use crate::enclave::{Evictor, NodeBytes, Querier, Shared};
use crate::error::{Error, Result};
use crate::geometry::{Geometry, Node};
use crate::join::TwoThreads;
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

    /// Puts a node aside that the gateway sealed itself, in place of a stage: for a tree that is
    /// filled at once.
    fn place(&self, _version: NodeVersion, _bytes: &[u8]) -> Result {
        Err(Error::Store("this host takes no nodes from the gateway"))
    }

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
    next: Vec<u8>,
    made: Vec<u8>,
    last_made: Vec<u8>,
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
        let mut evictor = Evictor::new(shared, &session)?;
        if std::thread::available_parallelism().is_ok_and(|threads| threads.get() > 1) {
            evictor = evictor.with_threads(Box::new(TwoThreads));
        }
        let host = Self {
            geometry: shared.geometry,
            store,
            querier: Mutex::new((querier, slots)),
            evictor: Mutex::new((evictor, Buffers::default())),
        };
        Ok((host, own))
    }

    /// Has the enclave make node after node anew, while the next is read and the last is written.
    fn carry_out(&self, stage: &Stage, evictor: &mut Evictor, buffers: &mut Buffers) -> Result {
        let Buffers { node, next, made, last_made, carried, new_carried } = buffers;
        carried.clear();
        carried.extend_from_slice(&stage.batch);
        let mut last = None;
        if let Some(first) = stage.nodes.first() {
            self.read(*first, next)?;
        }
        for (i, (old, order)) in stage.nodes.iter().zip(&stage.orders).enumerate() {
            core::mem::swap(node, next);
            let layer = self.geometry.layer_of(old.node);
            let goes_on = layer + 1 < self.geometry.layers && !stage.batch.is_empty();
            made.resize(node.len(), 0);
            new_carried.resize(if goes_on { stage.batch.len() } else { 0 }, 0);
            let (written, beside) = (&*last_made, &mut *next);
            std::thread::scope(|scope| {
                let reading = stage.nodes.get(i + 1);
                let reading = reading.map(|old| scope.spawn(move || self.read(*old, beside)));
                let writing = last.map(|new| scope.spawn(move || self.store.stage(new, written)));
                let bytes = NodeBytes { node, carried, new_node: made, new_carried };
                let evicted = evictor.evict(&mut order.clone(), bytes);
                let threads = [reading, writing].into_iter().flatten();
                let done = threads.map(|thread| thread.join().unwrap_or_else(|_| Err(gone())));
                done.fold(evicted, Result::and)
            })?;
            last = Some(NodeVersion { attempt: stage.attempt, ..*old });
            core::mem::swap(made, last_made);
            core::mem::swap(carried, new_carried);
        }
        last.map_or(Ok(()), |new| self.store.stage(new, last_made))
    }

    fn read(&self, version: NodeVersion, into: &mut Vec<u8>) -> Result {
        into.resize(self.geometry.node_len(self.geometry.layer_of(version.node)), 0);
        self.store.read_node(version, into)
    }
}

fn gone() -> Error {
    Error::Store("a thread of the host is gone")
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
        let last = Node(self.geometry.nodes() - 1);
        if stage.nodes.iter().any(|old| old.node > last) {
            return Err(Error::Malformed("no such node"));
        }
        let mut evictor = self.evictor.lock().unwrap_or_else(PoisonError::into_inner);
        let (evictor, buffers) = &mut *evictor;
        self.carry_out(stage, evictor, buffers)
    }

    fn place(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        let g = &self.geometry;
        let known = version.node < Node(g.nodes());
        if !known || bytes.len() != g.node_len(g.layer_of(version.node)) {
            return Err(Error::Malformed("not the bytes of a node"));
        }
        self.store.stage(version, bytes)
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

    fn place(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        (**self).place(version, bytes)
    }

    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        (**self).commit(sequence, versions)
    }

    fn sequence(&self) -> Result<u64> {
        (**self).sequence()
    }
}
