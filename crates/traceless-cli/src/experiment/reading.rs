//! Reading experiment files: TOML that may build on another file.

use crate::failure::{DEVICE, Failure};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

const LIKE_MAX: usize = 4;

/// Tables that stand for a choice: a change replaces the whole table.
const CHOICES: [&str; 2] = ["pace", "scheduler"];

/// `changes` laid over `table`: tables in both are merged, except choices, which are replaced.
pub fn lay_over(table: &mut Table, changes: &Table) {
    for (key, value) in changes {
        match (table.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(above))
                if !CHOICES.contains(&key.as_str()) =>
            {
                lay_over(below, above);
            }
            _ => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The base name of files about the experiment at `path`: its folder's name and its own.
pub fn file_name(path: &Path) -> String {
    let name = |path: Option<&Path>| {
        path.and_then(Path::file_stem).map(|name| name.to_string_lossy().into_owned())
    };
    let folder = name(path.parent());
    let parts: Vec<String> = folder.into_iter().chain(name(Some(path))).collect();
    parts.join("-")
}

/// The table in the file at `path`. If the file names another one as `like`, that table is the
/// base, and this file's values are laid over it. A chain has at most `LIKE_MAX` links.
pub fn read_table(path: &Path) -> Result<Table, Failure> {
    read_table_like(path, LIKE_MAX)
}

fn read_table_like(path: &Path, deep: usize) -> Result<Table, Failure> {
    let mut own = read_text_table(path)?;
    let Some(like) = own.remove("like") else { return Ok(own) };
    let Some(name) = like.as_str() else { return Err(wrong(path, &"like: it names a file")) };
    if deep == 0 {
        return Err(wrong(path, &"like: too many files are like others"));
    }
    let mut table = read_table_like(&beside(path, Path::new(name)), deep - 1)?;
    lay_over(&mut table, &own);
    Ok(table)
}

pub fn beside(path: &Path, name: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).join(name)
}

pub fn read_text_table(path: &Path) -> Result<Table, Failure> {
    read_text(path)?.parse().map_err(|e: toml::de::Error| wrong(path, &e))
}

pub fn unique(key: &str, names: &[&str]) -> Result<(), String> {
    if names.is_empty() {
        return Err(format!("{key}: there is none"));
    }
    match names.iter().enumerate().find(|(nth, name)| names[..*nth].contains(name)) {
        None => Ok(()),
        Some((_, name)) => Err(format!("{key}: `{name}` is there twice")),
    }
}

pub fn known(key: &str, names: &[&str], name: &str) -> Result<(), String> {
    if names.contains(&name) { Ok(()) } else { Err(format!("{key}: there is no `{name}`")) }
}

fn read_text(path: &Path) -> Result<String, Failure> {
    let failed = |e| Failure::new(DEVICE, format!("{}: {e}", path.display()));
    std::fs::read_to_string(path).map_err(failed)
}

pub fn wrong(path: &Path, what: &dyn std::fmt::Display) -> Failure {
    // Messages of the TOML parser end with an empty line.
    Failure::usage(format!("{}: {}", path.display(), what.to_string().trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_joined_and_choices_replaced() {
        let mut table: Table = "a = 1\n[oram]\nlevels = 3\npace = { x = 1 }".parse().unwrap();
        let changes = "b = 2\n[oram]\nlevels = 4\npace = { y = 2 }\nz = 5".parse().unwrap();
        lay_over(&mut table, &changes);
        let expected = "a = 1\nb = 2\n[oram]\nlevels = 4\npace = { y = 2 }\nz = 5";
        assert_eq!(table, expected.parse::<Table>().unwrap());
    }
}
