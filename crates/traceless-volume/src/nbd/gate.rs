//! Fencing: a request of a connection that is gone must not reach the device later on.
//!
//! A client whose connection breaks connects again and sends its unanswered writes once more. If
//! the server still held the first copy of such a write, and executed it after the client had
//! overwritten the place, newer data would be lost although it was acknowledged. So every request
//! passes the gate of its connection, and a gate that has been shut and drained lets none through
//! any more.
//!
//! What this cannot cover: a peer that vanished without a word (a cut cable), until the kernel
//! notices; and a client that moves unanswered requests to another connection which was already
//! in transmission.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lets the requests of one connection through to the device, one at a time, until it is shut.
#[derive(Default)]
pub(super) struct Gate {
    shut: AtomicBool,
    /// Held while a request is executed.
    turn: Mutex<()>,
}

impl Gate {
    /// Waits for nothing but a drain; fails once the gate is shut. The request is over when the
    /// guard is dropped.
    pub fn enter(&self) -> io::Result<MutexGuard<'_, ()>> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_shut() { Err(ErrorKind::ConnectionAborted.into()) } else { Ok(turn) }
    }

    /// Lets no further request in. The current one goes on.
    pub fn shut(&self) {
        self.shut.store(true, Ordering::Release);
    }

    /// Whether [`Gate::shut`] has been called.
    pub fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Acquire)
    }

    /// Waits until the current request is over. On a shut gate: nothing happens after it.
    pub fn drain(&self) {
        assert!(self.is_shut(), "an open gate never stays drained");
        drop(self.turn.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shut_gate_waits_for_the_current_request_and_admits_no_other() {
        let gate = Gate::default();
        let turn = gate.enter().unwrap();
        gate.shut();
        assert!(gate.turn.try_lock().is_err(), "the current request goes on");
        std::thread::scope(|scope| {
            let drained = scope.spawn(|| gate.drain());
            assert!(!drained.is_finished());
            drop(turn);
        });
        assert_eq!(gate.enter().unwrap_err().kind(), ErrorKind::ConnectionAborted);
    }
}
