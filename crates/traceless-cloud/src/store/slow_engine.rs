//! A remote engine, for tests: no read is answered at once, and every answer comes from another
//! thread.

use super::suite::{path, write_round};
use super::{MemStore, NodeStore, NodeVersion, SlotRead};
use crate::block_on::block_on;
use crate::enclave::{DamagedSlots, NodeBytes};
use crate::enclave_orders::Location;
use crate::error::{Error, Result};
use crate::geometry::{Geometry, Node, tests::small};
use crate::host::{Enclave, Host as _, HostedStore, QueryRequest, Stage};
use core::future::poll_fn;
use core::task::{Poll, Waker};
use core::time::Duration;
use futures_util::future::try_join_all;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// How long a read takes.
const READ_TIME: Duration = Duration::from_millis(20);
/// How long a thread waits for another one.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for work in its own thread.
async fn elsewhere(work: impl FnOnce() -> Result + Send + 'static) -> Result {
    let state = Arc::new(Mutex::new((None, None::<Waker>)));
    let shared = state.clone();
    std::thread::spawn(move || {
        let done = work();
        let mut state = shared.lock().unwrap();
        state.0 = Some(done);
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    });
    poll_fn(|context| {
        let mut state = state.lock().unwrap();
        if let Some(done) = state.0.take() {
            return Poll::Ready(done);
        }
        state.1 = Some(context.waker().clone());
        Poll::Pending
    })
    .await
}

/// Nodes of a remote engine.
struct SlowEngine {
    store: MemStore,
    geometry: Geometry,
    /// Slots that are being read: now, and at most.
    under_way: Mutex<(usize, usize)>,
    /// Calls of `read_slots`.
    calls: AtomicUsize,
    /// A node with slots that cannot be read.
    lost: Option<Node>,
    meetings: Arc<Meetings>,
}

impl SlowEngine {
    fn new(geometry: Geometry, meetings: Arc<Meetings>) -> Self {
        let (store, lost) = (MemStore::new(geometry), None);
        let (under_way, calls) = Default::default();
        Self { store, geometry, under_way, calls, lost, meetings }
    }

    fn layer(&self, version: NodeVersion) -> usize {
        self.geometry.layer_of(version.node)
    }

    /// Begins to read a slot, and returns a future for it.
    fn send_for(&self, read: &mut SlotRead<'_>) -> impl Future<Output = Result> + Send {
        let mut under_way = self.under_way.lock().unwrap();
        under_way.0 += 1;
        under_way.1 = under_way.1.max(under_way.0);
        async {
            elsewhere(|| {
                std::thread::sleep(READ_TIME);
                Ok(())
            })
            .await?;
            self.under_way.lock().unwrap().0 -= 1;
            if self.lost == Some(read.version.node) {
                return Err(Error::Store("lost on the way"));
            }
            self.store.read_slots(core::slice::from_mut(read)).await
        }
    }
}

impl NodeStore for SlowEngine {
    async fn read_slots(&self, reads: &mut [SlotRead<'_>]) -> Result {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let sent: Vec<_> = reads.iter_mut().map(|read| self.send_for(read)).collect();
        try_join_all(sent).await.map(drop)
    }

    async fn read_node(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        // At the same time as the work on the node above.
        if let Some(step) = self.layer(version).checked_sub(1) {
            let meetings = self.meetings.clone();
            elsewhere(move || meetings.meet(step)).await?;
        }
        self.store.read_node(version, into).await
    }

    async fn stage(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        // At the same time as the work on the node below.
        let step = self.layer(version) + 1;
        if step < self.geometry.layers {
            let meetings = self.meetings.clone();
            elsewhere(move || meetings.meet(step)).await?;
        }
        self.store.stage(version, bytes).await
    }

    async fn abandon(&self) -> Result {
        self.store.abandon().await
    }

    async fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.store.commit(sequence, versions).await
    }

    async fn sequence(&self) -> Result<u64> {
        self.store.sequence().await
    }
}

/// Makes concurrent steps wait for each other, layer by layer.
struct Meetings {
    layers: usize,
    arrivals: Mutex<HashMap<usize, usize>>,
    arrival: Condvar,
}

impl Meetings {
    fn new(layers: usize) -> Arc<Self> {
        Arc::new(Self { layers, arrivals: Mutex::default(), arrival: Condvar::new() })
    }

    /// Returns when all parties of step `step` have arrived, or fails.
    fn meet(&self, step: usize) -> Result {
        let all = 1 + usize::from(step > 0) + usize::from(step + 1 < self.layers);
        let mut arrivals = self.arrivals.lock().unwrap();
        *arrivals.entry(step).or_default() += 1;
        self.arrival.notify_all();
        let missing = |arrivals: &mut HashMap<usize, usize>| arrivals[&step] < all;
        let (_arrivals, late) =
            self.arrival.wait_timeout_while(arrivals, PATIENCE, missing).unwrap();
        if late.timed_out() { Err(Error::Store("one operation waits for another")) } else { Ok(()) }
    }
}

/// A fake enclave: it replies with the slots of a query, and fills the nth evicted node with n.
struct Echo {
    geometry: Geometry,
    meetings: Arc<Meetings>,
    node_count: AtomicUsize,
}

impl Enclave for Echo {
    fn query(&self, order: &[u8], slots: &[u8]) -> Result<Vec<u8>> {
        assert_eq!(slots.len(), self.geometry.layers * self.geometry.slot_len());
        if order == b"refused" { Err(Error::Unauthentic) } else { Ok(slots.to_vec()) }
    }

