//! Mounted volumes with ext4, beside gocryptfs on the same disk: random reads with cold caches, and
//! random writes with one sync at the end.

use super::caches::drop_caches;
use super::mount::Mount;
use super::server::create;
use super::{Effort, Places, Row, failed, seconds};
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
    let peer = MountedFile::new(Mount::of_gocryptfs(&places.disk)?, bytes)?;
    let detwo = MountedFile::in_volume(&places.disk, "detwo", bytes)?;
    let sq = MountedFile::in_volume(&places.disk, "sq", bytes)?;
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
        mounted.mount.unmount()?;
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
    path: PathBuf,
    mount: Mount,
}

impl MountedFile {
    /// A new file of `bytes` bytes.
    fn new(mount: Mount, bytes: u64) -> Result<Self, Failure> {
        let path = mount.folder().join("file");
        let file = File::create(&path).map_err(failed)?;
        let mut part = vec![0; 1 << 20];
        let mut rng = SeededRng::new(bytes);
        for at in (0..bytes).step_by(part.len()) {
            rng.fill(&mut part);
            file.write_all_at(&part, at).map_err(failed)?;
        }
        file.sync_all().map_err(failed)?;
        Ok(Self { path, mount })
    }

    /// The same in a new volume of this scheme.
    fn in_volume(disk: &Path, scheme: &str, bytes: u64) -> Result<Self, Failure> {
        let image = create(disk, scheme, 2 * bytes, &[])?;
        Self::new(Mount::of_volume(&image)?, bytes)
    }

    /// Seconds for reads of one block each, one after the other, with cold caches.
    fn read(&self, offsets: &[u64]) -> Result<f64, Failure> {
        let file = File::open(&self.path).map_err(failed)?;
        rustix::fs::fadvise(&file, 0, None, Advice::Random).map_err(failed)?;
        rustix::fs::sync();
        drop_caches();
        let mut block = [0; BLOCK];
        seconds(|| {
            let mut read = offsets.iter().map(|&at| file.read_exact_at(&mut block, at));
            read.try_for_each(|outcome| outcome).map_err(failed)
        })
    }

    /// Seconds for writes of one block each, with a sync at the end.
    fn write(&self, offsets: &[u64]) -> Result<f64, Failure> {
        let file = File::options().write(true).open(&self.path).map_err(failed)?;
        let block = [7; BLOCK];
        seconds(|| {
            let mut written = offsets.iter().map(|&at| file.write_all_at(&block, at));
            written.try_for_each(|outcome| outcome).map_err(failed)?;
            file.sync_all().map_err(failed)
        })
    }
}
