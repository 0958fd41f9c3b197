//! `cargo xtask dist`: what users install, made from the sources, in `target/dist`.
//!
//! The command is linked statically with musl; the library that `traceless run` preloads is linked
//! with the C library of 2012, as it is loaded into programs that use the system's. Each file
//! follows from the sources, the versions of Rust and Zig, and the time of the last commit, so two
//! builds give the same bytes.

mod bill;
mod compile;
mod contents;
mod crate_files;
mod deb;
mod files;
mod image;
mod notices;
mod platform;
mod recipes;
mod release;
mod rpm;
mod template;
mod tools;
mod wheel;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::repository::update_copy;
pub use compile::PROFILE;
use contents::{Contents, PackageKind};
use files::sha256;
use platform::Platform;
use release::Release;

/// The file of checksums, in the form of sha256sum.
const SUMS: &str = "SHA256SUMS";
/// The folder of the packages, below the root.
const PACKAGES: &str = "target/dist";
/// The folder of `--check`, below the root: a copy of the sources, and what is made of it.
const CHECK: &str = "target/dist-check";

/// Arguments of the command line.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct DistOptions {
    platforms: Vec<Platform>,
    builds: Option<PathBuf>,
    is_check: bool,
    is_crates: bool,
}

impl DistOptions {
    /// Reads the arguments after `dist`.
    pub fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let mut value = || args.next().copied().ok_or(format!("{arg} takes a value"));
            match arg {
                "--check" => options.is_check = true,
                "--crates" => options.is_crates = true,
                "--target" => options.platforms.push(Platform::parse(value()?)?),
                "--target-dir" => options.builds = Some(PathBuf::from(value()?)),
                other => return Err(format!("dist does not know {other}; see --help")),
            }
        }
        if options.is_crates && options != (Self { is_crates: true, ..Self::default() }) {
            return Err("--crates stands alone".to_owned());
        }
        if options.platforms.is_empty() {
            options.platforms = Platform::ALL.to_vec();
        }
        Ok(options)
    }
}

/// Makes the packages; with `--check` a second time elsewhere, to compare.
pub fn run(root: &Path, options: &DistOptions) -> Result<Outcome, String> {
    if options.is_crates {
        return crate_files::check(root);
    }
    let tools = tools::install(root, &options.platforms)?;
    let named = options.builds.clone();
    let named = named.or_else(|| std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from));
    let builds = named.unwrap_or_else(|| root.join("target"));
    let builds = std::path::absolute(&builds)
        .map_err(|error| format!("cannot find {}: {error}", builds.display()))?;
    let release = Release::load(root, builds, root.join(PACKAGES), tools)?;
    let made = make(&release, &options.platforms)?;
    println!("{} files are in {}", made.len() + 1, release.out.display());
    if !options.is_check {
        return Ok(Outcome::Clean);
    }
    let folder = root.join(CHECK);
    let sources = folder.join("sources");
    update_copy(root, &sources)?;
    let second = Release {
        root: sources,
        builds: folder.join("builds"),
        out: folder.join("dist"),
        ..release.clone()
    };
    Ok(compare(&made, &make(&second, &options.platforms)?))
}

/// Makes all packages, and returns the SHA-256 digest of each file by its name.
fn make(release: &Release, platforms: &[Platform]) -> Result<BTreeMap<String, String>, String> {
    files::empty(&release.out)?;
    let mut contents = Vec::new();
    for &platform in platforms {
        let programs = compile::compile(release, platform)?;
        contents.push(Contents { platform, programs });
    }
    let shares = contents::shares(release, &contents)?;
    let mut archives = Vec::new();
    for one in &contents {
        let bill = bill::write_bill(release, one.platform)?;
        let notices = notices::write_notices(release, one.platform, &bill)?;
        let tree = |kind: PackageKind| one.stage(release, &shares, &notices, kind);
        archives.push((one.platform, files::tarball(release, &tree(PackageKind::Tarball)?)?));
        deb::write_deb(release, one.platform, &tree(PackageKind::Deb)?)?;
        rpm::write_rpm(release, one.platform, &tree(PackageKind::Rpm)?)?;
        wheel::write_wheel(release, one.platform, &notices)?;
    }
    image::write_image(release, &contents)?;
    recipes::write_recipes(release, &archives)?;
    sums(&release.out)
}

/// Writes the checksums of all files of a folder into one more.
fn sums(folder: &Path) -> Result<BTreeMap<String, String>, String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    let mut sums = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        sums.insert(entry.file_name().to_string_lossy().into_owned(), sha256(&entry.path())?);
    }
    let text: Vec<String> =
        sums.iter().map(|(name, digest)| format!("{digest}  {name}\n")).collect();
    files::write(&folder.join(SUMS), text.concat().as_bytes())?;
    Ok(sums)
}

/// Prints the files that differ between two builds.
fn compare(first: &BTreeMap<String, String>, second: &BTreeMap<String, String>) -> Outcome {
    let differs = |name: &&String| first.get(*name) != second.get(*name);
    let mut names: Vec<&String> = first.keys().chain(second.keys()).filter(differs).collect();
    names.sort();
    names.dedup();
    for name in &names {
        println!("{name} differs between {PACKAGES} and {CHECK}/dist");
    }
    if names.is_empty() {
        println!("two builds in two folders gave the same {} files", first.len());
        return Outcome::Clean;
    }
    Outcome::Findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_understood() {
        let options = DistOptions::parse(&["--target", "aarch64", "--check"]).unwrap();
        assert_eq!(options.platforms, [Platform::Aarch64]);
        assert!(options.is_check && !options.is_crates);
        assert_eq!(DistOptions::parse(&[]).unwrap().platforms, Platform::ALL);
        let wrong: [&[&str]; 5] = [
            &["--target"],
            &["--target", "riscv64"],
            &["--chekc"],
            &["--crates", "--check"],
            &["--target-dir"],
        ];
        for args in wrong {
            assert!(DistOptions::parse(args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn every_file_has_its_checksum_and_a_changed_byte_is_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "abc").unwrap();
        fs::write(folder.path().join("b"), "").unwrap();
        let first = sums(folder.path()).unwrap();
        let text = fs::read_to_string(folder.path().join(SUMS)).unwrap();
        let of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(text.starts_with(&format!("{of_abc}  a\n")) && text.lines().count() == 2);
        assert_eq!(compare(&first, &first), Outcome::Clean);
        fs::remove_file(folder.path().join(SUMS)).unwrap();
        fs::write(folder.path().join("a"), "abd").unwrap();
        let second = sums(folder.path()).unwrap();
        assert_eq!(compare(&first, &second), Outcome::Findings);
        assert_eq!(compare(&first, &BTreeMap::new()), Outcome::Findings);
    }
}
