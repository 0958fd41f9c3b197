//! Access to blocks, by queries that are sent together.
//!
//! Queries that are sent together are first written to the journal together: with one write and, if
//! answers must survive a power loss, one wait for the disk. The host observes the same queries as
//! if they were sent one by one.

use super::index::BlockPlace;
use super::lost_block::{BlockRead, LostBlock};
use super::query_pacing;
use super::record::Record;
use super::rounds::Wait;
use super::sessions::SESSIONS_MAX;
use super::state::{Pending, State};
use super::{Gateway, Journal};
use crate::enclave::QueryReply;
use crate::enclave_orders::Query;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::host::QueryRequest;
use core::time::Duration;
use traceless_core::trace::Op;

/// Most queries that are sent together. It must be less than the receiver's window.
pub const TOGETHER_MAX: usize = 64;

/// What a query has read.
pub struct Answer {
    /// The batch of the query.
    pub batch: u64,
    /// The place among the reads of the batch.
    pub place: usize,
    /// What was read.
    pub read: BlockRead,
}

/// Whether a query was prepared, or waits until no batch is under way.
#[derive(PartialEq, Eq, Debug)]
pub enum Preparation {
    Done,
    MustWait,
}

/// So often a query is sent if each reply reports another damage. A store with a second copy reads
/// the slots in another way each time.
const TRIES_MAX: u8 = 5;

/// The error about the first damaged slot of a query.
fn tampered(g: &Geometry, query: &Query, damaged: u16) -> Error {
    let layer = damaged.trailing_zeros() as usize;
    Error::Tampered { node: g.node(layer, query.leaf).0, slot: query.locations[layer].slot }
}

/// An access to a block.
#[derive(Clone)]
pub enum Access {
    /// Read the block.
    Read(u32),
    /// Write these bytes to the block.
    Write(u32, Vec<u8>),
    /// A dummy access, to no block.
    Dummy,
}

impl Access {
    /// The block; `None` for a dummy access.
    pub fn id(&self) -> Option<u32> {
        match self {
            Self::Read(id) | Self::Write(id, _) => Some(*id),
            Self::Dummy => None,
        }
    }

    fn operation(&self) -> Option<(Op, u32)> {
        match self {
            Self::Read(id) => Some((Op::Read, *id)),
            Self::Write(id, _) => Some((Op::Write, *id)),
            Self::Dummy => None,
        }
    }
}

impl Gateway {
    /// Makes all accesses, in order, and returns what was read, in order. A lost block is an error
    /// in its place, and all other accesses are made.
    pub(super) fn access(&mut self, accesses: &[Access]) -> Result<Vec<BlockRead>> {
        self.observe_accesses(accesses);
        let read = self.access_now(accesses)?;
        self.write_answers()?;
        Ok(read)
    }

    pub(crate) fn observe_accesses(&self, accesses: &[Access]) {
        if let Some(observer) = &self.observer {
            let len = self.state.params.geometry.block_len;
            for (op, id) in accesses.iter().filter_map(Access::operation) {
                observer(op, u64::from(id) * len as u64, len as u32);
            }
        }
    }

    pub(super) fn access_now(&mut self, accesses: &[Access]) -> Result<Vec<BlockRead>> {
        if self.constant_rate.is_some() {
            return self.access_in_ticks(accesses);
        }
        let mut read = Vec::new();
        for accesses in accesses.chunks(TOGETHER_MAX) {
            let prepared = self.prepare_together(accesses)?;
            self.send_pending()?;
            read.extend(self.take_answers(prepared));
        }
        Ok(read)
    }

