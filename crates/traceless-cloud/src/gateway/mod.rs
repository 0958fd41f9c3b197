//! The trusted side: it knows where each block lies, and asks so that nobody learns it.
//!
//! A query reads one slot of each layer of one path: the block's in its layer, elsewhere a dummy
//! that was not read before. Its leaf was drawn after it was last asked for and is used once, and
//! no slot is read twice before its node is made anew. So what the host sees are random slots of a
//! random path, whatever is asked for. The block then waits here, and goes back into the tree with
//! a later round, on a path drawn anew.

mod index;
mod plan;
mod rounds;
#[cfg(test)]
mod tests;
mod waiting;

use crate::channel::{Nonce, Receiver, Sender};
use crate::enclave::Shared;
use crate::error::{Error, Result};
use crate::geometry::{LAYERS_MAX, Node};
use crate::host::{Ask, Host};
use crate::inner::Inner;
use crate::kernel::Choice;
use crate::orders::{Location, Query};
use crate::params::Params;
use crate::store::NodeVersion;
use index::{Index, Place};
use plan::{NodePlan, plan_node, plan_round, room};
use rounds::{Job, Maker, Worker};
use std::collections::HashSet;
use std::sync::Arc;
use traceless::rng::Rng;
use traceless::seal::Secret;
use waiting::{Leaving, Waiting};

/// Rounds' worth of blocks that may wait. Two are there as a rule.
const WAITING_ROUNDS_MAX: usize = 6;

/// The keys of a gateway.
pub struct Keys {
    inner: Secret,
    enclave: Secret,
}

impl Keys {
    /// The keys of one tree under the gateway's master key.
    pub fn new(master: &Secret, tree: &[u8; 16]) -> Self {
        let key = |name: &[u8]| master.derive(&[tree, b"cloud", name]);
        Self { inner: key(b"inner"), enclave: key(b"enclave") }
    }

    /// What the enclave is told.
    pub fn shared(&self, params: &Params, choice: Choice) -> Shared {
        Shared::new(params.geometry, choice, &self.enclave)
    }
}

/// What a gateway did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Queries sent.
    pub queries: u64,
    /// Blocks that were at hand, so that nothing was sent.
    pub hits: u64,
    /// Rounds committed.
    pub rounds: u64,
    /// Nodes made anew by themselves.
    pub renewed: u64,
    /// Times that a query waited for a round.
    pub waits: u64,
    /// Most blocks that waited at once.
    pub waiting_max: usize,
}

/// A store of blocks that are asked for by number.
pub struct Gateway {
    params: Params,
    index: Index,
    waiting: Waiting,
    host: Arc<dyn Host>,
    worker: Worker,
    inner: Inner,
    sender: Sender,
    receiver: Receiver,
    rng: Box<dyn Rng>,
    /// Rounds committed, and commits in all.
    round: u64,
    sequence: u64,
    /// Queries since the last round began.
    queries: usize,
    running: Option<Running>,
    pending: Option<Pending>,
    counts: Counts,
}

/// A round on its way.
struct Running {
    attempt: u64,
    leaving: Vec<Leaving>,
    plans: Vec<NodePlan>,
    /// Blocks that were asked for since it was planned: where it puts them is not where they are.
    touched: HashSet<u32>,
    staged: bool,
    /// Whether it is a round, or a node by itself.
    in_round: bool,
}

/// A query whose reply did not come. It is sent again as it was: another would tell that the block
/// is still wanted.
struct Pending {
    query: Query,
    id: Option<u32>,
    /// Whether it is in the tree, so that the reply holds it.
    real: bool,
    write: Option<Vec<u8>>,
}

impl Gateway {
    /// A gateway to an empty tree, in the session that `gateway` and `enclave` began.
    pub fn new(
        params: Params,
        keys: &Keys,
        choice: Choice,
        host: Arc<dyn Host>,
        (gateway, enclave): (&Nonce, &Nonce),
        rng: Box<dyn Rng>,
    ) -> Result<Self> {
        let shared = keys.shared(&params, choice);
        let session = shared.session(gateway, enclave);
        let at_host = host.sequence()?;
        if at_host != 0 {
            return Err(Error::RolledBack { host: at_host, gateway: 0 });
        }
        let maker = Maker::new(&shared, Inner::new(&keys.inner), &session);
        Ok(Self {
            params,
            index: Index::new(&params),
            waiting: Waiting::default(),
            worker: Worker::start(maker, host.clone()),
            host,
            inner: Inner::new(&keys.inner),
            sender: Sender::new(&session.query),
            receiver: Receiver::new(&session.reply),
            rng,
            round: 0,
            sequence: 0,
            queries: 0,
            running: None,
            pending: None,
            counts: Counts::default(),
        })
    }

