//! The lease of a state that several gateways reach: one of them has it, and the rest stand by.
//!
//! The state is a log in a storage engine ([`StateLog`]) in which each position is taken once.
//! The gateway that adds the next entry has the state; one that finds its position taken by another
//! gateway has lost it, and changes nothing more. This does not depend on time.
//!
//! Answers from the gateway's own memory do: it answers only for so long after it began to add its
//! last entry, the *lease*. It adds an entry without content a few times in that period, at fixed
//! times. A gateway that stands by waits until there was no new entry for longer than that.
//!
//! Files: `entry` (the entries of the lease), `checkpoint` (a saved state), `read_log` (a log as it
//! was found), `wait` (until the lease is free).

mod checkpoint;
mod entry;
mod read_log;
#[cfg(test)]
mod tests;
mod wait;

pub(super) use checkpoint::{Checkpoint, GenerationAbout, HEAD_MAGIC, generation_key};
pub(super) use entry::{LeaseEntry, TREE_LEN};
pub(super) use read_log::ReadLog;

use super::Keys;
use crate::error::{Error, Result};
use crate::random::SystemStream;
use crate::repeating_thread::RepeatingThread;
use crate::state_log::{Appended, StateLog};
use crate::wire::fence::Opening;
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use traceless_core::clock::Clock;
use traceless_core::rng::{Rng as _, System};
use traceless_core::seal::Secret;
use wait::LogEnd;

/// The lease is extended so often in its period.
const EXTENSIONS: u32 = 3;
/// A failed extension is repeated so often in the lease's period.
const REPETITIONS: u32 = 20;
/// No attempt to open a gateway begins so long after the first one, and the pause between two.
const OPENING_PATIENCE: Duration = Duration::from_secs(30);
const OPENING_PAUSE: Duration = Duration::from_millis(100);
/// The shortest lease: a storage engine may be far away.
pub const LEASE_MIN: Duration = Duration::from_millis(500);

/// How to take a lease.
pub struct LeaseOptions<'a> {
    /// The gateway's master key.
    pub master: &'a Secret,
    /// How long the gateway answers after its last entry in the log: at least [`LEASE_MIN`], and
    /// the same for all gateways of the state.
    pub period: Duration,
    /// The anchor: a file that records how far the gateway's state has come.
    pub anchor: Option<PathBuf>,
    /// Whether to wait no more, because the program ends.
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
    /// Called once if another gateway has the lease.
    pub on_wait: &'a (dyn Fn() + Sync),
}

/// The lease of a gateway's state, which is extended until it is lost or released.
pub struct StateLease {
    shared: Arc<SharedLease>,
    keys: Keys,
    anchor: Option<PathBuf>,
    _extending: RepeatingThread,
}

impl StateLease {
    /// Takes the lease once no other gateway has it; `None` if that is stopped. Without a log the
    /// state is a new one.
    pub fn take(log: Arc<dyn StateLog>, options: &LeaseOptions<'_>) -> Result<Option<Arc<Self>>> {
        if options.period < LEASE_MIN {
            return Err(Error::Parameters("a lease is for half a second at least"));
        }
        Self::take_with(log, options, Arc::new(BootClock))
    }

    /// The same with another clock, and a lease of any length.
    pub(super) fn take_with(
        log: Arc<dyn StateLog>,
        options: &LeaseOptions<'_>,
        clock: Arc<dyn Clock>,
    ) -> Result<Option<Arc<Self>>> {
        let candidate = LeaseCandidate { log, clock };
        let (log, mut rng) = (&*candidate.log, SystemStream::drawn());
        let mut end = LogEnd::read(log, options.master, &mut rng)?;
        let mut is_announced = false;
        loop {
            if !end.is_free && !is_announced {
                is_announced = true;
                (options.on_wait)();
            }
            if !end.wait_until_free(log, &*candidate.clock, options)? {
                return Ok(None);
            }
            let shared = candidate.lease_after(&end, options.period, &mut rng);
            match shared.extend() {
                Ok(()) => return Ok(Some(Self::extending(shared, end.keys, options))),
                // Another gateway was faster, or has made a checkpoint meanwhile.
                Err(Error::Fenced { .. }) => {
                    let found = LogEnd::read(log, options.master, &mut rng)?;
                    if found.last == end.last {
                        let message = "the log of the gateway's state in the storage engine, which \
                                       refuses its next entry,";
                        return Err(Error::State(message));
                    }
                    end = found;
                }
                Err(other) => return Err(other),
            }
        }
    }

