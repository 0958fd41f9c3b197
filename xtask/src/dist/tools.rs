//! The tools that packages are made with: installs what is missing.
//!
//! Zig compiles the C code of the dependencies, and links. Zig comes as a wheel, brings musl and
//! the symbols of every C library of GNU, and compiles for every processor; its version decides the
//! bytes, not the system that the packages are made on.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::platform::Platform;
use crate::command::{output, run};

const ZIG_VERSION: &str = "0.17.0";
const ZIGBUILD_VERSION: &str = "0.24.0";
const MATURIN_VERSION: &str = "1.16.0";

/// The commands of the system, each with the Debian package that brings it.
const COMMANDS: [(&str, &str); 7] = [
    ("tar", "tar"),
    ("gzip", "gzip"),
    ("dpkg-deb", "dpkg"),
    ("rpmbuild", "rpm"),
    ("sha256sum", "coreutils"),
    ("md5sum", "coreutils"),
    ("python3", "python3"),
];
/// Making a Python environment needs more than Python in Debian.
const ENVIRONMENTS: &str = "python3-venv";

/// Where the tools are.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The folder of cargo-zigbuild and maturin, and of the Python that has Zig.
    pub programs: PathBuf,
}

/// Installs what is missing, below the target folder of `root` or as packages of the system.
pub fn install(root: &Path, platforms: &[Platform]) -> Result<Tools, String> {
    install_packages()?;
    let targets: Vec<String> =
        platforms.iter().flat_map(|platform| [platform.musl(), platform.gnu()]).collect();
    install_targets(root, &targets)?;
    let environment = root.join("target/tools");
    let tools = Tools { programs: environment.join("bin") };
    let has_wheels = |tools: &Tools| {
        let zig = version(
            Command::new(tools.programs.join("python3")).args(["-m", "ziglang", "version"]),
        );
        let zigbuild = version(Command::new(tools.programs.join("cargo-zigbuild")).arg("-V"));
        let maturin = version(Command::new(tools.programs.join("maturin")).arg("-V"));
        let is = |found: Option<String>, version: &str| {
            found.is_some_and(|text| text.ends_with(&format!(" {version}")))
        };
        zig.as_deref() == Some(ZIG_VERSION)
            && is(zigbuild, ZIGBUILD_VERSION)
            && is(maturin, MATURIN_VERSION)
    };
    if !has_wheels(&tools) {
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        let mut pip = Command::new(tools.programs.join("python3"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--only-binary", ":all:", &format!("ziglang=={ZIG_VERSION}")]);
        pip.arg(format!("cargo-zigbuild=={ZIGBUILD_VERSION}"));
        run(pip.arg(format!("maturin=={MATURIN_VERSION}")))?;
    }
    if !has_wheels(&tools) {
        return Err(format!("{} does not have the versions asked for", environment.display()));
    }
    Ok(tools)
}

/// The version of Zig and of Rust, which decide the bytes of a package.
pub fn versions() -> Result<[(&'static str, String); 2], String> {
    let rustc = output(Command::new("rustc").arg("--version"))?;
    Ok([("rustc", rustc.trim().to_owned()), ("zig", ZIG_VERSION.to_owned())])
}

/// The first line that a command prints, if it can be run.
fn version(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.trim().to_owned())
}

fn install_packages() -> Result<(), String> {
    let is_there =
        |name: &str| succeeds(Command::new("sh").args(["-c", &format!("command -v {name}")]));
    let mut missing: Vec<&str> = COMMANDS
        .into_iter()
        .filter(|(command, _)| !is_there(command))
        .map(|(_, package)| package)
        .collect();
    if !succeeds(Command::new("python3").args(["-c", "import ensurepip, venv"])) {
        missing.push(ENVIRONMENTS);
    }
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive").args(["install", "--quiet", "--yes"]);
    run(apt.arg("--no-install-recommends").args(&missing))
        .map_err(|error| format!("install these packages, or what matches them: {names} ({error})"))
}

/// Adds the standard libraries of targets of Rust.
fn install_targets(root: &Path, targets: &[String]) -> Result<(), String> {
    let folder = output(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root))?;
    let libraries = Path::new(folder.trim()).join("lib/rustlib");
    let missing: Vec<&String> =
        targets.iter().filter(|target| !libraries.join(target).join("lib").is_dir()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    run(Command::new("rustup").args(["target", "add"]).args(&missing).current_dir(root))
        .map_err(|error| format!("the targets {missing:?} of Rust are needed: {error}"))
}

/// Whether a command can be run and succeeds. What it prints is left out.
fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
