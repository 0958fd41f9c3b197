//! Serving a device as the file `DIR/volume`.
//!
//! Another process reads the exported file:
//!
//! ```
//! use std::process::Command;
//! use std::sync::Arc;
//! use traceless_volume::device::Device;
//! use traceless_volume::fuse::export::{ExportOptions, FILE_NAME, spawn};
//! # use traceless_block::detwo::{DetWoGeometry, Refresh};
//! # use traceless_core::seal::Cipher;
//! # use traceless_volume::format::{Kdf, UserKey};
//! # use traceless_volume::fuse::{Error, capabilities};
//! # use traceless_volume::volume::{CreateOptions, OpenOptions, Volume, create};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # if !capabilities().missing_for_export().is_empty() {
//! #     return Ok(());
//! # }
//! # let folder = tempfile::tempdir()?;
//! # let (path, dir) = (folder.path().join("image"), folder.path().join("dir"));
//! # std::fs::create_dir(&dir)?;
//! # let key = UserKey::from_file(vec![7; 32].into())?;
//! # let scheme = Arc::new(DetWoGeometry::new(64, 4096, Refresh::ONE, 0)?);
//! # let (cipher, kdf) = (Cipher::default(), Kdf::default());
//! # let options =
//! #     CreateOptions { scheme, cipher, kdf, force: false, unfilled: true, anchor: None };
//! # create(&path, &key, &options, &mut |_, _| true)?;
//! let volume = Volume::open(&path, &key, &OpenOptions::default(), &mut |_, _| {})?;
//! volume.write(0, b"hello")?;
//! let volume = Arc::new(volume);
//! # // A container may have the device, and yet forbid to mount.
//! # if let Err(Error::FuseMount { source, .. }) =
//! #     spawn(volume.clone(), &dir, ExportOptions::default())
//! #     && source.kind() == std::io::ErrorKind::PermissionDenied
//! # {
//! #     return Ok(());
//! # }
//! let export = spawn(volume.clone(), &dir, ExportOptions::default())?;
//! let output = Command::new("head").arg("-c5").arg(dir.join(FILE_NAME)).output()?;
//! export.shutdown()?;
//! assert_eq!(output.stdout, b"hello");
//! volume.close()?;
//! # Ok(())
//! # }
//! ```

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::{Builder, JoinHandle};

use fuser::{Config, MountOption, Session, SessionACL};

use super::command::{FUSERMOUNT, is_root};
use super::error::{Error, Result};
use super::mounts::{self, How, SOURCE_NAME};
use super::volume_file::VolumeFile;
use crate::device::Device;

/// The name of the only file in the FUSE file system.
pub const FILE_NAME: &str = "volume";
/// The device through which FUSE servers talk to the kernel.
const FUSE_DEVICE: &str = "/dev/fuse";
/// Most threads of a server: more of them would only wait for each other.
const THREADS_MAX: usize = 64;

/// Options of an export.
#[derive(Debug, Clone, Copy)]
pub struct ExportOptions {
    /// Threads that answer requests. Values outside 1 to 64 are clamped.
    pub threads: usize,
    /// Whether root may use the file although it belongs to another user: a loop device on the file
    /// needs it. Refused unless `/etc/fuse.conf` has `user_allow_other`. Not needed if the user is
    /// root.
    pub allow_root: bool,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self { threads: 4, allow_root: false }
    }
}

/// A device that is being served. Dropping it unmounts, lazily if the file is open.
#[derive(Debug)]
pub struct Export {
    dir: PathBuf,
    /// `None` once the thread was joined. A caller that waits holds the lock.
    server: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

/// Checks whether `dir` can be the folder of an export, and returns its path without links. Whether
/// the kernel accepts the mount is known only when it is mounted.
pub fn check(dir: &Path) -> Result<PathBuf> {
    check_fuse()?;
    if !is_root() && FUSERMOUNT.path().is_none() {
        return Err(Error::FusermountMissing);
    }
    let dir = dir.canonicalize().map_err(Error::io("finding", dir))?;
    if !dir.is_dir() {
        return Err(Error::NotAFolder { dir });
    }
    Ok(dir)
}

/// Mounts a file system at `dir` with a single file, [`FILE_NAME`], that holds the bytes of
/// `device`.
///
/// The file belongs to the user of this process, and no other user may read it. Its I/O is direct:
/// each write reaches the device before it returns, and `fsync` flushes. It cannot be
/// resized, and opening it with `O_TRUNC` changes nothing. A hole in it is a discard, if the device
/// keeps discards.
///
/// After this call the process must not touch any path under `dir`: it would wait for itself.
pub fn spawn(device: Arc<dyn Device>, dir: &Path, options: ExportOptions) -> Result<Export> {
    let dir = check(dir)?;
    let config = config(device.read_only(), options);
    let session = Session::new(VolumeFile::new(device), &dir, &config)
        .map_err(|source| Error::FuseMount { dir: dir.clone(), source })?;
    let server = Builder::new()
        .name("traceless-fuse".into())
        .spawn(move || session.run())
        .map_err(Error::io("starting the server of", &dir))?;
    Ok(Export { dir, server: Mutex::new(Some(server)) })
}

impl Export {
    /// The folder that contains the file.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Waits until the file system is unmounted, by [`Export::shutdown`] or from outside, and all
    /// requests are answered. After that the device is no longer used.
    pub fn wait(&self) -> Result<()> {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(handle) = server.take() else {
            return Ok(());
        };
        let outcome = handle.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")));
        outcome.map_err(|source| Error::Server { dir: self.dir.clone(), source })
    }

    /// Unmounts and waits. Fails with [`Error::Busy`], and goes on serving, while the file is
    /// open somewhere. May be called while another thread waits.
    pub fn shutdown(&self) -> Result<()> {
        if !self.has_ended() {
            mounts::unmount_fuse(&self.dir, How::IfIdle)?;
        }
        self.wait()
    }

    /// Whether the file system is gone.
    pub fn has_ended(&self) -> bool {
        match self.server.try_lock() {
            Ok(server) => server.as_ref().is_none_or(JoinHandle::is_finished),
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Poisoned(_)) => true,
        }
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        if self.has_ended() || self.shutdown().is_ok() {
            return;
        }
        // A program has the file open. Its name goes now, but requests for it are served as long as
        // the process lives, so waiting for its last user could take for ever.
        let _ = mounts::unmount_fuse(&self.dir, How::Lazily);
    }
}

/// Whether FUSE can be used.
pub(super) fn check_fuse() -> Result<()> {
    match OpenOptions::new().read(true).write(true).open(FUSE_DEVICE) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Error::FuseDenied),
        // Without a driver, opening the node gives ENXIO or ENODEV: that, too, means no FUSE.
        Err(_) => Err(Error::FuseMissing),
    }
}

fn config(read_only: bool, options: ExportOptions) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(SOURCE_NAME.into()),
        // Passed as a kernel option: if root mounts without a helper, fuser drops its own
        // `Subtype`.
        MountOption::CUSTOM(format!("subtype={SOURCE_NAME}")),
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::NoAtime,
        if read_only { MountOption::RO } else { MountOption::RW },
    ];
    config.acl = if options.allow_root { SessionACL::RootAndOwner } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.clamp(1, THREADS_MAX));
    config.clone_fd = true;
    config
}
