//! The trusted side: it knows where each block lies, and reads blocks obliviously.
//!
//! A query reads one slot of each layer of one path: in the block's layer the block's slot, in the
//! other layers a dummy that was not read before. The path's leaf was drawn when the block was last
//! accessed and is used once, and no slot is read twice before its node is renewed. So the host
//! observes random slots of a random path, independent of the requests. The block then waits at the
//! gateway, and returns to the tree with a later round, on a new random path. Two requests for a
//! block between two rounds send one query.
//!
//! Numbered blocks, and values of any length under names, at a host in the same process:
//!
//! ```
//! use std::sync::Arc;
//! use traceless_cloud::gateway::{Gateway, Keys};
//! use traceless_cloud::host::InProcess;
//! use traceless_cloud::kernel::Choice;
//! use traceless_cloud::params::Params;
//! use traceless_cloud::random::SystemStream;
//! use traceless_cloud::store::MemStore;
//! use traceless_core::seal::Secret;
//!
//! # fn main() -> traceless_cloud::Result {
//! let mut rng = SystemStream::drawn();
//! let params = Params::new(1000, 64, 32)?;
//! let keys = Keys::new(&Secret::random(&mut rng), &[7; 16]);
//! let (shared, store) = (keys.shared(&params, Choice::Benes), MemStore::new(params.geometry));
//! let own = [1; 16]; // Fresh random bytes for each session.
//! let (host, enclave) = InProcess::start(&shared, store, &own, &mut rng)?;
//! let (host, session, rng) = (Arc::new(host), (&own, &enclave), Box::new(rng));
//! let mut gateway = Gateway::open(params, &keys, Choice::Benes, host, session, None, rng)?;
//!
//! gateway.put(999, &[1; 64])?;
//! gateway.store(b"ann", b"blue", b"")?;
//! assert_eq!(gateway.get(999)?, [1; 64]);
//! assert_eq!(gateway.load(b"ann")?.as_deref(), Some(&b"blue"[..]));
//! # Ok(())
//! # }
//! ```

mod anchor;
mod backup;
mod batches;
mod cache;
mod commits;
mod constant_rate;
mod draft;
mod fill;
mod found_damage;
mod host_link;
mod index;
mod inspect;
mod journal;
mod lease;
mod lost_block;
mod lost_name;
mod name_changes;
mod names;
mod object_steps;
mod objects;
mod partitions;
mod plan;
mod queries;
mod query_pacing;
mod record;
mod rounds;
mod scrub;
mod sessions;
mod stash;
mod state;
mod steps;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod transaction;
mod tree_moves;
mod value;
mod write_steps;

pub use backup::BackupContents;
pub(crate) use cache::bytes_beside_copy;
pub use constant_rate::QUERIES_PER_SECOND_MAX;
pub use draft::Draft;
pub use fill::Contents;
pub use index::index_bytes;
pub use inspect::{LostPart, StateReport, check, new_anchor, repair};
pub use journal::{OpenState, OpenedState, StateLocation};
pub(crate) use journal::{STATE_PIECE_LEN, entries_per_save};
pub(crate) use lease::{EXTENSIONS as LEASE_EXTENSIONS, pause_of_standby};
pub use lease::{LEASE_MIN, LeaseOptions, StateLease};
pub use lost_name::LostName;
pub use name_changes::NameChanges;
pub use names::{ByteRange, Namespace, Object};
#[cfg(feature = "http")]
pub(crate) use object_steps::ReadStep;
pub(crate) use object_steps::{BindObserver, LoadStep, StoreStep};
pub use queries::TOGETHER_MAX;
pub use scrub::NodeVerdict;
pub(crate) use steps::BatchStep;
pub(crate) use tree_moves::MoveStep;
pub use value::{NAME_LEN_MAX, VALUE_LEN_MAX, Value, size_class};
pub(crate) use write_steps::RemoveStep;
#[cfg(any(feature = "http", test))]
pub(crate) use write_steps::WriteStep;

pub use crate::state_log::{Appended, PieceName, StateLog, StoredLog};

use crate::block_seal::BlockKeys;
use crate::channel::Nonce;
use crate::enclave::Shared;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::host_group::{ConnectedHost, HostGroup};
use crate::kernel::Choice;
use crate::observed_host::Observation;
use crate::params::Params;
use crate::tee::Provision;
use crate::transport_seal::TransportKeys;
use batches::WaitingAccess;
use constant_rate::ConstantRate;
use found_damage::FoundDamage;
use host_link::HostLink;
use index::BlockPlace;
use journal::Journal;
pub(crate) use lost_block::BlockRead;
pub(crate) use queries::Access;
use queries::Answer;
use record::Record;
use rounds::{RoundJob, Wait};
use state::State;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use traceless_core::rng::Rng;
use traceless_core::seal::Secret;
use traceless_core::trace::Op;
use tree_moves::CopyResults;

