//! Programs that chores run.

use std::ffi::OsString;
use std::process::{Command, Stdio};

/// The cargo that runs this program.
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) -> Result<(), String> {
    let name = format!("{command:?}");
    let status = command.status().map_err(|error| format!("cannot run {name}: {error}"))?;
    status.success().then_some(()).ok_or(format!("{name} failed: {status}"))
}

/// What a command that must succeed prints.
pub fn output(command: &mut Command) -> Result<String, String> {
    let name = format!("{command:?}");
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run {name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name} failed: {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{name} does not print UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_named() {
        assert_eq!(output(Command::new("echo").arg("a")).as_deref(), Ok("a\n"));
        assert!(run(&mut Command::new("true")).is_ok());
        for failing in [&mut Command::new("false"), &mut Command::new("no-command-of-this-name")] {
            let name = format!("{:?}", failing.get_program());
            assert!(run(failing).unwrap_err().contains(&name));
            assert!(output(failing).unwrap_err().contains(&name));
        }
    }
}
