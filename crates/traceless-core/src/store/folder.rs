//! Names of files that survive a power cut: a new file or a new name is durable only after its
//! folder is.

use std::fs::File;
use std::io;
use std::path::Path;

/// The folder of `path`.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) => Path::new("."),
        // The root's parent is the root itself.
        None => path,
    }
}

/// Makes the names in the folder of `path` durable.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_file_name_is_in_the_working_directory() {
        assert_eq!(folder_of(Path::new("name")), Path::new("."));
        assert_eq!(folder_of(Path::new("/name")), Path::new("/"));
        assert_eq!(folder_of(Path::new("/")), Path::new("/"));
        sync_folder_of(Path::new("name")).unwrap();
        assert!(sync_folder_of(Path::new("/no such folder/name")).is_err());
    }
}
