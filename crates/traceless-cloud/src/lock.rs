//! A folder's lock, which one process holds at a time.

use crate::error::{Error, Result};
use std::fs::{File, OpenOptions};
use std::path::Path;

/// The file that is locked to hold a folder.
const LOCK: &str = "lock";

/// A held lock of a folder.
pub struct Lock(File);

impl Lock {
    /// Locks a folder. If another process holds it, the error is [`Error::InUse`] with `what`.
    pub fn take(folder: &Path, what: &'static str) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(folder.join(LOCK))?;
        file.try_lock().map_err(|_| Error::InUse(what))?;
        Ok(Self(file))
    }
}

impl Drop for Lock {
    /// Unlocks explicitly, because a child that is just starting still has the file open.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_a_lock_frees_the_folder_despite_other_open_files() {
        let folder = tempfile::tempdir().unwrap();
        let lock = Lock::take(folder.path(), "it").unwrap();
        let inherited = lock.0.try_clone().unwrap();
        assert!(matches!(Lock::take(folder.path(), "it"), Err(Error::InUse("it"))));
        drop(lock);
        drop(Lock::take(folder.path(), "it").unwrap());
        drop(inherited);
    }
}
