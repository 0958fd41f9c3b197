//! The schemes. Each is an [`Oram`](traceless_core::oram::Oram) over a store.
//!
//! * `scheme/saves`: logs and trusted states in turns, for schemes that rewrite what they read;
//!   `scheme/keys`: keys of their areas; the vault beside them in one store is
//!   [`store_vault`]
//! * `scheme/linear`: the scheme that touches everything
//! * `scheme/path`: Path ORAM, flat or recursive, as a controller
//! * `scheme/path/durable`: Path ORAM that is saved: log, states, openings; `path/geometry`;
//!   `path/relabel`: every block onto another path; `path/fill`: all at once; `path/unsaved`: in
//!   memory, for once
//! * `scheme/pmmac`: tags of blocks, over any controller
//! * `scheme/unified`: data and position map in one tree, with a PLB; blocks of several parts, each
//!   on a path of its own or all on one (bundles); `stash_hits`: without a path, context switches;
//!   `fill`: all at once; `cache_above`: what a cache takes, returns, offers; `maps`: the position
//!   map; `maps/rekey`: another key for all labels; `scheme/traffic`: what either moves, in bytes
//! * `scheme/rho`: a small tree beside a unified one
//! * `scheme/circuit`: Circuit ORAM for a client in private memory
//! * `scheme/ring`: Ring ORAM: `params`, `bucket` (its metadata), `tree` (slots that are read one
//!   by one), `sealed`, `ghost`, `top` (cached levels), `exchange` (blocks that leave and come, for
//!   a pager)
//! * `scheme/requests`: what the controllers of both keep besides; `scheme/health`: whether an
//!   earlier error has ended a controller
//!
//! A program that uses the trait [`Scheme`](contract::Scheme) works with each of them:
//!
//! ```
//! use traceless::rng::System;
//! use traceless::scheme::contract::Scheme;
//! use traceless::scheme::linear::LinearScheme;
//! use traceless::scheme::path::PathGeometry;
//! use traceless::{Addr, Hides};
//!
//! # fn main() -> traceless::Result {
//! let few = LinearScheme { blocks: 10, block_len: 64 };
//! let many = PathGeometry::new(10_000, 64)?;
//! for scheme in [&few as &dyn Scheme, &many] {
//!     assert_eq!(scheme.hides(), Hides::ReadsAndWrites);
//!     let mut oram = scheme.create_in_memory(Box::new(System))?;
//!     oram.write(Addr(7), &[1; 64])?;
//!     let mut block = [0; 64];
//!     oram.read(Addr(7), &mut block)?;
//!     assert_eq!(block, [1; 64], "{}", scheme.name());
//! }
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "arrays")]
pub mod circuit;
pub(crate) mod health;
#[cfg(feature = "arrays")]
pub(crate) mod keys;
#[cfg(feature = "arrays")]
pub mod linear;
#[cfg(all(test, feature = "std"))]
mod long_run;
pub mod path;
#[cfg(feature = "arrays")]
pub mod pmmac;
mod requests;
pub mod rho;
pub mod ring;
#[cfg(feature = "arrays")]
pub(crate) mod saves;
pub mod traffic;
#[cfg(all(test, feature = "std"))]
pub(crate) mod tree_rig;
pub mod unified;

pub use traceless_core::scheme::{
    Facts, PlacedArea, SchemeContext, contract, openings, store_vault,
};
