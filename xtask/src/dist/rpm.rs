//! The package for Fedora, openSUSE, RHEL and what follows from them.

use std::fmt::Write;
use std::process::Command;

use super::compile::GLIBC;
use super::contents::{SETTINGS, script};
use super::files::{Staging, empty, read_text, write};
use super::platform::Platform;
use super::release::Release;
use super::template::fill;
use crate::command::run;

/// The settings of rpmbuild: bytes that do not depend on this machine, nothing done to the
/// programs, and a compression that RPM has had since 2010.
const SETTINGS_OF_BUILD: [(&str, &str); 11] = [
    ("_buildhost", "localhost"),
    ("use_source_date_epoch_as_buildtime", "1"),
    ("clamp_mtime_to_source_date_epoch", "1"),
    ("source_date_epoch_from_changelog", "0"),
    ("_binary_payload", "w6.xzdio"),
    ("_source_payload", "w6.xzdio"),
    ("_build_id_links", "none"),
    ("debug_package", "%{nil}"),
    ("__os_install_post", "%{nil}"),
    ("_rpmfilename", "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm"),
    ("vendor", "Traceless"),
];
/// Folders that belong to the package alone.
const FOLDERS: [&str; 3] = [SETTINGS, "usr/lib/traceless", "usr/share/doc/traceless"];

/// Writes the package from what it installs.
pub fn write_rpm(release: &Release, platform: Platform, staging: &Staging) -> Result<(), String> {
    let work = release.stage(&format!("rpm-{}", platform.arch()));
    empty(&work)?;
    let template = read_text(&release.root.join("dist/package/traceless.spec"))?;
    let spec = fill(
        &template,
        &[
            ("VERSION", &release.sorted_version()),
            ("REPOSITORY", &release.repository),
            ("GLIBC", GLIBC),
            ("STAGING", &staging.folder.display().to_string()),
            ("AFTER_INSTALL", &script(release, "after_install.sh")?),
            ("BEFORE_REMOVE", &script(release, "before_remove.sh")?),
            ("AFTER_REMOVE", &script(release, "after_remove.sh")?),
            ("FILES", &file_list(&staging.files()?)),
        ],
    )?;
    let path = work.join("traceless.spec");
    write(&path, spec.as_bytes())?;
    let mut rpmbuild = Command::new("rpmbuild");
    rpmbuild.args(["-bb", "--quiet", "--target", &format!("{}-linux", platform.arch())]);
    rpmbuild.arg("--define").arg(format!("_topdir {}", work.display()));
    rpmbuild.arg("--define").arg(format!("_rpmdir {}", release.out.display()));
    for (name, value) in SETTINGS_OF_BUILD {
        rpmbuild.args(["--define", &format!("{name} {value}")]);
    }
    rpmbuild.env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    run(rpmbuild.arg(&path))
}

/// The section `%files` of the package.
fn file_list(files: &[String]) -> String {
    let mut list = String::new();
    for folder in FOLDERS {
        let _ = writeln!(list, "%dir /{folder}");
    }
    for file in files {
        let _ = writeln!(list, "/{file}");
    }
    list
}
