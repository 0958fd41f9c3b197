//! Exit codes, and how a failure is printed.

use std::fmt::Display;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Something was found: a leak, or damage.
pub const FINDING: u8 = 1;
/// Wrong use, or the command could not run.
pub const USAGE: u8 = 2;
/// No key fits.
pub const KEY: u8 = 3;
/// A failure of the file or device.
pub const DEVICE: u8 = 4;
/// The file or device is in use.
pub const BUSY: u8 = 5;

/// What went wrong: a message for the user, and an exit code for scripts.
#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    pub message: String,
}

impl Failure {
    pub fn new(code: u8, message: impl Display) -> Self {
        Self { code, message: message.to_string() }
    }

    pub fn usage(message: impl Display) -> Self {
        Self::new(USAGE, message)
    }
}

/// The exit code when an address cannot be listened on: [`BUSY`] if the address is in use,
/// otherwise `otherwise`.
pub fn of_listening(error: &io::Error, otherwise: u8) -> u8 {
    if error.kind() == io::ErrorKind::AddrInUse { BUSY } else { otherwise }
}

/// Whether the command was given `--json`. Global, as every failure depends on it.
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// Makes all later failures print as JSON.
pub fn print_as_json() {
    AS_JSON.store(true, Ordering::Relaxed);
}

/// The line on standard error for a failure: text, or with `--json` an object.
pub fn error_line(code: u8, kind: &str, message: &str) -> String {
    if AS_JSON.load(Ordering::Relaxed) {
        as_json(code, kind, message)
    } else {
        format!("traceless: {message}")
    }
}

/// The name of an exit code.
pub fn kind_of(code: u8) -> &'static str {
    match code {
        FINDING => "finding",
        USAGE => "usage",
        KEY => "key",
        DEVICE => "device",
        BUSY => "busy",
        _ => "other",
    }
}

fn as_json(code: u8, kind: &str, message: &str) -> String {
    let schema = "traceless.failure.v1";
    let failure = serde_json::json!({
        "schema": schema, "exit_code": code, "kind": kind, "error": message,
    });
    failure.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_of_json() {
        let line = as_json(KEY, kind_of(KEY), "no slot\nopens");
        assert_eq!(line.lines().count(), 1);
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(json["kind"], "key");
        assert_eq!(json["exit_code"], 3);
        assert_eq!(json["error"], "no slot\nopens");
    }
}
