//! Inside the library: a module uses its own layer and the layers before it, never later ones.
//!
//! Items under `#[cfg(test)]` are exempt: a test may use any layer.

use super::Finding;
use super::imports::{Path, imports, names, place};
use super::tree::{RustFile, Tree};
use crate::rust_text::{line_of, without_tests};

const SOURCES: &str = "crates/traceless/src";

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

/// A name at the root of the library, and the path that it stands for.
type Reexport = (String, Path);

pub fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.rust.iter().filter_map(|file| Some((file, place(&file.path)?)));
    let library: Vec<_> = files.filter(|(_, (root, _))| *root == SOURCES).collect();
    let root = library.iter().find(|(_, (_, modules))| modules.is_empty());
    let reexports = root.map(|(file, _)| names(&file.code, &[])).unwrap_or_default();
    let found = library.iter().flat_map(|(file, (_, own))| check_file(file, own, &reexports));
    found.collect()
}

fn check_file(file: &RustFile, modules: &[&str], reexports: &[Reexport]) -> Vec<Finding> {
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
    for (offset, path) in imports(&code, modules) {
        let Some(name) = path.first() else { continue };
        let known = reexports.iter().find(|(public, _)| public == name);
        let module = known.and_then(|(_, path)| path.first()).unwrap_or(name);
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
