//! Fencing: a request of a broken connection must not reach the device later on.
//!
//! When a client's connection breaks, the client connects again and sends its unanswered writes
//! once more. If the server still held the first copy of a write, and executed it after the client
//! had overwritten the place, newer data would be lost although it was acknowledged. So every
//! request, or group of requests that are executed together, passes the gate of its connection.
//! After a gate was shut and drained, no request passes it.
//!
//! The gate does not cover two cases: a peer that vanished silently (a cut cable), until the kernel
//! notices; and a client that moves unanswered requests to another connection that was already in
//! transmission.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lets the requests of one connection through to the device, one or one group at a time, until it
/// is shut.
#[derive(Default)]
pub(super) struct Gate {
    shut: AtomicBool,
    /// Locked while a request or a group is executed.
    turn: Mutex<()>,
}

impl Gate {
    /// Begins a request, which ends when the guard is dropped. Waits only for a drain; fails once
    /// the gate is shut.
    pub fn enter(&self) -> io::Result<MutexGuard<'_, ()>> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_shut() { Err(ErrorKind::ConnectionAborted.into()) } else { Ok(turn) }
    }

    /// Lets no further request in. The current one continues.
    pub fn shut(&self) {
        self.shut.store(true, Ordering::Release);
    }

    /// Whether [`Gate::shut`] has been called.
    pub fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Acquire)
    }

    /// Waits until the current request has ended. No request follows it, as the gate must be shut.
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