/// The keys of a gateway.
pub struct Keys {
    block: Secret,
    enclave: Secret,
    state: Secret,
    lease: Secret,
    /// The key of backups, which is the same for all trees: one may be restored into another.
    backup: Secret,
}

impl Keys {
    /// The keys of one tree under the gateway's master key.
    pub fn new(master: &Secret, tree: &[u8; 16]) -> Self {
        let key = |name: &[u8]| master.derive(&[tree, b"cloud", name]);
        let (block, enclave) = (key(b"inner"), key(b"enclave"));
        let backup = master.derive(&[b"cloud", b"backup"]);
        Self { block, enclave, state: key(b"state"), lease: key(b"lease"), backup }
    }

    /// The parameters and keys that gateway and enclave share.
    pub fn shared(&self, params: &Params, choice: Choice) -> Shared {
        self.provision(params, choice).shared()
    }

    /// The parameters and the key, to be sealed to the enclave.
    pub fn provision(&self, params: &Params, choice: Choice) -> Provision {
        Provision { geometry: params.geometry, choice, key: self.enclave.clone() }
    }
}

/// Counters of a gateway.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Queries sent.
    pub queries: u64,
    /// Cache hits: requests for blocks at the gateway, which sent nothing.
    pub hits: u64,
    /// Rounds committed.
    pub rounds: u64,
    /// Nodes renewed outside a round.
    pub renewed: u64,
    /// Nodes copied to another host.
    pub copied: u64,
    /// Nodes verified by a scrub.
    pub scrubbed: u64,
    /// How often queries and renewals of nodes found a damaged slot.
    pub damaged: u64,
    /// Times that a query waited for a round to end.
    pub waits: u64,
    /// Nanoseconds that queries waited for their share of a round.
    pub shares_ns: u64,
    /// Most blocks that waited at once.
    pub stash_max: usize,
    /// Sessions begun after a lost one.
    pub sessions: u64,
    /// Queries of a constant rate that were for a block.
    pub ticks_used: u64,
    /// Queries of a constant rate that were for no block, or that were repeated.
    pub ticks_unused: u64,
    /// Ticks that were late by a whole period or more.
    pub ticks_late: u64,
    /// Largest delay of a tick, in nanoseconds.
    pub tick_delay_max_ns: u64,
}

/// An oblivious store of numbered blocks.
pub struct Gateway {
    state: State,
    journal: Option<Journal>,
    hosts: Arc<HostGroup>,
    /// The sessions with the hosts, one for each partition.
    links: Vec<HostLink>,
    shared: Shared,
    /// The constant rate; `None` if queries are sent on demand.
    constant_rate: Option<ConstantRate>,
    block_keys: BlockKeys,
    transport_keys: TransportKeys,
    backup_key: Secret,
    rng: Box<dyn Rng>,
    counts: Counts,
    /// Called with each requested access: operation, first byte and length.
    observer: Option<Box<AccessObserver>>,
    /// What queries have read, with their batches, until the batches end.
    answers: Vec<Answer>,
    /// Accesses to blocks with queries that have no reply yet.
    waiting: Vec<WaitingAccess>,
    /// The batch of queries that was prepared last.
    batch: u64,
    /// The batches that are under way, oldest first.
    under_way: VecDeque<u64>,
    /// A leaf that was drawn for a query that waits until no batch is under way.
    drawn_leaf: Option<u32>,
    /// What attempts of rounds and scrubs have found to be damaged.
    found_damage: FoundDamage,
    /// Which nodes are to be copied, and what became of the last copies.
    copy_results: CopyResults,
    /// A step has ended with a record that its answer depends on, which is not written yet.
    is_answer_due: bool,
    /// At a constant rate: names of values with changes that the next tick writes.
    unwritten_values: HashSet<Vec<u8>>,
    /// The changes of names of a transaction, which are applied and not written yet.
    gathered: Option<Vec<Record>>,
}

/// Called with each requested block: operation, first byte and length.
pub type AccessObserver = dyn Fn(Op, u64, u32) + Send;

impl Gateway {
    /// Opens a gateway to a tree, in the session that the nonces `gateway` and `enclave` began.
    /// Without a home the tree is empty, and it cannot be opened again once the gateway is gone.
    pub fn open(
        params: Params,
        keys: &Keys,
        choice: Choice,
        host: Arc<dyn Host>,
        (gateway, enclave): (&Nonce, &Nonce),
        home: Option<&dyn OpenState>,
        rng: Box<dyn Rng>,
    ) -> Result<Self> {
        let hosts = vec![ConnectedHost { host, session: (*gateway, *enclave) }];
        Self::open_divided(params, keys, choice, (hosts, None), home, rng)
    }

