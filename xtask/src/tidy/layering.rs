//! Inside the library: a module uses those of the layers below it and its own, never later ones.
//!
//! What stands under `#[cfg(test)]` is exempt: a test may build whatever it needs.

use super::Finding;
use super::tree::{RustFile, Tree};
use crate::rust_text::{line_of, paths, without_tests, words};

const SOURCES: &str = "crates/traceless/src/";

const LAYERS: [&[&str]; 10] = [
    &["types", "error", "rng", "clock", "trace", "durable", "oram", "controller", "paced"],
    &["store"],
    &["seal"],
    &["tree"],
    &["posmap"],
    &["scheme"],
    &["oblivious"],
    &["map"],
    &["build", "array"],
    &["suite"],
];

/// A name at the root of the library, and the module that it comes from.
type Reexport = (String, String);

pub fn check(tree: &Tree) -> Vec<Finding> {
    let library = || tree.rust.iter().filter(|file| file.path.starts_with(SOURCES));
    let root = library().find(|file| file.path == format!("{SOURCES}lib.rs"));
    let reexports = root.map(reexports).unwrap_or_default();
    library().flat_map(|file| check_file(file, &reexports)).collect()
}

fn check_file(file: &RustFile, reexports: &[Reexport]) -> Vec<Finding> {
    let modules = modules_of(&file.path);
    let Some(own) = modules.first() else { return Vec::new() };
    let Some(own_layer) = layer_of(own) else {
        let remedy = "name its layer in xtask/src/tidy/layering.rs and in ARCHITECTURE.md";
        return vec![Finding::new(&file.path, 1, format!("module {own} has no layer"), remedy)];
    };
    if modules.contains(&"tests") {
        return Vec::new();
    }
    let code = without_tests(&file.code);
    let mut found = Vec::new();
    for (offset, name) in root_names(&code, modules.len()) {
        let known = reexports.iter().find(|(public, _)| *public == name);
        let module = known.map_or(name.as_str(), |(_, module)| module);
        if layer_of(module).is_some_and(|layer| layer > own_layer) {
            let what = format!("{own} uses {module}, a later layer");
            let remedy = "move the code up, or hand in what it needs";
            found.push(Finding::new(&file.path, line_of(&code, offset), what, remedy));
        }
    }
    found
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// The modules that lead to a file: `store/mem.rs` is `store`, `mem`; the root has none.
fn modules_of(path: &str) -> Vec<&str> {
    let inner = path.strip_prefix(SOURCES).and_then(|path| path.strip_suffix(".rs"));
    let names = inner.unwrap_or_default().split('/');
    names.filter(|name| !matches!(*name, "" | "mod" | "lib")).collect()
}

/// The names that `code`, `depth` modules below the root, takes from the root, and where.
fn root_names(code: &str, depth: usize) -> Vec<(usize, String)> {
    let mut starts: Vec<usize> = words(code, "crate")
        .filter(|at| code[at + 5..].starts_with("::"))
        .map(|at| at + "crate::".len())
        .collect();
    let up = "super::".repeat(depth);
    starts.extend(words(code, "super").filter_map(|at| {
        // Only a whole chain reaches the root; its tail is not another one.
        let chained = code[..at].ends_with("super::");
        (!chained && code[at..].starts_with(&up)).then_some(at + up.len())
    }));
    let mut names = Vec::new();
    for start in starts {
        let first = |path: Vec<String>| path.into_iter().next();
        names.extend(paths(code, start).into_iter().filter_map(first).map(|name| (start, name)));
    }
    names
}

fn reexports(root: &RustFile) -> Vec<Reexport> {
    let uses = words(&root.code, "use").flat_map(|at| paths(&root.code, at + "use".len()));
    let named = uses.filter_map(|mut path| {
        if matches!(path.first().map(String::as_str), Some("crate" | "self")) {
            path.remove(0);
        }
        Some((path.last()?.clone(), path.first()?.clone()))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds;
    use super::check;

    const STORE: &str = "crates/traceless/src/store/mem.rs";

    #[test]
    fn a_later_layer_is_found_however_it_is_spelled() {
        let spellings = [
            "use crate::tree::Shape;\n",
            "use crate::{error::Error, tree};\n",
            "use super::super::tree::Shape;\n",
            "use super::super::{tree::Shape, types};\n",
            "fn f() { crate::build::build() }\n",
        ];
        for text in spellings {
            finds(check, &[(STORE, text)], &[(STORE, 1)]);
        }
        let ground = "crates/traceless/src/trace.rs";
        finds(check, &[(ground, "\nuse super::store::Store;\n")], &[(ground, 2)]);
        let nested = "crates/traceless/src/trace/file.rs";
        finds(check, &[(nested, "use super::super::store::Store;\n")], &[(nested, 1)]);
    }

    #[test]
    fn a_later_layer_is_found_behind_a_name_at_the_root() {
        let root = ("crates/traceless/src/lib.rs", "pub use build::{SchemeConfig, build};\n");
        finds(check, &[root, (STORE, "use crate::SchemeConfig;\n")], &[(STORE, 1)]);
    }

    #[test]
    fn earlier_layers_and_tests_are_fine() {
        let text = "use crate::{error::Error, trace};\nuse super::Store;\nuse crate::store::x;\n\
                    // crate::tree\n#[cfg(test)]\nmod tests {\n    use crate::suite;\n}\n";
        let suite = ("crates/traceless/src/suite/mod.rs", "use crate::build::build;\n");
        let tests = ("crates/traceless/src/store/tests.rs", "use crate::tree;\n");
        finds(check, &[(STORE, text), suite, tests], &[]);
    }

    #[test]
    fn a_module_without_a_layer_is_found() {
        let path = "crates/traceless/src/util.rs";
        finds(check, &[(path, "\n")], &[(path, 1)]);
    }
}
