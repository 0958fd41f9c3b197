//! The program `traceless`, which benches start.

use std::process::Command;
use traceless_cli::entry::sibling;

/// The program beside this one, or else any of its name in PATH.
pub fn traceless() -> Command {
    sibling("traceless")
}
