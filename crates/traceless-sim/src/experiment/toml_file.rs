//! Experiment files: TOML that may build on another file.
//!
//! ```
//! use traceless_sim::experiment::toml_file::{file_name, read_table};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let [base, large] = ["fig1.toml", "fig1-large.toml"].map(|name| folder.path().join(name));
//! std::fs::write(&base, "title = 'Figure 1'\nset = { oram = { levels = 16, z = 4 } }")?;
//! std::fs::write(&large, "like = 'fig1.toml'\nset = { oram = { levels = 24 } }")?;
//! let table = read_table(&large)?;
//! assert_eq!(table["title"].as_str(), Some("Figure 1"));
//! let oram = &table["set"]["oram"];
//! assert_eq!((oram["levels"].as_integer(), oram["z"].as_integer()), (Some(24), Some(4)));
//! assert_eq!(file_name("experiments/own/fig1.toml".as_ref()), "own-fig1");
//! # Ok(())
//! # }
//! ```

use super::{Error, Result};
use crate::machine::Machine;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

const LIKE_MAX: usize = 4;

/// Tables that stand for a choice: a change replaces the whole table.
const CHOICES: [&str; 2] = ["pace", "scheduler"];

/// Merges `changes` into `table`: tables in both are merged, except choices, which are replaced.
pub fn merge(table: &mut Table, changes: &Table) {
    for (key, value) in changes {
        match (table.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(above))
                if !CHOICES.contains(&key.as_str()) =>
            {
                merge(below, above);
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
/// base, and this file's values are merged into it. A chain has at most `LIKE_MAX` links.
pub fn read_table(path: &Path) -> Result<Table> {
    read_table_like(path, LIKE_MAX)
}

fn read_table_like(path: &Path, links: usize) -> Result<Table> {
    let mut table = parse_file(path)?;
    let Some(like) = table.remove("like") else { return Ok(table) };
    let Some(name) = like.as_str() else {
        return Err(Error::invalid(path, &"like: it names a file"));
    };
    if links == 0 {
        return Err(Error::invalid(path, &"like: too many files are like others"));
    }
    let mut base = read_table_like(&sibling(path, Path::new(name)), links - 1)?;
    merge(&mut base, &table);
    Ok(base)
}

/// The file called `name` in the folder of `path`.
pub fn sibling(path: &Path, name: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).join(name)
}

/// The table in the file at `path`, without its base.
pub fn parse_file(path: &Path) -> Result<Table> {
    read_text(path)?.parse().map_err(|e: toml::de::Error| Error::invalid(path, &e))
}

/// The machine in the file at `path`.
pub fn read_machine(path: &Path) -> Result<Machine> {
    toml::from_str(&read_text(path)?).map_err(|e| Error::invalid(path, &e))
}

/// Refuses a name that is there twice, and a list without any; `key` says what they are.
pub fn check_unique(key: &str, names: &[&str]) -> Result<(), String> {
    if names.is_empty() {
        return Err(format!("{key}: there is none"));
    }
    match names.iter().enumerate().find(|(nth, name)| names[..*nth].contains(name)) {
        None => Ok(()),
        Some((_, name)) => Err(format!("{key}: `{name}` is there twice")),
    }
}

/// Refuses a name that is not in `names`; `key` says what they are.
pub fn check_known(key: &str, names: &[&str], name: &str) -> Result<(), String> {
    if names.contains(&name) { Ok(()) } else { Err(format!("{key}: there is no `{name}`")) }
}

fn read_text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(Error::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_joins_tables_and_replaces_choices() {
        let mut table: Table = "a = 1\n[oram]\nlevels = 3\npace = { x = 1 }".parse().unwrap();
        let changes = "b = 2\n[oram]\nlevels = 4\npace = { y = 2 }\nz = 5".parse().unwrap();
        merge(&mut table, &changes);
        let expected = "a = 1\nb = 2\n[oram]\nlevels = 4\npace = { y = 2 }\nz = 5";
        assert_eq!(table, expected.parse::<Table>().unwrap());
    }
}
