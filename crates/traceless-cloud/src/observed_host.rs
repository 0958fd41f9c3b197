//! A watched host: reports what the host can observe of a gateway, as network events.
//!
//! The addresses of events cover the tree node by node, from the roots. A query is a read of one
//! slot of each node on a path. A staged round is a write after the end of the tree, as long as the
//! message. When the round is committed its nodes are read and written, and the commit is another
//! write after the end of the tree.
//!
//! One query, as the host sees it: a slot of each layer, whichever block is read.
//!
//! ```
//! use std::sync::Arc;
//! use traceless_cloud::kernel::Choice;
//! use traceless_cloud::local_deployment::LocalDeployment;
//! use traceless_cloud::params::Params;
//! use traceless_cloud::store::Durability;
//! use traceless_cloud::tee::Policy;
//! use traceless_core::trace::{Op, Recorder};
//!
//! # fn main() -> traceless_cloud::Result {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let (recorder, params) = (Arc::new(Recorder::default()), Params::new(1000, 64, 32)?);
//! // The deployment wraps its host in an `ObservedHost`.
//! let local = LocalDeployment::new(folder, None, None, Policy::Simulated)
//!     .watched_by(Some(recorder.clone()));
//! let mut gateway = local.open(params, Choice::Benes, Durability::Process)?.gateway;
//! recorder.take();
//! gateway.get(7)?;
//!
//! let events = recorder.take();
//! assert_eq!(events.len(), params.geometry.layers);
//! let slot_len = params.geometry.slot_len() as u32;
//! assert!(events.iter().all(|event| event.op == Op::Read && event.len == slot_len));
//! # Ok(())
//! # }
//! ```

use crate::channel::Nonce;
use crate::error::Result;
use crate::geometry::{Geometry, Node};
use crate::host::{DamagedSlot, Host, QueryRequest, Stage};
use crate::store::NodeVersion;
use std::sync::Arc;
use traceless_core::clock::{Clock, Monotonic};
use traceless_core::store::DrawnPlaces;
use traceless_core::trace::{Event, Op, Surface, Witness};

/// Bytes of a commit's number, which comes first after the end of the tree.
const COMMIT_LEN: usize = 8;

/// Reports to a witness what hosts can observe, with nanoseconds since the start.
#[derive(Clone)]
pub struct Observation {
    geometry: Geometry,
    witness: Arc<dyn Witness>,
    clock: Arc<Monotonic>,
}

impl Observation {
    /// Observes the hosts of a tree of this shape.
    pub fn new(geometry: Geometry, witness: Arc<dyn Witness>) -> Self {
        Self { geometry, witness, clock: Arc::new(Monotonic::start()) }
    }

    /// A host with all its calls reported.
    pub fn of(&self, host: impl Host + 'static) -> Arc<dyn Host> {
        Arc::new(ObservedHost { host, observation: self.clone(), has_queries: true })
    }

    /// A host without reports of its queries. They are reported for all hosts together, in the
    /// order in which the gateway sends them.
    pub fn of_rounds(&self, host: impl Host + 'static) -> Arc<dyn Host> {
        Arc::new(ObservedHost { host, observation: self.clone(), has_queries: false })
    }

    fn report(&self, time: u64, op: Op, at: u64, len: usize) {
        let len = u32::try_from(len).expect("no node has 4 GiB");
        self.witness.record(Event { time, surface: Surface::Wire, op, at, len });
    }

    /// Reports a query.
    pub fn report_query(&self, request: &QueryRequest) {
        let (g, time) = (&self.geometry, self.clock.now());
        for (layer, location) in request.locations.iter().enumerate().take(g.layers) {
            let node = g.node(layer, request.leaf);
            let at = g.node_at(node) + u64::from(location.slot) * g.slot_len() as u64;
            self.report(time, Op::Read, at, g.slot_len());
        }
    }

    fn report_node(&self, time: u64, op: Op, node: Node) {
        let g = &self.geometry;
        self.report(time, op, g.node_at(node), g.node_len(g.layer_of(node)));
    }
}

/// A host with an observation.
pub struct ObservedHost<H> {
    host: H,
    observation: Observation,
    has_queries: bool,
}

impl<H> ObservedHost<H> {
    /// Wraps the host of a tree of this shape.
    pub fn new(host: H, geometry: Geometry, witness: Arc<dyn Witness>) -> Self {
        Self { host, observation: Observation::new(geometry, witness), has_queries: true }
    }

    fn report_queries(&self, requests: &[QueryRequest]) {
        if self.has_queries {
            for request in requests {
                self.observation.report_query(request);
            }
        }
    }
}

impl<H: Host> Host for ObservedHost<H> {
    fn query(&self, request: &QueryRequest) -> Result<Vec<u8>> {
        self.report_queries(std::slice::from_ref(request));
        self.host.query(request)
    }

    fn query_many(&self, requests: &[QueryRequest]) -> Vec<Result<Vec<u8>>> {
        self.report_queries(requests);
        self.host.query_many(requests)
    }

    fn stage(&self, stage: &Stage) -> Result<Vec<DamagedSlot>> {
        let len = stage.batch.len() + stage.orders.iter().map(Vec::len).sum::<usize>();
        let observation = &self.observation;
        let at = observation.geometry.tree_len() + COMMIT_LEN as u64;
        observation.report(observation.clock.now(), Op::Write, at, len);
        self.host.stage(stage)
    }

