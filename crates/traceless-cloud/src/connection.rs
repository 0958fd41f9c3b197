//! The HTTP connection of a request: how well it is protected, and its place at the server.

use crate::connection_places::{Cutter, Place};
use std::sync::Arc;
use tokio::sync::Notify;

/// Which parties can read and change the bytes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wire {
    /// Only the two ends.
    Tls,
    /// Programs on this machine.
    Loopback,
    /// Every party on the network.
    Network,
}

/// A connection. Each request carries it among its extensions.
#[derive(Clone)]
pub struct Connection {
    place: Arc<Place<Ender>>,
    wire: Wire,
}

impl Connection {
    /// A connection that holds this place.
    pub fn new(place: Place<Ender>, wire: Wire) -> Self {
        Self { place: Arc::new(place), wire }
    }

    /// The connection's place.
    pub fn place(&self) -> Arc<Place<Ender>> {
        self.place.clone()
    }

    /// Keeps the connection's place: the client is authenticated.
    pub fn keep(&self) {
        self.place.keep();
    }

    /// Which parties can read and change the connection's bytes.
    pub fn wire(&self) -> Wire {
        self.wire
    }
}

/// Ends a connection's task.
#[derive(Clone, Default)]
pub struct Ender(Arc<Notify>);

impl Cutter for Ender {
    fn cut(&self) {
        self.0.notify_one();
    }
}

impl Ender {
    /// Waits until the connection is to be closed.
    pub async fn ended(&self) {
        self.0.notified().await;
    }
}
