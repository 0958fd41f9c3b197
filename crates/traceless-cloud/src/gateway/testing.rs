//! Gateways for tests.

use super::record::Record;
use super::{Gateway, Keys};
use crate::error::Result;
use crate::host::{DamagedSlot, Host, InProcess, QueryRequest, Stage};
use crate::host_group::ConnectedHost;
use crate::kernel::Choice;
use crate::params::Params;
use crate::store::{MemStore, NodeStore, NodeVersion};
use std::sync::Arc;
use traceless_core::rng::SeededRng;
use traceless_core::seal::Secret;

/// Bytes of a block.
pub const BLOCK: usize = 64;

pub fn params(blocks: u64) -> Params {
    Params::new(blocks, BLOCK, 4).unwrap()
}

pub fn gateway_over(
    params: Params,
    store: impl NodeStore + 'static,
    choice: Choice,
    seed: u64,
) -> Gateway {
    gateway_with(params, store, choice, seed, |host| Arc::new(host))
}

/// A gateway with its tree in memory, at a host that `wrap` wraps.
pub fn gateway_behind(
    params: Params,
    seed: u64,
    wrap: impl FnOnce(InProcess<MemStore>) -> Arc<dyn Host>,
) -> Gateway {
    gateway_with(params, MemStore::new(params.geometry), Choice::Benes, seed, wrap)
}

fn gateway_with<S: NodeStore + 'static>(
    params: Params,
    store: S,
    choice: Choice,
    seed: u64,
    wrap: impl FnOnce(InProcess<S>) -> Arc<dyn Host>,
) -> Gateway {
    let mut rng = SeededRng::new(seed);
    let keys = Keys::new(&Secret::random(&mut rng), &[7; 16]);
    let nonce = [3; 16];
    let shared = keys.shared(&params, choice);
    let (host, own) = InProcess::start(&shared, store, &nonce, &mut rng).unwrap();
    Gateway::open(params, &keys, choice, wrap(host), (&nonce, &own), None, Box::new(rng)).unwrap()
}

/// An empty tree of `blocks` blocks, in memory.
pub fn in_memory(blocks: u64, seed: u64) -> Gateway {
    let params = params(blocks);
    gateway_over(params, MemStore::new(params.geometry), Choice::Benes, seed)
}

/// A tree in memory, at the first of two hosts. It was written to before the second one was added.
pub fn two_hosts(blocks: u64, seed: u64) -> Gateway {
    let (mut rng, params) = (SeededRng::new(seed), params(blocks));
    let keys = Keys::new(&Secret::random(&mut rng), &[7; 16]);
    let shared = keys.shared(&params, Choice::Benes);
    let mut hosts = Vec::new();
    for own in [[1; 16], [2; 16]] {
        let store = MemStore::new(params.geometry);
        let (host, enclave) = InProcess::start(&shared, store, &own, &mut rng).unwrap();
        hosts.push(ConnectedHost { host: Arc::new(host), session: (own, enclave) });
    }
    let (hosts, rng) = ((hosts, None), Box::new(rng));
    let mut gateway =
        Gateway::open_divided(params, &keys, Choice::Benes, hosts, None, rng).unwrap();
    gateway.gather_at_first();
    for id in 0..blocks {
        gateway.put(id, &[1; BLOCK]).unwrap();
    }
    gateway
}

impl Gateway {
    /// All trees are at the first host, as if the second and later ones were new.
    pub fn gather_at_first(&mut self) {
        let (partitions, roots) = (self.links.len(), self.params().geometry.roots as usize);
        let (sequences, of_root) = (vec![0; partitions], vec![0; roots]);
        let divided = Record::Divide { sequences, of_root, failed: Vec::new() };
        self.log_and_apply(divided).unwrap();
        self.hosts.divide(self.state.partitions.of_roots());
    }
}

type Replies = Vec<Result<Vec<u8>>>;
type AtQueries = Box<dyn Fn(&dyn Host, &[QueryRequest]) -> Replies + Send + Sync>;
type AtCommits = Box<dyn Fn(&dyn Host, u64, &[NodeVersion]) -> Result + Send + Sync>;
type AtStages = Box<dyn Fn(&dyn Host, &Stage) -> Result<Vec<DamagedSlot>> + Send + Sync>;

/// A host with calls that a test replaces.
pub struct HookedHost {
    host: InProcess<MemStore>,
    at_queries: AtQueries,
    at_stages: AtStages,
    at_commits: AtCommits,
}

impl HookedHost {
    /// A host with all calls as they are.
    pub fn new(host: InProcess<MemStore>) -> Self {
        Self {
            host,
            at_queries: Box::new(|host, requests| host.query_many(requests)),
            at_stages: Box::new(|host, stage| host.stage(stage)),
            at_commits: Box::new(|host, sequence, versions| host.commit(sequence, versions)),
        }
    }

    /// Replaces queries, alone or together.
    pub fn at_queries(
        self,
        hook: impl Fn(&dyn Host, &[QueryRequest]) -> Replies + Send + Sync + 'static,
    ) -> Arc<dyn Host> {
        Arc::new(Self { at_queries: Box::new(hook), ..self })
    }

    /// Replaces stages.
    pub fn at_stages(
        self,
        hook: impl Fn(&dyn Host, &Stage) -> Result<Vec<DamagedSlot>> + Send + Sync + 'static,
    ) -> Arc<dyn Host> {
        Arc::new(Self { at_stages: Box::new(hook), ..self })
    }

    /// Replaces commits.
    pub fn at_commits(
        self,
        hook: impl Fn(&dyn Host, u64, &[NodeVersion]) -> Result + Send + Sync + 'static,
    ) -> Arc<dyn Host> {
        Arc::new(Self { at_commits: Box::new(hook), ..self })
    }
}

impl Host for HookedHost {
    fn query(&self, request: &QueryRequest) -> Result<Vec<u8>> {
        self.query_many(std::slice::from_ref(request)).pop().expect("one reply")
    }

    fn query_many(&self, requests: &[QueryRequest]) -> Replies {
        (self.at_queries)(&self.host, requests)
    }

    fn stage(&self, stage: &Stage) -> Result<Vec<DamagedSlot>> {
        (self.at_stages)(&self.host, stage)
    }

    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        (self.at_commits)(&self.host, sequence, versions)
    }

    fn sequence(&self) -> Result<u64> {
        self.host.sequence()
    }
}
