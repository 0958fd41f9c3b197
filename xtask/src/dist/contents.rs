//! What packages install, and where.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::compile::Programs;
use super::files::{DATA, PROGRAM, Staging, empty, gzip, list, read_text, write};
use super::platform::Platform;
use super::release::Release;
use crate::command::{output, run};

/// What mount(8) runs for volumes, with the names by which it looks for it.
const MOUNT_HELPERS: [(&str, &str); 3] = [
    ("dist/mount.traceless", "sbin/mount.traceless"),
    ("dist/mount.traceless", "sbin/mount.fuse.traceless"),
    ("dist/umount.traceless", "sbin/umount.traceless"),
];
/// The units and the users of the services, below the root, with where packages have them.
const SERVICES: [(&str, &str); 6] = [
    ("dist/traceless-mount@.service", "lib/systemd/system/traceless-mount@.service"),
    ("dist/traceless-volume@.service", "lib/systemd/system/traceless-volume@.service"),
    ("dist/traceless-volume@.socket", "lib/systemd/system/traceless-volume@.socket"),
    ("dist/traceless-gateway.service", "lib/systemd/system/traceless-gateway.service"),
    ("dist/traceless-host.service", "lib/systemd/system/traceless-host.service"),
    ("dist/package/sysusers.conf", "lib/sysusers.d/traceless.conf"),
];
/// Texts of the root that every package has.
const TEXTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];
/// The folder of these texts in packages of a system, below `usr`.
const DOCUMENTS: &str = "share/doc/traceless";
/// Shells that packages have completions for.
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];
/// The folder of options and keys.
pub const SETTINGS: &str = "etc/traceless";

/// The kind of a package.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PackageKind {
    Tarball,
    Deb,
    Rpm,
}

impl PackageKind {
    /// Where programs and data are: an archive is unpacked wherever its user likes.
    fn prefix(self) -> &'static str {
        if self == Self::Tarball { "" } else { "usr/" }
    }

    /// Where a shell looks for the completions of a program, below the prefix.
    fn completions(self, shell: &str, program: &str) -> String {
        match (shell, self) {
            ("bash", _) => format!("share/bash-completion/completions/{program}"),
            ("fish", _) => format!("share/fish/vendor_completions.d/{program}.fish"),
            (_, Self::Deb) => format!("share/zsh/vendor-completions/_{program}"),
            (_, Self::Tarball | Self::Rpm) => format!("share/zsh/site-functions/_{program}"),
        }
    }

    /// Where texts are.
    fn documents(self) -> String {
        if self == Self::Tarball { String::new() } else { format!("usr/{DOCUMENTS}/") }
    }
}

/// Manual pages, and a folder of completions for each program, which writes them itself.
pub struct Shares {
    pages: Vec<PathBuf>,
    completions: PathBuf,
}

/// What a processor's packages are made of.
pub struct Contents {
    pub platform: Platform,
    pub programs: Programs,
}

/// Lets the command write its pages and completions.
pub fn shares(release: &Release, contents: &[Contents]) -> Result<Shares, String> {
    let native = contents.iter().find(|one| one.platform.is_host());
    let native = native.ok_or_else(|| {
        let arch = std::env::consts::ARCH;
        format!("man pages are written by the command itself: add --target {arch}")
    })?;
    let (pages, completions) = (release.stage("man1"), release.stage("completions"));
    empty(&pages)?;
    empty(&completions)?;
    for (name, program) in native.programs.named() {
        let before = list(&pages)?.len();
        // What the program says about the pages is no news here.
        output(Command::new(program).arg("man").arg(&pages))?;
        if list(&pages)?.len() == before {
            return Err(format!("{} writes no man pages", program.display()));
        }
        empty(&completions.join(name))?;
        for shell in SHELLS {
            let text = output(Command::new(program).args(["completions", shell]))?;
            write(&completions.join(name).join(shell), text.as_bytes())?;
        }
    }
    Ok(Shares { pages: list(&pages)?, completions })
}

impl Contents {
    /// Puts everything into a folder as a package installs it.
    pub fn stage(
        &self,
        release: &Release,
        shares: &Shares,
        notices: &Path,
        kind: PackageKind,
    ) -> Result<Staging, String> {
        let arch = self.platform.arch();
        let name = format!("traceless-{}-{arch}-linux", release.version);
        let folder = match kind {
            PackageKind::Tarball => release.stage(&name),
            PackageKind::Deb => release.stage(&format!("{name}-deb")),
            PackageKind::Rpm => release.stage(&format!("{name}-rpm")),
        };
        let staging = Staging::new(folder)?;
        let below = |path: &str| format!("{}{path}", kind.prefix());
        for (name, program) in self.programs.named() {
            staging.copy(program, &below(&format!("bin/{name}")), PROGRAM)?;
            for shell in SHELLS {
                let from = shares.completions.join(name).join(shell);
                staging.copy(&from, &below(&kind.completions(shell, name)), DATA)?;
            }
        }
        let library = below("lib/traceless/libtraceless_preload.so");
        staging.copy(&self.programs.library, &library, DATA)?;
        for (from, to) in MOUNT_HELPERS {
            staging.copy(&release.root.join(from), &below(to), PROGRAM)?;
        }
        for (from, to) in SERVICES {
            staging.copy(&release.root.join(from), &below(to), DATA)?;
        }
        for page in &shares.pages {
            let name = page.file_name().unwrap_or_default().to_string_lossy();
            let to = below(&format!("share/man/man1/{name}.gz"));
            staging.write(&to, &gzip(page)?, DATA)?;
        }
        for name in TEXTS {
            let to = format!("{}{name}", kind.documents());
            staging.copy(&release.root.join(name), &to, DATA)?;
        }
        staging.copy(notices, &format!("{}THIRD-PARTY.txt", kind.documents()), DATA)?;
        if kind != PackageKind::Tarball {
            staging.make_folder(SETTINGS)?;
        }
        Ok(staging)
    }
}

/// A script of a package, without its first comment.
pub fn script(release: &Release, name: &str) -> Result<String, String> {
    let path = release.root.join("dist/package").join(name);
    run(Command::new("sh").arg("-n").arg(&path))?;
    let text = read_text(&path)?;
    let lines: Vec<&str> = text.lines().skip_while(|line| line.starts_with('#')).collect();
    Ok(lines.join("\n"))
}
