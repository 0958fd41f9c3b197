//! A cloud store that does not learn which block is requested.
//!
//! A *gateway* on the premises knows where each block lies. An untrusted *host* holds a tree of
//! nodes with many slots. An *enclave* beside the host saves the transfers that this would need: it
//! picks one block out of one slot of each layer, and evicts nodes. See ARCHITECTURE.md.
//!
//! Without the feature `std` only the enclave's code is built.
//!
//! The files:
//!
//! * `geometry`: the tree's shape: nodes, paths, epochs, parts of a slot
//! * `params`, `tail`: the tree for a number of blocks, and the probability of exceeding its limits
//! * `random`: a fast random generator that copies of a process do not share
//! * `join`: two pieces of work at once, if the host lends a thread
//! * `kernel`: oblivious permutation of rows: `network` (Beneš, with the gateway's `route`) and
//!   `nibbles` (the paper's), over a `slab`
//! * `outer`, `inner`: the two layers of encryption of a slot: the enclave's seal of a node's
//!   version, and under it the gateway's seal of the block
//! * `channel`, `orders`: sealed messages from gateway to enclave, and their content
//! * `enclave`: the core: `query` and `evict` (`job`: one node's eviction; `block_wise`: a
//!   baseline)
//! * `store`: the trait `NodeStore`, which engines implement; `mem`, `file`; `places`: the place of
//!   each version; `cached`: keeps top layers in memory, before any engine
//! * `host`: the traits `Host` (used by the gateway) and `Enclave` (used by the host); a store with
//!   an enclave
//! * `tee`: `evidence`: the enclave's attestation; `provision`: the key sealed to the enclave
//! * `frame`: messages on a byte stream, and errors as bytes
//! * `process`: an enclave in its own process: `child` (the code that runs there), `confine` (the
//!   rights it drops), `nodes` (shared memory that holds a node part by part)
//! * `wire`: between gateway and host: `message`, `tls`, `fence` (which gateway has the store)
//! * `server`: the host: `session`, `connection`
//! * `remote`: a server as a `Host`: `line` (a connection and its messages), `open`
//! * `gateway`: `index` (where each block lies), `waiting` (the paper's ring, and the tree's root),
//!   `queries` (sent together), `cache` (copies), `plan` (where rows go), `rounds` (run in a
//!   thread), `pace` (spreads the waiting for rounds), `beat` (a constant rate, instead of `pace`),
//!   `commits`, `sessions` (replace a lost enclave); `fill` (all blocks of an empty tree); `state`,
//!   which changes by `record`s (`codec`: as bytes), kept in a `journal`, which an `anchor` may
//!   protect from rollback and `inspect` checks; `names`, `objects`: values of any length
//! * `log`: entries in a file, sealed for the gateway and hashed for the host: `proof`, `marks`
//!   (how far the log is durable), `read` (finds whole entries and damage)
//! * `local`, `lock`, `durable`: gateway and host in one folder and process; a folder's lock; files
//!   and folders that survive a power cut
//! * `front`: what front ends share: one gateway behind a lock, `beating` (sends dummy queries at
//!   unused ticks), `metrics`, the time of day (`wall`), the request to `stop`
//! * `resp`: the Redis protocol: `protocol` (bytes), `session` (one connection), `values` (the
//!   commands, and the expiry of values), `access`, `info`, `glob`
//! * `tls`, `http`: TLS and HTTP/1.1 for clients (`connection`: passed to requests); metrics. The
//!   only async code
//! * `places`, `patient`: connections of unauthenticated clients: they give way to newer ones, and
//!   have one deadline
//! * `s3`: S3, with a library for its protocol: `handlers` (requests), `objects`, `uploads`,
//!   `copies`, `listing`, `bodies` (streamed bytes), `note` (an object's metadata), `conditions`,
//!   `access` (keys and grants)
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

pub mod channel;
#[cfg(feature = "http")]
mod connection;
#[cfg(feature = "std")]
mod durable;
pub mod enclave;
pub mod error;
#[cfg(feature = "std")]
mod frame;
#[cfg(feature = "std")]
pub mod front;
#[cfg(feature = "std")]
pub mod gateway;
pub mod geometry;
#[cfg(feature = "std")]
pub mod host;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "std")]
mod inner;
pub mod join;
pub mod kernel;
#[cfg(feature = "std")]
pub mod local;
#[cfg(feature = "std")]
mod lock;
#[cfg(feature = "std")]
mod log;
pub mod orders;
pub mod outer;
#[cfg(feature = "std")]
pub mod params;
#[cfg(feature = "std")]
mod patient;
#[cfg(feature = "std")]
mod places;
#[cfg(feature = "std")]
pub mod process;
#[cfg(feature = "std")]
pub mod random;
#[cfg(feature = "std")]
pub mod remote;
#[cfg(feature = "std")]
pub mod resp;
#[cfg(feature = "http")]
pub mod s3;
#[cfg(feature = "std")]
pub mod server;
#[cfg(feature = "std")]
pub mod store;
#[cfg(feature = "std")]
mod tail;
#[cfg(feature = "std")]
pub mod tee;
#[cfg(feature = "std")]
pub mod tls;
#[cfg(feature = "std")]
pub mod watched;
#[cfg(feature = "std")]
mod wire;

pub use error::{Error, Result};
