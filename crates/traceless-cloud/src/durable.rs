//! Durable files and folders: they survive a power cut once the function that made them returns.
//!
//! A new name lies in its folder, so it is durable only after the folder is.

use crate::error::Result;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use traceless_core::store::{folder_of, sync_folder_of};

/// What a commit survives once it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// The end of the process at any moment.
    Process,
    /// A loss of power, too.
    Power,
}

/// Makes a folder that only its owner may enter, and all missing folders above it.
pub fn make_folder(path: &Path) -> Result {
    if path.is_dir() {
        return Ok(());
    }
    make_folder(folder_of(path))?;
    let created = DirBuilder::new().mode(0o700).create(path);
    // Another process may have made it meanwhile.
    if let Err(e) = created
        && !path.is_dir()
    {
        return Err(e.into());
    }
    Ok(sync_folder_of(path)?)
}

/// Writes a file that only its owner may read, as a whole or not at all.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result {
    let new = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    put(&new, path)
}

/// Replaces `path` by the file `new`, which is durable already.
pub fn put(new: &Path, path: &Path) -> Result {
    std::fs::rename(new, path)?;
    Ok(sync_folder_of(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn folders_and_files_are_accessible_to_their_owner_only() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("one/two/three");
        for _ in 0..2 {
            make_folder(&folder).unwrap();
            write_private(&folder.join("key"), b"secret").unwrap();
        }
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        for folder in folder.ancestors().take(3) {
            assert_eq!(mode(folder), 0o700, "{}", folder.display());
        }
        assert_eq!(mode(&folder.join("key")), 0o600);
        assert_eq!(std::fs::read(folder.join("key")).unwrap(), b"secret");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        // A file stands where the folder should be.
        assert!(make_folder(&folder.join("key/four")).is_err());
        assert!(make_folder(&folder.join("key")).is_err());
    }
}
