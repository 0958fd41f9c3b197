//! A volume as one file in a FUSE file system, and as an ext4 file system on top of that file.
//!
//! [`export`] serves a [`Device`](crate::device::Device) as `DIR/volume`. [`mount`] puts a loop
//! device and ext4 on that file, keeps a record of the mount, and undoes all of it again.
//! [`runtime`] lets the serving process work below a block device without deadlocks.
//!
//! Two processes take part. The daemon serves the file; it must never touch a path under a mount
//! that it serves, or it would wait for itself. The command that calls [`mount::attach()`] and
//! [`mount::detach()`] is another process.
//!
//! What this machine lacks for an export, found out before anything is tried. Each error comes with
//! advice for the user:
//!
//! ```
//! use traceless_volume::fuse::{Error, capabilities};
//!
//! let found = capabilities();
//! let missing = found.missing_for_export();
//! for error in &missing {
//!     eprintln!("cannot export: {error}");
//! }
//! if !found.fuse {
//!     assert!(matches!(missing[0], Error::FuseMissing | Error::FuseDenied));
//! }
//! // A mounted file system needs all of an export, and loop devices and root besides.
//! let with_ext4 = found.missing_for_mount(true);
//! assert!(with_ext4.len() >= missing.len());
//! ```

mod capabilities;
mod command;
mod error;
pub mod export;
pub mod mount;
mod mounts;
mod requests;
pub mod runtime;
mod volume_file;

pub use capabilities::{Capabilities, capabilities};
pub use error::{Error, Result};
pub use export::{Export, ExportOptions};