    /// What it is made for.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// What it did.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes of its map of the tree.
    pub fn index_bytes(&self) -> usize {
        self.index.bytes()
    }

    /// Reads a block. What was never written is zeros.
    pub fn get(&mut self, id: u64) -> Result<Vec<u8>> {
        let id = self.check(id)?;
        self.access(id, None)?;
        Ok(self.waiting.get(id).expect("what was asked for is at hand").to_vec())
    }

    /// Writes a block.
    pub fn put(&mut self, id: u64, block: &[u8]) -> Result {
        let id = self.check(id)?;
        if block.len() != self.params.geometry.block_len {
            return Err(Error::Malformed("not the length of a block"));
        }
        self.access(id, Some(block.to_vec()))
    }

    /// Asks for nothing, which looks like any other query.
    pub fn dummy(&mut self) -> Result {
        self.settle()?;
        self.query(None, None)
    }

    fn check(&self, id: u64) -> Result<u32> {
        let blocks = self.params.blocks;
        if id >= blocks {
            return Err(Error::OutOfRange { id, blocks });
        }
        Ok(id as u32)
    }

    /// Brings a block to hand, and puts new bytes into it.
    fn access(&mut self, id: u32, write: Option<Vec<u8>>) -> Result {
        self.settle()?;
        if self.index.place(id) == Place::Gateway {
            self.counts.hits += 1;
            if let Some(bytes) = write {
                let leaf = self.draw_leaf();
                self.waiting.put(id, leaf, bytes);
            }
            return Ok(());
        }
        self.query(Some(id), write)
    }

    /// Sends a query for a block, or for none.
    fn query(&mut self, id: Option<u32>, write: Option<Vec<u8>>) -> Result {
        if self.queries == self.params.round_blocks {
            self.finish(true)?;
            self.begin_round();
        }
        let g = self.params.geometry;
        let known = match id.map(|id| self.index.place(id)) {
            Some(Place::Tree { leaf, .. }) => Some(leaf),
            _ => None,
        };
        let leaf = known.unwrap_or_else(|| self.draw_leaf());
        for layer in 0..g.layers {
            let node = g.node(layer, leaf);
            if self.index.reads(node) >= self.params.reads_max(layer) {
                self.renew(node)?;
            }
        }
        // Asked for only now: a round that committed meanwhile may have moved it.
        let place = id.map_or(Place::Nowhere, |id| self.index.place(id));
        let target = match place {
            Place::Tree { layer, slot, .. } => Some((layer, slot)),
            _ => None,
        };
        let mut locations = [Location::default(); LAYERS_MAX];
        for (layer, location) in locations.iter_mut().enumerate().take(g.layers) {
            let node = g.node(layer, leaf);
            let slot = match target {
                Some((at, slot)) if at == layer => slot,
                _ => self.index.dummy(node, &mut *self.rng),
            };
            self.index.take(node, slot);
            *location = Location { slot, attempt: self.index.attempt(node) };
        }
        let meant = target.map_or(0, |(layer, _)| layer as u32);
        let query = Query { round: self.round, leaf, locations, target: meant };
        if let Some(id) = id {
            self.index.set_place(id, Place::Gateway);
            if let Some(running) = &mut self.running {
                running.touched.insert(id);
            }
        }
        self.queries += 1;
        self.pending = Some(Pending { query, id, real: target.is_some(), write });
        self.send_pending()
    }

    /// Sends the query that has no reply yet.
    fn send_pending(&mut self) -> Result {
        let Some(Pending { query, id, real, .. }) = &self.pending else { return Ok(()) };
        let g = &self.params.geometry;
        let ask = Ask {
            leaf: query.leaf,
            locations: query.locations[..g.layers].to_vec(),
            order: self.sender.seal(&query.encode(g)),
        };
        let mut reply = self.host.query(&ask)?;
        let sealed = self.receiver.open(&mut reply)?;
        self.counts.queries += 1;
        let Some(id) = *id else {
            self.pending = None;
            return Ok(());
        };
        let block =
            if *real { self.inner.open(u64::from(id), sealed)? } else { vec![0; g.block_len] };
        let write = self.pending.take().and_then(|pending| pending.write);
        let leaf = self.draw_leaf();
        self.waiting.put(id, leaf, write.unwrap_or(block));
        self.counts.waiting_max = self.counts.waiting_max.max(self.waiting.len());
        Ok(())
    }

    /// Finishes what can be finished before anything new begins.
    fn settle(&mut self) -> Result {
        self.send_pending()?;
        self.finish(false)?;
        let limit = WAITING_ROUNDS_MAX * self.params.round_blocks;
        if self.waiting.len() > limit {
            return Err(Error::StashOverflow { blocks: self.waiting.len(), limit });
        }
        Ok(())
    }

