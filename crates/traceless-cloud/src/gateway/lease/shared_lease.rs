//! A lease that this process has, and the end of the log, where it adds entries.

use super::entry::{LeaseEntry, TREE_LEN};
use super::wait::LogEnd;
use crate::error::{Error, Result};
use crate::state_log::{Appended, StateLog};
use crate::wire::fence::Opening;
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use traceless_core::clock::Clock;
use traceless_core::rng::{Rng, System};
use traceless_core::seal::Secret;

/// A gateway that wants the lease.
pub struct LeaseCandidate {
    /// The log of the state.
    pub log: Arc<dyn StateLog>,
    /// Measures leases.
    pub clock: Arc<dyn Clock>,
}

impl LeaseCandidate {
    /// The next lease after the end of the log. It begins with its first extension.
    pub fn lease_after(&self, end: &LogEnd, period: Duration, rng: &mut dyn Rng) -> SharedLease {
        let mut instance = [0; 16];
        rng.fill(&mut instance);
        let next = NextEntry { position: end.last + 1, doubtful: Vec::new(), over: None };
        SharedLease {
            log: self.log.clone(),
            key: end.keys.lease.clone(),
            tree: end.tree,
            opening: Opening { number: end.opening + 1, instance },
            period,
            clock: self.clock.clone(),
            next: Mutex::new(next),
            ends_at: AtomicU64::new(0),
            loss: Mutex::default(),
        }
    }
}

/// A lease, and the end of the log.
pub struct SharedLease {
    log: Arc<dyn StateLog>,
    /// Authenticates entries of the lease.
    key: Secret,
    tree: [u8; TREE_LEN],
    opening: Opening,
    period: Duration,
    clock: Arc<dyn Clock>,
    next: Mutex<NextEntry>,
    /// When the lease ends, by the clock.
    ends_at: AtomicU64,
    loss: Mutex<Loss>,
}

/// What is done about the loss of a lease.
#[derive(Default)]
struct Loss {
    call: Option<Box<dyn FnOnce() + Send>>,
    is_reported: bool,
}

/// The end of the log, as the gateway with the lease knows it.
struct NextEntry {
    position: u64,
    /// Extensions that had no answer, and may have the position.
    doubtful: Vec<Bytes>,
    /// Why nothing can be added any more.
    over: Option<Error>,
}

impl SharedLease {
    /// The log of the state.
    pub fn log(&self) -> &dyn StateLog {
        &*self.log
    }

    /// Authenticates entries of the lease, and checkpoints.
    pub fn key(&self) -> &Secret {
        &self.key
    }

    /// The number of the state's tree.
    pub fn tree(&self) -> &[u8; TREE_LEN] {
        &self.tree
    }

    /// The opening of the gateway with the lease.
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// Measures the lease.
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// The position of the last entry of the log.
    pub fn last(&self) -> u64 {
        self.next().position - 1
    }

    /// The entry of the lease in these bytes, if it is one of this state.
    pub fn lease_entry(&self, bytes: &[u8], position: u64) -> Option<LeaseEntry> {
        LeaseEntry::decode(bytes, position, &self.tree, &self.key)
    }

    /// The period of the lease, in milliseconds.
    pub fn period_ms(&self) -> u64 {
        u64::try_from(self.period.as_millis()).unwrap_or(u64::MAX)
    }

    /// Adds an entry to the log. After a failure nothing more can be added.
    pub fn write(&self, entry: &Bytes) -> Result {
        let mut next = self.next();
        let written = self.append(&mut next, |_| entry.clone());
        if let Err(error) = &written {
            self.end(&mut next, error.clone());
        }
        written
    }

    /// Adds an entry without content, which makes sure that the lease is still here, and extends
    /// it.
    pub fn extend(&self) -> Result {
        let mut next = self.next();
        let mut sent = None;
        let extended = self.append(&mut next, |position| {
            let entry = self.own_entry(position, false);
            sent = Some((position, entry.clone()));
            entry
        });
        if extended.is_err()
            && let Some((position, entry)) = sent
            && position == next.position
        {
            next.doubtful.push(entry);
        }
        extended
    }

    /// Fails if the lease is over.
    pub fn check(&self) -> Result {
        if self.clock.now() < self.ends_at.load(Ordering::Relaxed) {
            return Ok(());
        }
        let over = self.next.try_lock().ok().and_then(|next| next.over.clone());
        Err(over.unwrap_or_else(|| {
            let reason = "no answer about the gateway's state within its lease";
            Error::Engine(reason.to_owned())
        }))
    }

    /// Ends the lease here, because the state cannot be written any more.
    pub fn give_up(&self, error: &Error) {
        self.end(&mut self.next(), error.clone());
    }

    /// Gives the lease up.
    pub fn release(&self) -> Result {
        let mut next = self.next();
        let released = self.append(&mut next, |position| self.own_entry(position, true));
        self.end(&mut next, Error::Store("the gateway's state was closed"));
        // It is released already, or lost to another gateway.
        *lock(&self.loss) = Loss { call: None, is_reported: true };
        released
    }

    /// Calls `call` when the lease is lost, or at once if that was reported.
    pub fn on_loss(&self, call: impl FnOnce() + Send + 'static) {
        let mut loss = lock(&self.loss);
        if loss.is_reported {
            drop(loss);
            call();
        } else {
            loss.call = Some(Box::new(call));
        }
    }

    /// Whether nothing can be added any more.
    pub fn is_over(&self) -> bool {
        self.next().over.is_some()
    }

    /// Reports that the lease is lost.
    pub fn report_loss(&self) {
        let call = {
            let mut loss = lock(&self.loss);
            loss.is_reported = true;
            loss.call.take()
        };
        if let Some(call) = call {
            call();
        }
    }

    /// Adds an entry to the log at the next position.
    fn append(&self, next: &mut NextEntry, mut entry_at: impl FnMut(u64) -> Bytes) -> Result {
        if let Some(error) = &next.over {
            return Err(error.clone());
        }
        loop {
            let (position, begin) = (next.position, self.clock.now());
            let entry = entry_at(position);
            let found = match self.log.append(position, entry.clone())? {
                Appended::Done => Some(entry.clone()),
                Appended::Taken(found) => found,
            };
            let is_own = found.as_ref() == Some(&entry);
            // An extension that had no answer may be in the log, from an unknown time on.
            if !is_own && !next.doubtful.iter().any(|doubtful| found.as_ref() == Some(doubtful)) {
                let newer = found.and_then(|found| self.lease_entry(&found, position));
                let own = self.opening.number;
                let newest = newer.map_or(own + 1, |newer| newer.opening.number);
                self.end(next, Error::Fenced { own, newest });
                return Err(Error::Fenced { own, newest });
            }
            next.position += 1;
            next.doubtful.clear();
            if is_own {
                let period = u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX);
                self.ends_at.store(begin.saturating_add(period), Ordering::Relaxed);
                return Ok(());
            }
        }
    }

    fn own_entry(&self, position: u64, is_last: bool) -> Bytes {
        let (opening, period_ms, salt) = (self.opening, self.period_ms(), System.next_u64());
        let entry = LeaseEntry { opening, position, period_ms, salt, is_last };
        entry.encode(&self.tree, &self.key).into()
    }

    fn end(&self, next: &mut NextEntry, error: Error) {
        next.over.get_or_insert(error);
        self.ends_at.store(0, Ordering::Relaxed);
    }

    fn next(&self) -> MutexGuard<'_, NextEntry> {
        lock(&self.next)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