    fn extending(shared: SharedLease, keys: Keys, options: &LeaseOptions<'_>) -> Arc<Self> {
        let shared = Arc::new(shared);
        let (extended, period) = (shared.clone(), options.period);
        let mut is_first = true;
        let extending = RepeatingThread::start(move || {
            // Taking the lease was the first extension.
            if core::mem::take(&mut is_first) {
                return Some(period / EXTENSIONS);
            }
            match extended.extend() {
                Ok(()) => Some(period / EXTENSIONS),
                Err(_) if extended.next().over.is_some() => {
                    extended.report_loss();
                    None
                }
                Err(_) => Some(period / REPETITIONS),
            }
        });
        let anchor = options.anchor.clone();
        Arc::new(Self { shared, keys, anchor, _extending: extending })
    }

    /// The keys of the state's tree.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The opening of the state, for hosts.
    pub fn opening(&self) -> Opening {
        self.shared.opening
    }

    /// Calls `call` when the lease is lost, or the state cannot be written any more: the program
    /// should end.
    pub fn on_loss(&self, call: impl FnOnce() + Send + 'static) {
        let mut loss = lock(&self.shared.loss);
        if loss.is_reported {
            drop(loss);
            call();
        } else {
            loss.call = Some(Box::new(call));
        }
    }

    /// Repeats the opening of a gateway while a host is away, or loses its enclave: a gateway that
    /// stands by would find the same. After a failure the lease is given up.
    pub(crate) fn persist<T>(&self, open: impl Fn() -> Result<T>) -> Result<T> {
        let clock = &self.shared.clock;
        let end = clock.now() + OPENING_PATIENCE.as_nanos() as u64;
        loop {
            match open() {
                Err(error) if error.is_passing() && clock.now() < end => {
                    std::thread::sleep(OPENING_PAUSE);
                }
                Err(error) => {
                    // Without an answer the lease ends by itself.
                    let _ = self.shared.release();
                    return Err(error);
                }
                opened => return opened,
            }
        }
    }

    /// The anchor's file.
    pub(super) fn anchor(&self) -> Option<&PathBuf> {
        self.anchor.as_ref()
    }

    /// What has the lease, for the store of the state.
    pub(super) fn shared(&self) -> &Arc<SharedLease> {
        &self.shared
    }
}

/// A gateway that wants the lease.
struct LeaseCandidate {
    log: Arc<dyn StateLog>,
    clock: Arc<dyn Clock>,
}

impl LeaseCandidate {
    /// The next lease after the end of the log. It begins with its first extension.
    fn lease_after(&self, end: &LogEnd, period: Duration, rng: &mut SystemStream) -> SharedLease {
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
pub(super) struct SharedLease {
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
    pub(super) fn log(&self) -> &dyn StateLog {
        &*self.log
    }

    /// Authenticates entries of the lease, and checkpoints.
    pub(super) fn key(&self) -> &Secret {
        &self.key
    }

    pub(super) fn tree(&self) -> &[u8; TREE_LEN] {
        &self.tree
    }

    pub(super) fn opening(&self) -> Opening {
        self.opening
    }

    /// The position of the last entry of the log.
    pub(super) fn last(&self) -> u64 {
        self.next().position - 1
    }

    /// The entry of the lease in these bytes, if it is one of this state.
    pub(super) fn lease_entry(&self, bytes: &[u8], position: u64) -> Option<LeaseEntry> {
        LeaseEntry::decode(bytes, position, &self.tree, &self.key)
    }

    /// The period of the lease, in milliseconds.
    pub(super) fn period_ms(&self) -> u64 {
        u64::try_from(self.period.as_millis()).unwrap_or(u64::MAX)
    }

    /// Adds an entry to the log. After a failure nothing more can be added.
    pub(super) fn write(&self, entry: &Bytes) -> Result {
        let mut next = self.next();
        let written = self.append(&mut next, |_| entry.clone());
        if let Err(error) = &written {
            self.end(&mut next, error.clone());
        }
        written
    }

    /// Adds an entry without content, which makes sure that the lease is still here, and extends
    /// it.
    pub(super) fn extend(&self) -> Result {
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
    pub(super) fn check(&self) -> Result {
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
    pub(super) fn give_up(&self, error: &Error) {
        self.end(&mut self.next(), error.clone());
    }

    /// Gives the lease up.
    pub(super) fn release(&self) -> Result {
        let mut next = self.next();
        let released = self.append(&mut next, |position| self.own_entry(position, true));
        self.end(&mut next, Error::Store("the gateway's state was closed"));
        // It is released already, or lost to another gateway.
        *lock(&self.loss) = Loss { call: None, is_reported: true };
        released
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

    fn report_loss(&self) {
        let call = {
            let mut loss = lock(&self.loss);
            loss.is_reported = true;
            loss.call.take()
        };
        if let Some(call) = call {
            call();
        }
    }

    fn next(&self) -> MutexGuard<'_, NextEntry> {
        lock(&self.next)
    }
}

/// The time since the machine was started, in nanoseconds. It goes on while the machine sleeps, but
/// not while a hypervisor lets a virtual machine stand still: a gateway in it may answer from its
/// memory until it extends its lease.
pub(super) struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
