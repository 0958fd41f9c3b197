//! `traceless completions` and `traceless man`

use clap::Args;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub struct ManArgs {
    /// Folder for section 1 of the manual, such as ~/.local/share/man/man1; it is made if needed
    pub dir: PathBuf,
}
