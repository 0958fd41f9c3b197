//! The enclave's core: no I/O, no threads, no clock, no operating system.
//!
//! [`Querier`] picks one block of a path, [`Evictor`] mixes nodes anew. Both have keys of their
//! own, so they share nothing and may run side by side. The host hands in bytes of slots, and
//! sealed orders of the gateway, which say what versions these slots must be of.

mod block_wise;
mod evict;
mod job;
mod query;
#[cfg(test)]
mod tests;

pub use evict::{Evictor, WORKING_SET_MAX};
pub use job::{NodeBytes, PartBytes, Parts};
pub use query::Querier;

use crate::channel::{Nonce, session_key};
use crate::geometry::Geometry;
use crate::kernel::Choice;
use traceless::seal::Secret;

/// What gateway and enclave share about a tree.
#[derive(Clone)]
pub struct Shared {
    /// The shape.
    pub geometry: Geometry,
    /// The kernel, and so the outer cipher.
    pub choice: Choice,
    /// The key of the outer layer.
    pub outer: Secret,
    /// The key of the channel.
    pub channel: Secret,
}

impl Shared {
    /// The keys of a tree under one that the gateway hands to the enclave.
    pub fn new(geometry: Geometry, choice: Choice, key: &Secret) -> Self {
        let (outer, channel) = (key.derive(&[b"outer"]), key.derive(&[b"channel"]));
        Self { geometry, choice, outer, channel }
    }

    /// The keys of a session.
    pub fn session(&self, gateway: &Nonce, enclave: &Nonce) -> Session {
        let key = |purpose| session_key(&self.channel, gateway, enclave, purpose);
        Session { query: key(b"query"), reply: key(b"reply"), evict: key(b"evict") }
    }
}

/// The keys of one session: each serves one direction and purpose.
pub struct Session {
    /// Queries.
    pub query: Secret,
    /// Their replies.
    pub reply: Secret,
    /// Evictions.
    pub evict: Secret,
}
