//! Traceless hides *which* data is accessed from an adversary that holds the memory, the disk or
//! the cloud where the data lies.
//!
//! Encryption hides the contents; the order of addresses still reveals which records are read, when
//! and how often. The schemes of this library make that order independent of the data.
//!
//! An array of blocks for programs with private memory, for example the client of a disk or of a
//! server that another party runs:
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
//! For programs in memory that an adversary watches, for example in an enclave, the Oblivious
//! client:
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
//! And a map of byte strings, over either array:
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
//! | module | contents |
//! |---|---|
//! | [`types`] [`error`] [`rng`] [`clock`] [`trace`] [`durable`] | of the crate `traceless-core` |
//! | [`activity`] | the same |
//! | [`oram`] [`store`] [`seal`] | of the crate `traceless-core` |
//! | [`controller`] | a scheme as one path access at a time |
//! | [`paced`] | a scheme at a constant rate |
//! | [`tree`] [`posmap`] | bucket trees with their stash, and position maps |
//! | [`scheme`] | the schemes: linear, Path, Ring, Circuit, Unified and its family |
//! | [`oblivious`] | the client in memory that an adversary may watch: Circuit ORAM |
//! | [`map`] | a map of byte strings over an array that hides accesses |
//! | `array` | an array of blocks, with a builder: where to begin (feature `std`) |
//! | `suite` | the tests that every scheme must pass (feature `suite`) |
//!
//! Without the feature `arrays` there are [`controller`], [`tree`], [`posmap`], and the schemes
//! that run as controllers, which is what the paging and the simulator of this repository need.
//!
//! Each module may import only modules above it. The library does no I/O but through
//! [`store::Store`], draws no randomness but from an [`rng::Rng`] of the caller, and never looks at
//! a clock by itself.
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

pub use traceless_core::{
    activity, clock, durable, error, oram, rng, seal, stats, store, trace, types,
};

pub mod controller;
#[cfg(feature = "arrays")]
pub mod paced;

pub mod tree;

pub mod posmap;

pub mod scheme;

#[cfg(feature = "arrays")]
pub mod oblivious;

#[cfg(feature = "arrays")]
pub mod map;

#[cfg(all(feature = "arrays", feature = "std"))]
pub mod array;

#[cfg(feature = "suite")]
pub use traceless_core::suite;

#[cfg(all(feature = "arrays", feature = "std"))]
pub use array::Array;
#[cfg(feature = "arrays")]
pub use map::Map;
pub use traceless_core::error::{Error, Result};
pub use traceless_core::oram::{BlockOram, Hides};
pub use traceless_core::types::{Addr, Extent, Slot};
