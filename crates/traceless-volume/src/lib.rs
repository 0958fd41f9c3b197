//! An encrypted block device in a file or on a disk that hides which blocks are written.
//!
//! A volume is created in a file, opened with its key, and used like a disk:
//!
//! ```
//! use std::sync::Arc;
//! use traceless_block::detwo::{DetWoGeometry, Refresh};
//! use traceless_core::seal::Cipher;
//! use traceless_volume::device::Device;
//! use traceless_volume::format::{Kdf, UserKey};
//! use traceless_volume::volume::{CreateOptions, OpenOptions, Volume, create};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("image");
//! let key = UserKey::from_file(vec![7; 32].into())?;
//! let scheme = Arc::new(DetWoGeometry::new(64, 4096, Refresh::ONE, 0)?);
//! let (cipher, kdf) = (Cipher::default(), Kdf::default());
//! let options =
//!     CreateOptions { scheme, cipher, kdf, force: false, unfilled: false, anchor: None };
//! create(&path, &key, &options, &mut |_, _| true)?;
//!
//! let volume = Volume::open(&path, &key, &OpenOptions::default(), &mut |_, _| {})?;
//! volume.write(5000, b"hello")?;
//! let mut read = [0; 5];
//! volume.read(5000, &mut read)?;
//! assert_eq!(&read, b"hello");
//! volume.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`device`] | the trait that the front ends serve |
//! | [`observed_device`] | a device with an observer of its requests |
//! | [`mod@format`] | the image byte by byte: header, key slots, superblocks, anchor |
//! | [`volume`] | creating, opening, reading, writing and closing a volume |
//! | [`anchor_places`] | where an anchor lies: a file, a server, a TPM |
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
//! * `volume`: opening, reading, writing (`mod`), `parallel_store` (several requests at the disk),
//!   `create`, `image` (open, lock, unlock), `admin` (keys, header), `rebuild` and `staging`
//!   (growing, re-encrypting), `repair`, `status`
//! * `anchor_places`: `address` and `server_url` (what users give), `file_place`, `shared_place`
//!   (compare-and-swap) over `redis_value` and `http_value`, `server_link`, `tpm_place` and `tpm`
//! * `device`: the trait that front ends serve; `observed_device`: its requests, observed
//! * `nbd`: the server: `listen`, `server`, `session`, `handshake`, `transmission`, `request_group`
//!   (requests that have arrived together), `protocol`, `wire`, `socket`, `tls`; `gate` and
//!   `registry` fence dead connections; `memory`: for tests and fuzzing
//! * `fuse`: `export` (one file), `volume_file` and `requests` (its rules), `mount` (loop and ext4:
//!   `attach`, `detach`, `record`, `daemon`), `mounts`, `command`, `capabilities`, `runtime`
//! * `ublk`: feature: `export` (the block device), `requests` (its requests)
//! * `guarded`: a panic ends the service of FUSE and ublk
//! * `error`: the errors, and the kind that becomes an exit code
#![forbid(unsafe_code)]

pub mod anchor_places;
pub mod device;
pub mod error;
pub mod format;
pub mod fuse;
mod guarded;
pub mod nbd;
pub mod observed_device;
#[cfg(feature = "ublk")]
pub mod ublk;
pub mod volume;

pub use error::{Error, Result};
