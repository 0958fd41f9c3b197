//! A cloud store that does not learn which block is requested.
//!
//! A *gateway* on the premises knows where each block lies. An untrusted *host* holds a tree of
//! nodes with many slots. An *enclave* beside the host saves the transfers that this would need: it
//! picks one block out of one slot of each layer, and evicts nodes. See ARCHITECTURE.md.
//!
//! A gateway with its host and enclave in one process:
//!
//! ```
//! use traceless_cloud::kernel::Choice;
//! use traceless_cloud::local_deployment::LocalDeployment;
//! use traceless_cloud::params::Params;
//! use traceless_cloud::store::Durability;
//! use traceless_cloud::tee::Policy;
//!
//! # fn main() -> traceless_cloud::Result {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! // 1000 blocks of 1 KiB. Each limit of the tree is exceeded with probability 2^-32.
//! let params = Params::new(1000, 1024, 32)?;
//! let policy = Policy::Simulated;
//! let local = LocalDeployment::new(folder, None, None, policy);
//! let mut gateway = local.open(params, Choice::Benes, Durability::Process)?.gateway;
//! gateway.put(7, &[1; 1024])?;
//! assert_eq!(gateway.get(7)?, [1; 1024]);
//! gateway.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! Without the feature `std` only the enclave's code is built.
//!
//! The files:
//!
//! * `geometry`: the tree's shape: nodes, paths, epochs, parts of a slot
//! * `params`, `tail_probability`: the tree for a number of blocks, and the probability of
//!   exceeding its limits
//! * `costs`: bytes that queries and rounds of a tree move, and the gateway's memory; `capacity`:
//!   what a load needs, and what it costs a month
//! * `random`: a fast random generator that copies of a process do not share
//! * `fork_join`: two pieces of work at once, if the host lends a thread
//! * `kernel`: oblivious permutation of rows: `network` (Beneš, with the gateway's `route`) and
//!   `nibbles` (the paper's), over a `slab`
//! * `transport_seal`, `block_seal`: the two layers of encryption of a slot: the enclave's seal of
//!   a node's version, and under it the gateway's seal of the block
//! * `codec`: fixed layouts as bytes
//! * `channel`, `enclave_orders`: sealed messages from gateway to enclave, and their content
//! * `enclave`: the core: `query` and `evict` (`job`: one node's eviction; `block_wise`: a
//!   baseline)
//! * `store`: the trait `NodeStore`, which engines implement, and `suite`, which tests them; `mem`,
//!   `file`; `versions`: which versions there are, `places`: the place of each; `cached`: keeps top
//!   layers in memory, before any engine; `mirrored`: a store with a second copy (`copyable`);
//!   `boxed`, `opener`, `place`: a store that is chosen at run time
//! * `host`: the traits `Host` (used by the gateway) and `Enclave` (used by the host); a store with
//!   an enclave
//! * `tee`: `evidence`: the enclave's attestation; `provision`: the key sealed to the enclave
//! * `frame`: messages on a byte stream, and errors as bytes
//! * `process`: an enclave in its own process: `child` (the code that runs there), `confine` (the
//!   rights it drops), `nodes` (shared memory that holds a node part by part)
//! * `wire`: between gateway and host: `message`, `tls`, `fence` (which gateway has the store)
//! * `server`: the host: `session`, `connection`
//! * `remote`: a server as a `Host`: `line` (a connection and its messages), `open`
//! * `gateway`: `index` (where each block lies), `stash` (the paper's ring, and the tree's root),
//!   `queries` (sent together), `cache` (copies), `plan` (where rows go), `rounds` (run in a
//!   thread), `query_pacing` (spreads the waiting for rounds), `constant_rate` (instead of pacing),
//!   `commits`, `sessions` (replace a lost enclave); `fill` (all blocks of an empty tree); `state`,
//!   which changes by `record`s, stored in a `journal`, which an `anchor` may protect from rollback
//!   and `inspect` checks; `names`, `objects`: values of any length, and their `backup`; `steps` of
//!   clients that share a batch (`batches`): `object_steps`, `write_steps`; `tree_moves` to hosts
//!   that are added, or from hosts that are drained
//! * `lease` of the gateway: one of several gateways has a state in a storage engine (`state_log`)
//! * `log`: entries in a file, sealed for the gateway and hashed for the host: `proof`, `marks`
//!   (how far the log is durable), `read` (finds whole entries and damage)
//! * `local_deployment`, `lock`, `durable`: gateway and host in one folder and process; a folder's
//!   lock; files and folders that survive a power cut
//! * `shared`: what front ends share: one gateway behind a lock, `step_queue` (steps of several
//!   clients), `tick_queue` (the same at a constant rate), `rate_thread` (makes its ticks),
//!   `drafts` (objects that are written), `metrics`, the time of day (`wall`), the request to
//!   `stop`
//! * `resp`: the Redis protocol: `protocol` (bytes), `session` (one connection), `service` (what
//!   connections share), `shared_commands` (run beside other clients' queries), `value_commands`,
//!   `values` (with their expiry), `info`, `glob`
//! * `host_group`: the hosts of a divided tree (`gateway`: `partitions`, `host_link`);
//!   `observed_host`: a host that records requests for the audit; `block_on`: waits for the
//!   futures of storage engines
//! * `tls`, `http`: TLS and HTTP/1.1 for clients (`connection`: passed to requests); metrics
//! * `connection_places`, `deadline_stream`: connections of unauthenticated clients: they give
//!   way to newer ones, and have one deadline
//! * `s3`: S3, with a library for its protocol: `handlers` (requests), `objects`, `uploads`,
//!   `copies`, `listing`, `bodies` (streamed bytes), `note` (an object's metadata), `conditions`,
//!   `tags` and `tagging` (their changes), `domains`, `access` (keys and grants)
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(feature = "std")]
mod block_on;
#[cfg(feature = "std")]
mod block_seal;
#[cfg(feature = "std")]
pub mod capacity;
pub mod channel;
pub mod codec;
#[cfg(feature = "http")]
mod connection;
#[cfg(feature = "std")]
mod connection_places;
#[cfg(feature = "std")]
pub mod costs;
#[cfg(feature = "std")]
mod deadline_stream;
#[cfg(feature = "std")]
mod durable;
pub mod enclave;
pub mod enclave_orders;
pub mod error;
pub mod fork_join;
#[cfg(feature = "std")]
mod frame;
#[cfg(feature = "std")]
pub mod gateway;
pub mod geometry;
#[cfg(feature = "std")]
pub mod host;
#[cfg(feature = "std")]
pub mod host_group;
#[cfg(feature = "std")]
mod hosted_enclave;
#[cfg(feature = "http")]
pub mod http;
pub mod kernel;
#[cfg(feature = "std")]
pub mod local_deployment;
#[cfg(feature = "std")]
mod lock;
#[cfg(feature = "std")]
mod log;
#[cfg(feature = "std")]
pub mod observed_host;
#[cfg(feature = "std")]
pub mod params;
#[cfg(feature = "std")]
pub mod process;
#[cfg(feature = "std")]
pub mod random;
#[cfg(feature = "std")]
pub mod remote;
#[cfg(feature = "std")]
mod repeating_thread;
#[cfg(feature = "std")]
pub mod resp;
#[cfg(feature = "http")]
pub mod s3;
#[cfg(feature = "std")]
pub mod server;
#[cfg(feature = "std")]
pub mod shared;
#[cfg(feature = "std")]
mod state_log;
#[cfg(feature = "std")]
pub mod store;
#[cfg(feature = "std")]
mod tail_probability;
#[cfg(feature = "std")]
pub mod tee;
#[cfg(feature = "std")]
pub mod tls;
pub mod transport_seal;
#[cfg(feature = "std")]
mod wire;

#[cfg(feature = "std")]
pub use block_on::block_on;
pub use error::{Error, Result};
