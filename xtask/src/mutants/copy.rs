//! The copy of the repository that is mutated, so that no change is left in the working tree. The
//! copy stays between runs, and so does what cargo has built in it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::rust_text;

/// The folder of the copy, below the root.
const FOLDER: &str = "target/mutants/tree";

/// Makes the copy the same as the repository at `root`: the files that git tracks or would track.
pub fn update(root: &Path) -> Result<PathBuf, String> {
    let copy = root.join(FOLDER);
    let failed = |error: io::Error| format!("cannot copy the repository to {FOLDER}: {error}");
    let listed = git(root, &["ls-files", "-co", "--exclude-standard", "-z"])?;
    let names: BTreeSet<&str> = listed.split('\0').filter(|name| !name.is_empty()).collect();
    for name in &names {
        copy_changed(&root.join(name), &copy.join(name)).map_err(failed)?;
    }
    remove_other_targets(&copy, &copy, &names).map_err(failed)?;
    Ok(copy)
}

/// The Rust files in the repository at `root` with code that changed since a commit. A file that
/// only changed in its comments, its blanks or its tests is left out: it has no new mutant.
pub fn changed(root: &Path, since: &str) -> Result<Vec<String>, String> {
    let names = git(root, &["diff", "--name-only", since, "--", "*.rs"])?;
    let names = names.lines().map(str::to_owned);
    Ok(names.filter(|name| has_other_code(root, since, name)).collect())
}

/// Whether a file has other code than in a commit, or is not in both.
fn has_other_code(root: &Path, since: &str, name: &str) -> bool {
    let before = git(root, &["show", &format!("{since}:{name}")]);
    let now = fs::read_to_string(root.join(name));
    match (before, now) {
        (Ok(before), Ok(now)) => code_of(&before) != code_of(&now),
        _ => true,
    }
}

/// The words of the code outside tests, with literals and without comments.
fn code_of(text: &str) -> Vec<String> {
    let (code, prose) = (rust_text::mask(text, false), rust_text::mask(text, true));
    // A byte that only the masking of comments blanks belongs to a comment.
    let is_code = code.bytes().zip(prose.bytes()).map(|(code, prose)| code == prose);
    let bytes = text.bytes().zip(is_code).map(|(byte, is_code)| if is_code { byte } else { b' ' });
    let text = String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned();
    rust_text::without_tests(&text).split_whitespace().map(str::to_owned).collect()
}

/// What changed in the repository at `root` since a commit, as a file for cargo-mutants.
pub fn diff(root: &Path, since: &str) -> Result<PathBuf, String> {
    let text = git(root, &["diff", since, "--", "*.rs"])?;
    let file = root.join("target/mutants/since.diff");
    fs::write(&file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    Ok(file)
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

fn git(root: &Path, args: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(args).current_dir(root).output();
    let output = output.map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git {}: {}", args[0], String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
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
        let copy = update(root).unwrap();
        assert_eq!(fs::read(copy.join("src/a.rs")).unwrap(), b"src/a.rs");
        let built = fs::metadata(copy.join("src/a.rs")).unwrap().modified().unwrap();
        fs::remove_file(root.join("src/b.rs")).unwrap();
        fs::write(copy.join("src/left"), "of a run that was ended").unwrap();
        update(root).unwrap();
        assert!(!copy.join("src/b.rs").exists() && !copy.join("src/left").exists());
        assert_eq!(fs::metadata(copy.join("src/a.rs")).unwrap().modified().unwrap(), built);
        fs::write(copy.join("src/a.rs"), "a mutant").unwrap();
        update(root).unwrap();
        assert_eq!(fs::read(copy.join("src/a.rs")).unwrap(), b"src/a.rs");
    }
    #[test]
    fn comments_and_tests_are_no_change_and_code_is() {
        let base = "/// A.\nfn a() -> u8 {\n    // why\n    1\n}\n";
        assert_eq!(code_of(base), code_of("/// B, longer.\nfn a() -> u8 { 1 }\n"));
        let tests = "#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        assert_eq!(code_of(base), code_of(&format!("{base}{tests}")));
        assert_ne!(code_of(base), code_of(&base.replace("1\n", "2\n")));
        assert_ne!(code_of("const A: &str = \"a // b\";"), code_of("const A: &str = \"a // c\";"));
    }
}
