//! The folder in memory where paged programs leave their counters, and by which they notice that
//! this process was killed.

use super::RunError;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use traceless_pager::paging::{ALIVE, Wrapper};

/// Where the folders of all processes are.
const PLACE: &str = "/dev/shm";

/// The prefix of a folder's name; the process number follows.
const NAME: &str = "traceless-run-";

/// A folder in memory for counters. It is removed when this process ends.
pub struct CounterFolder {
    path: PathBuf,
    /// A file that is locked as long as this process lives.
    _alive: OwnedFd,
}

impl CounterFolder {
    /// Makes a new folder. Folders that killed processes left are removed first.
    pub fn new() -> Result<Self, RunError> {
        remove_leftovers(Path::new(PLACE));
        let path = Path::new(PLACE).join(format!("{NAME}{}", std::process::id()));
        // A folder with this name is left over from another process: its owner or its counters are
        // wrong.
        let _ = std::fs::remove_dir_all(&path);
        Self::at(path)
    }

    fn at(path: PathBuf) -> Result<Self, RunError> {
        let failed = |e: rustix::io::Errno| RunError::Io(path.display().to_string(), e.into());
        rustix::fs::mkdir(&path, Mode::RWXU).map_err(failed)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let alive = rustix::fs::open(path.join(ALIVE), flags, Mode::RUSR | Mode::WUSR);
        let alive = alive.map_err(failed)?;
        flock(&alive, FlockOperation::NonBlockingLockExclusive).map_err(failed)?;
        Ok(Self { path, _alive: alive })
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for CounterFolder {
    fn drop(&mut self) {
        // What cannot be removed is removed by the next `traceless run` of this user.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Removes folders of killed processes, if no paged program has removed them yet.
fn remove_leftovers(place: &Path) {
    for folder in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let is_folder = folder.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && folder.file_name().to_string_lossy().starts_with(NAME) {
            // `was_killed` removes the folder if its process was killed.
            let _ = Wrapper::find(&folder.path()).map(|left| left.was_killed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_killed_programs_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let named = |name: &str| place.path().join(format!("{NAME}{name}"));
        let left = CounterFolder::at(named("left")).unwrap();
        let path = left.path().to_owned();
        let lives = CounterFolder::at(named("lives")).unwrap();
        let other = place.path().join("other");
        std::fs::create_dir(&other).unwrap();
        remove_leftovers(place.path());
        assert!(path.exists() && lives.path().exists() && other.exists());
        drop(left);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join(ALIVE), "").unwrap();
        remove_leftovers(place.path());
        assert!(!path.exists() && lives.path().exists() && other.exists());
    }
}
