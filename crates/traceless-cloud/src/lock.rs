//! What one process has at a time.

use crate::error::{Error, Result};
use std::fs::{File, OpenOptions};
use std::path::Path;

/// The file whose lock says who has a folder.
const LOCK: &str = "lock";

/// A folder that nobody else has.
pub struct Lock(File);

impl Lock {
    /// Takes a folder. Somebody else's is [`Error::InUse`]: `what` says of what.
    pub fn take(folder: &Path, what: &'static str) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(folder.join(LOCK))?;
        file.try_lock().map_err(|_| Error::InUse(what))?;
        Ok(Self(file))
    }
}

impl Drop for Lock {
    /// A child that is just being started still has the file open, which would hold the lock.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_free_once_it_is_given_back_whoever_has_the_file_open() {
        let folder = tempfile::tempdir().unwrap();
        let lock = Lock::take(folder.path(), "it").unwrap();
        let inherited = lock.0.try_clone().unwrap();
        assert!(matches!(Lock::take(folder.path(), "it"), Err(Error::InUse("it"))));
        drop(lock);
        drop(Lock::take(folder.path(), "it").unwrap());
        drop(inherited);
    }
}
