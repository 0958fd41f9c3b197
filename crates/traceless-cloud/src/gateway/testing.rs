//! Gateways for tests.

use super::{Gateway, Keys};
use crate::error::Result;
use crate::host::{DamagedSlot, Host, InProcess, QueryRequest, Stage};
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
