//! A store in the cloud that does not see which block is asked for.
//!
//! A *gateway* on the premises knows where each block lies. An untrusted *host* holds a tree of
//! nodes with many slots. An *enclave* beside it does what would otherwise go back and forth: it
//! picks one block out of a slot of each layer, and mixes nodes anew. See ARCHITECTURE.md.
//!
//! Without the feature `std` only the enclave's side is built.
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
