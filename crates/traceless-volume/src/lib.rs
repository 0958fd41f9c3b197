//! An encrypted block device in a file or on a disk that hides which blocks are written.
//!
//! | module | what it holds |
//! |---|---|
//! | [`device`] | the trait that the front ends serve |
//! | [`mod@format`] | the image byte by byte: header, key slots, superblocks, anchor |
//! | [`volume`] | creating, opening, reading, writing and closing a volume |
//! | [`nbd`] | the NBD server |
//! | [`fuse`] | the FUSE export, and mounting through a loop device |
//! | `ublk` | the export as a block device of the kernel (feature `ublk`) |
//!
//! The front ends do not depend on schemes and keys; [`volume::Volume`] does not depend on sockets.
//!
//! File by file:
//!
//! * `format`: the image byte by byte: `header`, `keyslot`, `keys`, `superblock`, `anchor`,
//!   `rebuild`
//! * `volume`: opening, reading, writing (`mod`), `create`, `image` (open, lock, unlock), `admin`
//!   (keys, header), `rebuild` and `staging` (growing, re-encrypting), `repair`, `status`
//! * `device`: the trait that front ends serve
//! * `nbd`: the server: `listen`, `server`, `session`, `handshake`, `transmission`, `protocol`,
//!   `wire`, `socket`, `tls`; `gate` and `registry` fence dead connections; `memory`: for tests and
//!   fuzzing
//! * `fuse`: `export` (one file), `volume_file` and `requests` (its rules), `mount` (loop and ext4:
//!   `attach`, `detach`, `record`, `daemon`), `mounts`, `command`, `capabilities`, `runtime`
//! * `ublk`: feature: `export` (the block device), `requests` (its requests)
//! * `guarded`: a panic ends the service of FUSE and ublk
//! * `error`: the errors, and the kind that becomes an exit code
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
