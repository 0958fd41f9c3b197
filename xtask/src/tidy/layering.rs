//! Inside the library: a module uses its own layer and the layers before it, never later ones.
//!
//! Items under `#[cfg(test)]` are exempt: a test may use any layer.

use super::Finding;
use super::imports::{Path, imports, names, place};
use super::tree::{RustFile, Tree};
use crate::rust_text::{line_of, without_tests};

/// The layers of a crate, from the lowest on, each with its modules.
type Layers = &'static [&'static [&'static str]];

/// The crates of the library, as the folders of their sources.
const LIBRARY: [(&str, Layers); 3] = [
    (
        "crates/traceless-core/src",
        &[
            &["types", "error", "rng", "clock", "trace", "durable", "oram", "stats", "activity"],
            &["store"],
            &["seal"],
            &["scheme"],
            &["suite"],
        ],
    ),
    (
        "crates/traceless-block/src",
        &[
            &["batches", "log", "pool", "refreshed", "tiers"],
            &["detwo", "plain", "random", "ring", "sq"],
            &["datalair", "deniable", "hive"],
            &["registry"],
            &["histories"],
        ],
    ),
    (
        "crates/traceless/src",
        &[
            &["controller", "paced"],
            &["tree"],
            &["posmap"],
            &["scheme"],
            &["oblivious"],
            &["map"],
            &["array"],
        ],
    ),
];

/// A name at the root of the library, and the path that it stands for.
type Reexport = (String, Path);

pub fn check(tree: &Tree) -> Vec<Finding> {
    LIBRARY.iter().flat_map(|(sources, layers)| check_crate(tree, sources, layers)).collect()
}

fn check_crate(tree: &Tree, sources: &str, layers: Layers) -> Vec<Finding> {
    let files = tree.rust.iter().filter_map(|file| Some((file, place(&file.path)?)));
    let files: Vec<_> = files.filter(|(_, (root, _))| *root == sources).collect();
    let root = files.iter().find(|(_, (_, modules))| modules.is_empty());
    let reexports = root.map(|(file, _)| names(&file.code, &[])).unwrap_or_default();
    files.iter().flat_map(|(file, (_, own))| check_file(file, own, &reexports, layers)).collect()
}

fn check_file(
    file: &RustFile,
    modules: &[&str],
    reexports: &[Reexport],
    layers: Layers,
) -> Vec<Finding> {
    let layer_of = |module: &str| layers.iter().position(|layer| layer.contains(&module));
    let Some(own) = modules.first() else { return Vec::new() };
    let Some(own_layer) = layer_of(own) else {
        let remedy = "name its layer in xtask/src/tidy/layering.rs";
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

#[cfg(test)]
mod tests {
    use super::super::testing::finds;
    use super::check;

    const STORE: &str = "crates/traceless-core/src/store/mem.rs";

    #[test]
    fn a_later_layer_is_found_however_it_is_spelled() {
        let spellings = [
            "use crate::seal::Aead;\n",
            "use crate::{error::Error, seal};\n",
            "use super::super::seal::Aead;\n",
            "use super::super::{seal::Aead, types};\n",
            "fn f() { crate::scheme::make() }\n",
        ];
        for text in spellings {
            finds(check, &[(STORE, text)], &[(STORE, 1)]);
        }
        let ground = "crates/traceless-core/src/trace.rs";
        finds(check, &[(ground, "\nuse super::store::Store;\n")], &[(ground, 2)]);
        let nested = "crates/traceless-core/src/trace/file.rs";
        finds(check, &[(nested, "use super::super::store::Store;\n")], &[(nested, 1)]);
    }

    #[test]
    fn a_later_layer_is_found_behind_a_name_at_the_root() {
        let root = ("crates/traceless-core/src/lib.rs", "pub use scheme::{SchemeContext, make};\n");
        finds(check, &[root, (STORE, "use crate::SchemeContext;\n")], &[(STORE, 1)]);
    }

    #[test]
    fn earlier_layers_and_tests_are_fine() {
        let text = "use crate::{error::Error, trace};\nuse super::Store;\nuse crate::store::x;\n\
                    // crate::seal\n#[cfg(test)]\nmod tests {\n    use crate::suite;\n}\n";
        let suite = ("crates/traceless-core/src/suite/mod.rs", "use crate::scheme::make;\n");
        let tests = ("crates/traceless-core/src/store/tests.rs", "use crate::seal;\n");
        finds(check, &[(STORE, text), suite, tests], &[]);
    }

    #[test]
    fn a_module_without_a_layer_is_found() {
        let path = "crates/traceless-core/src/util.rs";
        finds(check, &[(path, "\n")], &[(path, 1)]);
    }
}
