//! The gateway's state, which only records change.

use super::cache::Cache;
use super::index::{BlockPlace, Index};
use super::lost_name::LostName;
use super::names::Names;
use super::plan::{MovingBlock, NodePlan, plan_node, plan_round, room};
use super::record::{Record, STATE};
use super::rounds::RoundJob;
use super::stash::{EvictionEntry, Stash};
use crate::codec::{Reader, Writer};
use crate::enclave::QueryReply;
use crate::enclave_orders::{Location, Query};
use crate::error::{Error, Result};
use crate::geometry::{LAYERS_MAX, Node};
use crate::params::Params;
use crate::store::NodeVersion;
use std::collections::{BTreeSet, HashSet, VecDeque};
use traceless_core::rng::{Rng, SeededRng};

/// A round or renewal that is in progress.
pub struct Running {
    attempt: u64,
    in_round: bool,
    evictions: Vec<EvictionEntry>,
    plans: Vec<NodePlan>,
    /// Blocks accessed since the plan was made: the places in the plan are wrong for them.
    touched: HashSet<u32>,
}

impl Running {
    /// Whether this is a round, not the renewal of one node.
    pub fn is_round(&self) -> bool {
        self.in_round
    }

    /// Its nodes.
    pub fn nodes(&self) -> Vec<Node> {
        self.plans.iter().map(|plan| plan.node).collect()
    }

    /// The versions that it creates.
    pub fn versions(&self) -> Vec<NodeVersion> {
        let version = |plan: &NodePlan| NodeVersion { node: plan.node, attempt: self.attempt };
        self.plans.iter().map(version).collect()
    }
}

/// A query without a reply. It is sent again unchanged: a different query would reveal that the
/// block is still wanted.
#[derive(Clone)]
pub struct Pending {
    /// The query as it is sent.
    pub query: Query,
    /// The block; `None` for a dummy query.
    pub id: Option<u32>,
    /// Whether the block is in the tree, so that the reply holds it.
    pub real: bool,
    /// The block's new content, for a write.
    pub write: Option<Vec<u8>>,
    /// The layers with damaged slots in the last reply, a bit each. The query is sent again: a disk
    /// or a line may have failed for a moment. The host can know the layers, too.
    pub damage: Option<u16>,
    /// How often the replies one after the other reported other damage.
    pub tries: u8,
    /// The number of the order that it was last sent with.
    pub order: u64,
    /// How many commits preceded it. It reads the versions of that time.
    pub sequence: u64,
    /// The batch of queries that it is sent with first; 0 for one of an earlier process.
    pub batch: u64,
    /// For a read: its number among the reads of its batch.
    pub read: usize,
}

impl Pending {
    fn new(
        query: Query,
        sequence: u64,
        id: Option<u32>,
        real: bool,
        write: Option<Vec<u8>>,
    ) -> Self {
        Self {
            query,
            id,
            real,
            write,
            damage: None,
            tries: 0,
            order: 0,
            sequence,
            batch: 0,
            read: 0,
        }
    }

    /// The record that saves it in a state with so many commits.
    pub fn saved(&self, layers: usize, sequence: u64) -> Record {
        let Self { query, id, real, write, .. } = self;
        let locations = query.locations[..layers].iter();
        let target = real.then_some(query.target);
        let (leaf, id, write) = (query.leaf, *id, write.clone());
        if self.sequence == sequence {
            let slots = locations.map(|location| location.slot).collect();
            Record::Query { leaf, slots, id, target, write }
        } else {
            let (round, locations) = (query.round, locations.copied().collect());
            Record::OldQuery { round, leaf, locations, id, target, write }
        }
    }

    /// Fails unless this is the reply to the query as it was last sent.
    pub fn check_order(&self, reply: &QueryReply<'_>) -> Result {
        if reply.order == self.order { Ok(()) } else { Err(Error::Unauthentic) }
    }
}

/// The state that must outlive a gateway's process, and the cache.
pub struct State {
    /// The parameters of the tree.
    pub params: Params,
    /// The map of the tree.
    pub index: Index,
    /// Blocks that wait at the gateway.
    pub stash: Stash,
    /// Copies of blocks that are in the tree. They are not saved.
    pub cache: Cache,
    /// How many rounds were committed.
    pub round: u64,
    /// How many commits there were, of rounds and of renewals.
    pub sequence: u64,
    /// Queries since the last round began.
    pub queries: usize,
    /// The round or renewal in progress.
    pub running: Option<Running>,
    /// Queries without a reply, in order.
    pub pending: VecDeque<Pending>,
    /// The map from names to objects.
    pub names: Names,
    /// Blocks that were lost with damaged slots, until they are written again. They are nowhere.
    pub lost: BTreeSet<u32>,
}

