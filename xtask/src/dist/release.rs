//! One release: where its sources are, and what goes into every package of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::tools::Tools;
use crate::command::output;
use crate::repository::git;

/// A build of all packages.
#[derive(Clone, Debug)]
pub struct Release {
    /// The sources.
    pub root: PathBuf,
    /// The folder that cargo builds in. What packages are put together from is below it, too.
    pub builds: PathBuf,
    /// The folder of the packages.
    pub out: PathBuf,
    pub tools: Tools,
    pub version: String,
    pub repository: String,
    /// The last commit.
    pub revision: String,
    /// The time of the last commit, in seconds since 1970.
    pub epoch: u64,
}

impl Release {
    /// A release of the repository at `root`, as it is now.
    pub fn load(root: &Path, builds: PathBuf, out: PathBuf, tools: Tools) -> Result<Self, String> {
        let path = root.join("Cargo.toml");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let (version, repository) = versions(&text)?;
        if !git(root, &["status", "--porcelain"])?.is_empty() {
            eprintln!("NOTE: there are changes that are not committed, and the packages have them");
        }
        let log = git(root, &["log", "-1", "--format=%H %ct"])?;
        let (revision, epoch) = log.trim().split_once(' ').ok_or("git has no commit")?;
        let epoch = epoch.parse().map_err(|_| format!("git prints the time {epoch}"))?;
        let revision = revision.to_owned();
        let root = root.to_owned();
        Ok(Self { root, builds, out, tools, version, repository, revision, epoch })
    }

    /// The version as Debian and RPM sort it: a preview comes before its release.
    pub fn sorted_version(&self) -> String {
        self.version.replace('-', "~")
    }

    /// The time of the last commit, as in JSON.
    pub fn time(&self) -> Result<String, String> {
        let mut date = Command::new("date");
        date.args(["--utc", "+%Y-%m-%dT%H:%M:%SZ"]).arg(format!("--date=@{}", self.epoch));
        Ok(output(&mut date)?.trim().to_owned())
    }

    /// A folder for what a package is put together from.
    pub fn stage(&self, name: &str) -> PathBuf {
        self.builds.join("dist-stage").join(name)
    }
}

/// The version and the address of the repository in the manifest of the workspace.
fn versions(manifest: &str) -> Result<(String, String), String> {
    let manifest =
        manifest.parse::<toml::Table>().map_err(|error| format!("Cargo.toml: {error}"))?;
    let field = |name: &str| {
        let value = manifest.get("workspace")?.get("package")?.get(name)?.as_str()?;
        Some(value.to_owned())
    };
    let fields = field("version").zip(field("repository"));
    fields.ok_or("Cargo.toml has no version, or no repository".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_names_the_version() {
        let text = "[workspace.package]\nversion = \"1.2.0-rc.1\"\nrepository = \"r\"\n";
        assert_eq!(versions(text), Ok(("1.2.0-rc.1".to_owned(), "r".to_owned())));
        assert!(versions("[package]\nversion = \"1.2.0\"\n").is_err());
    }
}
