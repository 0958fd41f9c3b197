//! The log that keeps the gateway's state when its process ends. It begins with the whole state, in
//! pieces, followed by every later record.
//!
//! A *generation* is a state with its later records. It has a random id and therefore its own keys.
//! A gateway does not add to a generation that it finds, but begins the next one. So a folder that
//! was copied or restored reuses no nonce. A generation is whole and durable before it replaces its
//! predecessor, which is then removed.
//!
//! Files: `state_store` (what stores generations), `state_folder` (files), `leased_state` (a
//! storage engine that several gateways reach), `saved_state` (a generation's content).

mod leased_state;
mod saved_state;
mod state_folder;
mod state_store;
#[cfg(test)]
mod tests;

pub(crate) use leased_state::entries_per_save;
pub(crate) use saved_state::PIECE_LEN as STATE_PIECE_LEN;
pub(super) use saved_state::SavedState;
pub use state_folder::StateLocation;
pub(super) use state_folder::{generations, path_of, put_new, write_new};
pub use state_store::{OpenState, OpenedState};

use super::anchor::Anchor;
use super::record::Record;
use super::state::State;
use crate::durable::Durability;
use crate::error::{Error, Result};
use crate::log::{EntryDraft, Position};
use crate::params::Params;
use saved_state::{encode_state, entries_of_state};
use state_store::StateStore;
use traceless_core::rng::Rng;
use traceless_core::seal::Secret;

/// Bytes of records after which a new generation begins, besides four times the state's length.
const RECORDS_LEN_MAX: u64 = 64 << 20;
/// At a constant rate the round number decides when a new generation begins, unless the records are
/// this many times longer than their limit.
const OVERLONG: u64 = 8;

/// The log of a state and its later records.
pub struct Journal {
    store: Box<dyn StateStore>,
    durability: Durability,
    anchor: Option<Anchor>,
    /// The end of the written part of the newest generation.
    position: Position,
    /// Records that were applied and are not in the file yet.
    unwritten: EntryDraft,
    /// Counts of appended records, of written ones, and the number of the last record
    /// that an answer waits for.
    appended: u64,
    written: u64,
    deferred_ack: u64,
    records_at: u64,
    state_len: u64,
    /// A write failed, so it is unknown what is stored; or the state was given up.
    broken: bool,
}

impl Journal {
    /// Opens the journal of a state. Returns the newest state, with its later records applied, or
    /// an empty state if there is none.
    pub fn open(
        home: &dyn OpenState,
        key: &Secret,
        params: &Params,
        rng: &mut dyn Rng,
    ) -> Result<(Self, State)> {
        let OpenedState { store, saved, durability, anchor } = home.open(key)?;
        let anchor = anchor.map(|path| Anchor::open(&path, key, saved.is_none()));
        let mut anchor = anchor.transpose()?;
        if let Some(anchor) = &anchor {
            anchor.check(saved.as_ref().map(|saved| (&saved.found, saved.parent())))?;
        }
        let (mut position, mut state) = (Position::default(), State::new(*params));
        if let Some(saved) = &saved {
            (position, state) = (saved.found.position, saved.state(params)?);
        }
        if let Some(anchor) = &mut anchor {
            anchor.record(position, Durability::Power)?;
        }
        let mut journal = Self {
            store,
            durability,
            anchor,
            position,
            unwritten: EntryDraft::default(),
            appended: 0,
            written: 0,
            deferred_ack: 0,
            records_at: 0,
            state_len: 0,
            broken: false,
        };
        if !state.is_any_running() {
            journal.renew(&state, rng)?;
        }
        Ok((journal, state))
    }

    /// Whether a new generation is due.
    pub fn is_long(&self) -> bool {
        self.records_len() > Self::records_len_max(self.state_len) || self.store.is_long()
    }

    /// Whether the log is far longer than its limit.
    pub fn is_overlong(&self) -> bool {
        self.records_len() / OVERLONG > Self::records_len_max(self.state_len)
            || self.store.is_long()
    }

    /// Bytes of records at most besides a state of this length.
    pub fn records_len_max(state_len: u64) -> u64 {
        RECORDS_LEN_MAX.saturating_add(4 * state_len)
    }

    /// Makes an answer wait until every appended record is written.
    pub fn defer_ack(&mut self) {
        self.deferred_ack = self.appended;
    }

    /// The last record that an answer waits for, unless it is written.
    pub fn deferred_ack(&self) -> Option<u64> {
        (self.deferred_ack > self.written).then_some(self.deferred_ack)
    }

    /// Whether a record is written.
    pub fn is_written(&self, record: u64) -> bool {
        record <= self.written
    }

    /// How many records are written; `None` if no more can be.
    pub fn written(&self) -> Option<u64> {
        (!self.broken).then_some(self.written)
    }

    /// Appends a record, which is written with the next [`flush`](Self::flush).
    pub fn append(&mut self, record: &Record) {
        self.unwritten.add(&record.encode());
        self.appended += 1;
    }

    /// Writes the appended records. On return they survive what the store of the state promises.
    pub fn flush(&mut self) -> Result {
        self.ensure_working()?;
        if self.unwritten.is_empty() {
            return Ok(());
        }
        self.broken = true;
        let written = self.write();
        self.note(written)?;
        self.written = self.appended;
        Ok(())
    }

    /// Begins the next generation, with this state.
    pub fn renew(&mut self, state: &State, rng: &mut dyn Rng) -> Result {
        self.ensure_working()?;
        let plain = encode_state(state);
        let position = self.store.prepare(self.position, &mut entries_of_state(&plain), rng)?;
        // The store may be ahead of the fields here.
        self.broken = true;
        let switched = self.switch(position);
        self.note(switched)?;
        // The new state contains these records.
        self.unwritten.clear();
        self.written = self.appended;
        self.state_len = plain.len() as u64;
        self.records_at = self.position.end;
        self.store.remove_old()
    }

    /// Fails if another process may have the state, so that this one must not answer.
    pub fn check(&self) -> Result {
        self.store.check()
    }

    /// Gives the state up to another process. Nothing can be written any more.
    pub fn release(&mut self) -> Result {
        self.broken = true;
        self.store.release()
    }

    fn write(&mut self) -> Result {
        self.position = self.store.write(&mut self.unwritten)?;
        self.anchor(self.durability)
    }

    fn switch(&mut self, position: Position) -> Result {
        self.store.switch()?;
        self.position = position;
        self.anchor(Durability::Power)
    }

    /// Records in the anchor how far the state has come.
    fn anchor(&mut self, durability: Durability) -> Result {
        let Some(anchor) = &mut self.anchor else { return Ok(()) };
        anchor.record(self.position, durability)
    }

    /// Takes the result of a change of the store. After a failure nothing more can be written.
    fn note(&mut self, result: Result) -> Result {
        match &result {
            Ok(()) => self.broken = false,
            Err(error) => self.store.give_up(error),
        }
        result
    }

    fn records_len(&self) -> u64 {
        self.position.end - self.records_at
    }

    fn ensure_working(&self) -> Result {
        if self.broken {
            return Err(Error::Store("the gateway's log failed before; it must be opened again"));
        }
        Ok(())
    }
}
