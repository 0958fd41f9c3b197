//! The trusted side: it knows where each block lies, and asks so that nobody learns it.
//!
//! A query reads one slot of each layer of one path: the block's in its layer, elsewhere a dummy
//! that was not read before. Its leaf was drawn after it was last asked for and is used once, and
//! no slot is read twice before its node is made anew. So what the host sees are random slots of a
//! random path, whatever is asked for. The block then waits here, and goes back into the tree with
//! a later round, on a path drawn anew. What is asked for twice between two rounds sends one query.

mod anchor;
mod beat;
mod cache;
mod codec;
mod commits;
mod fill;
mod index;
mod inspect;
mod journal;
mod names;
mod objects;
mod pace;
mod plan;
mod queries;
mod record;
mod rounds;
mod sessions;
mod state;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod waiting;

pub use beat::SLOTS_PER_SECOND_MAX;
pub use fill::Contents;
pub use inspect::{Lost, StateReport, check, new_anchor, repair};
pub use journal::Home;
pub use names::{ByteRange, Object, Space};
pub use objects::{Draft, NAME_LEN_MAX, VALUE_LEN_MAX, Value, size_class};
pub use queries::TOGETHER_MAX;

use crate::channel::{Nonce, Receiver, Sender};
use crate::enclave::Shared;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::inner::Inner;
use crate::kernel::Choice;
use crate::outer::Outer;
use crate::params::Params;
use crate::tee::Provision;
use beat::Beat;
use index::BlockPlace;
use journal::Journal;
use pace::Pace;
use queries::Want;
use record::Record;
use rounds::{Maker, RoundJob, Wait, Worker};
use state::State;
use std::sync::Arc;
use traceless::rng::Rng;
use traceless::seal::Secret;
use traceless::trace::Op;

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
        self.provision(params, choice).shared()
    }

    /// The same, to be sealed to the enclave.
    pub fn provision(&self, params: &Params, choice: Choice) -> Provision {
        Provision { geometry: params.geometry, choice, key: self.enclave.clone() }
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
    /// Times that a query waited for a round to end.
    pub waits: u64,
    /// Nanoseconds that queries waited for their share of a round.
    pub shares_ns: u64,
    /// Most blocks that waited at once.
    pub waiting_max: usize,
    /// Sessions begun in place of one that was lost.
    pub sessions: u64,
    /// Slots of a constant beat that were used for a block.
    pub slots_used: u64,
    /// Slots that nobody used, or that were used to ask again.
    pub slots_unused: u64,
    /// Slots that were late by a whole period or more.
    pub slots_late: u64,
    /// Nanoseconds by which the latest slot was late.
    pub slot_delay_max_ns: u64,
}

/// A store of blocks that are asked for by number.
pub struct Gateway {
    state: State,
    journal: Option<Journal>,
    host: Arc<dyn Host>,
    worker: Worker,
    /// Whether the round on its way needs only to be committed.
    staged: bool,
    /// The enclave is gone, and with it what the thread was at.
    lost: bool,
    shared: Shared,
    pace: Pace,
    /// When queries are sent; nothing if that is when they are needed.
    beat: Option<Beat>,
    inner: Inner,
    outer: Outer,
    sender: Sender,
    receiver: Receiver,
    rng: Box<dyn Rng>,
    counts: Counts,
    /// Told what is asked for: operation, first byte and length.
    asks: Option<Box<Asks>>,
    /// What was read by queries that are sent together.
    answers: Vec<Vec<u8>>,
}

