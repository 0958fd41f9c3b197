//! File systems that are mounted for a measurement.

use super::failed;
use super::server::key_beside;
use crate::program;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use traceless_cli::failure::Failure;

/// A mounted file system. Dropping it unmounts it.
pub struct Mount {
    folder: PathBuf,
    unmount: Command,
    is_mounted: bool,
}

impl Mount {
    /// Mounts the volume in `image`, which was never written to, with a new ext4 at a folder beside
    /// it.
    pub fn of_volume(image: &Path) -> Result<Self, Failure> {
        let folder = image.with_extension("mounted");
        std::fs::create_dir(&folder).map_err(failed)?;
        let mut mount = program::traceless();
        mount.args(["volume", "mount"]).arg(image).arg(&folder);
        run(mount.arg("--key-file").arg(key_beside(image)), &image.with_extension("log"))?;
        let mut unmount = program::traceless();
        unmount.args(["volume", "unmount"]).arg(&folder);
        Ok(Self { folder, unmount, is_mounted: true })
    }

    /// Makes a folder of gocryptfs inside `folder`, and mounts it.
    pub fn of_gocryptfs(folder: &Path) -> Result<Self, Failure> {
        let [sealed, at, password, log] =
            ["gocryptfs.sealed", "gocryptfs", "gocryptfs.password", "gocryptfs.log"]
                .map(|name| folder.join(name));
        for folder in [&sealed, &at] {
            std::fs::create_dir(folder).map_err(failed)?;
        }
        std::fs::write(&password, "of a measurement").map_err(failed)?;
        let gocryptfs = || {
            let mut command = Command::new("gocryptfs");
            command.arg("-quiet").arg("-passfile").arg(&password);
            command
        };
        run(gocryptfs().args(["-init", "-scryptn", "10"]).arg(&sealed), &log)?;
        run(gocryptfs().arg(&sealed).arg(&at), &log)?;
        let mut unmount = Command::new("umount");
        unmount.arg(&at);
        Ok(Self { folder: at, unmount, is_mounted: true })
    }

    /// The folder at which it is mounted.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Unmounts it. All its files are closed.
    pub fn unmount(mut self) -> Result<(), Failure> {
        self.is_mounted = false;
        let log = self.folder.with_extension("log");
        run(&mut self.unmount, &log)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = self.unmount.output();
        }
    }
}

/// Runs a command, and fails with what it printed if it does. What it prints goes to a file and not
/// to a pipe: a process that serves a mount keeps it open, so a pipe would not end.
fn run(command: &mut Command, log: &Path) -> Result<(), Failure> {
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(log).map_err(failed)?)
        .status()
        .map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    let why = std::fs::read_to_string(log).unwrap_or_default();
    Err(failed(format!("{}: {}", command.get_program().display(), why.trim())))
}
