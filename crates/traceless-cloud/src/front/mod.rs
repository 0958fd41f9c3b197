//! What front ends share: one gateway, metrics, the time, and the wish to stop.

mod metrics;
mod stop;
mod wall;

pub use metrics::{Health, Kind, Metrics, Protocol};
pub use stop::Stop;
pub use wall::Wall;

use crate::error::Result;
use crate::gateway::Gateway;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use traceless::clock::Clock;

/// A gateway that several front ends share. It does one thing at a time.
pub struct Front {
    gateway: Mutex<Gateway>,
    metrics: Arc<Metrics>,
    wall: Arc<dyn Clock>,
}

impl Front {
    /// A gateway, what is counted, and a clock that tells milliseconds since 1970.
    pub fn new(gateway: Gateway, metrics: Arc<Metrics>, wall: Arc<dyn Clock>) -> Self {
        metrics.observe(&gateway);
        Self { gateway: Mutex::new(gateway), metrics, wall }
    }

    /// Looks at what the gateway knows, which sends nothing.
    pub fn look<T>(&self, look: impl FnOnce(&Gateway) -> T) -> T {
        look(&self.lock())
    }

    /// Has the gateway do something.
    pub fn run<T>(&self, work: impl FnOnce(&mut Gateway) -> Result<T>) -> Result<T> {
        let mut gateway = self.lock();
        let done = work(&mut gateway);
        self.metrics.observe(&gateway);
        match &done {
            Ok(_) => self.metrics.succeeded(),
            Err(error) => self.metrics.failed(error),
        }
        done
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
