//! Makes man pages and shell completions of the command line.
//!
//! They are left in `target/<profile>/share`, laid out as below `/usr/share`.

// Only the command line's shape is of interest here, not what it is parsed into.
#[allow(dead_code, unused_imports)]
#[path = "src/args/mod.rs"]
mod args;

use clap::CommandFactory;
use clap_complete::{Shell, generate_to};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const NAME: &str = "traceless";
const MAN: &str = "man/man1";

/// Each shell with the folder that it looks in, and the name that it looks for there.
const SHELLS: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions", NAME),
    (Shell::Zsh, "zsh/site-functions", "_traceless"),
    (Shell::Fish, "fish/vendor_completions.d", "traceless.fish"),
];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/args");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let made = out.join("share");
    // Nothing of a command that is no more.
    if made.exists() {
        fs::remove_dir_all(&made)?;
    }
    man_pages(&made.join(MAN))?;
    completions(&made)?;
    match profile_folder(&out) {
        Some(profile) => publish(&made, &profile.join("share")),
        None => Ok(()),
    }
}

/// One page for each command and subcommand, named as by `man traceless-volume-create`.
fn man_pages(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(args::Cli::command(), folder)
}

fn completions(share: &Path) -> io::Result<()> {
    for (shell, folder, name) in SHELLS {
        let folder = share.join(folder);
        fs::create_dir_all(&folder)?;
        let made = generate_to(shell, &mut args::Cli::command(), NAME, &folder)?;
        fs::rename(made, folder.join(name))?;
    }
    Ok(())
}

/// `target/<profile>`, which holds the program, from `target/<profile>/build/<package>/out`.
fn profile_folder(out: &Path) -> Option<&Path> {
    let build = out.ancestors().find(|folder| folder.ends_with("build"))?;
    build.parent()
}

/// Copies the folders that were made to `share`. What others put there stays.
fn publish(made: &Path, share: &Path) -> io::Result<()> {
    let folders = SHELLS.map(|(_, folder, _)| folder);
    for folder in [MAN].iter().chain(&folders) {
        fs::create_dir_all(share.join(folder))?;
        for entry in fs::read_dir(made.join(folder))? {
            let path = entry?.path();
            let name = path.file_name().expect("an entry has a name");
            fs::copy(&path, share.join(folder).join(name))?;
        }
    }
    Ok(())
}
