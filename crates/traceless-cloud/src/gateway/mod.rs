//! The trusted side: it knows where each block lies, and asks so that nobody learns it.
//!
//! A query reads one slot of each layer of one path: the block's in its layer, elsewhere a dummy
//! that was not read before. Its leaf was drawn after it was last asked for and is used once, and
//! no slot is read twice before its node is made anew. So what the host sees are random slots of a
//! random path, whatever is asked for. The block then waits here, and goes back into the tree with
//! a later round, on a path drawn anew.

mod index;
mod journal;
mod names;
mod objects;
mod plan;
mod record;
mod rounds;
mod state;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod waiting;

pub use names::{Object, Reading, Space};
pub use objects::{Draft, NAME_LEN_MAX, VALUE_LEN_MAX, size_class};

use crate::channel::{Nonce, Receiver, Sender};
use crate::enclave::Shared;
use crate::error::{Error, Result};
use crate::geometry::Node;
use crate::host::{Ask, Host};
use crate::inner::Inner;
use crate::kernel::Choice;
use crate::params::Params;
use crate::store::Durability;
use index::Place;
use journal::Journal;
use record::Record;
use rounds::{Job, Maker, Worker};
use state::{Pending, State};
use std::path::Path;
use std::sync::Arc;
use traceless::rng::Rng;
use traceless::seal::Secret;

/// Rounds' worth of blocks that may wait. Two are there as a rule.
const WAITING_ROUNDS_MAX: usize = 6;

/// The keys of a gateway.
pub struct Keys {
    inner: Secret,
    enclave: Secret,
    state: Secret,
}

impl Keys {
    /// The keys of one tree under the gateway's master key.
    pub fn new(master: &Secret, tree: &[u8; 16]) -> Self {
        let key = |name: &[u8]| master.derive(&[tree, b"cloud", name]);
        Self { inner: key(b"inner"), enclave: key(b"enclave"), state: key(b"state") }
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
    state: State,
    journal: Option<Journal>,
    host: Arc<dyn Host>,
    worker: Worker,
    /// Whether the round on its way needs only to be committed.
    staged: bool,
    inner: Inner,
    sender: Sender,
    receiver: Receiver,
    rng: Box<dyn Rng>,
    counts: Counts,
}

/// What a gateway's state is kept in.
pub struct Home<'a> {
    /// A folder of its own.
    pub folder: &'a Path,
    /// What an answer has survived.
    pub durability: Durability,
}

impl Gateway {
    /// A gateway to a tree, in the session that `gateway` and `enclave` began. Without a home the
    /// tree is empty, and nobody can open it once the gateway is gone.
    pub fn open(
        params: Params,
        keys: &Keys,
        choice: Choice,
        host: Arc<dyn Host>,
        (gateway, enclave): (&Nonce, &Nonce),
        home: Option<&Home<'_>>,
        mut rng: Box<dyn Rng>,
    ) -> Result<Self> {
        let shared = keys.shared(&params, choice);
        let session = shared.session(gateway, enclave);
        let (journal, state) = match home {
            Some(Home { folder, durability }) => {
                let opened = Journal::open(folder, &keys.state, &params, *durability, &mut *rng)?;
                (Some(opened.0), opened.1)
            }
            None => (None, State::new(params)),
        };
        let maker = Maker::new(&shared, Inner::new(&keys.inner), &session);
        let mut opened = Self {
            state,
            journal,
            worker: Worker::start(maker, host.clone()),
            host,
            staged: false,
            inner: Inner::new(&keys.inner),
            sender: Sender::new(&session.query),
            receiver: Receiver::new(&session.reply),
            rng,
            counts: Counts::default(),
        };
        opened.resolve()?;
        opened.state.names.find_free();
        Ok(opened)
    }

    /// What it is made for.
    pub fn params(&self) -> &Params {
        &self.state.params
    }

    /// What it did.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Blocks that wait here for a round.
    pub fn waiting(&self) -> usize {
        self.state.waiting.len()
    }

