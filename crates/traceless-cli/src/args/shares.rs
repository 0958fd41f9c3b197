//! `traceless completions` and `traceless man`

use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: ShellKind,
}

/// Shells that completions are made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ShellKind {
    Bash,
    Elvish,
    Fish,
    #[value(name = "powershell")]
    PowerShell,
    Zsh,
}

#[derive(Args, Debug)]
pub struct ManArgs {
    /// Folder for section 1 of the manual, like ~/.local/share/man/man1; it is made if needed
    pub dir: PathBuf,
}
