//! `cargo xtask dist --crates`: whether each crate that is published can be packaged, and has what
//! its readers and its licences need.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::Outcome;
use crate::command::{cargo, output, run};

/// Files that each package must have at its top.
const NEEDED: [&str; 4] = ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];
/// The largest package that the registry takes.
const BYTES_MAX: u64 = 10 << 20;

/// Packages each crate that is published, without compiling it, and checks the files in it.
pub fn check(root: &Path) -> Result<Outcome, String> {
    let mut metadata = Command::new(cargo());
    metadata.args(["metadata", "--no-deps", "--locked", "--format-version", "1"]);
    let workspace: Value = serde_json::from_str(&output(metadata.current_dir(root))?)
        .map_err(|error| format!("cargo metadata cannot be read: {error}"))?;
    let crates = published(&workspace);
    let target = workspace["target_directory"].as_str().ok_or("cargo names no target folder")?;
    let mut package = Command::new(cargo());
    package.args(["package", "--quiet", "--locked", "--allow-dirty", "--no-verify"]);
    for (name, _) in &crates {
        package.args(["--package", name]);
    }
    run(package.current_dir(root))?;
    let mut found = Vec::new();
    for (name, version) in &crates {
        let archive = Path::new(target).join(format!("package/{name}-{version}.crate"));
        let text = output(Command::new("tar").args(["--list", "--gzip", "--file"]).arg(&archive))?;
        let metadata = std::fs::metadata(&archive);
        let bytes = metadata.map_err(|error| format!("{}: {error}", archive.display()))?.len();
        let top = format!("{name}-{version}/");
        let files: Vec<&str> = text.lines().filter_map(|path| path.strip_prefix(&top)).collect();
        found.extend(findings(name, &files, bytes));
    }
    for finding in &found {
        println!("{finding}");
    }
    println!("{} crates can be packaged", crates.len());
    Ok(if found.is_empty() { Outcome::Clean } else { Outcome::Findings })
}

/// Name and version of each crate that is published.
fn published(workspace: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = workspace["packages"].as_array().into_iter().flatten();
    // `publish = false` is an empty list of registries.
    let packages = packages.filter(|package| package["publish"].is_null());
    packages.map(|package| (text(&package["name"]), text(&package["version"]))).collect()
}

fn findings(name: &str, files: &[&str], bytes: u64) -> Vec<String> {
    let missing = NEEDED.iter().filter(|needed| !files.contains(needed));
    let mut found: Vec<String> =
        missing.map(|needed| format!("{name}: its package has no {needed}")).collect();
    if bytes > BYTES_MAX {
        found.push(format!("{name}: its package has {bytes} bytes, of {BYTES_MAX} at most"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_missing_licence_and_a_large_package_are_found() {
        let whole = ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md", "src/lib.rs"];
        assert!(findings("a", &whole, BYTES_MAX).is_empty());
        assert_eq!(findings("a", &whole, BYTES_MAX + 1).len(), 1);
        for left_out in 0..NEEDED.len() {
            let mut files = whole.to_vec();
            let name = files.remove(left_out);
            assert_eq!(findings("a", &files, 1), [format!("a: its package has no {name}")]);
        }
    }

    #[test]
    fn crates_that_stay_here_are_left_out() {
        let workspace = json!({ "packages": [
            { "name": "a", "version": "1.0.0", "publish": null },
            { "name": "lab", "version": "1.0.0", "publish": [] },
        ]});
        assert_eq!(published(&workspace), [("a".to_owned(), "1.0.0".to_owned())]);
    }
}
