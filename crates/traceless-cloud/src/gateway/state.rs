//! The gateway's state, which only records change.

use super::cache::Cache;
use super::index::{BlockPlace, Index};
use super::lost_name::LostName;
use super::names::Names;
use super::partitions::{Partitions, Running, Work};
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
    /// How many commits of its partition preceded it. It reads the versions of that time.
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

    /// The record that saves it in a state with so many commits of its partition.
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
    /// The partitions of the tree, and the rounds that are in progress.
    pub partitions: Partitions,
    /// Queries since the last round began.
    pub queries: usize,
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
            partitions: Partitions::new(&params.geometry),
            queries: 0,
            pending: VecDeque::new(),
            names: Names::default(),
            lost: BTreeSet::new(),
        }
    }

    /// The partition of the tree with a leaf.
    pub fn partition_of_leaf(&self, leaf: u32) -> usize {
        self.partitions.of_root(self.params.geometry.root(leaf))
    }

    /// The partition of a node.
    pub fn partition_of_node(&self, node: Node) -> usize {
        self.partitions.of_root(self.params.geometry.root_of(node))
    }

    /// The partition of the round that begins next.
    pub fn next_partition(&self) -> usize {
        self.partition_of_leaf(self.params.geometry.evicted(self.partitions.next_round()))
    }

    /// The round, renewal or copy that is in progress in a partition.
    pub fn running(&self, partition: usize) -> Option<&Running> {
        self.partitions.get(partition).running.as_ref()
    }

    /// Whether a round, renewal or copy is in progress in any partition.
    pub fn is_any_running(&self) -> bool {
        self.partitions.running().next().is_some()
    }

    /// How many commits there were in the partition of a leaf.
    fn sequence_at(&self, leaf: u32) -> u64 {
        self.partitions.get(self.partition_of_leaf(leaf)).sequence
    }

    /// Whether a query without a reply reads versions that the last commit of its partition
    /// replaced. They are readable until the next commit there.
    pub fn has_old_pending(&self, partition: usize) -> bool {
        self.pending.iter().any(|pending| {
            self.partition_of_leaf(pending.query.leaf) == partition
                && pending.sequence < self.partitions.get(partition).sequence
        })
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
                return self.begin(attempt, seed, node.map(Node)).map(Some);
            }
            Record::Copy { partition, node, attempt } => {
                let version = self.version_to_copy(node, attempt)?;
                if self.partition_of_node(version.node) == partition as usize {
                    return Err(Error::State("the gateway's log"));
                }
                self.partitions.begin_copy(partition, version)?;
            }
            Record::Copied { nodes } => {
                for (node, attempt) in nodes {
                    let version = self.version_to_copy(node, attempt)?;
                    self.partitions.note_copy(version);
                }
            }
            Record::Commit { partition } => self.commit(partition)?,
            Record::Fail { partition } => self.fail(partition)?,
            Record::Divide { sequences, of_root, failed } => {
                self.partitions.restore(&sequences, of_root, &failed)?;
            }
            Record::Keep { partitions } => self.partitions.keep(partitions as usize)?,
            Record::Bind { namespace, name, object } => self.names.bind(namespace, name, object),
            Record::Unbind { namespace, name } => self.names.unbind(namespace, &name),
            Record::SetNote { namespace, name, note } => self.names.note(namespace, &name, note),
            Record::Join { upload, parts, name, note } => {
                self.names.join(&upload, &parts, name, note);
            }
            Record::Rename { namespace, from, to } => self.names.rename(namespace, &from, to),
            Record::Together { changes } => {
                for change in changes {
                    self.apply(change)?;
                }
            }
        }
        Ok(None)
    }

    fn version_to_copy(&self, node: u32, attempt: u64) -> Result<NodeVersion> {
        if node >= self.params.geometry.nodes() || attempt == 0 {
            return Err(Error::State("the gateway's log"));
        }
        Ok(NodeVersion { node: Node(node), attempt })
    }

    /// The versions of a tree's nodes that its new host lacks, in the order of the nodes.
    pub fn versions_to_copy(&self, root: usize) -> Vec<NodeVersion> {
        let g = &self.params.geometry;
        let version = |node| NodeVersion { node, attempt: self.index.attempt(node) };
        let is_missing =
            |version: &NodeVersion| version.attempt != 0 && !self.partitions.is_copied(*version);
        g.nodes_of(root).map(version).filter(is_missing).collect()
    }

    /// The blocks of a node's slots are lost, and the slots hold dummies.
    fn lose_slots(&mut self, node: Node, slots: &[u32]) -> Result {
        let is_known = node.0 < self.params.geometry.nodes();
        if !is_known || self.running(self.partition_of_node(node)).is_some() {
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
            for running in self.partitions.running_mut() {
                running.touched.insert(id);
            }
        }
        self.queries += 1;
        let sequence = self.sequence_at(leaf);
        let pending = Pending::new(query, sequence, id, target.is_some(), write);
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
        let round = self.partitions.round_at(g.root(leaf));
        Ok(Query { round, leaf, locations, target: target.unwrap_or_default() })
    }

    fn begin(&mut self, attempt: u64, seed: [u8; 32], node: Option<Node>) -> Result<RoundJob> {
        let wrong = Error::State("the gateway's log");
        let partition = match node {
            Some(node) if node.0 >= self.params.geometry.nodes() => return Err(wrong),
            Some(node) => self.partition_of_node(node),
            None => self.next_partition(),
        };
        if self.running(partition).is_some() {
            return Err(wrong);
        }
        let mut rng = SeededRng::drawn(&mut Seed(seed));
        let round = match node {
            Some(node) => self.partitions.round_at(self.params.geometry.root_of(node)),
            None => self.partitions.next_round(),
        };
        let (evictions, mut plans) = match node {
            Some(node) => (Vec::new(), vec![plan_node(&self.index, &self.params, node, &mut rng)]),
            None => self.plan(round, &mut rng),
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
        if node.is_none() {
            self.queries = self.queries.checked_sub(self.params.round_blocks).ok_or(wrong)?;
            self.partitions.begin_round();
        }
        let work = if node.is_none() { Work::Round(round) } else { Work::Renewal };
        let (begun, touched) = (self.partitions.begun(), HashSet::new());
        let partition = self.partitions.get_mut(partition);
        let running = Running { attempt, work, begun, evictions, plans, touched };
        partition.running = Some(running);
        let sequence = partition.sequence + 1;
        Ok(RoundJob { round, attempt, sequence, nodes, batch, zeroed: Vec::new() })
    }

    fn plan(&mut self, round: u64, rng: &mut dyn Rng) -> (Vec<EvictionEntry>, Vec<NodePlan>) {
        let g = &self.params.geometry;
        // Copies of all blocks are made now: when a block leaves the root depends on its leaf,
        // which a cache hit must not reveal.
        self.stash.fill_root(|id, bytes| self.cache.put(id, bytes));
        let tree = g.root(g.evicted(round));
        let count = room(&self.index, &self.params, round, self.stash.ready(tree));
        let evictions = self.stash.take_for_round(tree, count);
        let batch: Vec<MovingBlock> = evictions.iter().map(|entry| entry.block).collect();
        let plans = plan_round(&self.index, &self.params, round, &batch, rng);
        (evictions, plans)
    }

    /// The partition of a record, and what is in progress in it.
    fn take_running(&mut self, partition: u32) -> Result<(usize, Running)> {
        let partition = partition as usize;
        let is_known = partition < self.partitions.count();
        let running = is_known.then(|| self.partitions.get_mut(partition).running.take()).flatten();
        running.map(|running| (partition, running)).ok_or(Error::State("the gateway's log"))
    }

    fn commit(&mut self, partition: u32) -> Result {
        let (partition, running) = self.take_running(partition)?;
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
        self.partitions.get_mut(partition).sequence += 1;
        Ok(())
    }

    fn fail(&mut self, partition: u32) -> Result {
        let (_, running) = self.take_running(partition)?;
        self.stash.return_to_root(&running.evictions);
        if let Some(round) = running.round() {
            // The round is due again, under another attempt number.
            self.partitions.fail_round(round);
            self.queries += self.params.round_blocks;
        }
        Ok(())
    }

    /// Appends the whole state. No round may be in progress.
    pub fn save(&self, out: &mut Writer) {
        assert!(!self.is_any_running(), "rounds are finished first");
        out.u64(self.partitions.begun());
        out.u64(self.partitions.get(0).sequence);
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
        // Partitions and lost blocks come first, as records that a gateway without them refuses.
        let divided = (self.partitions.count() > 1).then(|| self.partitions.record());
        let kept = Some(Record::Keep { partitions: self.partitions.kept() as u32 });
        let kept = kept.filter(|_| self.partitions.kept() < self.partitions.count());
        let nodes = self.partitions.copied().map(|version| (version.node.0, version.attempt));
        let copied = Some(Record::Copied { nodes: nodes.collect() });
        let copied = copied.filter(|_| self.partitions.copied().next().is_some());
        let lost = Record::Lost { ids: self.lost.iter().copied().collect() };
        let lost = Some(lost).filter(|_| !self.lost.is_empty());
        let pending = self.pending.iter().map(|pending| {
            let sequence = self.sequence_at(pending.query.leaf);
            pending.saved(self.params.geometry.layers, sequence)
        });
        let records: Vec<Record> =
            [divided, kept, copied, lost].into_iter().flatten().chain(pending).collect();
        out.u32(records.len() as u32);
        for record in records {
            out.bytes(&record.encode());
        }
    }

    /// Restores a saved state.
    pub fn load(params: Params, from: &mut Reader<'_>) -> Result<Self> {
        let mut state = Self::new(params);
        state.partitions.set_begun(from.u64()?);
        state.partitions.get_mut(0).sequence = from.u64()?;
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
                    Pending::new(query, state.sequence_at(leaf), id, target.is_some(), write)
                }
                Record::OldQuery { round, leaf, locations, id, target, write } => {
                    let query = state.old_query(round, leaf, &locations, target)?;
                    let before = state.sequence_at(leaf).checked_sub(1);
                    let before = before.ok_or(Error::State(STATE))?;
                    Pending::new(query, before, id, target.is_some(), write)
                }
                other @ (Record::Lost { .. }
                | Record::Divide { .. }
                | Record::Keep { .. }
                | Record::Copied { .. }) => {
                    state.apply(other)?;
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
