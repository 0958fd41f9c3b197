//! The untrusted side: it passes orders to the enclave, and slots between store and enclave.
//!
//! A host in the gateway's process. Its commits show how many rounds the gateway has made:
//!
//! ```
//! use std::sync::Arc;
//! use traceless_cloud::gateway::{Gateway, Keys};
//! use traceless_cloud::host::{Host, InProcess};
//! use traceless_cloud::kernel::Choice;
//! use traceless_cloud::params::Params;
//! use traceless_cloud::random::SystemStream;
//! use traceless_cloud::store::MemStore;
//! use traceless_core::seal::Secret;
//!
//! # fn main() -> traceless_cloud::Result {
//! # let mut rng = SystemStream::drawn();
//! # let keys = Keys::new(&Secret::random(&mut rng), &[7; 16]);
//! let params = Params::new(500, 64, 4)?; // A small tree, for a short example.
//! let (shared, store) = (keys.shared(&params, Choice::Benes), MemStore::new(params.geometry));
//! let own = [1; 16]; // Fresh random bytes for each session.
//! let (host, enclave) = InProcess::start(&shared, store, &own, &mut rng)?;
//! let host = Arc::new(host);
//! assert_eq!(host.sequence()?, 0);
//!
//! let (connection, session, rng) = (host.clone(), (&own, &enclave), Box::new(rng));
//! let mut gateway =
//!     Gateway::open(params, &keys, Choice::Benes, connection, session, None, rng)?;
//! for id in 0..3 * params.round_blocks as u64 {
//!     gateway.put(id, &[1; 64])?;
//! }
//! gateway.save()?; // Ends the running round.
//! assert_eq!(host.sequence()?, gateway.counts().rounds);
//! assert!(host.sequence()? >= 2);
//! # Ok(())
//! # }
//! ```

use crate::block_on::block_on;
use crate::channel::Nonce;
use crate::enclave::{DamagedSlots, Evictor, NodeBytes, Querier, Session, Shared};
use crate::enclave_orders::Location;
use crate::error::{Error, Result};
use crate::fork_join::{ForkJoin, OneThread, THREAD_MIN, TwoThreads, pool};
use crate::geometry::{Geometry, Node};
use crate::store::{NodeStore, NodeVersion, SlotRead};
use futures_util::FutureExt as _;
use futures_util::future::{OptionFuture, join};
use rayon_core::ThreadPool;
use std::pin::pin;
use std::slice;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use traceless_core::rng::Rng;

/// The part of a query that the host can read, and the enclave's order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueryRequest {
    /// The leaf of the path.
    pub leaf: u32,
    /// One slot of each layer.
    pub locations: Vec<Location>,
    /// The enclave's order, sealed: the same path and slots, and the layer of the wanted block.
    pub order: Vec<u8>,
}

/// Nodes to be renewed, as the host receives them: the path of a round, or one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stage {
    /// Each node, from the root on, with the attempt number of its current version.
    pub nodes: Vec<NodeVersion>,
    /// The attempt number of the new versions.
    pub attempt: u64,
    /// The slots that enter at the first node in a round; empty for the renewal of one node.
    pub batch: Vec<u8>,
    /// The enclave's order for each node.
    pub orders: Vec<Vec<u8>>,
}

/// A slot that does not hold what was last written to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DamagedSlot {
    /// The node.
    pub node: Node,
    /// The slot in the node.
    pub slot: u32,
}

impl Stage {
    /// Whether the nodes are verified, and nothing is written.
    pub fn only_verifies(&self) -> bool {
        self.attempt == 0
    }

    /// The order to verify a node, as the host receives it.
    pub fn to_verify(version: NodeVersion, order: Vec<u8>) -> Self {
        Self { nodes: vec![version], attempt: 0, batch: Vec::new(), orders: vec![order] }
    }

    /// The versions that it creates.
    pub fn versions(&self) -> Vec<NodeVersion> {
        let new = |old: &NodeVersion| NodeVersion { attempt: self.attempt, ..*old };
        self.nodes.iter().map(new).collect()
    }
}

