//! Prints for users.

use serde_json::{Value, json};
use std::io::{Write, stderr, stdout};
use traceless_attest::Claims;

/// Prints a line. A reader that went away is no failure.
pub fn print(line: &str) {
    let _ = writeln!(stdout(), "{line}");
}

/// Prints a line on the standard error.
pub fn print_note(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}

/// The claims as lines of text, named as in a policy.
pub fn describe(claims: &Claims) -> String {
    let claims = serde_json::to_value(claims).expect("claims are plain values");
    let Value::Object(claims) = claims else { unreachable!("claims have fields") };
    let lines: Vec<String> = claims
        .iter()
        .filter(|(_, value)| !value.is_null() && *value != &json!([]))
        .map(|(name, value)| format!("  {} = {value}", name.replace('_', "-")))
        .collect();
    lines.join("\n")
}
