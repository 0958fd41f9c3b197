//! The wheel of the Python package: for every Python from 3.9 on, on Linux with the C library of
//! 2012 or newer (manylinux2014).

use std::path::Path;
use std::process::Command;

use super::compile::add_build_environment;
use super::files::list;
use super::platform::Platform;
use super::release::Release;
use crate::command::run;

/// What adds licences to a wheel, and takes the folder of the sources out of it.
const FINISH_WHEEL: &str = include_str!("finish_wheel.py");
const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Makes the wheel for a processor, with the licences of what is compiled into it.
pub fn write_wheel(release: &Release, platform: Platform, notices: &Path) -> Result<(), String> {
    let folder = release.stage(&format!("wheel-{}", platform.arch()));
    super::files::empty(&folder)?;
    let mut command = Command::new(release.tools.programs.join("maturin"));
    command.args(["build", "--release", "--locked", "--zig", "--quiet"]);
    command.args(["--target", &platform.gnu(), "--compatibility", "manylinux2014"]);
    command.arg("--manifest-path").arg(release.root.join("crates/traceless-py/Cargo.toml"));
    // A folder of its own: it has other compilers than the library that is preloaded.
    command.arg("--target-dir").arg(release.builds.join("wheels")).arg("--out").arg(&folder);
    add_build_environment(release, &mut command)?;
    run(&mut command)?;
    let [wheel] = &list(&folder)?[..] else {
        return Err(format!("{} has not one wheel", folder.display()));
    };
    let mut python = Command::new(release.tools.programs.join("python3"));
    python.args(["-c", FINISH_WHEEL]).arg(wheel).arg(&release.root).arg(notices);
    run(python.args(LICENSES.map(|name| release.root.join(name))))?;
    let to = release.out.join(wheel.file_name().unwrap_or_default());
    std::fs::copy(wheel, &to)
        .map(drop)
        .map_err(|error| format!("cannot write {}: {error}", to.display()))
}