/// The gateway's interface to a host.
///
/// [`Error::SessionLost`] means that the enclave is gone, and all staged nodes with it: after
/// [`Host::renew`] everything can be sent again.
pub trait Host: Send + Sync {
    /// The enclave's reply to a query.
    fn query(&self, request: &QueryRequest) -> Result<Vec<u8>>;

    /// The replies to queries, in order, each as if it were sent alone, up to the first failure.
    fn query_many(&self, requests: &[QueryRequest]) -> Vec<Result<Vec<u8>>> {
        up_to_failure(requests.iter().map(|request| self.query(request)))
    }

    /// Lets the enclave make new versions of nodes, which are invisible until the commit. If slots
    /// of an old version are damaged, and its order does not name them, they are returned, and
    /// nothing is staged. The attempt number 0 only verifies.
    fn stage(&self, stage: &Stage) -> Result<Vec<DamagedSlot>>;

    /// Stages a node that the gateway sealed itself, or that another host had, without the enclave:
    /// for a tree that is filled at once, or moved.
    fn place(&self, _version: NodeVersion, _bytes: &[u8]) -> Result {
        Err(Error::Store("this host takes no nodes from the gateway"))
    }

    /// The bytes of a readable version of a node, to be placed at another host. A slot that cannot
    /// be read is zeros.
    fn node(&self, _version: NodeVersion) -> Result<Vec<u8>> {
        Err(Error::Store("this host returns no nodes"))
    }

    /// Removes the nodes of all trees without these roots, which have moved to other hosts.
    fn keep_trees(&self, _roots: &[u32]) -> Result {
        Ok(())
    }

    /// Makes the staged versions current, all or none. `sequence` is one more than that of the
    /// previous commit.
    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result;

    /// The number of the last commit.
    fn sequence(&self) -> Result<u64>;

    /// Begins a session after one was lost. Returns the nonces of gateway and enclave.
    fn renew(&self) -> Result<(Nonce, Nonce)> {
        Err(Error::SessionLost)
    }

    /// Fails with [`Error::Fenced`] if another gateway has taken over the store. Sends nothing
    /// unless there is a sign of that.
    fn check(&self) -> Result {
        Ok(())
    }

    /// The same, but never sends anything: false if only a message would show whether another
    /// gateway has taken over.
    fn check_quietly(&self) -> Result<bool> {
        Ok(true)
    }

    /// Ends all waiting for a host that is away, now and later, because the program ends.
    fn wait_no_more(&self) {}
}

/// The host's interface to an enclave that has its keys.
pub trait Enclave: Send + Sync {
    /// The reply to an order. `slots` has one slot of each layer, from the root on.
    fn query(&self, order: &[u8], slots: &[u8]) -> Result<Vec<u8>>;

    /// The replies to orders with their slots, in order, up to the first failure.
    fn query_many(&self, orders: &[(&[u8], &[u8])]) -> Vec<Result<Vec<u8>>> {
        up_to_failure(orders.iter().map(|(order, slots)| self.query(order, slots)))
    }

    /// Makes a new version of a node, as the order says, or returns the old one's damaged slots.
    fn evict(&self, order: &[u8], bytes: NodeBytes<'_>) -> Result<DamagedSlots>;

    /// Ends the enclave's process, if it has one of its own, and with it all calls that wait for
    /// it.
    fn end(&self) {}

    /// The number of the enclave's process, if it has one of its own.
    fn process_id(&self) -> Option<u32> {
        None
    }
}

impl<E: Enclave + ?Sized> Enclave for Box<E> {
    fn query(&self, order: &[u8], slots: &[u8]) -> Result<Vec<u8>> {
        (**self).query(order, slots)
    }

    fn query_many(&self, orders: &[(&[u8], &[u8])]) -> Vec<Result<Vec<u8>>> {
        (**self).query_many(orders)
    }

    fn evict(&self, order: &[u8], bytes: NodeBytes<'_>) -> Result<DamagedSlots> {
        (**self).evict(order, bytes)
    }

    fn end(&self) {
        (**self).end();
    }