    fn evict(&self, _: &[u8], bytes: NodeBytes<'_>) -> Result<DamagedSlots> {
        let step = self.node_count.fetch_add(1, Ordering::SeqCst);
        self.meetings.meet(step)?;
        bytes.new_node.fill(step as u8 + 1);
        Ok(DamagedSlots::new())
    }
}

type FarHost = HostedStore<Arc<SlowEngine>, Echo>;

/// A host and its store, with a tree that was evicted once along each path.
fn host(lost: Option<Node>) -> (Arc<SlowEngine>, FarHost) {
    let g = small();
    let meetings = Meetings::new(g.layers);
    let engine = Arc::new(SlowEngine { lost, ..SlowEngine::new(g, meetings.clone()) });
    for sequence in 1..=u64::from(g.leaves()) {
        write_round(&engine.store, &g, sequence);
    }
    let echo = Echo { geometry: g, meetings, node_count: AtomicUsize::new(0) };
    (engine.clone(), HostedStore::new(g, engine, echo))
}

/// The last round that wrote the node of a layer on a path. This is also the node's attempt.
fn last_round(g: &Geometry, layer: usize, leaf: u32) -> u64 {
    let visits = (0..g.leaves()).filter(|&round| g.node(layer, round) == g.node(layer, leaf));
    u64::from(visits.max().unwrap()) + 1
}

fn request(g: &Geometry, leaf: u32, order: &[u8]) -> QueryRequest {
    let location = |layer| Location { slot: leaf % 20, attempt: last_round(g, layer, leaf) };
    QueryRequest { leaf, locations: (0..g.layers).map(location).collect(), order: order.to_vec() }
}

fn requests(g: &Geometry) -> Vec<QueryRequest> {
    (0..32).map(|i| request(g, i * 5 % g.leaves(), b"")).collect()
}

/// The slots that the enclave receives for a query.
fn slots_of(engine: &SlowEngine, request: &QueryRequest) -> Vec<u8> {
    let g = &engine.geometry;
    let slot = |(layer, at): (usize, &Location)| {
        let version = NodeVersion { node: g.node(layer, request.leaf), attempt: at.attempt };
        let mut node = vec![0; g.node_len(layer)];
        block_on(engine.store.read_node(version, &mut node)).unwrap();
        node.chunks_exact(g.slot_len()).nth(at.slot as usize).unwrap().to_vec()
    };
    request.locations.iter().enumerate().flat_map(slot).collect()
}

#[test]
fn slots_of_all_queries_are_read_concurrently() {
    let (engine, host) = host(None);
    let requests = requests(&engine.geometry);
    let replies = host.query_many(&requests);
    assert_eq!(replies.len(), requests.len());
    for (request, reply) in requests.iter().zip(replies) {
        assert!(reply.unwrap() == slots_of(&engine, request));
    }
    // All reads overlap, so together they take as long as one.
    assert_eq!(engine.under_way.lock().unwrap().1, requests.len() * engine.geometry.layers);
    assert_eq!(engine.calls.load(Ordering::SeqCst), 1);
    assert!(host.query(&requests[3]).unwrap() == slots_of(&engine, &requests[3]));
}

#[test]
fn queries_are_answered_up_to_the_first_failure() {
    let g = small();
    let lost = g.node(g.layers - 1, 13);
    let (engine, host) = host(Some(lost));
    let whole = requests(&g);
    let first_lost = whole.iter().position(|request| request.leaf == 13).unwrap();
    let changed = |at: usize, change: &dyn Fn(&mut QueryRequest)| {
        let mut requests = whole.clone();
        change(&mut requests[at]);
        requests
    };
    let cases: [(Vec<QueryRequest>, usize); 6] = [
        (whole.clone(), first_lost),
        (changed(first_lost - 1, &|request| request.leaf = g.leaves()), first_lost - 1),
        (changed(first_lost + 1, &|request| request.leaf = g.leaves()), first_lost),
        (changed(2, &|request| request.locations[1].slot = 20), 2),
        (changed(3, &|request| request.locations.truncate(2)), 3),
        (changed(first_lost - 2, &|request| request.order = b"refused".to_vec()), first_lost - 2),
    ];
    for (number, (requests, failing)) in cases.iter().enumerate() {
        let mut replies = host.query_many(requests);
        assert_eq!(replies.len(), failing + 1, "case {number}");
        assert!(replies.pop().unwrap().is_err(), "case {number}");
        for (request, reply) in requests.iter().zip(replies) {
            assert!(reply.unwrap() == slots_of(&engine, request), "case {number}");
        }
    }
}

/// A step that runs alone waits in vain for the other steps, and the round fails.
#[test]
fn a_round_reads_and_writes_while_the_enclave_works() {
    let (engine, host) = host(None);
    let g = engine.geometry;
    let nodes: Vec<NodeVersion> = (0..g.layers)
        .map(|layer| NodeVersion { node: g.node(layer, 0), attempt: last_round(&g, layer, 0) })
        .collect();
    let batch = vec![0; g.round_slots * g.slot_len()];
    let orders = vec![vec![]; g.layers];
    let stage = Stage { nodes, attempt: 99, batch, orders };
    host.stage(&stage).unwrap();
    let sequence = host.sequence().unwrap() + 1;
    host.commit(sequence, &stage.versions()).unwrap();
    for (version, byte) in path(&g, 0, 99).into_iter().zip(1..) {
        let mut node = vec![0; g.node_len(g.layer_of(version.node))];
        block_on(engine.store.read_node(version, &mut node)).unwrap();
        assert!(node.iter().all(|&byte_of_node| byte_of_node == byte));
    }
}
