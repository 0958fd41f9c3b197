//! A store in the cloud that does not see which block is asked for.
//!
//! A *gateway* on the premises knows where each block lies. An untrusted *host* holds a tree of
//! nodes with many slots. An *enclave* beside it does what would otherwise go back and forth: it
//! picks one block out of a slot of each layer, and mixes nodes anew. See ARCHITECTURE.md.
//!
//! Without the feature `std` only the enclave's side is built.
//!
//! File by file:
//!
//! * `geometry`: the tree in numbers: nodes, paths, epochs, parts of a slot
//! * `params`, `tail`: the tree for so many blocks, and how likely each of its limits is met
//! * `random`: randomness for whoever draws often, which copies of a process do not share
//! * `join`: two pieces of work at once, where the host lends a thread
//! * `kernel`: permuting rows unseen: `network` (Beneš, with the gateway's `route`) and `nibbles`
//!   (the paper's), over a `slab`
//! * `outer`, `inner`: what a slot wears: the enclave's seal of a node's version, under it the
//!   gateway's of the block
//! * `channel`, `orders`: messages from gateway to enclave, and what they say
//! * `enclave`: the core: `query` and `evict` (`job`: one node's; `block_wise`: to compare with)
//! * `store`: the trait `NodeStore`, which engines implement; `mem`, `file`; `places`: which
//!   version lies where; `cached`: top layers in memory before any of them
//! * `host`: the traits `Host`, what a gateway knows of it, and `Enclave`, what a host knows of
//!   that; a store with an enclave beside it
//! * `tee`: `evidence`: what an enclave says of itself; `provision`: the key sealed to it
//! * `frame`: messages on a stream of bytes, and errors as bytes
//! * `process`: an enclave in a process of its own: `child` (what runs there), `confine` (what it
//!   gives up), `nodes` (memory that both have, in which a node lies part by part)
//! * `wire`: between gateway and host: `message`, `tls`, `fence` (which gateway has the store)
//! * `server`: the host: `session`, `connection`
//! * `remote`: that host as a `Host`: `line` (a connection and what is sent on it), `open`
//! * `gateway`: `index` (where each block lies), `waiting` (the paper's ring, and the tree's root),
//!   `queries` (sent together), `cache` (copies), `plan` (where rows go), `rounds` (carried out in
//!   a thread), `pace` (how they are waited for), `beat` (a constant rate in its place), `commits`,
//!   `sessions` (when an enclave is lost); `fill` (all blocks of an empty tree); `state`, which
//!   changes by `record`s (`codec`: as bytes), kept in a `journal` that an `anchor` may remember
//!   and `inspect` looks at; `names`, `objects`: values of any length
//! * `log`: entries in a file, sealed for the gateway and hashed for the host: `proof`, `marks`
//!   (how far it is durable), `read` (what is in it, and what is damaged)
//! * `local`, `lock`, `durable`: gateway and host in one folder and process; a folder that one
//!   process has at a time; files and folders whose names a power cut does not take
//! * `front`: what front ends share: one gateway behind a lock, `beating` (who fills slots that
//!   nobody uses), `metrics`, the time of day (`wall`), the wish to `stop`
//! * `resp`: the Redis protocol: `protocol` (bytes), `session` (one connection), `values` (what
//!   commands do, and when values expire), `access`, `info`, `glob`
//! * `tls`, `http`: TLS and HTTP/1.1 towards clients (`connection`: as its requests know it);
//!   metrics. The only async code
//! * `places`, `patient`: connections whose clients have not shown who they are: they give way to
//!   newcomers, and have one deadline
//! * `s3`: S3, over the library that speaks it: `handlers` (requests), `objects`, `uploads`,
//!   `copies`, `listing`, `bodies` (bytes that stream), `note` (what is kept with an object),
//!   `conditions`, `access` (keys and grants)
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
