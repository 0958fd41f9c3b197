//! The HTTP connection that a request came on: who may read it, and its place among all.

use crate::places::{Cutter, Place};
use std::sync::Arc;
use tokio::sync::Notify;

/// Who may see and change what a connection carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wire {
    /// The two ends alone.
    Tls,
    /// Programs of this machine.
    Loopback,
    /// Whoever has the network.
    Network,
}

/// A connection. Each request carries it among its extensions.
#[derive(Clone)]
pub struct Connection {
    place: Arc<Place<Ender>>,
    wire: Wire,
}

impl Connection {
    /// One that has this place among all.
    pub fn new(place: Place<Ender>, wire: Wire) -> Self {
        Self { place: Arc::new(place), wire }
    }

    /// Its place.
    pub fn place(&self) -> Arc<Place<Ender>> {
        self.place.clone()
    }

    /// Keeps the connection's place: the client is authenticated.
    pub fn keep(&self) {
        self.place.keep();
    }

    /// Who may see and change what it carries.
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
    pub async fn asked(&self) {
        self.0.notified().await;
    }
}
