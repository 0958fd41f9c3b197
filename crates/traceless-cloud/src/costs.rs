//! What a tree costs: the bytes that queries and rounds move, and the gateway's memory.
//!
//! All of it follows from the tree's parameters, and is public. A constant rate of queries is a
//! constant rate of bytes:
//!
//! ```
//! use traceless_cloud::costs::Costs;
//! use traceless_cloud::kernel::Choice;
//! use traceless_cloud::params::Params;
//!
//! # fn main() -> traceless_cloud::Result {
//! let params = Params::new(1 << 20, 1024, 32)?;
//! let costs = Costs::of(&params, Choice::Benes);
//! assert_eq!(costs.query_reads, (params.geometry.layers * params.geometry.slot_len()) as u64);
//! // A query carries little more than its block; a round is due after `round_blocks` queries.
//! assert!((1024..2048).contains(&costs.query_messages));
//! let bytes = 500.0 * costs.messages_per_query(&params);
//! println!("500 queries a second are {:.1} MB/s", bytes / 1e6);
//! # Ok(())
//! # }
//! ```

use crate::channel::OVERHEAD;
use crate::enclave::REPLY_HEAD_LEN;
use crate::enclave_orders::{Eviction, Location, Query};
use crate::gateway::index_bytes;
use crate::geometry::{Geometry, LAYERS_MAX, Node};
use crate::host::{QueryRequest, Stage};
use crate::kernel::{Choice, Network};
use crate::params::Params;
use crate::store::NodeVersion;
use crate::wire::message;

/// The costs of a tree. Messages are counted without TLS, and without acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Bytes of the tree at the host, without the spare places of a round.
    pub tree: u64,
    /// Bytes of memory for the gateway's map and the blocks that wait at the gateway, at most.
    pub gateway_memory: u64,
    /// Bytes of a query and its reply, between gateway and host.
    pub query_messages: u64,
    /// Bytes that the host reads from its store for a query.
    pub query_reads: u64,
    /// Bytes that the gateway sends for a round.
    pub round_messages: u64,
    /// Bytes that the host reads and writes in its store for a round.
    pub round_transfers: u64,
}

impl Costs {
    /// The costs of a tree with the kernel `choice` in its enclave.
    pub fn of(params: &Params, choice: Choice) -> Self {
        let g = &params.geometry;
        let path: usize = (0..g.layers).map(|layer| g.node_len(layer)).sum();
        Self {
            tree: g.tree_len(),
            gateway_memory: index_bytes(params) + (params.stash_max() * g.block_len) as u64,
            query_messages: query_messages(g) as u64,
            query_reads: (g.layers * g.slot_len()) as u64,
            round_messages: round_messages(g, choice) as u64,
            round_transfers: 2 * path as u64,
        }
    }

    /// Bytes of messages for each query, with its share of a round.
    pub fn messages_per_query(&self, params: &Params) -> f64 {
        self.query_messages as f64 + self.round_messages as f64 / params.round_blocks as f64
    }

    /// Bytes that the host reads and writes for each query, with its share of a round.
    pub fn transfers_per_query(&self, params: &Params) -> f64 {
        self.query_reads as f64 + self.round_transfers as f64 / params.round_blocks as f64
    }
}

/// Bytes of a query that is sent alone, and of its reply.
fn query_messages(g: &Geometry) -> usize {
    let locations = [Location::default(); LAYERS_MAX];
    let order = Query { round: 0, leaf: 0, locations, target: 0 }.encode(g).len() + OVERHEAD;
    let locations = locations[..g.layers].to_vec();
    let request = QueryRequest { leaf: 0, locations, order: vec![0; order] };
    let reply = vec![0; g.sealed_len() + REPLY_HEAD_LEN + OVERHEAD];
    message::queries(&[request]).len() + message::replies([Ok(reply)].into_iter()).len()
}

/// Bytes of the messages that stage and commit a round.
fn round_messages(g: &Geometry, choice: Choice) -> usize {
    let order = |layer| {
        let control = vec![0; control_len(g, layer, choice)];
        let node = g.node(layer, 0);
        let (round, in_round, before, attempt, zeroed) = (0, true, 0, 0, Vec::new());
        let order = Eviction { round, node, in_round, before, attempt, zeroed, control };
        vec![0; order.encode().len() + OVERHEAD]
    };
    let version = NodeVersion { node: Node(0), attempt: 0 };
    let stage = Stage {
        nodes: vec![version; g.layers],
        attempt: 0,
        batch: vec![0; g.round_slots * g.slot_len()],
        orders: (0..g.layers).map(order).collect(),
    };
    message::stage(&stage).len() + message::commit(0, &stage.versions()).len()
}