impl State {
    /// The state of a tree that was never written to.
    pub fn new(params: Params) -> Self {
        Self {
            params,
            index: Index::new(&params),
            stash: Stash::new(params.geometry.roots),
            cache: Cache::default(),
            round: 0,
            sequence: 0,
            queries: 0,
            running: None,
            pending: VecDeque::new(),
            names: Names::default(),
            lost: BTreeSet::new(),
        }
    }

    /// Whether a query without a reply reads versions that the last commit replaced. They are
    /// readable until the next commit.
    pub fn has_old_pending(&self) -> bool {
        self.pending.iter().any(|pending| pending.sequence < self.sequence)
    }

    /// Whether a query for a block has no reply yet.
    pub fn is_pending(&self, id: u32) -> bool {
        self.pending.iter().any(|pending| pending.id == Some(id))
    }

    /// Applies a record. If it begins a round or a renewal, returns the job.
    pub fn apply(&mut self, record: Record) -> Result<Option<RoundJob>> {
        match record {
            Record::Query { leaf, slots, id, target, write } => {
                self.apply_query(leaf, &slots, id, target, write)?;
            }
            Record::Stash { id, leaf, bytes } => {
                if self.pending.front().is_some_and(|pending| pending.id == Some(id)) {
                    self.pending.pop_front();
                }
                self.lost.remove(&id);
                self.stash.put(id, leaf, bytes);
            }
            Record::StashWrite { leaf } => {
                let pending = self.pending.pop_front();
                let pending = pending.and_then(|pending| pending.id.zip(pending.write));
                let (id, bytes) = pending.ok_or(Error::State("the gateway's log"))?;
                self.lost.remove(&id);
                self.stash.put(id, leaf, bytes);
            }
            Record::Damage { node, slots } => self.lose_slots(Node(node), &slots)?,
            Record::EndLost => {
                let id = self.pending.pop_front().and_then(|pending| pending.id);
                self.lose(id.ok_or(Error::State("the gateway's log"))?)?;
            }
            Record::Lost { ids } => ids.into_iter().try_for_each(|id| self.lose(id))?,
            Record::OldQuery { .. } => return Err(Error::State("the gateway's log")),
            Record::EndDummy => {
                self.pending.pop_front();
            }
            Record::Begin { attempt, seed, node } => {
                return Ok(Some(self.begin(attempt, seed, node.map(Node))));
            }
            Record::Commit => self.commit()?,
            Record::Fail => self.fail(),
            Record::Bind { namespace, name, object } => self.names.bind(namespace, name, object),
            Record::Unbind { namespace, name } => self.names.unbind(namespace, &name),
            Record::SetNote { namespace, name, note } => self.names.note(namespace, &name, note),
            Record::Join { upload, parts, name, note } => {
                self.names.join(&upload, &parts, name, note);
            }
        }
        Ok(None)
    }

    /// The blocks of a node's slots are lost, and the slots hold dummies.
    fn lose_slots(&mut self, node: Node, slots: &[u32]) -> Result {
        if node.0 >= self.params.geometry.nodes() || self.running.is_some() {
            return Err(Error::State("the gateway's log"));
        }
        let damaged = |(slot, _): &(u32, u32)| slots.contains(slot);
        let blocks: Vec<(u32, u32)> = self.index.blocks_of(node).filter(damaged).collect();
        for (slot, id) in blocks {
            self.index.clear(node, slot);
            self.lose(id)?;
        }
        Ok(())
    }

    /// Names with lost blocks, in order.
    pub fn lost_names(&self) -> Vec<LostName> {
        if self.lost.is_empty() {
            return Vec::new();
        }
        let names = self.names.with_any_of(&self.lost).into_iter();
        names.map(|(namespace, name, blocks)| LostName { namespace, name, blocks }).collect()
    }

    fn lose(&mut self, id: u32) -> Result {
        if u64::from(id) >= self.params.blocks {
            return Err(Error::State("the gateway's log"));
        }
        self.index.set_place(id, BlockPlace::Nowhere);
        self.cache.remove(id);
        self.lost.insert(id);
        Ok(())
    }

