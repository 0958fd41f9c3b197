//! The state that all connections share, and how commands reach the gateway.

use super::Password;
use super::protocol::Reply;
use super::values::{Expiries, Values};
use crate::error::Result;
use crate::gateway::{Object, StoreStep, Value};
use crate::shared::SharedGateway;
use std::sync::{Arc, Mutex, PoisonError};

/// The state that all connections share.
pub struct SharedService {
    pub front: Arc<SharedGateway>,
    pub(super) password: Option<Password>,
    expiries: Arc<Mutex<Expiries>>,
}

impl SharedService {
    pub fn new(front: Arc<SharedGateway>, password: Option<Password>) -> Self {
        let expiries = Arc::new(Mutex::new(front.inspect(Expiries::find)));
        Self { front, password, expiries }
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
        self.remove_expired()?;
        let values = pairs.into_iter().map(|[name, bytes]| Value { name, bytes, note: &[] });
        let values: Vec<Value<'_>> = values.collect();
        let expiries = self.expiries.clone();
        let forget = move |name: &[u8], old: Option<&Object>| {
            let mut expiries = expiries.lock().unwrap_or_else(PoisonError::into_inner);
            expiries.forget(name, old);
        };
        let step = StoreStep::new(&values).observed_by(Box::new(forget));
        self.front.run_step(step, |_| ())
    }

    /// Executes commands that have the gateway for themselves.
    pub fn with_values<T>(&self, work: impl FnOnce(&mut Values<'_>) -> Result<T>) -> Result<T> {
        let now = self.front.now_ms();
        self.front.run(|gateway| {
            let mut expiries = self.expiries.lock().unwrap_or_else(PoisonError::into_inner);
            let mut values = Values { gateway, expiries: &mut expiries, now };
            values.remove_expired()?;
            work(&mut values)
        })
    }

    /// Removes expired values, if there are any.
    fn remove_expired(&self) -> Result {
        let now = self.front.now_ms();
        let expiries = self.expiries.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = expiries.is_due(now);
        drop(expiries);
        if is_due { self.with_values(|_| Ok(())) } else { Ok(()) }
    }

    #[cfg(test)]
    pub fn expiring(&self) -> usize {
        self.expiries.lock().unwrap().len()
    }
}
