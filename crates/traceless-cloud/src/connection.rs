//! A connection that HTTP is spoken on, as its requests know it.

use crate::places::{Cut, Place};
use std::sync::Arc;
use tokio::sync::Notify;

/// Who may see and change what a connection carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wire {
    /// The two ends.
    Tls,
    /// This machine.
    Loopback,
    /// Whoever has the network.
    Network,
}

/// A connection, as its requests know it among their extensions.
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

    /// The client has shown who it is.
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

impl Cut for Ender {
    fn cut(&self) {
        self.0.notify_one();
    }
}

impl Ender {
    /// Waits until it is to end.
    pub async fn asked(&self) {
        self.0.notified().await;
    }
}