    /// The messages of the first queries without a reply that `is_sent` selects, after their
    /// records are written.
    pub(super) fn requests_to_send(
        &mut self,
        is_sent: impl Fn(&Pending) -> bool,
    ) -> Result<Vec<QueryRequest>> {
        if !self.state.pending.iter().any(&is_sent) {
            return Ok(Vec::new());
        }
        self.flush()?;
        let State { params, partitions, pending, .. } = &mut self.state;
        let (g, links) = (params.geometry, &mut self.links);
        let request = |Pending { query, order, .. }: &mut Pending| {
            let sender = &mut links[partitions.of_root(g.root(query.leaf))].sender;
            *order = sender.next_number();
            QueryRequest {
                leaf: query.leaf,
                locations: query.locations[..g.layers].to_vec(),
                order: sender.seal(&query.encode(&g)),
            }
        };
        let sent = pending.iter_mut().filter(|pending| is_sent(pending));
        Ok(sent.map(request).collect())
    }

    /// Serves an access without a query if the block is at the gateway. Returns whether it is.
    pub(super) fn serve_cached(
        &mut self,
        access: &Access,
        read: &mut Vec<BlockRead>,
    ) -> Result<bool> {
        if let Access::Read(id) = access
            && let Some(block) = self.state.cache.get(*id)
        {
            read.push(Ok(block.to_vec()));
            return Ok(true);
        }
        if !access.id().is_some_and(|id| self.state.stash.is_cached(id)) {
            return Ok(false);
        }
        match access {
            Access::Read(id) => {
                let block = self.state.stash.get(*id).expect("a cached block has bytes");
                read.push(Ok(block.to_vec()));
            }
            Access::Write(id, bytes) => {
                let leaf = self.draw_leaf();
                self.log_and_apply(Record::Stash { id: *id, leaf, bytes: bytes.clone() })?;
            }
            Access::Dummy => unreachable!("a dummy access has no block"),
        }
        Ok(true)
    }

    /// Finishes what can be finished without waiting for a round.
    pub(super) fn finish_pending(&mut self) -> Result {
        self.hosts.check()?;
        if self.is_any_lost() {
            self.begin_next_session()?;
        }
        self.send_pending()?;
        self.finish_all(Wait::For(Duration::ZERO))?;
        self.save_if_long()?;
        self.check_stash()
    }

    /// Saves the whole state if its log is long.
    pub(crate) fn save_if_long(&mut self) -> Result {
        // A state is not saved before the outcome of a copy is known.
        let is_long = self.journal.as_ref().is_some_and(Journal::is_long);
        if is_long && self.host_in_doubt().is_none() { self.save() } else { Ok(()) }
    }

    /// Fails if more blocks wait than the limit.
    pub(super) fn check_stash(&self) -> Result {
        let params = &self.state.params;
        // The blocks of a round in progress wait until its commit, in each partition.
        let in_rounds = (self.links.len() - 1) * params.round_blocks;
        let (blocks, limit) = (self.state.stash.len(), params.stash_max() + in_rounds);
        if blocks > limit {
            return Err(Error::StashOverflow { blocks, limit });
        }
        Ok(())
    }

    /// Prepares a query, which is sent with the next batch.
    pub(super) fn prepare_query(&mut self, access: &Access) -> Result<Preparation> {
        let id = access.id();
        let g = self.state.params.geometry;
        let known = id.and_then(|id| match self.state.index.place(id) {
            BlockPlace::Tree { leaf, .. } => Some(leaf),
            // The block is in the gateway's root, but its path must be read once, like any other.
            BlockPlace::Gateway => self.state.stash.leaf(id),
            BlockPlace::Nowhere => None,
        });
        let leaf = known.or_else(|| self.drawn_leaf.take()).unwrap_or_else(|| self.draw_leaf());
        for layer in 0..g.layers {
            let node = g.node(layer, leaf);
            if self.state.index.reads(node) >= self.state.params.reads_max(layer) {
                if self.is_beside() {
                    // Another leaf would make the leaves of worn nodes rarer.
                    self.drawn_leaf = known.is_none().then_some(leaf);
                    return Ok(Preparation::MustWait);
                }
                self.wait_for_tick();
                self.renew(node)?;
            }
        }
        // Looked up only now: a round that was committed above may have moved the block.
        let place = id.map_or(BlockPlace::Nowhere, |id| self.state.index.place(id));
        let target = match place {
            BlockPlace::Tree { layer, slot, .. } => Some((layer, slot)),
            _ => None,
        };
        let slots = (0..g.layers).map(|layer| match target {
            Some((at, slot)) if at == layer => slot,
            _ => self.state.index.dummy(g.node(layer, leaf), &mut *self.rng),
        });
        let slots = slots.collect();
        let target = target.map(|(layer, _)| layer as u32);
        let write = match access {
            Access::Write(_, bytes) => Some(bytes.clone()),
            Access::Read(_) | Access::Dummy => None,
        };
        self.log_deferred(Record::Query { leaf, slots, id, target, write })?;
        Ok(Preparation::Done)
    }

