//! ORAMs for block devices: what is written, and where, is independent of the addresses that the
//! user writes. Only [`ring`] hides reads as well.
//!
//! An adversary with many copies of the store, for example snapshots of a disk, learns from them
//! how many blocks were written, and nothing else.
//!
//! ```
//! use traceless_block::detwo::{DetWoGeometry, Refresh};
//! use traceless_core::rng::System;
//! use traceless_core::scheme::SchemeContext;
//! use traceless_core::scheme::contract::{BlockScheme, Scheme};
//! use traceless_core::Addr;
//!
//! # fn main() -> traceless_core::Result {
//! let scheme = DetWoGeometry::new(1000, 4096, Refresh::ONE, 0)?;
//! let context = SchemeContext::in_memory(scheme.store_len(), Box::new(System))?;
//! let mut oram = scheme.create_block(context)?;
//! oram.write(Addr(7), &[1; 4096])?;
//! let mut block = [0; 4096];
//! oram.read_shared(&[Addr(7)], &mut block)?;
//! assert_eq!(block, [1; 4096]);
//! # Ok(())
//! # }
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`detwo`] | `DetWoORAM`: a holding area, and a main area that is refreshed in turns |
//! | [`sq`] | `SqORAM`: levels of sorted runs, so that logical neighbours stay together |
//! | [`ring`] | Ring ORAM with wide buckets and a log: hides reads, too |
//! | [`hive`] [`datalair`] [`random`] | random slots, for comparison |
//! | `deniable` | a public `DetWoORAM` and hidden volumes beside it |
//! | [`plain`] | encryption in place: the insecure control |
//! | [`registry`] | all kinds, by name and by number in a volume's header |
//!
//! Shared by the schemes: `log` (slots that take writes in order), `refreshed` (slots in the order
//! of addresses, rewritten in turns), `pool` (buffers of readers), `tiers` (maps that lie on the
//! store in further tiers of the same scheme), `batches` (reads of many blocks, cut into requests).
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod batches;
mod log;
mod pool;
mod refreshed;
mod tiers;

#[cfg(feature = "std")]
pub mod deniable;

pub mod detwo;
pub mod plain;
pub mod random;
#[cfg(feature = "std")]
pub mod ring;
pub mod sq;

pub mod datalair;
pub mod hive;

pub mod registry;

#[cfg(all(test, feature = "std"))]
mod histories;
