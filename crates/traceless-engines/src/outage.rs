//! Reports when an engine goes away, and when it is back: one line each for all waiting requests.

use crate::engine::RequestError;
use std::sync::{Mutex, PoisonError};
use traceless_core::clock::{Clock as _, Monotonic};

/// Whether an engine is away.
pub struct Outage {
    /// When its absence was reported.
    since: Mutex<Option<u64>>,
    clock: Monotonic,
}

impl Default for Outage {
    fn default() -> Self {
        Self { since: Mutex::new(None), clock: Monotonic::start() }
    }
}

impl Outage {
    /// Takes the failure of an attempt, or nothing after a success.
    pub fn observe(&self, failed: Option<&RequestError>) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        match (failed, *since) {
            (Some(failed), None) => {
                *since = Some(self.clock.now());
                tracing::warn!(reason = %failed.message, "the storage engine is away: waiting");
            }
            (None, Some(begin)) => {
                *since = None;
                let seconds = (self.clock.now() - begin) as f64 / 1e9;
                tracing::info!(seconds, "the storage engine is back");
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
}