    /// Fails if damage was found in many queries one after the other. The query is sent again with
    /// the next request.
    fn check_damage(&mut self, partition: usize, damaged: u16) -> Result {
        if self.found_damage.count_query(partition, damaged != 0) {
            return Ok(());
        }
        let pending = self.state.pending.front_mut().expect("it got its reply");
        pending.damage = None;
        Err(tampered(&self.state.params.geometry, &pending.query, damaged))
    }

    /// Begins a round if one is due. Otherwise waits for this query's share of the running round.
    pub(super) fn pace_query(&mut self) -> Result<Preparation> {
        let (queries, due) = (self.state.queries, self.state.params.round_blocks);
        let partition = self.state.next_partition();
        if queries >= due {
            let is_waited_for =
                self.state.running(partition).is_some() || self.state.has_old_pending(partition);
            if self.is_beside() && is_waited_for {
                return Ok(Preparation::MustWait);
            }
            self.finish(partition, Wait::Long)?;
            self.begin(None)?;
            return Ok(Preparation::Done);
        }
        // The next round waits for the one in progress in its partition, which has the time until
        // then, also if rounds of other partitions have begun since.
        let Some(running) = self.state.running(partition) else { return Ok(Preparation::Done) };
        let since = self.state.partitions.begun().saturating_sub(running.begun()) as usize;
        let (number, all) = (queries + since * due, (since + 1) * due);
        let ahead = self.links[partition].pacing.ahead(number, all);
        if ahead.is_zero() || self.links[partition].is_staged {
            return Ok(Preparation::Done);
        }
        query_pacing::reduce_timer_slack();
        if self.is_beside() {
            self.note_commit(partition, ahead)?;
        } else {
            self.finish(partition, Wait::For(ahead))?;
        }
        let waited = ahead.saturating_sub(self.links[partition].pacing.ahead(number, all));
        self.counts.shares_ns += waited.as_nanos() as u64;
        Ok(Preparation::Done)
    }

    /// Sends the queries that have no reply yet, while no batch is under way. A lost session is
    /// begun again.
    pub(super) fn send_pending(&mut self) -> Result {
        self.send_up_to(u64::MAX)
    }

    /// Sends the queries without a reply of this batch and of older ones, which are not under way.
    pub(super) fn send_up_to(&mut self, batch: u64) -> Result {
        for _ in 1..SESSIONS_MAX {
            match self.send_once(batch) {
                Err(Error::SessionLost) => self.begin_next_session()?,
                other => return other,
            }
        }
        self.send_once(batch)
    }

