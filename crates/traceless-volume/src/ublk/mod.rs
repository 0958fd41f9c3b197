//! A volume as a block device of the kernel, `/dev/ublkbN`, without a network protocol in between.
//!
//! The kernel passes requests through a ring (`ublk_drv`, Linux 6.5 or later), and one thread for
//! each queue answers them. [`export`] makes the device and serves it; `requests` translates
//! requests for a [`Device`](crate::device::Device). The commands are in [`traceless_sys::ublk`].
//!
//! Whether this kernel, and this user, can serve block devices:
//!
//! ```
//! use traceless_volume::ublk::{Error, UblkExport};
//!
//! # fn main() -> Result<(), Error> {
//! match UblkExport::check() {
//!     Ok(()) => assert!(std::path::Path::new("/dev/ublk-control").exists()),
//!     // The message names the remedy.
//!     Err(error @ Error::Missing) => assert!(error.to_string().contains("modprobe ublk_drv")),
//!     Err(error @ Error::Denied) => assert!(error.to_string().contains("run as root")),
//!     Err(error) => return Err(error),
//! }
//! # Ok(())
//! # }
//! ```

mod error;
pub mod export;
mod requests;

pub use error::{Error, Result};
pub use export::{Stopper, UblkExport};
