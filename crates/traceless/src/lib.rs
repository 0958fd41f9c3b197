//! Traceless hides *which* data is touched from whoever holds the memory, the disk or the cloud
//! that it lies in.
//!
//! Encryption hides what the data is; the order of addresses still tells who looked at what, when
//! and how often. The schemes of this library make that order independent of the data.
//!
//! An array of blocks for programs whose memory nobody watches, such as a client of a disk or a
//! server that somebody else runs:
//!
//! ```
//! # fn main() -> traceless::Result {
//! let mut array = traceless::Array::builder().blocks(1000).block_len(64).build()?;
//! array.write(7, &[1; 64])?;
//! assert_eq!(array.read(7)?, [1; 64]);
//! # Ok(())
//! # }
//! ```
//!
//! For programs whose own memory is watched, such as in an enclave, the Oblivious client:
//!
//! ```
//! use traceless::rng::System;
//! use traceless::oram::Oram;
//! use traceless::{Addr, oblivious};
//!
//! # fn main() -> traceless::Result {
//! let mut oram = oblivious::create(1000, 64, Box::new(System))?;
//! oram.write(Addr(7), &[1; 64])?;
//! let mut block = [0; 64];
//! oram.read(Addr(7), &mut block)?;
//! assert_eq!(block, [1; 64]);
//! # Ok(())
//! # }
//! ```
//!
//! And a map of byte strings, over either:
//!
//! ```
//! # fn main() -> traceless::Result {
//! let mut map = traceless::Map::builder().capacity(1000).key_len(16).value_len(8).build()?;
//! map.insert(b"ann", b"blue")?;
//! assert_eq!(map.get(b"ann")?.as_deref(), Some(&b"blue"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! In `examples/` are a private contact look-up, a map, and an encrypted array in a file.
//!
//! | module | what it holds |
//! |---|---|
//! | [`types`] [`error`] [`rng`] [`clock`] [`trace`] [`durable`] | the ground floor |
//! | [`oram`] [`controller`] | what a user holds, and the same one path access at a time |
//! | [`paced`] | that at a fixed rate |
//! | [`store`] | the untrusted side, in bytes, and its slots |
//! | [`seal`] | keys and authenticated encryption |
//! | [`tree`] [`posmap`] | bucket trees with their stash, and who knows which path a block is on |
//! | [`scheme`] | the schemes: plain (insecure control), linear, DetWoORAM, HIVE, DataLair-style |
//! | [`oblivious`] | the client whose own memory may be watched: Circuit ORAM |
//! | [`map`] | a map of byte strings over an array that hides accesses |
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

#[cfg(feature = "std")]
pub mod array;

#[cfg(feature = "suite")]
pub mod suite;

#[cfg(feature = "std")]
pub use array::Array;
pub use error::{Error, Result};
pub use map::Map;
pub use oram::{BlockOram, Hides};
pub use types::{Addr, Extent, Slot};

/// An array of blocks whose accesses tell nothing: an [`Array`], by the name of what
/// it is. The trait that all schemes share is [`oram::Oram`](trait@oram::Oram).
///
/// ```
/// # fn main() -> traceless::Result {
/// let mut oram = traceless::Oram::builder().blocks(1000).block_len(64).build()?;
/// oram.update(7, |block| block[0] += 1)?;
/// assert_eq!(oram.read(7)?[0], 1);
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "std")]
pub type Oram = Array;
