//! A volume as a block device of the kernel, `/dev/ublkbN`, without a network protocol in between.
//!
//! The kernel passes requests through a ring (`ublk_drv`, Linux 6.5 or later), and one thread for
//! each queue answers them. [`export`] makes the device and serves it; `requests` translates
//! requests for a [`Device`](crate::device::Device). The commands are in [`traceless_sys::ublk`].

mod error;
pub mod export;
mod requests;

pub use error::{Error, Result};
pub use export::{Stopper, UblkExport};
