//! The thread that saves the state when its log is long, also without requests: entries of the log
//! extend a lease.

use super::SharedGateway;
use crate::error::{Error, Result};
use crate::repeating_thread::RepeatingThread;
use std::sync::Arc;
use std::time::Duration;

/// How often the length of the log is looked at.
const PAUSE: Duration = Duration::from_secs(10);

/// Saves the state whenever its log is long, until it is dropped.
pub struct SaveThread {
    _thread: RepeatingThread,
}

impl SaveThread {
    /// Starts the thread. At a constant rate ticks save the state.
    pub fn start(front: &Arc<SharedGateway>) -> Option<Self> {
        if front.has_constant_rate() {
            return None;
        }
        let front = front.clone();
        let step = move || match front.save_if_long() {
            Ok(()) => Some(PAUSE),
            Err(Error::Fenced { .. }) => None,
            Err(error) => {
                tracing::warn!(%error, "the state cannot be saved now");
                Some(PAUSE)
            }
        };
        Some(Self { _thread: RepeatingThread::start(step) })
    }
}

impl SharedGateway {
    fn save_if_long(&self) -> Result {
        let _turn = self.turns.wait();
        let mut gateway = self.lock_alone();
        let saved = gateway.check_host().and_then(|()| gateway.save_if_long());
        self.metrics.observe(&gateway);
        saved
    }
}
