//! The connections of a server. The registry counts them, fences dead ones, and wakes all of them
//! when the server ends.
//!
//! A connection in transmission keeps its place. If all places are taken and a new connection
//! comes, the oldest one that still negotiates gives up its place.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::gate::Gate;
use super::socket::Socket;

/// Connections that are served at a time. A further one takes the place of the oldest that still
/// negotiates; if all are in transmission, it is closed at once.
pub const CONNECTIONS_MAX: usize = 16;
/// When the server ends, a client has this long to take the reply to its last request.
const LAST_REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// One connection, as far as other connections use it.
pub(super) struct Peer {
    socket: Socket,
    pub gate: Gate,
    /// Whether the connection is in transmission. Set under the registry's lock.
    transmits: AtomicBool,
}

/// The open connections.
#[derive(Default)]
pub(super) struct Registry {
    peers: Mutex<Vec<Arc<Peer>>>,
    left: Condvar,
}

impl Registry {
    /// Adds a connection. Returns `None` if too many are in transmission.
    pub fn add(&self, socket: Socket) -> Option<Arc<Peer>> {
        let mut peers = self.peers();
        if peers.len() >= CONNECTIONS_MAX {
            // Peers are in the order in which they connected.
            let negotiates = |peer: &Arc<Peer>| !peer.transmits.load(Ordering::Relaxed);
            let oldest = peers.iter().position(negotiates)?;
            let oldest = peers.remove(oldest);
            oldest.gate.shut();
            oldest.socket.close();
        }
        let transmits = AtomicBool::new(false);
        let peer = Arc::new(Peer { socket, gate: Gate::default(), transmits });
        peers.push(Arc::clone(&peer));
        Some(peer)
    }

    /// Removes a connection that has ended.
    pub fn remove(&self, peer: &Arc<Peer>) {
        self.peers().retain(|other| !Arc::ptr_eq(other, peer));
        self.left.notify_all();
    }

    /// Called when `newcomer` begins transmission. After it, no request of a dead connection
    /// reaches the device any more. Live connections continue.
    ///
    /// Waits for the current request of each dead connection, without blocking live ones.
    pub fn fence_the_dead(&self, newcomer: &Arc<Peer>) {
        newcomer.socket.be_patient();
        let peers = self.peers();
        if newcomer.gate.is_shut() {
            // The newcomer gave up its place, or the server ends. In the latter case the newcomer
            // has no more requests, and the other connections are shut for reading here, so they
            // only look dead.
            return;
        }
        newcomer.transmits.store(true, Ordering::Relaxed);
        // Connections that another thread has fenced stay in the list until they are drained.
        let dead: Vec<_> = (peers.iter())
            .filter(|peer| !Arc::ptr_eq(peer, newcomer) && peer.socket.has_hung_up())
            .cloned()
            .collect();
        drop(peers);
        for peer in &dead {
            peer.gate.shut();
        }
        for peer in &dead {
            peer.gate.drain();
        }
    }

    /// Ends all connections after their current requests. No connection may be added meanwhile.
    pub fn end_all(&self) {
        let peers = self.peers();
        for peer in peers.iter() {
            peer.gate.shut();
            peer.socket.close_for_reading();
        }
        let some_left = |peers: &mut Vec<_>| !peers.is_empty();
        let (peers, _) = (self.left)
            .wait_timeout_while(peers, LAST_REPLY_TIMEOUT, some_left)
            .unwrap_or_else(PoisonError::into_inner);
        for peer in peers.iter() {
            peer.socket.close();
        }
    }

    fn peers(&self) -> MutexGuard<'_, Vec<Arc<Peer>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::thread;
    use traceless_core::clock::{Clock, Monotonic};

    const A_WHILE: Duration = Duration::from_secs(30);

    #[test]
    fn a_shutdown_waits_for_no_other_request() {
        let registry = Registry::default();
        let (near, _far): (Vec<_>, Vec<_>) = (0..2).map(|_| UnixStream::pair().unwrap()).unzip();
        let mut peers =
            near.into_iter().map(|s| registry.add(Socket::new(s.into(), true, A_WHILE)).unwrap());
        let (busy, newcomer) = (peers.next().unwrap(), peers.next().unwrap());
        let turn = busy.gate.enter().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| registry.end_all());
            while !newcomer.gate.is_shut() {
                thread::yield_now();
            }
            let fencing = scope.spawn(|| registry.fence_the_dead(&newcomer));
            let clock = Monotonic::start();
            while !fencing.is_finished() && u128::from(clock.now()) < LAST_REPLY_TIMEOUT.as_nanos()
            {
                thread::yield_now();
            }
            let waits = !fencing.is_finished();
            drop(turn);
            assert!(!waits, "the newcomer waits for the busy one");
            registry.remove(&newcomer);
            registry.remove(&busy);
        });
    }
}