    fn begin_round(&mut self) {
        let count = room(&self.index, &self.params, self.round, self.waiting.ready());
        let leaving = self.waiting.leave(count);
        let batch: Vec<plan::Moving> = leaving.iter().map(|one| one.block).collect();
        let plans = plan_round(&self.index, &self.params, self.round, &batch, &mut *self.rng);
        let bytes = |one: &plan::Moving| {
            (one.id, self.waiting.get(one.id).expect("what leaves is here").to_vec())
        };
        let blocks = batch.iter().map(bytes).collect();
        self.begin(plans, leaving, Some(blocks));
        self.queries = 0;
    }

    fn begin(
        &mut self,
        mut plans: Vec<NodePlan>,
        leaving: Vec<Leaving>,
        batch: Option<Vec<(u32, Vec<u8>)>>,
    ) {
        // Zero stands for a node that was never written.
        let attempt = self.rng.next_u64().max(1);
        let nodes = plans
            .iter_mut()
            .map(|plan| {
                let dest = core::mem::take(&mut plan.dest);
                (plan.node, self.index.attempt(plan.node), dest)
            })
            .collect();
        let in_round = batch.is_some();
        self.worker.begin(Job { round: self.round, attempt, nodes, batch });
        let touched = HashSet::new();
        self.running = Some(Running { attempt, leaving, plans, touched, staged: false, in_round });
    }

    /// Commits the round on its way, if it is ready or `wait` is asked for.
    fn finish(&mut self, wait: bool) -> Result {
        let Some(running) = &mut self.running else { return Ok(()) };
        if !running.staged {
            let ready = self.worker.result(false);
            if ready.is_none() && wait {
                self.counts.waits += 1;
            }
            match ready.or_else(|| self.worker.result(wait)) {
                None => return Ok(()),
                Some(Ok(())) => running.staged = true,
                Some(Err(error)) => {
                    let running = self.running.take().expect("looked at above");
                    self.waiting.stay(&running.leaving);
                    if running.in_round {
                        // It is due again, under another random number.
                        self.queries = self.params.round_blocks;
                    }
                    return Err(error);
                }
            }
        }
        self.commit()
    }

    /// Commits what is staged. Where a commit failed nobody knows whether it happened, so the host
    /// is asked, and its answer is proved by the versions that it then has.
    fn commit(&mut self) -> Result {
        let Some(running) = &self.running else { return Ok(()) };
        let at_host = self.host.sequence()?;
        if at_host == self.sequence {
            let attempt = running.attempt;
            let version = |plan: &NodePlan| NodeVersion { node: plan.node, attempt };
            let versions: Vec<NodeVersion> = running.plans.iter().map(version).collect();
            self.host.commit(self.sequence + 1, &versions)?;
        } else if at_host != self.sequence + 1 {
            return Err(Error::RolledBack { host: at_host, gateway: self.sequence });
        }
        let running = self.running.take().expect("looked at above");
        self.apply(running);
        Ok(())
    }

    fn apply(&mut self, running: Running) {
        let g = self.params.geometry;
        self.sequence += 1;
        let unchanged: HashSet<u32> = running
            .leaving
            .iter()
            .filter(|one| self.waiting.forget(one))
            .map(|one| one.block.id)
            .collect();
        let came: HashSet<u32> = running.leaving.iter().map(|one| one.block.id).collect();
        for plan in running.plans {
            let layer = g.layer_of(plan.node);
            let holds = |id: &u32| {
                let touched = running.touched.contains(id);
                if came.contains(id) { unchanged.contains(id) } else { !touched }
            };
            let mut blocks = Vec::with_capacity(plan.blocks.len());
            for (slot, block) in plan.blocks.iter().filter(|(_, block)| holds(&block.id)) {
                blocks.push((*slot, block.id));
                let place = Place::Tree { leaf: block.leaf, layer, slot: *slot };
                self.index.set_place(block.id, place);
            }
            self.index.renew(plan.node, running.attempt, &blocks);
        }
        if running.in_round {
            self.round += 1;
            self.counts.rounds += 1;
        } else {
            self.counts.renewed += 1;
        }
    }

    /// Makes a node anew that was read as often as it has dummies. When that is follows from what
    /// the host has seen.
    fn renew(&mut self, node: Node) -> Result {
        self.finish(true)?;
        let layer = self.params.geometry.layer_of(node);
        if self.index.reads(node) < self.params.reads_max(layer) {
            return Ok(());
        }
        let plan = plan_node(&self.index, &self.params, node, &mut *self.rng);
        self.begin(vec![plan], Vec::new(), None);
        self.finish(true)
    }

    fn draw_leaf(&mut self) -> u32 {
        self.rng.below(u64::from(self.params.geometry.leaves())) as u32
    }
}
