//! Compiles what packages hold.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::files::list;
use super::platform::Platform;
use super::release::Release;
use crate::command::{cargo, output, run};

/// The oldest C library of GNU that the preloaded library can be loaded with: that of Rust itself.
pub const GLIBC: &str = "2.17";

/// The features of the command in packages, besides its default ones, as arguments of cargo.
pub const COMMAND_FEATURES: [&str; 2] = ["--features", "engines"];

/// The files that were compiled for a processor.
pub struct Programs {
    /// The command `traceless`, which needs nothing of the system but its kernel.
    pub command: PathBuf,
    /// The verifier of evidence, `traceless-attest`, which needs as little.
    pub verifier: PathBuf,
    /// The library that `traceless run` preloads.
    pub library: PathBuf,
}

impl Programs {
    /// The programs that users start, by their names.
    pub fn named(&self) -> [(&'static str, &Path); 2] {
        [("traceless", &self.command), ("traceless-attest", &self.verifier)]
    }
}

/// The profile of `Cargo.toml` that programs in packages are compiled with.
pub const PROFILE: &str = "installed";

/// Compiles the programs for a processor.
pub fn compile(release: &Release, platform: Platform) -> Result<Programs, String> {
    let (musl, gnu) = (platform.musl(), platform.gnu());
    zigbuild(release, "traceless-cli", &COMMAND_FEATURES, &musl)?;
    zigbuild(release, "traceless-attest", &[], &musl)?;
    zigbuild(release, "traceless-preload", &[], &format!("{gnu}.{GLIBC}"))?;
    let programs = release.builds.join(musl).join(PROFILE);
    Ok(Programs {
        command: programs.join("traceless"),
        verifier: programs.join("traceless-attest"),
        library: release.builds.join(gnu).join(PROFILE).join("libtraceless_preload.so"),
    })
}

fn zigbuild(
    release: &Release,
    package: &str,
    features: &[&str],
    target: &str,
) -> Result<(), String> {
    let mut command = Command::new(release.tools.programs.join("cargo-zigbuild"));
    command.args(["zigbuild", "--profile", PROFILE, "--locked", "--package", package]);
    command.args(features);
    command.args(["--target", target, "--target-dir"]).arg(&release.builds);
    add_build_environment(release, &mut command)?;
    run(&mut command)
}

/// Lets a command that builds with Zig find it, and keeps the folders of this machine out of the
/// result.
pub fn add_build_environment(release: &Release, command: &mut Command) -> Result<(), String> {
    // The sources of the dependencies must be there before their folders can be listed.
    run(Command::new(cargo()).args(["fetch", "--locked", "--quiet"]).current_dir(&release.root))?;
    let folders = folders(release)?;
    if let Some((folder, _)) = folders.iter().find(|(folder, _)| folder.contains([' ', '='])) {
        return Err(format!("{folder}: its name has a blank or `=`, which compilers misread"));
    }
    let flags = |name: &str| {
        let flags: Vec<String> =
            folders.iter().map(|(folder, word)| format!("{name}={folder}={word}")).collect();
        flags.join(" ")
    };
    command.current_dir(&release.root).env("PATH", path_with(&release.tools.programs));
    command.env("CARGO", cargo()).env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    command.env("RUSTFLAGS", flags("--remap-path-prefix"));
    command.env("TARGET_CFLAGS", format!("-g0 {}", flags("-ffile-prefix-map")));
    command.env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("CFLAGS");
    Ok(())
}

/// The folders of this machine that compilers would write into programs, each with the word that
/// takes its place. Of two that fit, compilers take the last.
fn folders(release: &Release) -> Result<Vec<(String, String)>, String> {
    let text = |path: &Path| path.display().to_string();
    let mut folders = vec![
        (text(&release.root), "/traceless".to_owned()),
        (text(&release.builds), "/builds".to_owned()),
    ];
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo")));
    let home = home.ok_or("neither CARGO_HOME nor HOME is set")?;
    // A folder for each registry, with a name that depends on its address.
    for registry in list(&home.join("registry/src"))? {
        folders.push((text(&registry), "/registry".to_owned()));
    }
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let sources = Path::new(sysroot.trim()).join("lib/rustlib/src/rust");
    folders.push((text(&sources), "/rust".to_owned()));
    Ok(folders)
}

/// The search path with one more folder before it.
fn path_with(folder: &Path) -> std::ffi::OsString {
    let mut path = folder.as_os_str().to_owned();
    if let Some(before) = std::env::var_os("PATH") {
        path.push(":");
        path.push(before);
    }
    path
}
