//! A file system on an exported volume: a loop device on the file, ext4 on the loop device.
//!
//! A command that mounts must [`prepare`] the folder for FUSE, start the daemon that exports there,
//! call [`attach()`], and [`record()`] the mount. A command that unmounts calls [`detach()`], which
//! also works if some of these parts are gone. Neither may run in the daemon.

mod attach;
mod daemon;
mod detach;
mod record;

pub use attach::{AttachOptions, Attachment, attach, check_dir};
pub use daemon::Daemon;
pub use detach::{Report, Step, detach};
pub use record::{MountRecord, default_runtime, find, forget, list, prepare, record};