    /// Opens a gateway to a tree that is divided among hosts, which are named in the same order at
    /// each opening. Queries to several hosts are reported to the observation, if there is one.
    pub fn open_divided(
        params: Params,
        keys: &Keys,
        choice: Choice,
        (hosts, observation): (Vec<ConnectedHost>, Option<Observation>),
        home: Option<&dyn OpenState>,
        mut rng: Box<dyn Rng>,
    ) -> Result<Self> {
        if hosts.is_empty() || hosts.len() > params.geometry.roots as usize {
            return Err(Error::Parameters("a tree has a host, and at most one for each root"));
        }
        let shared = keys.shared(&params, choice);
        let (journal, state) = match home {
            Some(home) => {
                let opened = Journal::open(home, &keys.state, &params, &mut *rng)?;
                (Some(opened.0), opened.1)
            }
            None => (None, State::new(params)),
        };
        if !state.partitions.are_within(hosts.len()) {
            return Err(Error::Parameters(
                "the tree is divided among more hosts; name all of them",
            ));
        }
        let block_keys = || BlockKeys::new(&keys.block);
        let link = |host| HostLink::new(host, &shared, block_keys(), &mut *rng);
        let links = hosts.iter().map(link).collect();
        let hosts = hosts.into_iter().map(|connected| connected.host);
        let mut opened = Self {
            state,
            journal,
            hosts: Arc::new(HostGroup::new(params.geometry, hosts, observation)),
            links,
            constant_rate: None,
            block_keys: block_keys(),
            transport_keys: TransportKeys::new(&shared.transport, choice),
            backup_key: keys.backup.clone(),
            shared,
            rng,
            counts: Counts::default(),
            observer: None,
            answers: Vec::new(),
            waiting: Vec::new(),
            batch: 0,
            under_way: VecDeque::new(),
            drawn_leaf: None,
            found_damage: FoundDamage::default(),
            copy_results: CopyResults::default(),
            is_answer_due: false,
            unwritten_values: HashSet::new(),
            gathered: None,
        };
        opened.resolve()?;
        opened.match_partitions_to_hosts()?;
        opened.state.names.find_free();
        Ok(opened)
    }

    /// The parameters of the gateway's tree.
    pub fn params(&self) -> &Params {
        &self.state.params
    }

    /// The gateway's counters.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Blocks that wait at the gateway for a round.
    pub fn stash_len(&self) -> usize {
        self.state.stash.len()
    }

    /// Whether a block is at the gateway and not in the tree: in the ring or in the root.
    pub fn is_in_stash(&self, id: u64) -> bool {
        self.check(id).is_ok_and(|id| self.state.index.place(id) == BlockPlace::Gateway)
    }

    /// Keeps copies of recently used blocks, up to `len` bytes. Reading a copy sends nothing, which
    /// the host may notice. Without copies, only blocks accessed since the last round began are
    /// cache hits.
    pub fn keep_copies(&mut self, len: usize) {
        self.state.cache.limit(len);
    }

    /// Gives up blocks however much of the store is damaged. Otherwise much damage at once is an
    /// error: the disk may be away, or a folder may be another one.
    pub fn accept_loss(&mut self) {
        self.found_damage.accepts_loss = true;
    }

    /// Calls `observer` for each requested block, before anything is sent for it, with the
    /// operation and the block's first byte and length among all blocks. The host must not learn
    /// these values.
    pub fn set_observer(&mut self, observer: Box<AccessObserver>) {
        self.observer = Some(observer);
    }

    /// Bytes of the gateway's map of the tree.
    pub fn index_bytes(&self) -> usize {
        self.state.index.bytes()
    }

    /// Reads a block. A block that was never written is zeros.
    pub fn get(&mut self, id: u64) -> Result<Vec<u8>> {
        let id = self.check(id)?;
        let block = self.access(&[Access::Read(id)])?.pop();
        Ok(block.expect("what was asked for was read")?)
    }

    /// Reads blocks, with queries that are sent together. If one is lost, all of them were
    /// requested, and the result is an error.
    pub fn get_many(&mut self, ids: &[u64]) -> Result<Vec<Vec<u8>>> {
        Ok(self.get_each(ids)?.into_iter().collect::<Result<_, _>>()?)
    }

