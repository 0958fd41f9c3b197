//! The imports between files of a crate, as paths from the root of the crate.

use crate::rust_text::{paths, words};

/// The modules and names that lead from the root of a crate to an item.
pub type Path = Vec<String>;

/// The crate of a file, as the folder of its root, and the path of the file's module there:
/// `a/src/store/mem.rs` is `store`, `mem` in `a/src`; `a/tests/crash/world.rs` is `world` in the
/// test `a/tests/crash`. `None` for a file that is neither below a `src` nor in a folder of
/// `tests`.
pub fn place(file: &str) -> Option<(&str, Vec<&str>)> {
    let after = |folder: &str| file.find(folder).map(|at| at + folder.len());
    let test = |at: usize| file[at..].find('/').map(|length| at + length + 1);
    let inner = after("/src/").or_else(|| after("/tests/").and_then(test))?;
    let names = file[inner..].strip_suffix(".rs")?.split('/');
    let modules = names.filter(|name| !matches!(*name, "mod" | "lib" | "main"));
    Some((&file[..inner - 1], modules.collect()))
}

/// All paths by `crate::` or `super::` in `code`, the file of `modules`, and where they are.
pub fn imports(code: &str, modules: &[&str]) -> Vec<(usize, Path)> {
    let starts = ["crate", "super"].into_iter().flat_map(|word| {
        // The rest of a chain of `super::` is not another import.
        let is_first = move |at: &usize| {
            code[at + word.len()..].starts_with("::") && !code[..*at].ends_with("::")
        };
        words(code, word).filter(is_first)
    });
    let found = starts.flat_map(|at| paths(code, at).into_iter().map(move |path| (at, path)));
    found.filter_map(|(at, path)| Some((at, from_root(path, modules)?))).collect()
}

/// The names that `code`, the file of `modules`, imports by `use`, and so may re-export; each with
/// the path that it stands for.
pub fn names(code: &str, modules: &[&str]) -> Vec<(String, Path)> {
    let uses = words(code, "use").flat_map(|at| paths(code, at + "use".len()));
    let named = uses.filter_map(|mut path| {
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        Some((path.last()?.clone(), from_root(path, modules)?))
    });
    named.collect()
}

/// A path as it is written in the file of `modules`; `None` if it leads out of the crate. A path
/// that begins with neither `crate` nor `super` is taken for a module of the file's own.
fn from_root(mut path: Path, modules: &[&str]) -> Option<Path> {
    let mut base = modules;
    match path.first().map(String::as_str) {
        Some("crate") => {
            base = &[];
            path.remove(0);
        }
        Some("self") => {
            path.remove(0);
        }
        _ => {
            let ups = path.iter().take_while(|name| *name == "super").count();
            base = &modules[..modules.len().checked_sub(ups)?];
            path.drain(..ups);
        }
    }
    Some(base.iter().map(|name| (*name).to_owned()).chain(path).collect())
}
