//! An encrypted block device in a file or on a disk that hides what is written where.
//!
//! | module | what it holds |
//! |---|---|
//! | [`device`] | what the front ends serve |
//! | [`mod@format`] | the image, byte by byte: header, key slots, superblocks, anchor |
//! | [`volume`] | creating, opening, reading, writing and closing one |
//! | [`nbd`] | the NBD server |
//! | [`fuse`] | the FUSE export, and mounting through a loop device |
//! | `ublk` | the export as a block device of the kernel (feature `ublk`) |
//!
//! The front ends know nothing of schemes and keys; [`volume::Volume`] knows nothing of sockets.
#![forbid(unsafe_code)]

pub mod device;
pub mod error;
pub mod format;
pub mod fuse;
mod guarded;
pub mod nbd;
#[cfg(feature = "ublk")]
pub mod ublk;
pub mod volume;

pub use error::{Error, Result};
