//! Mounted volumes with ext4, beside gocryptfs on the same disk: random reads with cold caches, and
//! random writes with one sync at the end.

use super::caches::drop_caches;
use super::server::{create, key_beside};
use super::{Effort, Places, Row, failed, seconds};
use crate::program;
use rustix::fs::Advice;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use traceless::rng::{Rng, SeededRng};
use traceless_cli::failure::Failure;

pub const NAMES: [&str; 3] =
    ["mounted-read-vs-gocryptfs", "mounted-write-vs-gocryptfs", "mounted-write-sq-vs-gocryptfs"];

const BLOCK: usize = 4096;
/// Requests of one piece of work.
const REQUESTS: usize = 4000;

pub fn measure(places: &Places, effort: Effort) -> Result<Vec<Row>, Failure> {
    if let Some(why) = missing() {
        return Ok(NAMES.map(|name| Row::absent(name, "ratio", why)).into());
    }
    let bytes = effort.volume_bytes / 4;
    let peer = MountedFile::of_gocryptfs(&places.disk, bytes)?;
    let detwo = MountedFile::of_volume(&places.disk, "detwo", bytes)?;
    let sq = MountedFile::of_volume(&places.disk, "sq", bytes)?;
    let mut rng = SeededRng::new(11);
    let mut draw = || -> Vec<u64> {
        (0..REQUESTS).map(|_| rng.below(bytes / BLOCK as u64) * BLOCK as u64).collect()
    };
    let mut values: [Vec<f64>; 3] = Default::default();
    for _ in 0..effort.rounds {
        let (reads, writes) = (draw(), draw());
        values[0].push(peer.read(&reads)? / detwo.read(&reads)?);
        let of_peer = peer.write(&writes)?;
        values[1].push(of_peer / detwo.write(&writes)?);
        values[2].push(of_peer / sq.write(&writes)?);
    }
    for mounted in [peer, detwo, sq] {
        mounted.unmount()?;
    }
    Ok(NAMES.into_iter().zip(values).map(|(name, v)| Row::of(name, "ratio", v.into())).collect())
}

/// What this machine lacks for the measurement.
fn missing() -> Option<&'static str> {
    if Command::new("gocryptfs").arg("-version").output().is_err() {
        return Some("gocryptfs is not installed (Debian: apt install gocryptfs)");
    }
    (!drop_caches()).then_some("emptying the kernel's caches takes root")
}

/// A large file on a mounted file system.
struct MountedFile {
    folder: PathBuf,
    unmount: Command,
    is_mounted: bool,
}

impl MountedFile {
    /// A volume with ext4, and a file of `bytes` bytes.
    fn of_volume(disk: &Path, scheme: &str, bytes: u64) -> Result<Self, Failure> {
        let folder = new_folder(disk, scheme)?;
        let image = create(&folder, scheme, 2 * bytes, &[])?;
        let at = new_folder(&folder, "at")?;
        let mut mount = program::traceless();
        mount.args(["volume", "mount"]).arg(&image).arg(&at);
        succeed(mount.arg("--key-file").arg(key_beside(&image)))?;
        let mut unmount = program::traceless();
        unmount.args(["volume", "unmount"]).arg(&at);
        Self::filled(at, unmount, bytes)
    }

    /// A folder of gocryptfs, and a file of `bytes` bytes.
    fn of_gocryptfs(disk: &Path, bytes: u64) -> Result<Self, Failure> {
        let folder = new_folder(disk, "gocryptfs")?;
        let password = folder.join("password");
        std::fs::write(&password, "of a measurement").map_err(failed)?;
        let (sealed, at) = (new_folder(&folder, "sealed")?, new_folder(&folder, "at")?);
        let gocryptfs = || {
            let mut command = Command::new("gocryptfs");
            command.arg("-quiet").arg("-passfile").arg(&password);
            command
        };
        succeed(gocryptfs().args(["-init", "-scryptn", "10"]).arg(&sealed))?;
        succeed(gocryptfs().arg(&sealed).arg(&at))?;
        let mut unmount = Command::new("umount");
        unmount.arg(&at);
        Self::filled(at, unmount, bytes)
    }

    fn filled(folder: PathBuf, unmount: Command, bytes: u64) -> Result<Self, Failure> {
        let mounted = Self { folder, unmount, is_mounted: true };
        let file = File::create(mounted.path()).map_err(failed)?;
        let mut part = vec![0; 1 << 20];
        let mut rng = SeededRng::new(bytes);
        for at in (0..bytes).step_by(part.len()) {
            rng.fill(&mut part);
            file.write_all_at(&part, at).map_err(failed)?;
        }
        file.sync_all().map_err(failed)?;
        Ok(mounted)
    }

    fn path(&self) -> PathBuf {
        self.folder.join("file")
    }

    /// Seconds for reads of one block each, one after the other, with cold caches.
    fn read(&self, offsets: &[u64]) -> Result<f64, Failure> {
        let file = File::open(self.path()).map_err(failed)?;
        rustix::fs::fadvise(&file, 0, None, Advice::Random).map_err(failed)?;
        rustix::fs::sync();
        drop_caches();
        let mut block = [0; BLOCK];
        seconds(|| {
            offsets.iter().try_for_each(|&at| file.read_exact_at(&mut block, at)).map_err(failed)
        })
    }

    /// Seconds for writes of one block each, with a sync at the end.
    fn write(&self, offsets: &[u64]) -> Result<f64, Failure> {
        let file = File::options().write(true).open(self.path()).map_err(failed)?;
        let block = [7; BLOCK];
        seconds(|| {
            let mut written = offsets.iter().map(|&at| file.write_all_at(&block, at));
            written.try_for_each(|outcome| outcome).map_err(failed)?;
            file.sync_all().map_err(failed)
        })
    }

    fn unmount(mut self) -> Result<(), Failure> {
        self.is_mounted = false;
        succeed(&mut self.unmount)
    }
}

impl Drop for MountedFile {
    fn drop(&mut self) {
        // After an error nothing stays mounted, if that can be helped.
        if self.is_mounted {
            let _ = self.unmount.output();
        }
    }
}

fn new_folder(parent: &Path, name: &str) -> Result<PathBuf, Failure> {
    let path = parent.join(name);
    std::fs::create_dir(&path).map_err(failed)?;
    Ok(path)
}

/// Runs a command, and fails with what it printed if it does.
fn succeed(command: &mut Command) -> Result<(), Failure> {
    let output = command.output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!("{}: {}", command.get_program().display(), why.trim())))
}
