//! Records of mounted volumes, one small file for each folder.
//!
//! The files lie in a runtime folder that is empty after a restart of the machine. The name of a
//! record is a hash of the folder; the record itself contains the folder's path.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::daemon::Daemon;
use crate::fuse::command::is_root;
use crate::fuse::error::{Error, Result};

/// The version of the records that this program writes, and the only one that it reads.
const SCHEMA: u32 = 1;
const SUFFIX: &str = "json";

/// One mounted volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountRecord {
    schema: u32,
    /// The folder of the file system: an absolute path without links.
    pub dir: PathBuf,
    /// The image that the daemon opened.
    pub image: PathBuf,
    /// The loop device between the exported file and the file system.
    pub loop_device: PathBuf,
    /// The folder in which the daemon exports the file.
    pub fuse_dir: PathBuf,
    /// The daemon's process number.
    pub pid: u32,
    /// The daemon's start time, so that a later process with its number is not mistaken for it.
    pub pid_started_ticks: u64,
}

impl MountRecord {
    /// A record of `daemon`, which exports `image` at `fuse_dir`, and of what is attached on top.
    pub fn new(
        attached: &super::Attachment,
        image: &Path,
        fuse_dir: &Path,
        daemon: Daemon,
    ) -> Result<Self> {
        Ok(Self {
            schema: SCHEMA,
            dir: attached.dir.clone(),
            image: image.canonicalize().map_err(Error::io("finding", image))?,
            loop_device: attached.loop_device.clone(),
            fuse_dir: fuse_dir.canonicalize().map_err(Error::io("finding", fuse_dir))?,
            pid: daemon.pid,
            pid_started_ticks: daemon.started_ticks,
        })
    }

    /// The daemon that serves the volume.
    pub fn daemon(&self) -> Daemon {
        Daemon { pid: self.pid, started_ticks: self.pid_started_ticks }
    }
}

/// The default folder of records: `/run/traceless` for root.
pub fn default_runtime() -> Result<PathBuf> {
    if is_root() {
        return Ok(PathBuf::from("/run/traceless"));
    }
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folder = folder.filter(|folder| folder.is_absolute()).ok_or(Error::NoRuntimeFolder)?;
    Ok(folder.join("traceless"))
}

/// Makes the folder in which the daemon for `dir` is to export, and returns its path. Fails if a
/// volume is recorded at `dir`: [`detach`](super::detach()) it first, even if its daemon has died.
pub fn prepare(runtime: &Path, dir: &Path) -> Result<PathBuf> {
    let dir = resolve(dir)?;
    if find(runtime, &dir)?.is_some() {
        return Err(Error::AlreadyMounted { dir });
    }
    let fuse_dir = runtime.join(name_of(&dir));
    private_folder(&fuse_dir)?;
    Ok(fuse_dir)
}

/// Writes a record, either as a whole or not at all.
pub fn record(runtime: &Path, record: &MountRecord) -> Result<()> {
    private_folder(runtime)?;
    let path = path_of(runtime, &record.dir);
    // A path that is not UTF-8 cannot be written as JSON.
    let text = serde_json::to_vec_pretty(record)
        .map_err(|error| Error::Record { path: path.clone(), reason: error.to_string() })?;
    let new = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&text)?;
        fs::rename(&new, &path)
    };
    write().map_err(Error::io("writing", &path))
}

/// The record of the volume mounted at `dir`, if there is one.
pub fn find(runtime: &Path, dir: &Path) -> Result<Option<MountRecord>> {
    let dir = resolve(dir)?;
    let path = path_of(runtime, &dir);
    let Some(found) = read(&path)? else {
        return Ok(None);
    };
    if found.dir != dir {
        let reason = format!("it is about {}", found.dir.display());
        return Err(Error::Record { path, reason });
    }
    Ok(Some(found))
}

/// All records, in no particular order.
pub fn list(runtime: &Path) -> Result<Vec<MountRecord>> {
    let entries = match fs::read_dir(runtime) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("listing", runtime)(error)),
    };
    let mut records = Vec::new();
    for entry in entries {
        let path = entry.map_err(Error::io("listing", runtime))?.path();
        if path.extension().is_some_and(|extension| extension == SUFFIX) {
            records.extend(read(&path)?);
        }
    }
    Ok(records)
}

/// Removes the record of `dir`, if there is one.
pub fn forget(runtime: &Path, dir: &Path) -> Result<()> {
    let path = path_of(runtime, &resolve(dir)?);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("deleting", path)(error))
        }
        _ => Ok(()),
    }
}

