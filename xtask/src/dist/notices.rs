//! The licences of what was compiled into the programs: their holders ask for the texts to go with
//! the binaries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::bill::{Components, CrateId};
use super::files::{list, read, read_text, write};
use super::platform::Platform;
use super::release::Release;
use crate::command::{cargo, output};

/// How the names of files with licences begin.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];
const RULE: &str = "----------------------------------------------------------------------";

/// Writes one text with all licences, each once, and returns its path.
pub fn write_notices(
    release: &Release,
    platform: Platform,
    components: &Components,
) -> Result<PathBuf, String> {
    let mut metadata = Command::new(cargo());
    metadata.args(["metadata", "--locked", "--format-version", "1"]).current_dir(&release.root);
    let folders = folders(&output(&mut metadata)?)?;
    // Cargo names folders without links in their paths.
    let root = std::fs::canonicalize(&release.root);
    let root = root.map_err(|error| format!("cannot find {}: {error}", release.root.display()))?;
    // Each text with the names of what it is for.
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut listed = String::new();
    for (id, component) in components {
        let folder = folders.get(id).ok_or_else(|| format!("cargo has no folder of {id:?}"))?;
        if folder.starts_with(&root) {
            continue;
        }
        let name = format!("{} {}", id.0, id.1);
        let found = licenses(folder)?;
        let without = if found.is_empty() { ", with no text in its package" } else { "" };
        let _ = writeln!(listed, "{name}: {}{without}", component.license);
        for text in found {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    for (name, path) in runtime(release)? {
        let _ = writeln!(listed, "{name}");
        texts.entry(read_text(&path)?).or_default().insert(name.to_owned());
    }
    let mut all = format!("Traceless contains the following.\n\n{listed}");
    for (text, names) in &texts {
        let names = names.iter().cloned().collect::<Vec<_>>().join(", ");
        let _ = write!(all, "\n{RULE}\n{names}\n{RULE}\n\n{}\n", text.trim());
    }
    let path = release.stage(&format!("THIRD-PARTY-{}.txt", platform.arch()));
    write(&path, all.as_bytes())?;
    Ok(path)
}

/// The folder of each crate.
fn folders(metadata: &str) -> Result<BTreeMap<CrateId, PathBuf>, String> {
    let metadata: Value = serde_json::from_str(metadata)
        .map_err(|error| format!("cargo metadata cannot be read: {error}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata has no packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let folder = |package: &Value| {
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        ((text(&package["name"]), text(&package["version"])), manifest.with_file_name(""))
    };
    Ok(packages.iter().map(folder).collect())
}

/// The texts of the licences in the folder of a crate, and in the folders of what it brings.
fn licenses(folder: &Path) -> Result<Vec<String>, String> {
    let mut texts = Vec::new();
    for path in list(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let is_named = NAMES.iter().any(|known| name.starts_with(known));
        let is_code = path.extension().is_some_and(|ending| ending == "rs");
        if path.is_file() && is_named && !is_code {
            texts.push(String::from_utf8_lossy(&read(&path)?).into_owned());
        } else if path.is_dir() && name != "SRC" && name != "TESTS" {
            texts.extend(licenses(&path)?);
        }
    }
    Ok(texts)
}

/// What compilers add to a program: the standard libraries of Rust and C, and how stacks unwind.
fn runtime(release: &Release) -> Result<[(&'static str, PathBuf); 4], String> {
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let rust = Path::new(sysroot.trim()).join("share/doc/rust/licenses");
    let mut python = Command::new(release.tools.programs.join("python3"));
    python.args(["-c", "import ziglang; print(ziglang.__path__[0])"]);
    let zig = PathBuf::from(output(&mut python)?.trim());
    Ok([
        ("the standard library of Rust: MIT OR Apache-2.0", rust.join("MIT.txt")),
        (
            "libunwind and compiler-rt: Apache-2.0 WITH LLVM-exception",
            rust.join("LLVM-exception.txt"),
        ),
        ("musl: MIT", zig.join("lib/libc/musl/COPYRIGHT")),
        ("the start-up code of Zig: MIT", zig.join("LICENSE")),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_found_by_their_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["LICENSE-MIT", "license.txt", "README", "c/COPYING", "src/license.rs"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        assert_eq!(licenses(folder.path()).unwrap(), ["LICENSE-MIT", "c/COPYING", "license.txt"]);
    }

    #[test]
    fn folders_come_from_cargo() {
        let text = r#"{"packages": [{"name": "a", "version": "1.0.0",
            "manifest_path": "/r/a-1.0.0/Cargo.toml"}]}"#;
        let found = folders(text).unwrap();
        assert_eq!(found[&("a".to_owned(), "1.0.0".to_owned())], PathBuf::from("/r/a-1.0.0/"));
        assert!(folders("{}").is_err());
    }
}
