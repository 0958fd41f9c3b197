//! Traceless hides *which* data is touched from whoever holds the memory, the disk or the cloud
//! that it lies in.
//!
//! Encryption hides what the data is; the order of addresses still tells who looked at what, when
//! and how often. The schemes of this library make that order independent of the data.
//!
//! | module | what it holds |
//! |---|---|
//! | [`types`] [`error`] [`rng`] [`clock`] [`trace`] [`durable`] | the ground floor |
//! | [`oram`] [`controller`] [`paced`] | what a user holds, the same one path access at a time, and that at a fixed rate |
//! | [`store`] | the untrusted side, in bytes, and its slots |
//! | [`seal`] | keys and authenticated encryption |
//! | [`tree`] [`posmap`] | bucket trees with their stash, and who knows which path a block is on |
//! | [`scheme`] | the schemes: plain (insecure control), linear, DetWoORAM, HIVE, DataLair-style |
//! | [`oblivious`] | the client whose own memory may be watched: Circuit ORAM |
//! | [`map`] | a map of byte strings over an array that hides accesses |
//! | [`build`] | a scheme from its configuration |
//! | `array` | an array of blocks, with a builder: where to begin (feature `std`) |
//! | `suite` | the tests that every scheme must pass (feature `suite`) |
//!
//! Each may import only those above it. The library does no I/O but through [`store::Store`], draws
//! no randomness but from an [`rng::Rng`] it was handed, and never looks at a clock by itself.
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

pub mod clock;
pub mod controller;
pub mod durable;
pub mod error;
pub mod oram;
pub mod paced;
pub mod rng;
pub mod trace;
pub mod types;

pub mod store;

pub mod seal;

pub mod tree;

pub mod posmap;

pub mod scheme;

pub mod oblivious;

pub mod map;

pub mod build;

#[cfg(feature = "std")]
pub mod array;

#[cfg(feature = "suite")]
pub mod suite;

#[cfg(feature = "std")]
pub use array::Array;
pub use error::{Error, Result};
pub use map::Map;
pub use oram::{BlockOram, Hides, Oram};
pub use types::{Addr, Extent, Slot};
