//! A file system on an exported volume: a loop device on the file, ext4 on the loop device.
//!
//! A command that mounts must [`prepare`] the folder for FUSE, start the daemon that exports there,
//! call [`attach()`], and [`record()`] the mount. A command that unmounts calls [`detach()`], which
//! also works if some of these parts are gone. Neither may run in the daemon.
//!
//! The record of a mount with a daemon that was killed. The unmount still cleans up:
//!
//! ```
//! use traceless_volume::fuse::Error;
//! use traceless_volume::fuse::mount::{
//!     Attachment, Daemon, MountRecord, Step, detach, find, prepare, record,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let root = folder.path().canonicalize()?;
//! # let (runtime, dir, image) = (root.join("run"), root.join("dir"), root.join("image"));
//! # std::fs::create_dir(&dir)?;
//! # std::fs::write(&image, "")?;
//! # let mut daemon = std::process::Command::new("sleep").arg("60").spawn()?;
//! let fuse_dir = prepare(&runtime, &dir)?;
//! // `attach` returns the attachment, once the daemon exports the volume in `fuse_dir`.
//! let attached = Attachment { loop_device: "/dev/loop-example".into(), dir: dir.clone() };
//! let mounted = MountRecord::new(&attached, &image, &fuse_dir, Daemon::of(daemon.id())?)?;
//! record(&runtime, &mounted)?;
//! assert_eq!(find(&runtime, &dir)?, Some(mounted));
//!
//! daemon.kill()?;
//! daemon.wait()?;
//! match detach(&runtime, &dir) {
//!     Err(Error::RootNeeded { .. }) => return Ok(()),
//!     report => assert_eq!(report?.daemon, Step::AlreadyGone),
//! }
//! assert_eq!(find(&runtime, &dir)?, None);
//! # Ok(())
//! # }
//! ```

mod attach;
mod daemon;
mod detach;
mod record;

pub use attach::{AttachOptions, Attachment, attach, check_dir};
pub use daemon::Daemon;
pub use detach::{Report, Step, detach};
pub use record::{MountRecord, default_runtime, find, forget, list, prepare, record};
