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
//! Files: `shared_lease` (a lease, and the end of the log), `entry` (the entries of the lease),
//! `checkpoint` (a saved state), `read_log` (a log as it was found), `wait` (until the lease is
//! free).

mod checkpoint;
mod entry;
mod read_log;
mod shared_lease;
#[cfg(test)]
mod tests;
mod wait;

pub(super) use checkpoint::{Checkpoint, GenerationAbout, HEAD_MAGIC, generation_key};
pub(super) use read_log::ReadLog;
pub(super) use shared_lease::SharedLease;
pub(crate) use wait::pause_of_standby;

use super::Keys;
use crate::error::{Error, Result};
use crate::random::SystemStream;
use crate::repeating_thread::RepeatingThread;
use crate::state_log::StateLog;
use crate::wire::fence::Opening;
use shared_lease::LeaseCandidate;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use traceless_core::clock::Clock;
use traceless_core::seal::Secret;
use wait::LogEnd;

/// The lease is extended so often in its period.
pub(crate) const EXTENSIONS: u32 = 3;
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
    /// How long the gateway answers after its last entry in the log: at least [`LEASE_MIN`]. Its
    /// entries say so to the gateways that stand by.
    pub period: Duration,
    /// The anchor: a file that records how far the gateway's state has come.
    pub anchor: Option<PathBuf>,
    /// Whether to wait as long as another gateway runs. Otherwise that is an error, and only the
    /// end of a lease is waited for that no gateway extends.
    pub stands_by: bool,
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
    /// state is a new one. Fails with [`Error::InUse`] if another gateway runs, unless this one
    /// stands by.
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
                Err(_) if extended.is_over() => {
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
        self.shared.opening()
    }

    /// Calls `call` when the lease is lost, or the state cannot be written any more: the program
    /// should end.
    pub fn on_loss(&self, call: impl FnOnce() + Send + 'static) {
        self.shared.on_loss(call);
    }

    /// Repeats the opening of a gateway while a host is away, or loses its enclave: a gateway that
    /// stands by would find the same. After a failure the lease is given up.
    pub(crate) fn persist<T>(&self, open: impl Fn() -> Result<T>) -> Result<T> {
        let clock = self.shared.clock();
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
