//! The program `traceless`, which benches start.

use std::process::Command;
use traceless_cli::entry::sibling;

/// A command for the `traceless` beside this program, or else for the one in `PATH`.
pub fn traceless() -> Command {
    sibling("traceless")
}
