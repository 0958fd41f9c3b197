//! The system commands that this module runs: finding them, and reading their output.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::{Error, Result};

/// Folders of system commands that the PATH of an ordinary user often lacks.
const SYSTEM_FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

pub(super) const BLKID: Tool = Tool { name: "blkid", package: "util-linux" };
pub(super) const FUSERMOUNT: Tool = Tool { name: "fusermount3", package: "fuse3" };
pub(super) const LOSETUP: Tool = Tool { name: "losetup", package: "mount" };
pub(super) const MKFS_EXT4: Tool = Tool { name: "mkfs.ext4", package: "e2fsprogs" };
pub(super) const MOUNT: Tool = Tool { name: "mount", package: "mount" };
pub(super) const UMOUNT: Tool = Tool { name: "umount", package: "mount" };

/// A command, and the Debian package that contains it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tool {
    name: &'static str,
    package: &'static str,
}

impl Tool {
    /// The command's path.
    pub(super) fn path(self) -> Option<PathBuf> {
        let search = std::env::var_os("PATH").unwrap_or_default();
        find(self.name, std::env::split_paths(&search))
    }

    /// Fails if the command is not installed.
    pub(super) fn check(self) -> Result<()> {
        self.path().map(|_| ()).ok_or_else(|| self.missing())
    }

    /// Runs the command to its end. If the command fails, that is in its [`CommandOutput`], not an
    /// error.
    pub(super) fn run<A: AsRef<OsStr>>(self, arguments: &[A]) -> Result<CommandOutput> {
        let path = self.path().ok_or_else(|| self.missing())?;
        let output = Command::new(&path)
            .args(arguments)
            // The output is searched for English words.
            .env("LC_ALL", "C")
            // A Ctrl-C must not reach the command: a mount that is cut off after its system call
            // would stay mounted without a record.
            .process_group(0)
            .stdin(Stdio::null())
            .output()
            .map_err(Error::io("running", &path))?;
        let mut line = OsString::from(self.name);
        for argument in arguments {
            line.push(" ");
            line.push(argument);
        }
        Ok(CommandOutput {
            line: line.to_string_lossy().into_owned(),
            success: output.status.success(),
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }

    fn missing(self) -> Error {
        Error::CommandMissing { command: self.name, package: self.package }
    }
}

/// The output of a command.
#[derive(Debug)]
pub(super) struct CommandOutput {
    line: String,
    pub(super) success: bool,
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    stderr: String,
}

impl CommandOutput {
    /// Turns a failure of the command into an error with `advice`.
    pub(super) fn or_fail(self, advice: &'static str) -> Result<Self> {
        if self.success {
            return Ok(self);
        }
        let Self { line, code, stderr, .. } = self;
        Err(Error::CommandFailed { line, code, stderr, advice })
    }

    /// Whether the command failed because something is in use.
    pub(super) fn is_busy(&self) -> bool {
        !self.success && self.stderr.to_lowercase().contains("busy")
    }
}

/// Whether the process runs as root. Mounting needs a capability that other users hardly ever have.
pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn find(name: &str, search: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    search
        .chain(SYSTEM_FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|path| path.is_absolute() && is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_without_a_path() {
        assert!(find("sh", std::iter::empty()).is_some());
        assert_eq!(find("no-such-command", [PathBuf::from("/usr/bin")].into_iter()), None);
    }

    #[test]
    fn relative_folders_are_not_searched() {
        assert_eq!(find("Cargo.toml", [PathBuf::from(".")].into_iter()), None);
    }

    #[test]
    fn a_missing_command_names_its_package() {
        let tool = Tool { name: "no-such-command", package: "no-such-package" };
        let error = tool.run(&[""; 0]).expect_err("it does not exist");
        assert!(error.to_string().contains("apt install no-such-package"), "{error}");
    }

    #[test]
    fn a_failure_carries_what_was_said() {
        let tool = Tool { name: "sh", package: "dash" };
        let outcome = tool.run(&["-c", "echo target is BUSY >&2; exit 3"]).expect("sh runs");
        assert!(outcome.is_busy());
        let error = outcome.or_fail("try again").expect_err("it failed").to_string();
        assert!(error.contains("code 3: target is BUSY\ntry again"), "{error}");
    }
}
