//! Folders with files of a measurement. One that a killed bench has left is removed by the next,
//! as it may fill the disk.

use std::fs;
use std::path::{Path, PathBuf};

/// How the names of these folders begin; the number of their process follows.
const PREFIX: &str = "traceless-bench-";

/// A path in `parent` for the folder of this process for `what`. Removes the folders of processes
/// that are gone, as far as it can.
pub fn path(parent: &Path, what: &str) -> PathBuf {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(process_of);
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    parent.join(format!("{PREFIX}{}-{what}", std::process::id()))
}

/// The number of the process that a folder of this name is of.
fn process_of(name: &str) -> Option<&str> {
    let (process, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    process.parse::<u32>().ok().map(|_| process)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_a_dead_process_left_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let (own, dead) = (std::process::id(), child.id());
        let kept = [format!("{PREFIX}{own}-ram"), format!("{PREFIX}x-ram"), "other".to_owned()];
        let left = format!("{PREFIX}{dead}-ram");
        for name in kept.iter().chain([&left]) {
            fs::create_dir(parent.path().join(name)).unwrap();
            fs::write(parent.path().join(name).join("image"), "1").unwrap();
        }
        assert_eq!(path(parent.path(), "disk"), parent.path().join(format!("{PREFIX}{own}-disk")));
        let names = fs::read_dir(parent.path()).unwrap();
        let names: BTreeSet<_> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(names, BTreeSet::from(kept));
    }
}