    /// The same, with an error in the place of each lost block.
    fn get_each(&mut self, ids: &[u64]) -> Result<Vec<BlockRead>> {
        let access = |id: &u64| self.check(*id).map(Access::Read);
        let accesses = ids.iter().map(access).collect::<Result<Vec<Access>>>()?;
        self.access(&accesses)
    }

    /// Writes a block.
    pub fn put(&mut self, id: u64, block: &[u8]) -> Result {
        self.put_many(&[(id, block)])
    }

    /// Writes blocks, with queries that are sent together.
    pub fn put_many(&mut self, blocks: &[(u64, &[u8])]) -> Result {
        let access = |&(id, block): &(u64, &[u8])| {
            let id = self.check(id)?;
            if block.len() != self.state.params.geometry.block_len {
                return Err(Error::Malformed("not the length of a block"));
            }
            Ok(Access::Write(id, block.to_vec()))
        };
        let accesses = blocks.iter().map(access).collect::<Result<Vec<Access>>>()?;
        self.access(&accesses).map(drop)
    }

    /// Sends a dummy query, which looks like any other. At a constant rate nothing is sent.
    pub fn dummy(&mut self) -> Result {
        self.dummies(1)
    }

    /// Sends `count` dummy queries together.
    pub fn dummies(&mut self, count: usize) -> Result {
        self.access(&vec![Access::Dummy; count]).map(drop)
    }

    fn check(&self, id: u64) -> Result<u32> {
        let blocks = self.state.params.blocks;
        if id >= blocks {
            return Err(Error::OutOfRange { id, blocks });
        }
        Ok(id as u32)
    }

    /// Applies a record that an answer depends on, after it is written. At a constant rate it is
    /// written with the next tick, so that the timing of disk writes is independent of requests.
    fn log_and_apply(&mut self, record: Record) -> Result<Option<RoundJob>> {
        if !self.gather(&record)
            && let Some(journal) = &mut self.journal
        {
            journal.append(&record);
            if self.constant_rate.is_some() {
                journal.defer_ack();
                record.add_changed_values(&mut self.unwritten_values);
            } else {
                journal.flush()?;
            }
        }
        self.state.apply(record)
    }

    /// Applies a record that is written with the next one that must be.
    fn log_deferred(&mut self, record: Record) -> Result {
        if !self.gather(&record)
            && let Some(journal) = &mut self.journal
        {
            journal.append(&record);
        }
        self.state.apply(record).map(drop)
    }

    /// Writes all appended records.
    fn flush(&mut self) -> Result {
        self.journal.as_mut().map_or(Ok(()), Journal::flush)?;
        self.unwritten_values.clear();
        Ok(())
    }

    pub(crate) fn hosts(&self) -> &Arc<HostGroup> {
        &self.hosts
    }

    /// Fails if another gateway has taken over the store, or may have: then this gateway must not
    /// answer.
    pub fn check_host(&self) -> Result {
        self.journal.as_ref().map_or(Ok(()), Journal::check)?;
        self.hosts.check()
    }

    /// The same, but never sends anything: false if only a message would show it.
    pub(crate) fn check_host_quietly(&self) -> Result<bool> {
        self.journal.as_ref().map_or(Ok(()), Journal::check)?;
        self.hosts.check_quietly()
    }

    /// Ends all that is in progress.
    fn settle(&mut self) -> Result {
        if self.is_any_lost() {
            self.begin_next_session()?;
        }
        self.finish_all(Wait::Long)?;
        if !self.state.is_any_running() {
            return Ok(());
        }
        // While one round ended, the session of another one's host may have been lost.
        Err(self.copy_results.take_error().unwrap_or(Error::SessionLost))
    }

    /// Saves the whole state, so that the next opening applies no records.
    pub fn save(&mut self) -> Result {
        if self.gathered.is_some() {
            // What a transaction has changed may be taken back.
            return Ok(());
        }
        self.settle()?;
        match &mut self.journal {
            Some(journal) => journal.renew(&self.state, &mut *self.rng),
            None => Ok(()),
        }
    }

    /// Closes the gateway: saves the whole state, and gives it up. At a constant rate, or if the
    /// host is gone, it writes only the appended records, because saving needs the running round
    /// committed.
    pub fn close(&mut self) -> Result {
        let is_saved = self.constant_rate.is_none()
            && match self.save() {
                Err(Error::Unreachable(_) | Error::SessionLost) => false,
                saved => saved.map(|()| true)?,
            };
        if !is_saved {
            self.flush()?;
        }
        self.journal.as_mut().map_or(Ok(()), Journal::release)
    }

    fn draw_leaf(&mut self) -> u32 {
        self.rng.below(u64::from(self.state.params.geometry.leaves())) as u32
    }
}
