//! The wheel of the Python package: for every Python from 3.9 on, and every Linux with the C
//! library of 2012 or newer (manylinux2014).

use std::process::Command;

use super::compile::add_build_environment;
use super::platform::Platform;
use super::release::Release;
use crate::command::run;

/// Makes the wheel for a processor.
pub fn write_wheel(release: &Release, platform: Platform) -> Result<(), String> {
    let mut command = Command::new(release.tools.programs.join("maturin"));
    command.args(["build", "--release", "--locked", "--zig", "--quiet"]);
    command.args(["--target", &platform.gnu(), "--compatibility", "manylinux2014"]);
    command.arg("--manifest-path").arg(release.root.join("crates/traceless-py/Cargo.toml"));
    command.arg("--target-dir").arg(&release.builds).arg("--out").arg(&release.out);
    add_build_environment(release, &mut command)?;
    run(&mut command)
}
