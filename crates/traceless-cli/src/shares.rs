//! `traceless completions` and `traceless man`: what is installed beside the program.

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::{DEVICE, Failure};
use crate::output::say;
use clap::CommandFactory;
use std::io::Write;

/// Prints the completions of a shell.
pub fn completions(args: &CompletionsArgs) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "traceless", &mut script);
    // A reader that has gone away is no reason to fail.
    let _ = std::io::stdout().write_all(&script);
}

/// Writes a page for each command and subcommand.
pub fn man_pages(args: &ManArgs) -> Result<(), Failure> {
    std::fs::create_dir_all(&args.dir)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), &args.dir))
        .map_err(|e| Failure::new(DEVICE, format!("{}: {e}", args.dir.display())))?;
    say(&format!("{}: the pages are there; begin with `man traceless`", args.dir.display()));
    Ok(())
}
