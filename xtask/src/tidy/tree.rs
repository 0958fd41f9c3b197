//! The files of the repository that git tracks or would track.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::rust_text;

/// Larger files are not read: their size alone is a finding.
const TEXT_BYTES_MAX: u64 = 8 << 20;

/// A file, by its path from the root.
pub struct File {
    pub path: String,
    pub size: u64,
    /// `None` for a file that is not text.
    pub text: Option<String>,
}

/// A Rust file with its masked views (see `rust_text`).
pub struct RustFile {
    pub path: String,
    pub text: String,
    /// Comments and literals are blanked.
    pub code: String,
    /// Literals are blanked.
    pub prose: String,
}

/// The files that the rules check.
pub struct Tree {
    pub files: Vec<File>,
    pub rust: Vec<RustFile>,
}

impl Tree {
    /// Reads the repository at `root`.
    pub fn load(root: &Path) -> Result<Self, String> {
        let listed = git(root, &["ls-files", "-co", "--exclude-standard", "-z"])?;
        let mut files = Vec::new();
        for path in listed.split('\0').filter(|path| !path.is_empty()) {
            // Git still lists a file that was deleted but not yet staged.
            if let Some(file) = load_file(root, path)? {
                files.push(file);
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        let rust = files.iter().filter_map(RustFile::of).collect();
        Ok(Self { files, rust })
    }

    /// The text of the file at `path`.
    pub fn text(&self, path: &str) -> Option<&str> {
        let file = self.files.iter().find(|file| file.path == path)?;
        file.text.as_deref()
    }

    /// Every text file with its text.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|file| Some((file.path.as_str(), file.text.as_deref()?)))
    }

    /// The manifests of the crates of the workspace, each with its crate's folder.
    pub fn manifests(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.texts().filter_map(|(path, text)| {
            let folder = path.strip_suffix("/Cargo.toml")?;
            let inner = folder.strip_prefix("crates/").unwrap_or(folder);
            (!inner.contains('/')).then_some((folder, path, text))
        })
    }
}

impl RustFile {
    fn of(file: &File) -> Option<Self> {
        let text = file.text.clone().filter(|_| has_extension(&file.path, "rs"))?;
        Some(Self {
            path: file.path.clone(),
            code: rust_text::mask(&text, false),
            prose: rust_text::mask(&text, true),
            text,
        })
    }
}

/// Whether the name of the file ends in `.extension`.
pub fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

/// Whether a shell runs the file: by its name, or by its first line.
pub fn is_script(path: &str, text: &str) -> bool {
    has_extension(path, "sh")
        || (Path::new(path).extension().is_none() && text.starts_with("#!"))
        || matches!(path, "test" | "quickstart" | ".ci/run")
}

/// The output of `git` in `root`.
pub fn git(root: &Path, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new("git");
    // A hook sets these, and they would lead git to another repository than `root`.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    let output = command
        .arg("-C")
        .arg(root)
        .args(args)
        .output()
        .map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git {} failed: {}", args.join(" "), said.trim()));
    }
    String::from_utf8(output.stdout).map_err(|_| "a file name is not UTF-8".to_owned())
}

fn load_file(root: &Path, path: &str) -> Result<Option<File>, String> {
    let full: PathBuf = root.join(path);
    let Ok(metadata) = full.symlink_metadata() else { return Ok(None) };
    let size = metadata.len();
    if !metadata.is_file() || size > TEXT_BYTES_MAX {
        return Ok(Some(File { path: path.to_owned(), size, text: None }));
    }
    let bytes = std::fs::read(&full).map_err(|error| format!("cannot read {path}: {error}"))?;
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    Ok(Some(File { path: path.to_owned(), size, text }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_and_deleted_files_are_left_out() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path();
        git(root, &["init", "--quiet"]).expect("git init");
        for (path, text) in [(".gitignore", "/out\n"), ("out", ""), ("gone", ""), ("bin", "\0")] {
            std::fs::write(root.join(path), text).expect("file");
        }
        git(root, &["add", "gone"]).expect("git add");
        std::fs::remove_file(root.join("gone")).expect("file");
        let tree = Tree::load(root).expect("a tree");
        let found: Vec<_> = tree.files.iter().map(|f| (&f.path[..], f.text.is_some())).collect();
        assert_eq!(found, [(".gitignore", true), ("bin", false)]);
    }

    #[test]
    fn scripts_are_known_by_name_or_first_line() {
        assert!(is_script("tests/a.sh", "") && is_script("test", ""));
        assert!(is_script("tools/go", "#!/bin/sh\n"));
        assert!(!is_script("LICENSE-MIT", "MIT\n") && !is_script("a.rs", "#![no_std]\n"));
    }
}