    fn apply_query(
        &mut self,
        leaf: u32,
        slots: &[u32],
        id: Option<u32>,
        target: Option<u32>,
        write: Option<Vec<u8>>,
    ) -> Result {
        let query = self.query_at(leaf, slots, target)?;
        for (layer, &slot) in slots.iter().enumerate() {
            self.index.take(self.params.geometry.node(layer, leaf), slot);
        }
        if let Some(id) = id {
            self.index.set_place(id, BlockPlace::Gateway);
            self.cache.remove(id);
            if let Some(running) = &mut self.running {
                running.touched.insert(id);
            }
        }
        self.queries += 1;
        let pending = Pending::new(query, self.sequence, id, target.is_some(), write);
        self.pending.push_back(pending);
        Ok(())
    }

    /// The query of these slots of the current versions.
    fn query_at(&self, leaf: u32, slots: &[u32], target: Option<u32>) -> Result<Query> {
        let g = &self.params.geometry;
        let fits = |(layer, slot): (usize, &u32)| (*slot as usize) < g.slots(layer);
        if slots.len() != g.layers || leaf >= g.leaves() || !slots.iter().enumerate().all(fits) {
            return Err(Error::State("the gateway's log"));
        }
        let mut locations = [Location::default(); LAYERS_MAX];
        for (layer, (location, &slot)) in locations.iter_mut().zip(slots).enumerate() {
            *location = Location { slot, attempt: self.index.attempt(g.node(layer, leaf)) };
        }
        Ok(Query { round: self.round, leaf, locations, target: target.unwrap_or_default() })
    }

    fn begin(&mut self, attempt: u64, seed: [u8; 32], node: Option<Node>) -> RoundJob {
        let mut rng = SeededRng::drawn(&mut Seed(seed));
        let (evictions, mut plans) = match node {
            Some(node) => (Vec::new(), vec![plan_node(&self.index, &self.params, node, &mut rng)]),
            None => self.plan(&mut rng),
        };
        let bytes = |entry: &EvictionEntry| {
            let id = entry.block.id;
            (id, self.stash.get(id).expect("what leaves is here").to_vec())
        };
        let batch = node.is_none().then(|| evictions.iter().map(bytes).collect());
        let rows = |plan: &mut NodePlan| {
            let dest = core::mem::take(&mut plan.dest);
            (plan.node, self.index.attempt(plan.node), dest)
        };
        let nodes = plans.iter_mut().map(rows).collect();
        let in_round = node.is_none();
        if in_round {
            self.queries -= self.params.round_blocks;
        }
        let touched = HashSet::new();
        self.running = Some(Running { attempt, in_round, evictions, plans, touched });
        let (round, sequence) = (self.round, self.sequence + 1);
        RoundJob { round, attempt, sequence, nodes, batch, zeroed: Vec::new() }
    }

    fn plan(&mut self, rng: &mut dyn Rng) -> (Vec<EvictionEntry>, Vec<NodePlan>) {
        let g = &self.params.geometry;
        // Copies of all blocks are made now: when a block leaves the root depends on its leaf,
        // which a cache hit must not reveal.
        self.stash.fill_root(|id, bytes| self.cache.put(id, bytes));
        let tree = g.root(g.evicted(self.round));
        let count = room(&self.index, &self.params, self.round, self.stash.ready(tree));
        let evictions = self.stash.take_for_round(tree, count);
        let batch: Vec<MovingBlock> = evictions.iter().map(|entry| entry.block).collect();
        let plans = plan_round(&self.index, &self.params, self.round, &batch, rng);
        (evictions, plans)
    }

