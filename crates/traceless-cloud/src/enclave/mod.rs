//! The enclave's core: no I/O, no threads, no clock, no operating system.
//!
//! [`Querier`] picks one block of a path, [`Evictor`] permutes and reseals nodes. Each has its own
//! keys, so they share nothing and may run side by side. The host hands in bytes of slots, and
//! sealed orders of the gateway, which name the versions that these slots must have.
//!
//! A query of a tree that was never written. Gateway and enclave have the keys of one session:
//!
//! ```
//! use traceless_cloud::channel::{Receiver, Sender};
//! use traceless_cloud::enclave::{Querier, QueryReply, Shared};
//! use traceless_cloud::enclave_orders::Query;
//! use traceless_cloud::kernel::Choice;
//! use traceless_cloud::params::Params;
//! use traceless_core::rng::System;
//! use traceless_core::seal::Secret;
//!
//! # fn main() -> traceless_cloud::Result {
//! let g = Params::new(1000, 1024, 32)?.geometry;
//! let shared = Shared::new(g, Choice::Benes, &Secret::random(&mut System));
//! let session = shared.session(&[1; 16], &[2; 16]);
//! let mut querier = Querier::new(&shared, &session, Box::new(System));
//!
//! let query = Query { round: 0, leaf: 5, locations: Default::default(), target: 0 };
//! let mut order = Sender::new(&session.query, Box::new(System)).seal(&query.encode(&g));
//! let slots = vec![0; g.layers * g.slot_len()];
//! let mut reply = querier.query(&mut order, &slots)?;
//! let mut replies = Receiver::new(&session.reply);
//! let reply = QueryReply::decode(replies.open(&mut reply)?)?;
//! assert_eq!(reply.block, vec![0; g.sealed_len()]);
//! # Ok(())
//! # }
//! ```

mod block_wise;
mod evict;
mod job;
mod query;
#[cfg(test)]
mod tests;

pub use evict::{Evictor, WORKING_SET_MAX};
pub use job::{DamagedSlots, NodeBytes, PartBytes, SlotParts};
pub use query::{Querier, QueryReply, REPLY_HEAD_LEN};

use crate::channel::{Nonce, session_key};
use crate::geometry::Geometry;
use crate::kernel::Choice;
use traceless_core::seal::Secret;

/// The parameters and keys of a tree that gateway and enclave share.
#[derive(Clone)]
pub struct Shared {
    /// The tree's shape.
    pub geometry: Geometry,
    /// The kernel, which also determines the cipher of the transport seal.
    pub choice: Choice,
    /// The key of the transport seal.
    pub transport: Secret,
    /// The key that session keys are derived from.
    pub channel: Secret,
}

impl Shared {
    /// Derives a tree's keys from the key that the gateway hands to the enclave.
    pub fn new(geometry: Geometry, choice: Choice, key: &Secret) -> Self {
        let (transport, channel) = (key.derive(&[b"outer"]), key.derive(&[b"channel"]));
        Self { geometry, choice, transport, channel }
    }

    /// The keys of a session.
    pub fn session(&self, gateway: &Nonce, enclave: &Nonce) -> Session {
        let key = |purpose| session_key(&self.channel, gateway, enclave, purpose);
        Session { query: key(b"query"), reply: key(b"reply"), evict: key(b"evict") }
    }
}

/// The keys of one session: each serves one direction and purpose.
pub struct Session {
    /// For queries.
    pub query: Secret,
    /// For replies to queries.
    pub reply: Secret,
    /// For evictions.
    pub evict: Secret,
}