    fn place(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        let observation = &self.observation;
        observation.report_node(observation.clock.now(), Op::Write, version.node);
        self.host.place(version, bytes)
    }

    fn node(&self, version: NodeVersion) -> Result<Vec<u8>> {
        let observation = &self.observation;
        observation.report_node(observation.clock.now(), Op::Read, version.node);
        self.host.node(version)
    }

    fn keep_trees(&self, roots: &[u32]) -> Result {
        self.host.keep_trees(roots)
    }

    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        let observation = &self.observation;
        let time = observation.clock.now();
        for version in versions {
            observation.report_node(time, Op::Read, version.node);
            observation.report_node(time, Op::Write, version.node);
        }
        observation.report(time, Op::Write, observation.geometry.tree_len(), COMMIT_LEN);
        self.host.commit(sequence, versions)
    }

    fn sequence(&self) -> Result<u64> {
        self.host.sequence()
    }

    fn renew(&self) -> Result<(Nonce, Nonce)> {
        self.host.renew()
    }

    fn check(&self) -> Result {
        self.host.check()
    }

    fn wait_no_more(&self) {
        self.host.wait_no_more();
    }
}

/// The leaves of a tree, which queries draw: the slot of its last layer shows where a query ends.
/// Rounds touch whole nodes.
pub struct QueriedLeaves(pub Geometry);

impl DrawnPlaces for QueriedLeaves {
    fn places(&self) -> u64 {
        self.0.leaves().into()
    }

    fn shown_by(&self) -> Op {
        Op::Read
    }

    fn drawn(&self, event: &Event) -> Option<u64> {
        let (g, last) = (&self.0, self.0.layers - 1);
        let within = event.at.checked_sub(g.node_at(g.node(last, 0)))?;
        let leaf = within / g.node_len(last) as u64;
        let is_query = event.len as usize == g.slot_len() && g.node_len(last) > g.slot_len();
        (is_query && leaf < self.places()).then_some(leaf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::{Gateway, Keys};
    use crate::host::InProcess;
    use crate::kernel::Choice;
    use crate::params::Params;
    use crate::store::MemStore;
    use std::sync::Mutex;
    use traceless_core::rng::SeededRng;
    use traceless_core::seal::Secret;
    use traceless_core::trace::Recorder;

    /// A gateway over a watched host, with the requested accesses recorded, too.
    #[test]
    fn queries_rounds_and_accesses_are_observed() {
        let params = Params::new(500, 64, 4).unwrap();
        let g = params.geometry;
        let mut rng = SeededRng::new(1);
        let keys = Keys::new(&Secret::random(&mut rng), &[7; 16]);
        let (shared, nonce) = (keys.shared(&params, Choice::Benes), [3; 16]);
        let store = MemStore::new(g);
        let (host, own) = InProcess::start(&shared, store, &nonce, &mut rng).unwrap();
        let recorder = Arc::new(Recorder::default());
        let host = Arc::new(ObservedHost::new(host, g, recorder.clone()));
        let session = (&nonce, &own);
        let mut gateway =
            Gateway::open(params, &keys, Choice::Benes, host, session, None, Box::new(rng))
                .unwrap();
        let accesses = Arc::new(Mutex::new(vec![]));
        let log = accesses.clone();
        gateway.set_observer(Box::new(move |op, at, len| log.lock().unwrap().push((op, at, len))));
        recorder.take();
        gateway.get(7).unwrap();
        let events = recorder.take();
        let slots = events.iter().filter(|event| event.len as usize == g.slot_len());
        assert_eq!(slots.count(), g.layers);
        let is_behind = |e: &Event| e.at >= g.tree_len() && e.op == Op::Write;
        assert!(events.iter().all(|e| e.at < g.tree_len() || is_behind(e)));
        assert!(events.iter().all(|e| e.surface == Surface::Wire));
        // Several whole rounds.
        for id in 0..3 * params.round_blocks as u64 {
            gateway.put(id % 500, &[1; 64]).unwrap();
        }
        drop(gateway);
        // Each query shows one leaf, and rounds show none.
        let leaves = QueriedLeaves(g);
        let drawn = |events: &[Event]| {
            let reads = events.iter().filter(|event| event.op == Op::Read);
            reads.filter_map(|event| leaves.drawn(event)).count()
        };
        assert_eq!(drawn(&events), 1);
        let events = recorder.take();
        let queries = events.iter().filter(|e| e.op == Op::Read && e.len as usize == g.slot_len());
        assert_eq!(drawn(&events), queries.count() / g.layers);
        assert!(drawn(&events) > params.round_blocks);
        let commits = events.iter().filter(|event| event.at == g.tree_len()).count();
        let roots_end = u64::from(g.roots) * g.node_len(0) as u64;
        let is_root = |event: &&Event| event.op == Op::Write && event.at < roots_end;
        let roots = events.iter().filter(is_root).count();
        assert!(commits > 0 && roots == commits, "{commits} commits, roots {roots} times");
        let accesses = accesses.lock().unwrap();
        assert_eq!(accesses[0], (Op::Read, 7 * 64, 64));
        assert_eq!(accesses[1..].len(), 3 * params.round_blocks);
        assert!(accesses[1..].iter().all(|(op, ..)| *op == Op::Write));
    }
}