    fn process_id(&self) -> Option<u32> {
        (**self).process_id()
    }
}

/// An enclave in the host's own process.
pub struct Inside {
    querier: Mutex<Querier>,
    evictor: Mutex<Evictor>,
}

impl Inside {
    /// An enclave for a session. It gets a second thread if the machine has more than one.
    pub fn new(shared: &Shared, session: &Session, rng: Box<dyn Rng>) -> Result<Self> {
        let querier = Mutex::new(Querier::new(shared, session, rng));
        let evictor = Evictor::new(shared, session)?.with_threads(lent_threads());
        Ok(Self { querier, evictor: Mutex::new(evictor) })
    }

    /// An enclave that evicts by whole blocks, as a baseline.
    pub fn by_whole_blocks(shared: &Shared, session: &Session, rng: Box<dyn Rng>) -> Result<Self> {
        let querier = Mutex::new(Querier::new(shared, session, rng));
        let evictor = Evictor::new(shared, session)?.by_whole_blocks(shared);
        Ok(Self { querier, evictor: Mutex::new(evictor) })
    }
}

/// The threads that a host lends an enclave.
pub fn lent_threads() -> Box<dyn ForkJoin> {
    match std::thread::available_parallelism() {
        Ok(threads) if threads.get() > 1 => Box::new(TwoThreads),
        _ => Box::new(OneThread),
    }
}

impl Enclave for Inside {
    fn query(&self, order: &[u8], slots: &[u8]) -> Result<Vec<u8>> {
        lock(&self.querier).query(&mut order.to_vec(), slots)
    }

    fn evict(&self, order: &[u8], bytes: NodeBytes<'_>) -> Result<DamagedSlots> {
        lock(&self.evictor).evict(&mut order.to_vec(), bytes)
    }
}

/// Host and enclave in the gateway's own process.
pub type InProcess<S> = HostedStore<S, Inside>;

/// A host: a store with an enclave.
pub struct HostedStore<S, E> {
    geometry: Geometry,
    store: S,
    enclave: E,
    /// Buffers for slots of queries, for messages at once.
    slots: Mutex<Vec<Vec<u8>>>,
    buffers: Mutex<Buffers>,
    /// Threads that wait for the store, started for the first large node.
    store_threads: LazyLock<Option<ThreadPool>>,
}

/// Buffers of a round.
#[derive(Default)]
struct Buffers {
    node: Vec<u8>,
    next: Vec<u8>,
    sealed: Vec<u8>,
    last_sealed: Vec<u8>,
    carried: Vec<u8>,
    new_carried: Vec<u8>,
}

impl<S: NodeStore> InProcess<S> {
    /// A host over `store`, with an enclave that begins a session with the gateway of `nonce`. Also
    /// returns the enclave's nonce.
    pub fn start(
        shared: &Shared,
        store: S,
        nonce: &Nonce,
        rng: &mut dyn Rng,
    ) -> Result<(Self, Nonce)> {
        let mut own = Nonce::default();
        rng.fill(&mut own);
        let session = shared.session(nonce, &own);
        let enclave = Inside::new(shared, &session, rng.fork())?;
        Ok((Self::new(shared.geometry, store, enclave), own))
    }
}

impl<S: NodeStore, E: Enclave> HostedStore<S, E> {
    /// A host of a store of this shape, and an enclave in a session with its gateway.
    pub fn new(geometry: Geometry, store: S, enclave: E) -> Self {
        Self {
            geometry,
            store,
            enclave,
            slots: Mutex::default(),
            buffers: Mutex::default(),
            store_threads: LazyLock::new(|| pool("store")),
        }
    }

    /// The enclave.
    pub fn enclave(&self) -> &E {
        &self.enclave
    }

