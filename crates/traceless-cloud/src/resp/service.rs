//! The state that all connections share, and how commands reach the gateway.

use super::protocol::Reply;
use super::user_list::RespUsers;
use super::values::{Expiries, SetOptions, Values, note_of};
use crate::error::Result;
use crate::gateway::{BindObserver, Gateway, Object, RemoveStep, StoreStep, Value};
use crate::shared::SharedGateway;
use std::sync::{Arc, Mutex, PoisonError};

/// The state that all connections share.
pub struct SharedService {
    pub front: Arc<SharedGateway>,
    pub(super) users: RespUsers,
    /// Most bytes that the commands of a transaction have, and most that it reads.
    pub(super) transaction_len_max: usize,
    expiries: Arc<Mutex<Expiries>>,
}

/// Most bytes of a transaction's commands, and of what it reads.
const TRANSACTION_LEN_MAX: usize = 64 << 20;

impl SharedService {
    pub fn new(front: Arc<SharedGateway>, users: RespUsers) -> Self {
        let expiries = Arc::new(Mutex::new(front.inspect(Expiries::find)));
        Self { front, users, transaction_len_max: TRANSACTION_LEN_MAX, expiries }
    }

    /// The values of names, read by queries that are sent together with other clients' queries.
    pub fn load(&self, names: Vec<Vec<u8>>) -> Result<Vec<Reply>> {
        self.remove_expired()?;
        let reply = |value: Option<Result<Vec<u8>>>| match value {
            None => Reply::Null,
            Some(Ok(bytes)) => Reply::Bulk(bytes),
            Some(Err(lost)) => lost.into(),
        };
        Ok(self.front.load_many(names)?.into_iter().map(reply).collect())
    }

    /// Sets names to values that do not expire, in order, beside the queries of other clients.
    pub fn store<'v>(&self, pairs: impl IntoIterator<Item = [&'v [u8]; 2]>) -> Result {
        let values = pairs.into_iter().map(|[name, bytes]| Value { name, bytes, note: &[] });
        self.run_store_step(StoreStep::new(&values.collect::<Vec<_>>())).map(drop)
    }

    /// The same of one value with options, but for GET. Returns whether it was stored.
    pub fn store_with(&self, [name, bytes]: [&[u8]; 2], options: &SetOptions) -> Result<bool> {
        let note = note_of(options.expiry);
        let step = StoreStep::new(&[Value { name, bytes, note: &note }]);
        self.run_store_step(step.only_if(options.wanted).keeping_notes(options.keeps_expiry))
    }

    /// Removes values beside the queries of other clients. Returns how many there were.
    pub fn remove(&self, names: &[Vec<u8>]) -> Result<usize> {
        self.remove_expired()?;
        let step = RemoveStep::new(names.to_vec(), self.observer());
        self.front.run_step(step, |step| step.removed)
    }

    /// Executes a command that sends no query, beside the queries of other clients.
    pub fn with_names<T>(&self, work: impl FnOnce(&mut Values<'_>) -> Result<T>) -> Result<T> {
        let now = self.front.now_ms();
        self.front.update_state(|gateway| self.with(gateway, now, work))
    }

    /// Executes a command that has the gateway for itself.
    pub fn with_values<T>(&self, work: impl FnOnce(&mut Values<'_>) -> Result<T>) -> Result<T> {
        let now = self.front.now_ms();
        self.front.run(|gateway| self.with(gateway, now, work))
    }

    fn with<T>(
        &self,
        gateway: &mut Gateway,
        now: u64,
        work: impl FnOnce(&mut Values<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut expiries = self.expiries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut values = Values { gateway, expiries: &mut expiries, now };
        values.remove_expired()?;
        work(&mut values)
    }

    fn run_store_step(&self, step: StoreStep) -> Result<bool> {
        self.remove_expired()?;
        self.front.run_step(step.observed_by(self.observer()), |step| step.is_stored)
    }

    /// Follows expiries of names that a step binds or removes.
    fn observer(&self) -> BindObserver {
        let expiries = self.expiries.clone();
        Box::new(move |name: &[u8], old: Option<&Object>, note: &[u8]| {
            let mut expiries = expiries.lock().unwrap_or_else(PoisonError::into_inner);
            expiries.follow(name, old, note);
        })
    }

    /// Removes expired values, if there are any.
    fn remove_expired(&self) -> Result {
        let now = self.front.now_ms();
        let expiries = self.expiries.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = expiries.is_due(now);
        drop(expiries);
        if is_due { self.with_names(|_| Ok(())) } else { Ok(()) }
    }

    #[cfg(test)]
    pub fn expiring(&self) -> usize {
        self.expiries.lock().unwrap().len()
    }
}
