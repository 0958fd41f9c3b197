//! The connections of a server: counted, fenced when they are dead, woken when all is to end.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::gate::Gate;
use super::socket::Socket;

/// Connections that are served at a time; a further one is closed at once.
pub const CONNECTIONS_MAX: usize = 16;
/// When all is to end, a client gets this long to take the reply to its last request.
const LAST_REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// One connection, as the others see it.
pub(super) struct Peer {
    socket: Socket,
    pub gate: Gate,
}

/// The connections that are open.
#[derive(Default)]
pub(super) struct Registry {
    peers: Mutex<Vec<Arc<Peer>>>,
    left: Condvar,
}

impl Registry {
    /// Adds a connection. `None` if there are too many.
    pub fn add(&self, socket: Socket) -> Option<Arc<Peer>> {
        let mut peers = self.peers();
        (peers.len() < CONNECTIONS_MAX).then(|| {
            let peer = Arc::new(Peer { socket, gate: Gate::default() });
            peers.push(Arc::clone(&peer));
            peer
        })
    }

    /// Removes a connection that is over.
    pub fn remove(&self, peer: &Arc<Peer>) {
        self.peers().retain(|other| !Arc::ptr_eq(other, peer));
        self.left.notify_all();
    }

    /// Called when `newcomer` begins transmission: from now on nothing happens any more on behalf
    /// of connections whose peer is gone. Live ones go on.
    ///
    /// Waits for the current request of each dead connection, without holding up others.
    pub fn fence_the_dead(&self, newcomer: &Arc<Peer>) {
        newcomer.socket.be_patient();
        // Those that somebody else has fenced are still here until they are drained.
        let dead: Vec<_> = (self.peers().iter())
            .filter(|peer| !Arc::ptr_eq(peer, newcomer) && peer.socket.has_hung_up())
            .cloned()
            .collect();
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
