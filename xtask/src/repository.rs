//! The repository, as git knows it, and copies of it for work that must not touch the original.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// Makes the copy the same as the repository at `root`: the files that git tracks or would track.
pub fn update_copy(root: &Path, copy: &Path) -> Result<(), String> {
    let failed =
        |error: io::Error| format!("cannot copy the repository to {}: {error}", copy.display());
    let listed = git(root, &["ls-files", "-co", "--exclude-standard", "-z"])?;
    let names: BTreeSet<&str> = listed.split('\0').filter(|name| !name.is_empty()).collect();
    for name in &names {
        copy_changed(&root.join(name), &copy.join(name)).map_err(failed)?;
    }
    remove_other_targets(copy, copy, &names).map_err(failed)?;
    Ok(())
}

/// The output of git in the repository at `root`.
pub fn git(root: &Path, args: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(args).current_dir(root).output();
    let output = output.map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git {}: {}", args[0], String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Copies a file, unless the copy is the same already: then cargo need not build it again.
fn copy_changed(from: &Path, to: &Path) -> io::Result<()> {
    let contents = match fs::read(from) {
        // Git still lists a file that was deleted but not yet staged.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return remove(to),
        other => other?,
    };
    if fs::read(to).ok().as_ref() == Some(&contents) {
        return Ok(());
    }
    fs::create_dir_all(to.parent().expect("a file is in a folder"))?;
    fs::write(to, contents)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes the files of a folder of the copy that the repository does not have.
fn remove_other_targets(copy: &Path, folder: &Path, names: &BTreeSet<&str>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_other_targets(copy, &path, names)?;
            continue;
        }
        let name = path.strip_prefix(copy).ok().and_then(Path::to_str);
        if !name.is_some_and(|name| names.contains(name)) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_follows_the_repository() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        git(root, &["init", "--quiet"]).unwrap();
        fs::write(root.join(".gitignore"), "target\n").unwrap();
        fs::create_dir(root.join("src")).unwrap();
        for name in ["src/a.rs", "src/b.rs"] {
            fs::write(root.join(name), name).unwrap();
        }
        let copy = root.join("target/copy");
        update_copy(root, &copy).unwrap();
        assert_eq!(fs::read(copy.join("src/a.rs")).unwrap(), b"src/a.rs");
        let built = fs::metadata(copy.join("src/a.rs")).unwrap().modified().unwrap();
        fs::remove_file(root.join("src/b.rs")).unwrap();
        fs::write(copy.join("src/left"), "of a run that was ended").unwrap();
        update_copy(root, &copy).unwrap();
        assert!(!copy.join("src/b.rs").exists() && !copy.join("src/left").exists());
        assert_eq!(fs::metadata(copy.join("src/a.rs")).unwrap().modified().unwrap(), built);
        fs::write(copy.join("src/a.rs"), "a mutant").unwrap();
        update_copy(root, &copy).unwrap();
        assert_eq!(fs::read(copy.join("src/a.rs")).unwrap(), b"src/a.rs");
    }
}
