//! Gateways for tests.

use super::{Gateway, Keys};
use crate::host::{Host, InProcess};
use crate::kernel::Choice;
use crate::params::Params;
use crate::store::{MemStore, NodeStore};
use std::sync::Arc;
use traceless_core::rng::SeededRng;
use traceless_core::seal::Secret;

/// Bytes of a block.
pub const BLOCK: usize = 64;

pub fn params(blocks: u64) -> Params {
    Params::new(blocks, BLOCK, 4).unwrap()
}

pub fn gateway_over(
    params: Params,
    store: impl NodeStore + 'static,
    choice: Choice,
    seed: u64,
) -> Gateway {
    gateway_with(params, store, choice, seed, |host| Arc::new(host))
}

/// A gateway with its tree in memory, at a host that `wrap` wraps.
pub fn gateway_behind(
    params: Params,
    seed: u64,
    wrap: impl FnOnce(InProcess<MemStore>) -> Arc<dyn Host>,
) -> Gateway {
    gateway_with(params, MemStore::new(params.geometry), Choice::Benes, seed, wrap)
}

fn gateway_with<S: NodeStore + 'static>(
    params: Params,
    store: S,
    choice: Choice,
    seed: u64,
    wrap: impl FnOnce(InProcess<S>) -> Arc<dyn Host>,
) -> Gateway {
    let mut rng = SeededRng::new(seed);
    let keys = Keys::new(&Secret::random(&mut rng), &[7; 16]);
    let nonce = [3; 16];
    let shared = keys.shared(&params, choice);
    let (host, own) = InProcess::start(&shared, store, &nonce, &mut rng).unwrap();
    Gateway::open(params, &keys, choice, wrap(host), (&nonce, &own), None, Box::new(rng)).unwrap()
}

/// An empty tree of `blocks` blocks, in memory.
pub fn in_memory(blocks: u64, seed: u64) -> Gateway {
    let params = params(blocks);
    gateway_over(params, MemStore::new(params.geometry), Choice::Benes, seed)
}