/// Bytes that say where the rows of a layer's node go, and the rows that come in with a round.
fn control_len(g: &Geometry, layer: usize, choice: Choice) -> usize {
    let rows = g.slots(layer) + g.round_slots;
    match choice {
        Choice::Benes => Network::new(rows).control_len(),
        Choice::Paper => rows * size_of::<u16>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;
    use crate::gateway::{Gateway, Keys};
    use crate::host::{DamagedSlot, Host, InProcess};
    use crate::params::ARITY;
    use crate::store::MemStore;
    use std::sync::{Arc, Mutex};
    use traceless_core::rng::SeededRng;
    use traceless_core::seal::Secret;

    /// A host that counts the bytes of messages, as they would be sent: of each query with its
    /// reply, and of each stage and commit.
    struct CountingHost {
        host: InProcess<MemStore>,
        queries: Mutex<Vec<usize>>,
        rounds: Mutex<Vec<[usize; 2]>>,
    }

    impl Host for CountingHost {
        fn query(&self, request: &QueryRequest) -> Result<Vec<u8>> {
            let reply = self.host.query(request)?;
            let sent = message::queries(std::slice::from_ref(request)).len();
            let answered = message::replies([Ok(reply.clone())].into_iter()).len();
            self.queries.lock().unwrap().push(sent + answered);
            Ok(reply)
        }

        fn stage(&self, stage: &Stage) -> Result<Vec<DamagedSlot>> {
            self.rounds.lock().unwrap().push([message::stage(stage).len(), 0]);
            self.host.stage(stage)
        }

        fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
            let len = message::commit(sequence, versions).len();
            self.rounds.lock().unwrap().last_mut().unwrap()[1] = len;
            self.host.commit(sequence, versions)
        }

        fn sequence(&self) -> Result<u64> {
            self.host.sequence()
        }
    }

    #[test]
    fn costs_are_what_a_gateway_sends_and_keeps() {
        for (choice, blocks, block_len) in
            [(Choice::Benes, 3000, 64), (Choice::Benes, 500, 4096), (Choice::Paper, 3000, 64)]
        {
            let params = Params::for_kernel(choice, ARITY, blocks, block_len, 4).unwrap();
            let costs = Costs::of(&params, choice);
            let mut rng = SeededRng::new(9);
            let keys = Keys::new(&Secret::random(&mut rng), &[7; 16]);
            let (shared, nonce) = (keys.shared(&params, choice), [3; 16]);
            let store = MemStore::new(params.geometry);
            let (host, own) = InProcess::start(&shared, store, &nonce, &mut rng).unwrap();
            let (queries, rounds) = (Mutex::default(), Mutex::default());
            let host = Arc::new(CountingHost { host, queries, rounds });
            let (session, rng) = ((&nonce, &own), Box::new(rng));
            let mut gateway =
                Gateway::open(params, &keys, choice, host.clone(), session, None, rng).unwrap();
            for id in 0..blocks / 2 {
                gateway.put(id, &vec![1; block_len]).unwrap();
            }
            gateway.save().unwrap();
            let queries = host.queries.lock().unwrap();
            assert!(queries.len() >= 200 && queries.iter().all(|len| *len == queries[0]));
            assert_eq!(queries[0] as u64, costs.query_messages, "{choice:?} {block_len}");
            let rounds = host.rounds.lock().unwrap();
            assert!(rounds.len() >= 2, "{}", rounds.len());
            for [stage, commit] in &*rounds {
                assert_eq!((stage + commit) as u64, costs.round_messages, "{choice:?} {block_len}");
            }
            let waiting = (params.stash_max() * block_len) as u64;
            assert_eq!(costs.gateway_memory, gateway.index_bytes() as u64 + waiting);
        }
    }

    #[test]
    fn a_query_pays_its_share_of_a_round() {
        let params = Params::new(1 << 20, 1024, 32).unwrap();
        let costs = Costs::of(&params, Choice::Benes);
        let share = costs.messages_per_query(&params) - costs.query_messages as f64;
        assert!((share * params.round_blocks as f64 - costs.round_messages as f64).abs() < 1.0);
        assert!(costs.transfers_per_query(&params) > costs.query_reads as f64);
    }
}