    /// Bytes of its map of the tree.
    pub fn index_bytes(&self) -> usize {
        self.state.index.bytes()
    }

    /// Reads a block. What was never written is zeros.
    pub fn get(&mut self, id: u64) -> Result<Vec<u8>> {
        let id = self.check(id)?;
        self.access(id, None)?;
        Ok(self.state.waiting.get(id).expect("what was asked for is at hand").to_vec())
    }

    /// Writes a block.
    pub fn put(&mut self, id: u64, block: &[u8]) -> Result {
        let id = self.check(id)?;
        if block.len() != self.state.params.geometry.block_len {
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
        let blocks = self.state.params.blocks;
        if id >= blocks {
            return Err(Error::OutOfRange { id, blocks });
        }
        Ok(id as u32)
    }

    /// Lets a record happen, once it is written down.
    fn happen(&mut self, record: Record) -> Result<Option<Job>> {
        if let Some(journal) = &mut self.journal {
            journal.append(&record)?;
        }
        self.state.apply(record)
    }

    /// After an opening: a round that was on its way has either been committed by the host, or
    /// never will be.
    fn resolve(&mut self) -> Result {
        let at_host = self.host.sequence()?;
        let own = self.state.sequence;
        let running = self.state.running.is_some();
        if at_host != own && !(running && at_host == own + 1) {
            return Err(Error::RolledBack { host: at_host, gateway: own });
        }
        if running {
            let record = if at_host == own { Record::Failed } else { Record::Committed };
            // Not written down: the next generation begins with what comes of it.
            self.state.apply(record)?;
            if let Some(journal) = &mut self.journal {
                journal.renew(&self.state, &mut *self.rng)?;
            }
        }
        Ok(())
    }

    /// Brings a block to hand, and puts new bytes into it.
    fn access(&mut self, id: u32, write: Option<Vec<u8>>) -> Result {
        self.settle()?;
        if self.state.index.place(id) == Place::Gateway {
            self.counts.hits += 1;
            if let Some(bytes) = write {
                let leaf = self.draw_leaf();
                self.happen(Record::Held { id, leaf, bytes })?;
            }
            return Ok(());
        }
        self.query(Some(id), write)
    }

    /// Sends a query for a block, or for none.
    fn query(&mut self, id: Option<u32>, write: Option<Vec<u8>>) -> Result {
        if self.state.queries >= self.state.params.round_blocks {
            self.finish(true)?;
            self.begin(None)?;
        }
        let g = self.state.params.geometry;
        let known = match id.map(|id| self.state.index.place(id)) {
            Some(Place::Tree { leaf, .. }) => Some(leaf),
            _ => None,
        };
        let leaf = known.unwrap_or_else(|| self.draw_leaf());
        for layer in 0..g.layers {
            let node = g.node(layer, leaf);
            if self.state.index.reads(node) >= self.state.params.reads_max(layer) {
                self.renew(node)?;
            }
        }
        // Asked for only now: a round that committed meanwhile may have moved it.
        let place = id.map_or(Place::Nowhere, |id| self.state.index.place(id));
        let target = match place {
            Place::Tree { layer, slot, .. } => Some((layer, slot)),
            _ => None,
        };
        let slots = (0..g.layers).map(|layer| match target {
            Some((at, slot)) if at == layer => slot,
            _ => self.state.index.dummy(g.node(layer, leaf), &mut *self.rng),
        });
        let slots = slots.collect();
        let target = target.map(|(layer, _)| layer as u32);
        self.happen(Record::Query { leaf, slots, id, target, write })?;
        self.send_pending()
    }

    /// Sends the query that has no reply yet.
    fn send_pending(&mut self) -> Result {
        let Some(Pending { query, id, real, write }) = &self.state.pending else { return Ok(()) };
        let g = &self.state.params.geometry;
        let ask = Ask {
            leaf: query.leaf,
            locations: query.locations[..g.layers].to_vec(),
            order: self.sender.seal(&query.encode(g)),
        };
        let mut reply = self.host.query(&ask)?;
        let sealed = self.receiver.open(&mut reply)?;
        self.counts.queries += 1;
        let Some(id) = *id else {
            self.happen(Record::Answered)?;
            return Ok(());
        };
        // Opened even if something else will be in it, so that both take the same time.
        let block =
            if *real { self.inner.open(u64::from(id), sealed)? } else { vec![0; g.block_len] };
        let bytes = write.clone().unwrap_or(block);
        let leaf = self.draw_leaf();
        self.happen(Record::Held { id, leaf, bytes })?;
        self.counts.waiting_max = self.counts.waiting_max.max(self.state.waiting.len());
        Ok(())
    }

    /// Finishes what can be finished before anything new begins.
    fn settle(&mut self) -> Result {
        self.send_pending()?;
        self.finish(false)?;
        if self.journal.as_ref().is_some_and(Journal::is_long) {
            self.save()?;
        }
        let (blocks, limit) =
            (self.state.waiting.len(), WAITING_ROUNDS_MAX * self.state.params.round_blocks);
        if blocks > limit {
            return Err(Error::StashOverflow { blocks, limit });
        }
        Ok(())
    }

    /// Keeps the whole state, so that the next opening has nothing to repeat.
    pub fn save(&mut self) -> Result {
        self.finish(true)?;
        match &mut self.journal {
            Some(journal) => journal.renew(&self.state, &mut *self.rng),
            None => Ok(()),
        }
    }

    /// Begins a round, or to make a node anew.
    fn begin(&mut self, node: Option<Node>) -> Result {
        // Zero stands for a node that was never written.
        let attempt = self.rng.next_u64().max(1);
        let mut seed = [0; 32];
        self.rng.fill(&mut seed);
        let node = node.map(|node| node.0);
        if let Some(job) = self.happen(Record::Begun { attempt, seed, node })? {
            self.staged = false;
            self.worker.begin(job);
        }
        Ok(())
    }

    /// Commits the round on its way, if it is ready or `wait` is asked for.
    fn finish(&mut self, wait: bool) -> Result {
        if self.state.running.is_none() {
            return Ok(());
        }
        if !self.staged {
            let ready = self.worker.result(false);
            if ready.is_none() && wait {
                self.counts.waits += 1;
            }
            match ready.or_else(|| self.worker.result(wait)) {
                None => return Ok(()),
                Some(Ok(())) => self.staged = true,
                Some(Err(error)) => {
                    self.happen(Record::Failed)?;
                    return Err(error);
                }
            }
        }
        self.commit()
    }

    /// Commits what is staged. Where a commit failed nobody knows whether it happened, so the host
    /// is asked, and its answer is proved by the versions that it then has.
    fn commit(&mut self) -> Result {
        let Some(running) = &self.state.running else { return Ok(()) };
        let (at_host, own) = (self.host.sequence()?, self.state.sequence);
        if at_host == own {
            self.host.commit(own + 1, &running.versions())?;
        } else if at_host != own + 1 {
            return Err(Error::RolledBack { host: at_host, gateway: own });
        }
        let round = self.state.round;
        self.happen(Record::Committed)?;
        if self.state.round > round {
            self.counts.rounds += 1;
        } else {
            self.counts.renewed += 1;
        }
        Ok(())
    }

    /// Makes a node anew that was read as often as it has dummies. When that is follows from what
    /// the host has seen.
    fn renew(&mut self, node: Node) -> Result {
        self.finish(true)?;
        let layer = self.state.params.geometry.layer_of(node);
        if self.state.index.reads(node) < self.state.params.reads_max(layer) {
            return Ok(());
        }
        self.begin(Some(node))?;
        self.finish(true)
    }

    fn draw_leaf(&mut self) -> u32 {
        self.rng.below(u64::from(self.state.params.geometry.leaves())) as u32
    }
}
