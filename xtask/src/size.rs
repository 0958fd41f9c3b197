//! `cargo xtask floors size`: how much a user builds and installs.
//!
//! Lines are counted in the sources that rustc names for the command and for the library that it
//! preloads, with comments and blank lines, without tests.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::Serialize;

use crate::command::{cargo, run};
use crate::dist::PROFILE;
use crate::rust_text::{mask, without_tests};

/// The folder of the builds that are measured, below the root.
const BUILDS: &str = "target/size";
/// Ticks of a second in `/proc/self/stat` (`USER_HZ`), the same on every Linux that Rust knows.
const TICKS_PER_SECOND: f64 = 100.0;
const VOLUME_ONLY: [&str; 3] = ["--no-default-features", "--features", "volume"];

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    rows: Vec<SizeRow>,
}

#[derive(Serialize)]
struct SizeRow {
    name: &'static str,
    unit: &'static str,
    measured: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
}

impl SizeRow {
    fn new(name: &'static str, unit: &'static str, measured: f64) -> Self {
        Self { name, unit, measured: Some(measured), why: None }
    }
}

/// The report of the group `size`. A quick one leaves out what is built anew.
pub fn measure(root: &Path, quick: bool) -> Result<String, String> {
    let all = root.join(BUILDS).join("all");
    build(root, &all, &["-p", "traceless-preload"])?;
    let volume = root.join(BUILDS).join("volume");
    let quickstart = if quick {
        let why = Some("a clean build takes minutes; leave out --quick");
        SizeRow { name: "size-quickstart-cpu", unit: "min", measured: None, why }
    } else {
        let minutes = cpu_of_quickstart(root, &volume)?;
        SizeRow::new("size-quickstart-cpu", "min", minutes)
    };
    let tests = if quick {
        let why = Some("the tests of a clean clone take long; leave out --quick");
        SizeRow { name: "size-tests-wall", unit: "min", measured: None, why }
    } else {
        SizeRow::new("size-tests-wall", "min", wall_of_tests(root)?)
    };
    build(root, &volume, &VOLUME_ONLY)?;
    let files = installed_files(root, &all)?;
    let of_command = |path: &&PathBuf| path.starts_with(root.join("crates/traceless-cli"));
    let rows = vec![
        quickstart,
        tests,
        SizeRow::new("size-packages-all", "packages", packages(root, &[])?),
        SizeRow::new("size-packages-volume", "packages", packages(root, &VOLUME_ONLY)?),
        SizeRow::new("size-binary-all", "MB", megabytes(&all)?),
        SizeRow::new("size-binary-volume", "MB", megabytes(&volume)?),
        SizeRow::new("size-lines-command", "lines", lines(files.iter().filter(of_command))?),
        SizeRow::new("size-lines-installed", "lines", lines(files.iter())?),
    ];
    let report = Report { schema: "traceless.size.bench.v1", rows };
    Ok(serde_json::to_string(&report).expect("a report can be written"))
}

/// Builds the command as packages hold it, with further arguments for cargo.
fn build(root: &Path, target: &Path, arguments: &[&str]) -> Result<(), String> {
    let mut cargo = Command::new(cargo());
    cargo.args(["build", "--profile", PROFILE, "--locked", "-p", "traceless-cli"]).args(arguments);
    run(cargo.arg("--target-dir").arg(target).current_dir(root))
}

/// Minutes of processor time of `./quickstart` with a build from nothing.
fn cpu_of_quickstart(root: &Path, target: &Path) -> Result<f64, String> {
    remove(target)?;
    let before = cpu_seconds_of_children()?;
    let mut quickstart = Command::new(root.join("quickstart"));
    run(quickstart.env("CARGO_TARGET_DIR", target).stdout(Stdio::null()))?;
    Ok((cpu_seconds_of_children()? - before) / 60.0)
}

/// Minutes that `./test` takes in a clean clone of what is committed.
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn wall_of_tests(root: &Path) -> Result<f64, String> {
    let clone = root.join(BUILDS).join("clone");
    remove(&clone)?;
    run(Command::new("git").args(["clone", "--quiet"]).arg(root).arg(&clone))?;
    let begun = Instant::now();
    let mut tests = Command::new(clone.join("test"));
    run(tests.env_remove("CARGO_TARGET_DIR").env_remove("TRACELESS").stdout(Stdio::null()))?;
    Ok(begun.elapsed().as_secs_f64() / 60.0)
}