    fn send_once(&mut self, batch: u64) -> Result {
        let is_sent = |pending: &Pending| pending.batch <= batch;
        while self.state.pending.front().is_some_and(is_sent) {
            let requests = self.requests_to_send(is_sent)?;
            let replies = self.hosts.clone().query_many(&requests);
            self.answer_each(replies)?;
            // At a constant rate, what must be sent again waits for the next tick.
            if self.constant_rate.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Takes replies to the first queries without one, in order. After the first one that must be
    /// sent again, the rest are opened, so that none of them is valid later, and their queries are
    /// sent again, too.
    pub(super) fn answer_each(&mut self, replies: Vec<Result<Vec<u8>>>) -> Result {
        let mut replies = replies.into_iter();
        for reply in replies.by_ref() {
            if !self.answer(reply?)? {
                break;
            }
        }
        // The first query without a reply is the one that is sent again.
        self.open_each(1, replies)
    }

    /// Opens replies to queries that are sent again: from number `first` on of the queries without
    /// a reply.
    pub(super) fn open_each(
        &mut self,
        first: usize,
        replies: impl Iterator<Item = Result<Vec<u8>>>,
    ) -> Result {
        for (nth, reply) in (first..).zip(replies) {
            let mut reply = reply?;
            let Some(pending) = self.state.pending.get(nth) else { continue };
            let partition = self.state.partition_of_leaf(pending.query.leaf);
            let receiver = &mut self.links[partition].receiver;
            let reply = QueryReply::decode(receiver.open(&mut reply)?)?;
            let pending = &mut self.state.pending[nth];
            pending.check_order(&reply)?;
            pending.damage = Some(reply.damaged);
        }
        Ok(())
    }

    /// Takes the reply to the first query without one. The record need not be written at once: if
    /// it is lost, the same query is sent again. Returns false if the reply reports damage that the
    /// one before did not: then the query is to be sent again.
    fn answer(&mut self, mut reply: Vec<u8>) -> Result<bool> {
        let pending = self.state.pending.front().expect("a query that has no reply yet");
        let partition = self.state.partition_of_leaf(pending.query.leaf);
        let receiver = &mut self.links[partition].receiver;
        let reply = QueryReply::decode(receiver.open(&mut reply)?)?;
        let pending = self.state.pending.front_mut().expect("it is still there");
        pending.check_order(&reply)?;
        let before = pending.damage.replace(reply.damaged).unwrap_or_default();
        if reply.damaged & !before != 0 {
            pending.tries += 1;
            if pending.tries < TRIES_MAX {
                return Ok(false);
            }
            (pending.damage, pending.tries) = (None, 0);
            return Err(tampered(&self.state.params.geometry, &pending.query, reply.damaged));
        }
        let is_lost = pending.real && reply.damaged >> pending.query.target & 1 == 1;
        self.check_damage(partition, reply.damaged)?;
        let pending = self.state.pending.front().expect("it is still there");
        self.counts.queries += 1;
        self.counts.damaged += u64::from(reply.damaged.count_ones());
        let Some(id) = pending.id else {
            self.log_deferred(Record::EndDummy)?;
            return Ok(true);
        };
        let is_read = pending.write.is_none();
        let (batch, place) = (pending.batch, pending.read);
        if is_read && (is_lost || (!pending.real && self.state.lost.contains(&id))) {
            let read = Err(LostBlock(id));
            self.answers.push(Answer { batch, place, read: read.clone() });
            self.log_deferred(Record::EndLost)?;
            self.make_waiting(id, read)?;
            return Ok(true);
        }
        // The reply is opened even if the block is overwritten, so that both cases take the same
        // time.
        let block = match self.state.stash.get(id) {
            _ if pending.real => self.block_keys.open(u64::from(id), reply.block),
            Some(block) => Ok(block.to_vec()),
            None => Ok(vec![0; self.state.params.geometry.block_len]),
        };
        let leaf = self.draw_leaf();
        if is_read {
            let bytes = block?;
            self.answers.push(Answer { batch, place, read: Ok(bytes.clone()) });
            self.log_deferred(Record::Stash { id, leaf, bytes })?;
        } else {
            if !is_lost {
                block?;
            }
            self.log_deferred(Record::StashWrite { leaf })?;
        }
        self.counts.stash_max = self.counts.stash_max.max(self.state.stash.len());
        if self.waiting.iter().any(|waiting| waiting.id == id) {
            let bytes = self.state.stash.get(id).expect("it was put there").to_vec();
            self.make_waiting(id, Ok(bytes))?;
        }
        Ok(true)
    }
}
