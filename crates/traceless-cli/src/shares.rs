//! `traceless completions` and `traceless man`: files for shells and for `man`. The build makes
//! them from the command line, and this program carries them.

use crate::args::{CompletionsArgs, ManArgs, ShellKind};
use crate::failure::{DEVICE, Failure};
use crate::output::print_line;
use std::fs;
use std::io::Write;

// `PAGES`: the file name and contents of each manual page. `COMPLETIONS`: each shell and its
// script.
include!(concat!(env!("OUT_DIR"), "/shares.rs"));

/// Prints the completions of a shell.
pub fn completions(args: &CompletionsArgs) {
    let script = COMPLETIONS.iter().find(|(shell, _)| *shell == args.shell);
    let (_, script) = script.expect("the build makes one for each shell");
    // A reader that has closed the pipe is no reason to fail.
    let _ = std::io::stdout().write_all(script);
}

/// Writes a page for each command and subcommand.
pub fn man_pages(args: &ManArgs) -> Result<(), Failure> {
    fs::create_dir_all(&args.dir)
        .and_then(|()| {
            PAGES.iter().try_for_each(|(name, page)| fs::write(args.dir.join(name), page))
        })
        .map_err(|e| Failure::new(DEVICE, format!("{}: {e}", args.dir.display())))?;
    print_line(&format!("{}: the pages are there; begin with `man traceless`", args.dir.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_shell_has_its_script_and_every_command_its_page() {
        for shell in ShellKind::value_variants() {
            let (_, script) = COMPLETIONS.iter().find(|(of, _)| of == shell).unwrap();
            assert!(script.len() > 1000, "{shell:?}");
        }
        for name in ["traceless.1", "traceless-man.1"] {
            assert!(PAGES.iter().any(|(page, text)| *page == name && !text.is_empty()), "{name}");
        }
    }
}