/// An absolute path without links. Also works for a folder with a dead server, which gives errors.
pub(super) fn resolve(dir: &Path) -> Result<PathBuf> {
    let error = match dir.canonicalize() {
        Ok(path) => return Ok(path),
        Err(error) => error,
    };
    let absolute = std::path::absolute(dir).map_err(Error::io("finding", dir))?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(Error::io("finding", dir)(error));
    };
    Ok(parent.canonicalize().map_err(Error::io("finding", dir))?.join(name))
}

fn read(path: &Path) -> Result<Option<MountRecord>> {
    let unusable = |reason: String| Error::Record { path: path.to_owned(), reason };
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("reading", path)(error)),
    };
    // The version is checked first, as records of another version may have other fields.
    let value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| unusable(error.to_string()))?;
    if value.get("schema").and_then(serde_json::Value::as_u64) != Some(SCHEMA.into()) {
        return Err(unusable("another version wrote it".into()));
    }
    serde_json::from_value(value).map(Some).map_err(|error| unusable(error.to_string()))
}

fn path_of(runtime: &Path, dir: &Path) -> PathBuf {
    runtime.join(name_of(dir)).with_extension(SUFFIX)
}

/// FNV-1a makes short names of paths of any length. A collision is noticed, as records contain the
/// path.
fn name_of(dir: &Path) -> String {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = dir.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{hash:016x}")
}

fn private_folder(path: &Path) -> Result<()> {
    let outcome = DirBuilder::new().recursive(true).mode(0o700).create(path);
    outcome.map_err(Error::io("creating", path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn sample(dir: &Path) -> MountRecord {
        MountRecord {
            schema: SCHEMA,
            dir: dir.to_owned(),
            image: "/srv/image".into(),
            loop_device: "/dev/loop7".into(),
            fuse_dir: "/run/traceless/0".into(),
            pid: 7,
            pid_started_ticks: 8,
        }
    }

    #[test]
    fn a_record_comes_back_until_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = folder.path().join("run");
        let dir = folder.path().join("data");
        fs::create_dir(&dir).expect("a folder");
        assert_eq!(find(&runtime, &dir).expect("none yet"), None);
        assert!(list(&runtime).expect("none yet").is_empty());

        record(&runtime, &sample(&dir)).expect("written");
        assert_eq!(find(&runtime, &dir).expect("found"), Some(sample(&dir)));
        assert_eq!(list(&runtime).expect("one").len(), 1);
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&runtime), mode(&path_of(&runtime, &dir))), (0o700, 0o600));

        forget(&runtime, &dir).expect("deleted");
        forget(&runtime, &dir).expect("still gone");
        assert_eq!(find(&runtime, &dir).expect("gone"), None);
    }

    #[test]
    fn links_and_dots_lead_to_the_same_record() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join("data");
        fs::create_dir(&dir).expect("a folder");
        symlink(&dir, folder.path().join("link")).expect("a link");
        record(folder.path(), &sample(&dir)).expect("written");
        for name in ["link", "data/.", "data/../link"] {
            let found = find(folder.path(), &folder.path().join(name)).expect(name);
            assert_eq!(found, Some(sample(&dir)), "{name}");
        }
    }

    #[test]
    fn other_versions_and_garbage_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        for text in ["", "[]", r#"{"schema": 2}"#, r#"{"schema": 1}"#] {
            fs::write(path_of(dir, dir), text).expect("written");
            let refused = find(dir, dir);
            assert!(matches!(refused, Err(Error::Record { .. })), "{text}: {refused:?}");
        }
    }

    #[test]
    fn the_schema_does_not_change_by_accident() {
        let json = serde_json::to_string(&sample(Path::new("/data"))).expect("JSON");
        let fixed = r#"{"schema":1,"dir":"/data","image":"/srv/image","loop_device":"/dev/loop7","#
            .to_owned()
            + r#""fuse_dir":"/run/traceless/0","pid":7,"pid_started_ticks":8}"#;
        assert_eq!(json, fixed);
    }

    #[test]
    fn a_folder_is_prepared_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = folder.path().join("run");
        let fuse_dir = prepare(&runtime, folder.path()).expect("prepared");
        assert!(fuse_dir.is_dir());
        record(&runtime, &sample(folder.path())).expect("written");
        let again = prepare(&runtime, folder.path());
        assert!(matches!(again, Err(Error::AlreadyMounted { .. })), "{again:?}");
    }
}
