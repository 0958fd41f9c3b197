//! Chores of the repository: tidiness, floors, crashes, mutants, stashes, packages, the table of a
//! release run, and playing back what a disk was sent.
#![forbid(unsafe_code)]

mod command;
mod crash;
mod dist;
mod floors;
mod log_writes;
mod mutants;
mod release;
mod repository;
mod rust_text;
mod size;
mod stash;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
Chores of the repository.

cargo xtask tidy [--fix]
    Checks layering, unsafe code, line and function lengths, words, files and documents. One line
    for each finding. --fix rewrites the tables of floors in docs/performance.md.

cargo xtask floors [GROUP] [--json] [--quick]
    Measures a group of floors (bench/floors.toml) in one run and prints how far each row is from
    its floor; without GROUP, every group that has rows. --quick measures for a shorter time.

cargo xtask crash [--rounds N] [--seconds N] [--scheme NAME] [--seed N]
    Crashes random volumes of each scheme, everywhere, for so many rounds or so long; 60 seconds if
    nothing is said. Tells how far it is. What it finds comes with the command that shows it again.

cargo xtask stash [--full] [--search] [--levels L] [--above N] [--accesses N] [--seed N] [--json]
    Measures how full trees and stashes are, and draws the curves beside what was published; --full
    for large trees, some minutes. --search looks for the best IR-Alloc instead.

cargo xtask mutants [GROUP...] [--list] [--since COMMIT] [--shard K/N] [--most N]
    Changes code that keeps data or secrets, one small change at a time in a copy of the repository,
    and prints what no test notices (tests/mutants.toml); days for all groups. --since tries what
    changed since a commit, at most 8 of each group; --shard one of N parts; --most a sample.

cargo xtask dist [--target x86_64|aarch64]... [--target-dir DIR] [--check]
cargo xtask dist --crates
    Makes packages for users in target/dist: archives, .deb, .rpm, wheels, an OCI image, recipes,
    bills of materials, checksums; for both processors unless one is named. --check makes them a
    second time in another folder and compares. --crates checks what would be published as crates,
    in seconds.

cargo xtask release REPORT...
    Writes what `traceless audit TARGET --level release --json` has printed into the table of
    docs/threat-model.md, each report in the place of an older one of the same audit.

cargo xtask log-writes points LOG COUNT
cargo xtask log-writes replay LOG IMAGE FROM TO
    For ./test --guest: lists moments in a log of the kernel's dm-log-writes, and carries out its
    entries FROM to TO on an image.

Exit codes: 0 done, 1 tidy, crash, mutants, dist or release found something, 2 the command could not
do its work.";

/// The outcome of a command that did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Clean,
    Findings,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(Outcome::Clean) => ExitCode::SUCCESS,
        Ok(Outcome::Findings) => ExitCode::from(1),
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &[&str]) -> Result<Outcome, String> {
    if args.iter().any(|arg| matches!(*arg, "help" | "--help" | "-h")) {
        println!("{HELP}");
        return Ok(Outcome::Clean);
    }
    match args {
        [] => Err(format!("no command given\n\n{HELP}")),
        ["tidy"] => tidy::run(&root()?, false),
        ["tidy", "--fix"] => tidy::run(&root()?, true),
        ["tidy", rest @ ..] => Err(format!("tidy does not know {rest:?}; it takes --fix")),
        ["crash", rest @ ..] => crash::run(&root()?, &crash::CrashOptions::parse(rest)?),
        ["floors", rest @ ..] => floors::run(&root()?, &floors::FloorOptions::parse(rest)?),
        ["stash", rest @ ..] => stash::run(&root()?, &stash::StashOptions::parse(rest)?),
        ["mutants", rest @ ..] => mutants::run(&root()?, &mutants::MutantOptions::parse(rest)?),
        ["dist", rest @ ..] => dist::run(&root()?, &dist::DistOptions::parse(rest)?),
        ["release", files @ ..] => release::run(&root()?, files),
        ["log-writes", rest @ ..] => log_writes::run(rest),
        [other, ..] => Err(format!("unknown command {other}\n\n{HELP}")),
    }
}

/// The root of the repository: the folder above this crate, which cargo names when it runs this
/// program.
fn root() -> Result<PathBuf, String> {
    let crate_folder = std::env::var_os("CARGO_MANIFEST_DIR")
        .ok_or("CARGO_MANIFEST_DIR is not set; run this as `cargo xtask`")?;
    let crate_folder = PathBuf::from(crate_folder);
    let root = crate_folder.parent().ok_or("the crate xtask has no parent folder")?;
    Ok(root.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_not_an_error() {
        for args in [&["--help"][..], &["tidy", "--help"], &["crash", "-h"], &["help"]] {
            assert_eq!(run(args), Ok(Outcome::Clean));
        }
    }

    #[test]
    fn unknown_words_are_errors() {
        for args in [
            &[][..],
            &["tydi"],
            &["tidy", "--fxi"],
            &["floors", "--jsn"],
            &["crash", "9"],
            &["stash", "9"],
            &["dist", "9"],
        ] {
            assert!(run(args).is_err(), "{args:?}");
        }
    }
}
