//! What every crate of Traceless stands on: the untrusted store, authenticated encryption, the
//! contracts of ORAMs and their schemes, and recorded events.
//!
//! Users of the ORAM library get all of it through the crate `traceless`.
//!
//! A sealed block goes to a store that an adversary watches: it learns where bytes were written and
//! how many, but not what they are.
//!
//! ```
//! use std::sync::Arc;
//! use traceless_core::Extent;
//! use traceless_core::rng::{Rng, System};
//! use traceless_core::seal::{Cipher, Nonce, Secret, TAG_LEN};
//! use traceless_core::store::{MemStore, Store, WatchedStore};
//! use traceless_core::trace::Recorder;
//!
//! # fn main() -> traceless_core::Result {
//! let witness = Arc::new(Recorder::default());
//! let store = WatchedStore::new(Arc::new(MemStore::new(4096)), witness.clone());
//! let sealer = Cipher::AesGcm.sealer(&Secret::random(&mut System));
//!
//! let (mut body, mut tag) = ([1; 64], [0; TAG_LEN]);
//! let nonce = Nonce::new(1, System.salt());
//! sealer.seal_in_place(nonce, b"block 7", &mut body, &mut tag);
//! store.write(&[Extent::new(7 * 64, 64)], &body)?;
//!
//! let events = witness.take();
//! assert_eq!((events.len(), events[0].at, events[0].len), (1, 7 * 64, 64));
//! assert_ne!(body, [1; 64]);
//! # Ok(())
//! # }
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`types`] [`error`] [`rng`] [`clock`] | basic types, errors, randomness, time |
//! | [`trace`] [`durable`] [`stats`] | recorded events, trusted state, histograms |
//! | [`activity`] | counts and samples of what happens, for live pages |
//! | [`oram`] | an array of blocks that hides accesses: the traits of every ORAM |
//! | [`store`] | the untrusted side, in bytes, and its slots |
//! | [`seal`] | keys and authenticated encryption |
//! | [`scheme`] | the contract of a scheme; what saved schemes share: life, key epochs, vault |
//! | `suite` | the tests that every scheme must pass (feature `suite`) |
//!
//! A module imports only modules of its own row and of the rows above it. The crate does no I/O
//! except through [`store::Store`], takes randomness only from an [`rng::Rng`] that the caller
//! supplies, and reads a clock only if the caller supplies one.
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

pub mod activity;
pub mod clock;
pub mod durable;
pub mod error;
pub mod oram;
pub mod rng;
pub mod stats;
pub mod trace;
pub mod types;

pub mod store;

pub mod seal;

pub mod scheme;

#[cfg(feature = "suite")]
pub mod suite;

pub use error::{Error, Result};
pub use oram::{BlockOram, Hides};
pub use types::{Addr, Extent, Slot};
