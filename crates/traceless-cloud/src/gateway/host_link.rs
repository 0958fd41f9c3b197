//! What the gateway has of a host: its session, and the thread for its rounds.

use super::query_pacing::QueryPacing;
use super::rounds::{Maker, Outcome, Worker};
use crate::block_seal::BlockKeys;
use crate::channel::{Nonce, Receiver, Sender};
use crate::enclave::Shared;
use crate::host::Host;
use crate::host_group::ConnectedHost;
use std::sync::Arc;
use traceless_core::rng::Rng;

/// The gateway's end of the session with a host, and the round or renewal that is in progress
/// there.
pub struct HostLink {
    pub host: Arc<dyn Host>,
    pub worker: Worker,
    pub sender: Sender,
    pub receiver: Receiver,
    pub pacing: QueryPacing,
    /// Whether what is in progress only needs its commit.
    pub is_staged: bool,
    /// The enclave is gone, and the worker thread's job with it.
    pub is_lost: bool,
    /// How many sessions have followed the first one.
    pub sessions: u64,
    /// A result of the worker that waits until no batch is under way.
    pub outcome: Option<Outcome>,
}

impl HostLink {
    /// A link to a host in its first session.
    pub fn new(
        connected: &ConnectedHost,
        shared: &Shared,
        block_keys: BlockKeys,
        rng: &mut dyn Rng,
    ) -> Self {
        let ConnectedHost { host, session: (gateway, enclave) } = connected;
        let session = shared.session(gateway, enclave);
        let maker = Maker::new(shared, block_keys, &session, rng.fork());
        Self {
            host: host.clone(),
            worker: Worker::start(maker, host.clone()),
            sender: Sender::new(&session.query, rng.fork()),
            receiver: Receiver::new(&session.reply),
            pacing: QueryPacing::new(),
            is_staged: false,
            is_lost: false,
            sessions: 0,
            outcome: None,
        }
    }

    /// Uses the channels of another session.
    pub fn begin_session(
        &mut self,
        shared: &Shared,
        (gateway, enclave): (&Nonce, &Nonce),
        rng: &mut dyn Rng,
    ) {
        let session = shared.session(gateway, enclave);
        self.sessions += 1;
        self.sender = Sender::new(&session.query, rng.fork());
        self.receiver = Receiver::new(&session.reply);
        self.worker.renew(Sender::new(&session.evict, rng.fork()));
    }
}
