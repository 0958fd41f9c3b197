//! Makes man pages and shell completions of the command line.
//!
//! The program carries them in itself. A copy is left in `target/<profile>/share`, laid out as
//! below `/usr/share`.

// The build needs only the shape of the command line, not the types that it is parsed into.
#[allow(dead_code, unused_imports)]
#[path = "src/args/mod.rs"]
mod args;

use clap::CommandFactory;
use clap_complete::{Shell, generate_to};
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const NAME: &str = "traceless";
const MAN: &str = "man/man1";

/// Each shell, the folder in which it looks for completions, and the file name that it expects.
const INSTALLED: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions", NAME),
    (Shell::Zsh, "zsh/site-functions", "_traceless"),
    (Shell::Fish, "fish/vendor_completions.d", "traceless.fish"),
];

/// Each shell and the name of its variant of `ShellKind`.
const SHELLS: [(Shell, &str); 5] = [
    (Shell::Bash, "Bash"),
    (Shell::Elvish, "Elvish"),
    (Shell::Fish, "Fish"),
    (Shell::PowerShell, "PowerShell"),
    (Shell::Zsh, "Zsh"),
];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/args");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let share = out.join("share");
    // Removes the pages of commands that no longer exist.
    if share.exists() {
        fs::remove_dir_all(&share)?;
    }
    let pages = man_pages(&share.join(MAN))?;
    let scripts = completions(&out.join("completions"))?;
    fs::write(out.join("shares.rs"), embedded(&pages, &scripts))?;
    for (shell, folder, name) in INSTALLED {
        let folder = share.join(folder);
        fs::create_dir_all(&folder)?;
        let (.., script) = scripts.iter().find(|(of, ..)| *of == shell).expect("it was made");
        fs::copy(script, folder.join(name))?;
    }
    match profile_folder(&out) {
        Some(profile) => publish(&share, &profile.join("share")),
        None => Ok(()),
    }
}

/// Writes one page for each command and subcommand, named as for `man traceless-volume-create`.
fn man_pages(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(args::Cli::command(), folder)?;
    let pages = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut pages = pages.collect::<io::Result<Vec<_>>>()?;
    pages.sort();
    Ok(pages)
}

/// Writes the completions. Returns each shell, its variant of `ShellKind`, and the script's path.
fn completions(folder: &Path) -> io::Result<Vec<(Shell, &'static str, PathBuf)>> {
    fs::create_dir_all(folder)?;
    let script = |(shell, variant)| {
        Ok((shell, variant, generate_to(shell, &mut args::Cli::command(), NAME, folder)?))
    };
    SHELLS.into_iter().map(script).collect()
}

/// The source of the constants that embed pages and scripts in the program.
fn embedded(pages: &[PathBuf], scripts: &[(Shell, &str, PathBuf)]) -> String {
    let bytes = |folder: &str, path: &Path| {
        format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{folder}/{}\"))", name_of(path))
    };
    // Writing to a string cannot fail.
    let mut source = String::from("const PAGES: &[(&str, &[u8])] = &[\n");
    for page in pages {
        let bytes = bytes(&format!("share/{MAN}"), page);
        let _ = writeln!(source, "    (\"{}\", {bytes}),", name_of(page));
    }
    source.push_str("];\nconst COMPLETIONS: &[(ShellKind, &[u8])] = &[\n");
    for (_, variant, script) in scripts {
        let bytes = bytes("completions", script);
        let _ = writeln!(source, "    (ShellKind::{variant}, {bytes}),");
    }
    source.push_str("];\n");
    source
}

/// The file name of a generated page or script.
fn name_of(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).expect("names are those of our commands")
}

/// `target/<profile>`, which holds the program, from `target/<profile>/build/<package>/out`.
fn profile_folder(out: &Path) -> Option<&Path> {
    let build = out.ancestors().find(|folder| folder.ends_with("build"))?;
    build.parent()
}

/// Copies the generated folders to `share`. Other files in `share` stay.
fn publish(made: &Path, share: &Path) -> io::Result<()> {
    let folders = INSTALLED.map(|(_, folder, _)| folder);
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