    fn commit(&mut self) -> Result {
        let running = self.running.take().ok_or(Error::State("the gateway's log"))?;
        let from_stash: HashSet<u32> =
            running.evictions.iter().map(|entry| entry.block.id).collect();
        let mut unchanged = HashSet::new();
        // The bytes of these blocks are the answer to a query without a reply.
        let (wanted, evicted): (Vec<EvictionEntry>, Vec<EvictionEntry>) =
            running.evictions.iter().partition(|entry| self.is_pending(entry.block.id));
        self.stash.return_to_root(&wanted);
        for entry in evicted {
            if self.stash.remove_committed(&entry) {
                unchanged.insert(entry.block.id);
            }
        }
        for plan in &running.plans {
            let layer = self.params.geometry.layer_of(plan.node);
            let is_in_node = |id: &u32| {
                let touched = running.touched.contains(id);
                if from_stash.contains(id) { unchanged.contains(id) } else { !touched }
            };
            let mut blocks = Vec::with_capacity(plan.blocks.len());
            for &(slot, MovingBlock { id, leaf }) in &plan.blocks {
                if is_in_node(&id) {
                    blocks.push((slot, id));
                    self.index.set_place(id, BlockPlace::Tree { leaf, layer, slot });
                }
            }
            self.index.renew(plan.node, running.attempt, &blocks);
        }
        self.sequence += 1;
        self.round += u64::from(running.in_round);
        Ok(())
    }

    fn fail(&mut self) {
        if let Some(running) = self.running.take() {
            self.stash.return_to_root(&running.evictions);
            if running.in_round {
                // The round is due again, under another attempt number.
                self.queries += self.params.round_blocks;
            }
        }
    }

    /// Appends the whole state. No round may be in progress.
    pub fn save(&self, out: &mut Writer) {
        assert!(self.running.is_none(), "a round is finished first");
        out.u64(self.round);
        out.u64(self.sequence);
        out.u64(self.queries as u64);
        self.index.save(out);
        for blocks in self.stash.in_order() {
            out.u64(blocks.len() as u64);
            for (id, leaf, bytes) in blocks {
                out.u32(id);
                out.u32(leaf);
                out.bytes(bytes);
            }
        }
        self.names.save(out);
        // Lost blocks come first, as a record that a gateway without them refuses.
        let lost = Record::Lost { ids: self.lost.iter().copied().collect() };
        let lost = Some(lost).filter(|_| !self.lost.is_empty());
        out.u32((self.pending.len() + usize::from(lost.is_some())) as u32);
        if let Some(lost) = lost {
            out.bytes(&lost.encode());
        }
        for pending in &self.pending {
            out.bytes(&pending.saved(self.params.geometry.layers, self.sequence).encode());
        }
    }

    /// Restores a saved state.
    pub fn load(params: Params, from: &mut Reader<'_>) -> Result<Self> {
        let mut state = Self::new(params);
        (state.round, state.sequence) = (from.u64()?, from.u64()?);
        state.queries = from.u64()? as usize;
        state.index.load(from)?;
        for is_root in [true, false] {
            for _ in 0..from.u64()? {
                let (id, leaf) = (from.u32()?, from.u32()?);
                state.stash.put(id, leaf, from.bytes(params.geometry.block_len)?.to_vec());
            }
            if is_root {
                state.stash.fill_root(|_, _| ());
            }
        }
        state.names.load(from)?;
        for _ in 0..from.u32()? {
            // The slots of queries were marked as read before the save.
            let pending = match Record::decode(from)? {
                Record::Query { leaf, slots, id, target, write } => {
                    let query = state.query_at(leaf, &slots, target)?;
                    Pending::new(query, state.sequence, id, target.is_some(), write)
                }
                Record::OldQuery { round, leaf, locations, id, target, write } => {
                    let query = state.old_query(round, leaf, &locations, target)?;
                    let before = state.sequence.checked_sub(1).ok_or(Error::State(STATE))?;
                    Pending::new(query, before, id, target.is_some(), write)
                }
                lost @ Record::Lost { .. } => {
                    state.apply(lost)?;
                    continue;
                }
                _ => return Err(Error::State(STATE)),
            };
            if let Some(id) = pending.id {
                // It may be lost, too.
                state.index.set_place(id, BlockPlace::Gateway);
            }
            state.pending.push_back(pending);
        }
        Ok(state)
    }

    /// The query of these slots of versions that were current in an earlier round.
    fn old_query(
        &self,
        round: u64,
        leaf: u32,
        old: &[Location],
        target: Option<u32>,
    ) -> Result<Query> {
        let slots: Vec<u32> = old.iter().map(|location| location.slot).collect();
        let mut query = self.query_at(leaf, &slots, target)?;
        query.round = round;
        query.locations[..old.len()].copy_from_slice(old);
        Ok(query)
    }
}

/// A seed of 32 bytes, used as the source of one draw.
struct Seed([u8; 32]);

impl Rng for Seed {
    fn fill(&mut self, out: &mut [u8]) {
        out.copy_from_slice(&self.0);
    }
}