    /// Lets the enclave renew node after node, while the next is read and the last is written.
    fn carry_out(&self, stage: &Stage, buffers: &mut Buffers) -> Result<Vec<DamagedSlot>> {
        let Buffers { node, next, sealed, last_sealed, carried, new_carried } = buffers;
        carried.clear();
        carried.extend_from_slice(&stage.batch);
        let mut last = None;
        if !stage.only_verifies() {
            self.store.announce(&stage.nodes);
        }
        if let Some(first) = stage.nodes.first() {
            block_on(self.read(*first, stage.only_verifies(), next))?;
        }
        for (i, (old, order)) in stage.nodes.iter().zip(&stage.orders).enumerate() {
            core::mem::swap(node, next);
            let layer = self.geometry.layer_of(old.node);
            let has_next_layer = layer + 1 < self.geometry.layers && !stage.batch.is_empty();
            sealed.resize(node.len(), 0);
            new_carried.resize(if has_next_layer { stage.batch.len() } else { 0 }, 0);
            let bytes = NodeBytes { node, carried, new_node: sealed, new_carried };
            let evict = || self.enclave.evict(order, bytes);
            let reading = stage.nodes.get(i + 1).map(|old| (*old, &mut *next));
            let writing = last.map(|new| (new, &**last_sealed));
            let damaged = self.beside(evict, reading, writing)?;
            self.store.judge(*old, &damaged);
            if !damaged.is_empty() {
                let of_node = |slot| DamagedSlot { node: old.node, slot };
                return Ok(damaged.into_iter().map(of_node).collect());
            }
            let is_new = !stage.only_verifies();
            last = is_new.then_some(NodeVersion { attempt: stage.attempt, ..*old });
            core::mem::swap(sealed, last_sealed);
            core::mem::swap(carried, new_carried);
        }
        last.map_or(Ok(()), |new| block_on(self.store.stage(new, last_sealed)))?;
        block_on(self.store.finish_stages())?;
        Ok(Vec::new())
    }

    /// Runs `work` while one node is read and another is written.
    fn beside<T>(
        &self,
        work: impl FnOnce() -> Result<T>,
        reading: Option<(NodeVersion, &mut Vec<u8>)>,
        writing: Option<(NodeVersion, &[u8])>,
    ) -> Result<T> {
        let len =
            |version: NodeVersion| self.geometry.node_len(self.geometry.layer_of(version.node));
        let lens = [reading.as_ref().map(|(old, _)| len(*old)), writing.map(|(new, _)| len(new))];
        let read = reading.map(|(old, into)| self.read(old, false, into));
        let write = writing.map(|(new, bytes)| self.store.stage(new, bytes));
        let is_large = lens.into_iter().flatten().sum::<usize>() >= THREAD_MIN;
        let Some(threads) = is_large.then(|| self.store_threads.as_ref()).flatten() else {
            // After one poll a remote engine has its requests on the way, and a local engine is
            // done.
            let mut both = pin!(join(OptionFuture::from(read), OptionFuture::from(write)));
            let done = both.as_mut().now_or_never();
            let worked = work();
            let (read, written) = done.unwrap_or_else(|| block_on(both));
            return [read, written].into_iter().flatten().fold(worked, and_then_done);
        };
        let (mut was_read, mut was_written) = (Ok(()), Ok(()));
        let worked = threads.in_place_scope(|scope| {
            if let Some(read) = read {
                scope.spawn(|_| was_read = block_on(read));
            }
            if let Some(write) = write {
                scope.spawn(|_| was_written = block_on(write));
            }
            work()
        });
        [was_read, was_written].into_iter().fold(worked, and_then_done)
    }

    /// Reads the slots of queries. Returns for how many this succeeded, and the next one's error.
    fn read_slots(&self, requests: &[QueryRequest], into: &mut [u8]) -> (usize, Option<Error>) {
        let wrong = requests.iter().position(|request| !self.has_path(request));
        let requests = &requests[..wrong.unwrap_or(requests.len())];
        let wrong = wrong.map(|_| Error::Malformed("no such path"));
        match self.read_together(requests, into) {
            Ok(()) => return (requests.len(), wrong),
            Err(error @ Error::Engine(_)) => return (0, Some(error)),
            Err(error) if requests.len() == 1 && !matches!(error, Error::Io(_)) => {
                return (0, Some(error));
            }
            Err(_) => {}
        }
        // One of the queries fails. Reading each alone finds which.
        let len = self.geometry.layers * self.geometry.slot_len();
        for (number, (request, into)) in requests.iter().zip(into.chunks_exact_mut(len)).enumerate()
        {
            if let Err(error) = self.read_alone(request, into) {
                return (number, Some(error));
            }
        }
        (requests.len(), wrong)
    }

