//! The package for Debian, Ubuntu and what follows from them.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use super::compile::GLIBC;
use super::contents::script;
use super::files::{DATA, PROGRAM, Staging, read_text};
use super::platform::Platform;
use super::release::Release;
use super::template::fill;
use crate::command::{output, run};

/// Each script of the package, the word with which dpkg calls it, and what it then does.
const SCRIPTS: [(&str, &str, &str); 3] = [
    ("postinst", "configure", "after_install.sh"),
    ("prerm", "remove", "before_remove.sh"),
    ("postrm", "remove", "after_remove.sh"),
];

/// Writes the package from what it installs.
pub fn write_deb(release: &Release, platform: Platform, staging: &Staging) -> Result<(), String> {
    let copyright = read_text(&release.root.join("dist/package/copyright"))?;
    staging.write("usr/share/doc/traceless/copyright", copyright.as_bytes(), DATA)?;
    let files = staging.files()?;
    let mut bytes = 0;
    for file in &files {
        let path = staging.folder.join(file);
        let metadata = fs::metadata(&path);
        bytes += metadata.map_err(|error| format!("{}: {error}", path.display()))?.len();
    }
    let control = read_text(&release.root.join("dist/package/control"))?;
    let control = fill(
        &control,
        &[
            ("VERSION", &release.sorted_version()),
            ("ARCHITECTURE", platform.short_arch()),
            ("KIB", &bytes.div_ceil(1024).to_string()),
            ("GLIBC", GLIBC),
            ("REPOSITORY", &release.repository),
        ],
    )?;
    staging.write("DEBIAN/control", control.as_bytes(), DATA)?;
    let mut md5sum = Command::new("md5sum");
    let sums = output(md5sum.arg("--").args(&files).current_dir(&staging.folder))?;
    staging.write("DEBIAN/md5sums", sums.as_bytes(), DATA)?;
    for (name, word, body) in SCRIPTS {
        let text = maintainer_script(word, &script(release, body)?);
        staging.write(&format!("DEBIAN/{name}"), text.as_bytes(), PROGRAM)?;
    }
    let name = format!("traceless_{}_{}.deb", release.sorted_version(), platform.short_arch());
    let mut deb = Command::new("dpkg-deb");
    // Old systems know xz but not zstd. The bytes may depend on the number of threads.
    deb.args(["--root-owner-group", "-Zxz", "--build"]);
    deb.env("SOURCE_DATE_EPOCH", release.epoch.to_string()).env("DPKG_DEB_THREADS_MAX", "1");
    run(deb.arg(&staging.folder).arg(release.out.join(name)))
}

/// A script that does its work for one of dpkg's words only.
fn maintainer_script(word: &str, body: &str) -> String {
    let mut text = String::from("#!/bin/sh\nset -e\n");
    let _ = writeln!(text, "[ \"$1\" = {word} ] || exit 0");
    let _ = writeln!(text, "{body}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_works_for_its_word_only() {
        let text = maintainer_script("remove", "exit 7");
        let code = |word: &str| {
            let status = Command::new("sh").args(["-c", &text, "prerm", word]).status();
            status.unwrap().code()
        };
        assert_eq!([code("remove"), code("upgrade")], [Some(7), Some(0)]);
    }
}