/// Removes a folder, if it is there.
fn remove(folder: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Processor time of all processes below this one that have ended, in seconds.
fn cpu_seconds_of_children() -> Result<f64, String> {
    let text = std::fs::read_to_string("/proc/self/stat")
        .map_err(|error| format!("cannot read /proc/self/stat: {error}"))?;
    cpu_seconds(&text).ok_or_else(|| format!("/proc/self/stat is unknown: {text}"))
}

/// The fields `cutime` and `cstime`, which are the 16th and the 17th.
fn cpu_seconds(stat: &str) -> Option<f64> {
    // The second field is the program's name in parentheses, which may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(13).take(2).map(str::parse::<u32>);
    let ticks: Vec<u32> = ticks.collect::<Result<_, _>>().ok()?;
    (ticks.len() == 2).then(|| ticks.into_iter().map(f64::from).sum::<f64>() / TICKS_PER_SECOND)
}

/// Packages behind the command, with itself.
fn packages(root: &Path, arguments: &[&str]) -> Result<f64, String> {
    let mut tree = Command::new(cargo());
    tree.args(["tree", "--locked", "-p", "traceless-cli", "-e", "normal", "--prefix", "none"]);
    let output = tree.args(arguments).current_dir(root).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err("cargo tree failed".to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let name = |line: &str| line.trim_end_matches(" (*)").to_owned();
    let names: BTreeSet<String> = text.lines().map(name).filter(|name| !name.is_empty()).collect();
    Ok(names.len() as f64)
}

/// The size of the command in a target folder, in units of 10⁶ bytes.
fn megabytes(target: &Path) -> Result<f64, String> {
    let path = target.join(PROFILE).join("traceless");
    let metadata = std::fs::metadata(&path);
    let metadata = metadata.map_err(|error| format!("no {}: {error}", path.display()))?;
    Ok(metadata.len() as f64 / 1e6)
}

/// The sources of this repository that the command and its preloaded library were compiled from.
fn installed_files(root: &Path, target: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let mut files = BTreeSet::new();
    for name in ["traceless.d", "libtraceless_preload.d"] {
        let path = target.join(PROFILE).join(name);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        files.extend(sources(&text).map(|path| root.join(path)));
    }
    files.retain(|path| path.starts_with(root.join("crates")));
    Ok(files)
}

/// The Rust files that a rule of make depends on.
fn sources(rule: &str) -> impl Iterator<Item = PathBuf> {
    let files = rule.split_once(": ").map_or("", |(_, files)| files);
    // A blank within a path has a backslash before it.
    let files = files.trim_end().replace("\\ ", "\0");
    let files: Vec<PathBuf> =
        files.split(' ').map(|path| PathBuf::from(path.replace('\0', " "))).collect();
    files.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "rs"))
}

/// Lines of some files without their tests.
fn lines<'a>(files: impl Iterator<Item = &'a PathBuf>) -> Result<f64, String> {
    let mut sum = 0;
    for path in files {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        sum += lines_without_tests(&text);
    }
    Ok(sum as f64)
}

fn lines_without_tests(text: &str) -> usize {
    let code = mask(text, true);
    let kept = without_tests(&code);
    // A line of a test is blank in `kept` and was not so before.
    let is_test =
        |(before, after): (&str, &str)| !before.trim().is_empty() && after.trim().is_empty();
    text.lines().count() - code.lines().zip(kept.lines()).filter(|lines| is_test(*lines)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_any_name() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 11 12 150 50 20 0 1";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds("7 (x) S 1 2"), None);
        assert!(cpu_seconds_of_children().is_ok());
    }

    #[test]
    fn sources_may_have_blanks_in_their_paths() {
        let rule = "/t/traceless: /a/b\\ c.rs d.rs /a/e.toml\n";
        let found: Vec<PathBuf> = sources(rule).collect();
        assert_eq!(found, [PathBuf::from("/a/b c.rs"), PathBuf::from("d.rs")]);
        assert_eq!(sources("nothing").count(), 0);
    }

    #[test]
    fn tests_are_not_counted_and_comments_are() {
        let code = "//! About.\n\nfn a() {}\n";
        let test = "\n#[cfg(test)]\nmod tests {\n    #[test]\n\n    fn b() {}\n}\n";
        assert_eq!(lines_without_tests(code), 3);
        // The two blank lines around and within the tests are counted.
        assert_eq!(lines_without_tests(&format!("{code}{test}")), 5);
    }
}