/// What is told of each block that is asked for.
pub type Asks = dyn Fn(Op, u64, u32) + Send;

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
            Some(home) => {
                let opened = Journal::open(home, &keys.state, &params, &mut *rng)?;
                (Some(opened.0), opened.1)
            }
            None => (None, State::new(params)),
        };
        let maker = Maker::new(&shared, Inner::new(&keys.inner), &session, rng.fork());
        let mut opened = Self {
            state,
            journal,
            worker: Worker::start(maker, host.clone()),
            host,
            staged: false,
            lost: false,
            pace: Pace::new(),
            beat: None,
            inner: Inner::new(&keys.inner),
            outer: Outer::new(&shared.outer, choice),
            shared,
            sender: Sender::new(&session.query, rng.fork()),
            receiver: Receiver::new(&session.reply),
            rng,
            counts: Counts::default(),
            asks: None,
            answers: Vec::new(),
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

    /// Whether a block is here and not in the tree: at hand, or in the root.
    pub fn holds(&self, id: u64) -> bool {
        self.check(id).is_ok_and(|id| self.state.index.place(id) == BlockPlace::Gateway)
    }

    /// Keeps copies of blocks that were used lately, up to so many bytes: reading one of them sends
    /// nothing, which the host may notice. Without it, only what was asked for since the last round
    /// was begun is at hand.
    pub fn keep_copies(&mut self, len: usize) {
        self.state.cache.limit(len);
    }

    /// Tells `asks` of each block that is asked for, before anything is sent for it: the operation,
    /// and the block's first byte and length among all blocks. It is what the host must not learn.
    pub fn tell_asks(&mut self, asks: Box<Asks>) {
        self.asks = Some(asks);
    }

    /// Bytes of its map of the tree.
    pub fn index_bytes(&self) -> usize {
        self.state.index.bytes()
    }

    /// Reads a block. What was never written is zeros.
    pub fn get(&mut self, id: u64) -> Result<Vec<u8>> {
        let id = self.check(id)?;
        let block = self.access(&[Want::Read(id)])?.pop();
        Ok(block.expect("what was asked for was read"))
    }

    /// Reads blocks, with queries that are sent together.
    pub fn get_many(&mut self, ids: &[u64]) -> Result<Vec<Vec<u8>>> {
        let want = |id: &u64| self.check(*id).map(Want::Read);
        let wants = ids.iter().map(want).collect::<Result<Vec<Want>>>()?;
        self.access(&wants)
    }

    /// Writes a block.
    pub fn put(&mut self, id: u64, block: &[u8]) -> Result {
        self.put_many(&[(id, block)])
    }

    /// Writes blocks, with queries that are sent together.
    pub fn put_many(&mut self, blocks: &[(u64, &[u8])]) -> Result {
        let want = |&(id, block): &(u64, &[u8])| {
            let id = self.check(id)?;
            if block.len() != self.state.params.geometry.block_len {
                return Err(Error::Malformed("not the length of a block"));
            }
            Ok(Want::Write(id, block.to_vec()))
        };
        let wants = blocks.iter().map(want).collect::<Result<Vec<Want>>>()?;
        self.access(&wants).map(drop)
    }

    /// Asks for nothing, which looks like any other query. With a beat nothing is sent for it.
    pub fn dummy(&mut self) -> Result {
        self.dummies(1)
    }

    /// Asks for nothing so many times, with queries that are sent together.
    pub fn dummies(&mut self, count: usize) -> Result {
        self.access(&vec![Want::Nothing; count]).map(drop)
    }

    fn check(&self, id: u64) -> Result<u32> {
        let blocks = self.state.params.blocks;
        if id >= blocks {
            return Err(Error::OutOfRange { id, blocks });
        }
        Ok(id as u32)
    }

    /// Lets a record happen that an answer rests on, once it is written down. With a beat it is
    /// with the next slot, so that the disk is asked as often whatever happens.
    fn happen(&mut self, record: Record) -> Result<Option<RoundJob>> {
        if let Some(journal) = &mut self.journal {
            journal.append(&record);
            if self.beat.is_some() { journal.promise() } else { journal.flush()? }
        }
        self.state.apply(record)
    }

    /// Lets a record happen that is written down with the next one that has to be.
    fn happen_soon(&mut self, record: Record) -> Result {
        if let Some(journal) = &mut self.journal {
            journal.append(&record);
        }
        self.state.apply(record).map(drop)
    }

    /// Writes down all that happened.
    fn flush(&mut self) -> Result {
        self.journal.as_mut().map_or(Ok(()), Journal::flush)
    }

    pub(crate) fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }

    /// Fails if another gateway has the store: nothing that this one knows is to be told then.
    pub fn check_host(&self) -> Result {
        self.host.check()
    }

    /// Keeps the whole state, so that the next opening has nothing to repeat.
    pub fn save(&mut self) -> Result {
        if self.lost {
            self.begin_again()?;
        }
        self.finish(Wait::Long)?;
        match &mut self.journal {
            Some(journal) => journal.renew(&self.state, &mut *self.rng),
            None => Ok(()),
        }
    }

    /// The end: keeps the whole state or, with a beat or if the host is gone, what is not written
    /// down yet. A round on its way would have to be committed for the former.
    pub fn close(&mut self) -> Result {
        if self.beat.is_none() {
            let saved = self.save();
            if !matches!(saved, Err(Error::Unreachable(_) | Error::SessionLost)) {
                return saved;
            }
        }
        self.flush()
    }

    fn draw_leaf(&mut self) -> u32 {
        self.rng.below(u64::from(self.state.params.geometry.leaves())) as u32
    }
}
