//! Folders that packages are put together in, archives and digests, by the tools of the system.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::release::Release;
use crate::command::{output, run};

/// Permissions of a program, and of a folder.
pub const PROGRAM: u32 = 0o755;
/// Permissions of any other file.
pub const DATA: u32 = 0o644;

/// A folder that holds what a package installs.
pub struct Staging {
    pub folder: PathBuf,
}

impl Staging {
    /// An empty folder.
    pub fn new(folder: PathBuf) -> Result<Self, String> {
        empty(&folder)?;
        let staging = Self { folder };
        staging.make_folder("")?;
        Ok(staging)
    }

    /// Puts a copy of a file at the path `to`.
    pub fn copy(&self, from: &Path, to: &str, mode: u32) -> Result<(), String> {
        self.write(to, &read(from)?, mode)
    }

    /// Writes a file at the path `to`.
    pub fn write(&self, to: &str, bytes: &[u8], mode: u32) -> Result<(), String> {
        self.make_folder(to.rsplit_once('/').map_or("", |(folder, _)| folder))?;
        let path = self.folder.join(to);
        write(&path, bytes)?;
        permit(&path, mode)
    }

    /// Makes a folder at the path `to`, and the ones above it, with the same permissions under any
    /// mask.
    pub fn make_folder(&self, to: &str) -> Result<(), String> {
        let path = self.folder.join(to);
        fs::create_dir_all(&path).map_err(|error| failure("make", &path, &error))?;
        let inner = |path: &&Path| path.starts_with(&self.folder);
        path.ancestors().take_while(inner).try_for_each(|folder| permit(folder, PROGRAM))
    }

    /// The paths of all files, in order.
    pub fn files(&self) -> Result<Vec<String>, String> {
        let mut find = Command::new("find");
        let text =
            output(find.args([".", "-type", "f", "-printf", "%P\\n"]).current_dir(&self.folder))?;
        let mut paths: Vec<String> = text.lines().map(str::to_owned).collect();
        paths.sort();
        Ok(paths)
    }
}

/// Removes all that is in a folder, and makes it if it is not there.
pub fn empty(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failure("remove", folder, &error));
        }
        _ => {}
    }
    fs::create_dir_all(folder).map_err(|error| failure("make", folder, &error))
}

pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| failure("read", path, &error))
}

pub fn read_text(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| failure("read", path, &error))
}

pub fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(path, bytes).map_err(|error| failure("write", path, &error))
}

/// The paths of what is in a folder, in order.
pub fn list(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| failure("read", folder, &error))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
    let mut paths = paths.map_err(|error| failure("read", folder, &error))?;
    paths.sort();
    Ok(paths)
}

/// The SHA-256 digest of a file, in hexadecimal digits.
pub fn sha256(path: &Path) -> Result<String, String> {
    let text = output(Command::new("sha256sum").arg("--binary").arg(path))?;
    Ok(text.trim_start_matches('\\').split(' ').next().unwrap_or_default().to_owned())
}

/// The contents of a file, compressed, without its name and its time.
pub fn gzip(path: &Path) -> Result<Vec<u8>, String> {
    let mut gzip = Command::new("gzip");
    let gzip = gzip.args(["-9", "--no-name", "--stdout"]).arg(path);
    let done = gzip.output().map_err(|error| format!("cannot run gzip: {error}"))?;
    if done.status.success() {
        Ok(done.stdout)
    } else {
        Err(failure("compress", path, &done.status))
    }
}

/// A compressed archive of a folder, with the folder's name as the first part of all paths.
pub fn tarball(release: &Release, staging: &Staging) -> Result<PathBuf, String> {
    let folder = &staging.folder;
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let tar = release.stage(&format!("{name}.tar"));
    let above = folder.parent().unwrap_or(folder);
    run(tar_command(release, above, &tar, 0).arg("--create").arg(&name))?;
    let path = release.out.join(format!("{name}.tar.gz"));
    write(&path, &gzip(&tar)?)?;
    Ok(path)
}

/// The command that writes an archive with nothing in it of this machine: in order, with the time
/// of the release, and one owner. It takes `--create` or `--append`, and paths below `folder`.
pub fn tar_command(release: &Release, folder: &Path, archive: &Path, owner: u32) -> Command {
    let mut tar = Command::new("tar");
    tar.args(["--format=gnu", "--sort=name", "--numeric-owner"]);
    tar.arg(format!("--mtime=@{}", release.epoch));
    tar.arg(format!("--owner={owner}")).arg(format!("--group={owner}"));
    tar.arg("--directory").arg(folder).arg("--file").arg(archive);
    tar
}

fn permit(path: &Path, mode: u32) -> Result<(), String> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(|error| failure("change", path, &error))
}

fn failure(what: &str, path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("cannot {what} {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_staging_begins_empty_and_lists_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("rest"), "of before").unwrap();
        let staging = Staging::new(folder.path().to_owned()).unwrap();
        staging.write("b/c/d", b"1", PROGRAM).unwrap();
        staging.write("a", b"2", DATA).unwrap();
        staging.make_folder("e").unwrap();
        assert_eq!(staging.files().unwrap(), ["a", "b/c/d"]);
        let mode = |path: &str| {
            fs::metadata(folder.path().join(path)).unwrap().permissions().mode() & 0o777
        };
        assert_eq!([mode("a"), mode("b"), mode("b/c/d")], [DATA, PROGRAM, PROGRAM]);
    }
}