    /// Reads the slots of a query. A slot that the disk cannot read becomes zeros, which the
    /// enclave finds to be damaged.
    fn read_alone(&self, request: &QueryRequest, into: &mut [u8]) -> Result {
        match self.read_together(slice::from_ref(request), into) {
            Err(Error::Io(_)) => {}
            other => return other,
        }
        let slots = into.chunks_exact_mut(self.geometry.slot_len());
        let (mut is_any_read, mut failed) = (false, Ok(()));
        for (layer, (location, into)) in request.locations.iter().zip(slots).enumerate() {
            let node = self.geometry.node(layer, request.leaf);
            let version = NodeVersion { node, attempt: location.attempt };
            let read = SlotRead { version, slot: location.slot, into };
            match block_on(self.store.read_slots(&mut [read])) {
                Err(Error::Io(error)) => {
                    into.fill(0);
                    failed = Err(Error::Io(error));
                }
                other => {
                    other?;
                    is_any_read = true;
                }
            }
        }
        // A path without any slot that can be read is on a disk that is away.
        if is_any_read || self.geometry.layers == 1 { Ok(()) } else { failed }
    }

    /// Whether a query names a path and slots of this tree.
    fn has_path(&self, request: &QueryRequest) -> bool {
        let g = &self.geometry;
        let has_slot =
            |(layer, location): (usize, &Location)| (location.slot as usize) < g.slots(layer);
        request.leaf < g.leaves()
            && request.locations.len() == g.layers
            && request.locations.iter().enumerate().all(has_slot)
    }

    /// Reads the slots of all these queries, or fails.
    fn read_together(&self, requests: &[QueryRequest], into: &mut [u8]) -> Result {
        let g = &self.geometry;
        let slots = requests.iter().flat_map(|request| {
            let node = |layer| g.node(layer, request.leaf);
            let version = move |(layer, at): (usize, &Location)| {
                (NodeVersion { node: node(layer), attempt: at.attempt }, at.slot)
            };
            request.locations.iter().enumerate().map(version)
        });
        let read = |((version, slot), into)| SlotRead { version, slot, into };
        let mut reads: Vec<SlotRead<'_>> =
            slots.zip(into.chunks_exact_mut(g.slot_len())).map(read).collect();
        block_on(self.store.read_slots(&mut reads))
    }

    /// Reads a node, or slot by slot what can be read of it: a slot that cannot be read becomes
    /// zeros, which the enclave finds to be damaged. To verify it, it is read past all caches.
    async fn read(&self, version: NodeVersion, verifies: bool, into: &mut Vec<u8>) -> Result {
        into.resize(self.geometry.node_len(self.geometry.layer_of(version.node)), 0);
        let whole = if verifies {
            self.store.read_node_to_verify(version, into).await
        } else {
            self.store.read_node(version, into).await
        };
        let Err(failed @ Error::Io(_)) = whole else { return whole };
        let mut is_any_read = false;
        for (slot, into) in into.chunks_exact_mut(self.geometry.slot_len()).enumerate() {
            let read = SlotRead { version, slot: slot as u32, into };
            let is_read = self.store.read_slots(&mut [read]).await.is_ok();
            is_any_read |= is_read;
            if !is_read {
                into.fill(0);
            }
        }
        // A node without any slot that can be read is on a disk that is away.
        if is_any_read { Ok(()) } else { Err(failed) }
    }
}

/// A host that has lost its store to another host ends the session. In the next one the store is
/// taken back, or the gateway learns that another one has it.
fn without_store(error: Error) -> Error {
    if matches!(error, Error::InUse(_)) { Error::SessionLost } else { error }
}

/// The result of work, unless what was done beside it failed.
fn and_then_done<T>(worked: Result<T>, done: Result) -> Result<T> {
    worked.and_then(|value| done.map(|()| value))
}

/// Results up to the first failure. Nothing after it is evaluated.
fn up_to_failure<T>(results: impl Iterator<Item = Result<T>>) -> Vec<Result<T>> {
    let mut all = Vec::new();
    for result in results {
        let failed = result.is_err();
        all.push(result);
        if failed {
            break;
        }
    }
    all
}

impl<S: NodeStore, E: Enclave> Host for HostedStore<S, E> {
    fn query(&self, request: &QueryRequest) -> Result<Vec<u8>> {
        self.query_many(slice::from_ref(request)).pop().unwrap_or(Err(Error::SessionLost))
    }

