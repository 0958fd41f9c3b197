//! What front ends share: one gateway, metrics, the time, and the wish to stop.

mod beating;
mod metrics;
mod stop;
mod wall;

pub use beating::Beating;
pub use metrics::{Health, Kind, Metrics, Protocol};
pub use stop::Stop;
pub use wall::Wall;

use crate::error::Result;
use crate::gateway::Gateway;
use crate::host::Host;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use traceless::clock::Clock;

/// How long an answer waits for its slot at most before what it rests on is written by itself.
const SLOT_TIME: Duration = Duration::from_secs(20);

/// A gateway that several front ends share. It does one thing at a time.
pub struct Front {
    gateway: Mutex<Gateway>,
    /// Its host.
    host: Arc<dyn Host>,
    /// A slot of the gateway's beat is over.
    slots: Condvar,
    metrics: Arc<Metrics>,
    wall: Arc<dyn Clock>,
}

impl Front {
    /// A gateway, what is counted, and a clock that tells milliseconds since 1970.
    pub fn new(gateway: Gateway, metrics: Arc<Metrics>, wall: Arc<dyn Clock>) -> Self {
        metrics.observe(&gateway);
        let host = gateway.host().clone();
        Self { gateway: Mutex::new(gateway), host, slots: Condvar::new(), metrics, wall }
    }

    /// From now on nobody waits for a host that is away: it is the end.
    pub fn wait_no_more(&self) {
        self.host.wait_no_more();
    }

    /// Looks at what the gateway knows, which sends nothing. It may no longer be so: not for
    /// answers to clients.
    pub fn look<T>(&self, look: impl FnOnce(&Gateway) -> T) -> T {
        look(&self.lock())
    }

    /// Tells a client what the gateway knows, which sends nothing. Fails if another gateway has
    /// the store: only that one knows then.
    pub fn tell<T>(&self, look: impl FnOnce(&Gateway) -> T) -> Result<T> {
        let _asking = self.metrics.asking();
        let gateway = self.lock();
        let told = gateway.check_host().map(|()| look(&gateway));
        if let Err(error) = &told {
            self.metrics.failed(error);
        }
        self.keep_promise(gateway).and(told)
    }

    /// Has the gateway do something.
    pub fn run<T>(&self, work: impl FnOnce(&mut Gateway) -> Result<T>) -> Result<T> {
        let _asking = self.metrics.asking();
        let mut gateway = self.lock();
        let done = gateway.check_host().and_then(|()| work(&mut gateway));
        if gateway.is_slot_due() {
            // Whoever fills slots may wait for the lock longer than others do.
            let filled = gateway.fill_slot();
            filled.unwrap_or_else(|error| self.metrics.failed(&error));
        }
        self.metrics.observe(&gateway);
        let kept = self.keep_promise(gateway);
        let done = done.and_then(|done| kept.map(|()| done));
        match &done {
            Ok(_) => self.metrics.succeeded(),
            Err(error) => self.metrics.failed(error),
        }
        done
    }

    /// Keeps the gateway's state, when nobody asks any more. The host may be gone already.
    pub fn close(&self) -> Result {
        self.lock().close()
    }

    /// Waits until all is written down that an answer may rest on: with the next slot, where
    /// there is a beat.
    fn keep_promise(&self, gateway: MutexGuard<'_, Gateway>) -> Result {
        let Some(record) = gateway.promised() else { return Ok(()) };
        self.slots.notify_all();
        let waited = self
            .slots
            .wait_timeout_while(gateway, SLOT_TIME, |gateway| !gateway.is_settled(record));
        waited.unwrap_or_else(PoisonError::into_inner).0.settle_promise(record)
    }

    /// What is counted.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.wall.now()
    }

    fn lock(&self) -> MutexGuard<'_, Gateway> {
        self.gateway.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
