//! The request to stop, which reaches every part that serves clients.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

type Call = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct StopState {
    requested: bool,
    calls: Vec<Call>,
}

/// A request to stop, which cannot be withdrawn.
#[derive(Default)]
pub struct Stop {
    state: Mutex<StopState>,
    changed: Condvar,
}

impl Stop {
    /// Requests the stop.
    pub fn request(&self) {
        let mut state = self.lock();
        state.requested = true;
        let calls = core::mem::take(&mut state.calls);
        drop(state);
        self.changed.notify_all();
        for call in calls {
            call();
        }
    }

    /// Whether the stop was requested.
    pub fn is_requested(&self) -> bool {
        self.lock().requested
    }

    /// Calls `call` when the stop is requested; at once, if it was.
    pub fn on_stop(&self, call: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        if state.requested {
            drop(state);
            call();
        } else {
            state.calls.push(Box::new(call));
        }
    }

    /// Waits until the stop is requested.
    pub fn wait(&self) {
        let state = self.lock();
        drop(self.changed.wait_while(state, |state| !state.requested));
    }

    fn lock(&self) -> MutexGuard<'_, StopState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn each_stop_handler_runs_once() {
        let (stop, calls) = (Arc::new(Stop::default()), Arc::new(AtomicU32::new(0)));
        let count = || {
            let calls = calls.clone();
            move || {
                calls.fetch_add(1, Ordering::SeqCst);
            }
        };
        stop.on_stop(count());
        let waiting_stop = stop.clone();
        let waiter = std::thread::spawn(move || waiting_stop.wait());
        assert!(!stop.is_requested());
        stop.request();
        stop.request();
        stop.on_stop(count());
        waiter.join().unwrap();
        assert!(stop.is_requested() && calls.load(Ordering::SeqCst) == 2);
    }
}