    fn query_many(&self, requests: &[QueryRequest]) -> Vec<Result<Vec<u8>>> {
        let len = self.geometry.layers * self.geometry.slot_len();
        let mut slots = lock(&self.slots).pop().unwrap_or_default();
        slots.resize(len * requests.len(), 0);
        let (read, failed) = self.read_slots(requests, &mut slots);
        let orders = requests[..read].iter().map(|request| &request.order[..]);
        let orders: Vec<(&[u8], &[u8])> = orders.zip(slots.chunks_exact(len)).collect();
        let mut replies = self.enclave.query_many(&orders);
        drop(orders);
        lock(&self.slots).push(slots);
        if replies.len() == read && replies.last().is_none_or(Result::is_ok) {
            replies.extend(failed.map(without_store).map(Err));
        }
        replies
    }

    fn stage(&self, stage: &Stage) -> Result<Vec<DamagedSlot>> {
        let last = Node(self.geometry.nodes() - 1);
        if stage.nodes.iter().any(|old| old.node > last) {
            return Err(Error::Malformed("no such node"));
        }
        // Nodes that were staged and not committed can no longer be.
        block_on(self.store.abandon()).map_err(without_store)?;
        self.carry_out(stage, &mut lock(&self.buffers)).map_err(without_store)
    }

    fn place(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        let g = &self.geometry;
        let known = version.node < Node(g.nodes());
        if !known || bytes.len() != g.node_len(g.layer_of(version.node)) {
            return Err(Error::Malformed("not the bytes of a node"));
        }
        block_on(self.store.stage(version, bytes)).map_err(without_store)?;
        block_on(self.store.finish_stages()).map_err(without_store)
    }

    fn node(&self, version: NodeVersion) -> Result<Vec<u8>> {
        if version.node >= Node(self.geometry.nodes()) {
            return Err(Error::Malformed("no such node"));
        }
        let mut bytes = Vec::new();
        block_on(self.read(version, false, &mut bytes)).map_err(without_store)?;
        // A version that commits have removed meanwhile may have been read as zeros.
        let mut slot = vec![0; self.geometry.slot_len()];
        let read = SlotRead { version, slot: 0, into: &mut slot };
        match block_on(self.store.read_slots(&mut [read])) {
            Ok(()) | Err(Error::Io(_)) => Ok(bytes),
            Err(error) => Err(without_store(error)),
        }
    }

    fn keep_trees(&self, roots: &[u32]) -> Result {
        let others = (0..self.geometry.roots).filter(|root| !roots.contains(root));
        let nodes: Vec<Node> =
            others.flat_map(|root| self.geometry.nodes_of(root as usize)).collect();
        block_on(self.store.remove(&nodes)).map_err(without_store)
    }

    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        block_on(self.store.commit(sequence, versions)).map_err(without_store)
    }

    fn sequence(&self) -> Result<u64> {
        block_on(self.store.sequence()).map_err(without_store)
    }
}

impl<H: Host + ?Sized> Host for std::sync::Arc<H> {
    fn query_many(&self, requests: &[QueryRequest]) -> Vec<Result<Vec<u8>>> {
        (**self).query_many(requests)
    }

    fn query(&self, request: &QueryRequest) -> Result<Vec<u8>> {
        (**self).query(request)
    }

    fn stage(&self, stage: &Stage) -> Result<Vec<DamagedSlot>> {
        (**self).stage(stage)
    }

    fn place(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        (**self).place(version, bytes)
    }

    fn node(&self, version: NodeVersion) -> Result<Vec<u8>> {
        (**self).node(version)
    }

    fn keep_trees(&self, roots: &[u32]) -> Result {
        (**self).keep_trees(roots)
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

    fn wait_no_more(&self) {
        (**self).wait_no_more();
    }

    fn check(&self) -> Result {
        (**self).check()
    }

    fn check_quietly(&self) -> Result<bool> {
        (**self).check_quietly()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
