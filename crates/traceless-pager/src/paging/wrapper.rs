//! The process that started the program (`traceless run`), and whether it was killed.
//!
//! That process keeps a lock on a file in the folder of counters, and removes the folder when it
//! ends in order. So a program that finds the lock free and the file still there knows that the
//! starter was killed. It writes that into the file, for other programs that have it open, and
//! removes the folder.

use super::kernel::own_files::OwnFile;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, fstat};
use rustix::process::geteuid;
use std::path::{Path, PathBuf};

/// The name of the file, in the folder of counters.
pub const ALIVE: &str = "alive";

/// The process that started the program.
pub struct Wrapper {
    file: OwnedFd,
    folder: PathBuf,
}

impl Wrapper {
    /// The process that locks a file in `folder`, if there is one.
    pub fn find(folder: &Path) -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = rustix::fs::open(folder.join(ALIVE), flags, Mode::empty()).ok()?;
        // Any user may make a folder of that name: only a file of our own user counts.
        let is_own = fstat(&file).is_ok_and(|file| {
            let is_file = FileType::from_raw_mode(file.st_mode) == FileType::RegularFile;
            is_file && file.st_nlink == 1 && file.st_uid == geteuid().as_raw()
        });
        if !is_own {
            return None;
        }
        let file = OwnFile::at_high_number(file).keep_open();
        Some(Self { file, folder: folder.into() })
    }

    /// Whether the process was killed. Then this removes the folder in its place.
    pub fn was_killed(&self) -> bool {
        if flock(&self.file, FlockOperation::NonBlockingLockShared).is_err() {
            return false;
        }
        let was_killed = fstat(&self.file).is_ok_and(|file| file.st_nlink > 0 || file.st_size > 0);
        if was_killed {
            // The write fails only if the file is not ours any more.
            let _ = rustix::io::pwrite(&self.file, b"killed", 0);
            let _ = std::fs::remove_dir_all(&self.folder);
        }
        // Other programs test the lock, too, and must not take this one for the starter's.
        let _ = flock(&self.file, FlockOperation::Unlock);
        was_killed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_killed_wrapper_differs_from_one_that_ended() {
        let folder = tempfile::tempdir().unwrap();
        let begin = |name: &str| {
            let folder = folder.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            assert!(Wrapper::find(&folder).is_none(), "there is none yet");
            let alive = File::create(folder.join(ALIVE)).unwrap();
            flock(&alive, FlockOperation::NonBlockingLockExclusive).unwrap();
            let wrapper = Wrapper::find(&folder).unwrap();
            assert!(!wrapper.was_killed());
            (folder, alive, wrapper)
        };
        let (path, alive, wrapper) = begin("ended");
        std::fs::remove_dir_all(path).unwrap();
        drop(alive);
        assert!(!wrapper.was_killed());
        let (path, alive, wrapper) = begin("killed");
        let other = Wrapper::find(&path).unwrap();
        let linked = folder.path().join("linked");
        std::fs::create_dir(&linked).unwrap();
        std::os::unix::fs::symlink(path.join(ALIVE), linked.join(ALIVE)).unwrap();
        assert!(Wrapper::find(&linked).is_none(), "it may be anybody's file");
        drop(alive);
        assert!(wrapper.was_killed() && !path.exists());
        assert!(other.was_killed(), "a later check finds it, too");
    }
}
