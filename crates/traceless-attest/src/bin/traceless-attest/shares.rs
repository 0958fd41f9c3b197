//! `traceless-attest completions` and `man`: files for shells and for `man`.

use clap::{Args, Command};
use clap_complete::Shell;
use std::fs;
use std::io::stdout;
use std::path::PathBuf;
use traceless_attest::{Error, Result};

#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

#[derive(Args)]
pub struct ManArgs {
    /// The folder for the pages
    dir: PathBuf,
}

pub fn completions(args: &CompletionsArgs, mut command: Command) {
    let name = command.get_name().to_owned();
    clap_complete::generate(args.shell, &mut command, name, &mut stdout());
}

pub fn man_pages(args: &ManArgs, command: Command) -> Result {
    let written =
        fs::create_dir_all(&args.dir).and_then(|()| clap_mangen::generate_to(command, &args.dir));
    written.map_err(|error| Error::file(&args.dir, error))
}
