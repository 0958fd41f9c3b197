//! Between crates: which may import which, and where code may be async.

use super::Finding;
use super::tree::{RustFile, Tree};
use crate::rust_text::{line_of, paths, skip_blanks, words};

/// What a product over trees and block schemes stands on.
const LIBRARY: [&str; 4] = ["traceless", "traceless-block", "traceless-core", "traceless-sys"];
/// The crates of the products that users install.
const PRODUCTS: [&str; 12] = [
    "traceless",
    "traceless-block",
    "traceless-core",
    "traceless-sys",
    "traceless-volume",
    "traceless-pager",
    "traceless-cloud",
    "traceless-sim",
    "traceless-audit",
    "traceless-dashboard",
    "traceless-engines",
    "traceless-advise",
];
/// What has costs that advice compares.
const ADVISED: [&str; 5] =
    ["traceless-block", "traceless-cloud", "traceless-core", "traceless-pager", "traceless-volume"];
/// The crates of the products, and the program, which shares code with the laboratory and with the
/// Python package.
const LABORATORY: [&str; 10] = [
    "traceless",
    "traceless-block",
    "traceless-core",
    "traceless-sys",
    "traceless-volume",
    "traceless-pager",
    "traceless-cloud",
    "traceless-sim",
    "traceless-audit",
    "traceless-cli",
];
/// The crates that are async: the libraries of their protocols are.
const ASYNC_CRATES: [&str; 2] = ["crates/traceless-cloud", "crates/traceless-engines"];

/// The modules of the library that the auditor may use: events, and the types in them.
const AUDIT_MODULES: [&str; 2] = ["trace", "types"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (folder, path, text) in tree.manifests() {
        found.extend(check_manifest(folder, path, text));
    }
    for file in &tree.rust {
        if !ASYNC_CRATES.iter().any(|name| file.path.starts_with(name)) {
            found.extend(async_code(file));
        }
        if file.path.starts_with("crates/traceless-audit/src/") {
            found.extend(audit_imports(file));
        }
    }
    found
}

/// The workspace's crates that the crate may depend on; `None` for a crate that is not in the plan.
fn allowed(name: &str) -> Option<&'static [&'static str]> {
    match name {
        // Knows nothing of the products: it judges hardware, in a process of its own.
        "traceless-sys" => Some(&[]),
        "traceless-attest" | "traceless-core" => Some(&["traceless-sys"]),
        "traceless-block" | "traceless-audit" => Some(&["traceless-core"]),
        "traceless" | "traceless-cloud" | "traceless-dashboard" => {
            Some(&["traceless-core", "traceless-sys"])
        }
        "traceless-engines" => Some(&["traceless-cloud", "traceless-core"]),
        "traceless-volume" => Some(&["traceless-block", "traceless-core", "traceless-sys"]),
        "traceless-pager" => Some(&LIBRARY),
        "traceless-preload" => Some(&["traceless-pager"]),
        "traceless-sim" => Some(&["traceless", "traceless-audit"]),
        "traceless-advise" => Some(&ADVISED),
        "traceless-cli" => Some(&PRODUCTS),
        "traceless-py" | "traceless-lab" => Some(&LABORATORY),
        _ => None,
    }
}

fn check_manifest(folder: &str, path: &str, text: &str) -> Vec<Finding> {
    let manifest: toml::Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => {
            let what = error.message().to_owned();
            return vec![Finding::new(path, 1, what, "write a manifest that cargo can read")];
        }
    };
    let mut found = Vec::new();
    if !ASYNC_CRATES.contains(&folder) {
        for name in dependencies(&manifest, &["dependencies", "dev-dependencies"]) {
            if name == "tokio" {
                let remedy = "only traceless-cloud and traceless-engines are async; use threads";
                found.push(Finding::new(path, line_with(text, &name), "tokio", remedy));
            }
        }
    }
    let Some(name) = folder.strip_prefix("crates/") else { return found };
    let Some(allowed) = allowed(name) else {
        let remedy = "say in xtask/src/tidy/crates.rs what it may import, and why it is a crate";
        found.push(Finding::new(path, 1, format!("{name} has no place in the plan"), remedy));
        return found;
    };
    for import in dependencies(&manifest, &["dependencies", "build-dependencies"]) {
        let ours = import == "traceless" || import.starts_with("traceless-");
        if ours && !allowed.contains(&import.as_str()) {
            let what = format!("{name} may not import {import}");
            let remedy = "see the table of crates in ARCHITECTURE.md";
            found.push(Finding::new(path, line_with(text, &import), what, remedy));
        }
    }
    found
}

/// The packages in tables of these kinds, of the crate as a whole and of its targets.
fn dependencies(manifest: &toml::Table, kinds: &[&str]) -> Vec<String> {
    let mut owners = vec![manifest];
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    owners.extend(targets.into_iter().flat_map(|t| t.values().filter_map(toml::Value::as_table)));
    let mut names = Vec::new();
    for owner in owners {
        for kind in kinds {
            let Some(table) = owner.get(*kind).and_then(toml::Value::as_table) else { continue };
            names.extend(table.iter().map(|(key, value)| {
                let renamed = value.get("package").and_then(toml::Value::as_str);
                renamed.unwrap_or(key).to_owned()
            }));
        }
    }
    names
}

/// The line of a manifest that names a dependency.
fn line_with(text: &str, name: &str) -> usize {
    let names_it = |line: &str| {
        let key = line.split(['=', '.', ' ']).next().unwrap_or_default();
        key == name || line.contains(&format!("\"{name}\""))
    };
    text.lines().position(names_it).map_or(1, |index| index + 1)
}

fn async_code(file: &RustFile) -> Vec<Finding> {
    let found = words(&file.code, "async").chain(words(&file.code, "await"));
    let finding = |at| {
        let remedy = "only traceless-cloud and traceless-engines are async; use threads";
        Finding::new(&file.path, line_of(&file.code, at), "async code", remedy)
    };
    found.map(finding).collect()
}

fn audit_imports(file: &RustFile) -> Vec<Finding> {
    let code = &file.code;
    let mut found = Vec::new();
    for at in words(code, "traceless_core") {
        let end = skip_blanks(code.as_bytes(), at + "traceless_core".len());
        let modules: Vec<String> = if code[end..].starts_with("::") {
            let first = |path: Vec<String>| path.into_iter().next();
            paths(code, end + 2).into_iter().filter_map(first).collect()
        } else {
            // `use traceless_core as other` would hide which modules are used.
            vec!["the whole library".to_owned()]
        };
        for module in modules.iter().filter(|module| !AUDIT_MODULES.contains(&module.as_str())) {
            let what = format!("the auditor imports {module}");
            let remedy = "it sees events only: traceless_core::{trace, types}";
            found.push(Finding::new(&file.path, line_of(code, at), what, remedy));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds;
    use super::check;

    #[test]
    fn a_forbidden_import_is_found() {
        let cases = [
            ("crates/traceless-sys/Cargo.toml", "traceless.workspace = true"),
            ("crates/traceless/Cargo.toml", "traceless-audit = { path = \"x\" }"),
            ("crates/traceless-core/Cargo.toml", "traceless.workspace = true"),
            ("crates/traceless-volume/Cargo.toml", "traceless.workspace = true"),
            ("crates/traceless-volume/Cargo.toml", "traceless-pager = \"1\""),
            ("crates/traceless-cloud/Cargo.toml", "sim = { package = \"traceless-sim\" }"),
            ("crates/traceless-sim/Cargo.toml", "traceless-sys = \"1\""),
            ("crates/traceless-audit/Cargo.toml", "traceless-volume = \"1\""),
            ("crates/traceless-block/Cargo.toml", "traceless-cli = \"1\""),
            ("crates/traceless-py/Cargo.toml", "traceless-lab = \"1\""),
            ("crates/traceless-pager/Cargo.toml", "tokio = \"1\""),
        ];
        for (path, line) in cases {
            finds(check, &[(path, &format!("[dependencies]\n{line}\n"))], &[(path, 2)]);
        }
        let path = "crates/traceless-volume/Cargo.toml";
        for table in ["target.'cfg(unix)'.dependencies", "build-dependencies"] {
            let text = format!("[{table}]\ntraceless-cloud = \"1\"\n");
            finds(check, &[(path, &text)], &[(path, 2)]);
        }
    }

    #[test]
    fn what_the_plan_allows_is_fine() {
        let volume = "[dependencies]\ntraceless-block = \"1\"\nserde = \"1\"\n\
                      [dev-dependencies]\ntraceless-audit = \"1\"\n";
        let cloud = "[dependencies]\ntokio = \"1\"\n";
        finds(
            check,
            &[
                ("crates/traceless-volume/Cargo.toml", volume),
                ("crates/traceless-cloud/Cargo.toml", cloud),
                ("crates/traceless-cloud/src/lib.rs", "async fn f() { g().await }\n"),
            ],
            &[],
        );
    }

    #[test]
    fn a_crate_beside_the_plan_is_found() {
        let path = "crates/traceless-utils/Cargo.toml";
        finds(check, &[(path, "[package]\n")], &[(path, 1)]);
    }

    #[test]
    fn a_product_that_needs_the_laboratory_is_found() {
        let path = "crates/traceless-cli/Cargo.toml";
        let text = "[dependencies]\ntraceless-lab = \"1\"\n";
        finds(check, &[(path, text)], &[(path, 2)]);
    }

    #[test]
    fn a_broken_manifest_is_found() {
        let path = "crates/traceless/Cargo.toml";
        finds(check, &[(path, "[dependencies\n")], &[(path, 1)]);
    }

    #[test]
    fn async_code_is_found_outside_the_cloud() {
        let path = "crates/traceless-volume/src/lib.rs";
        let text = "// async fn\nasync fn f() {\n    g().await\n}\n";
        finds(check, &[(path, text)], &[(path, 2), (path, 3)]);
    }

    #[test]
    fn the_auditor_sees_events_only() {
        let path = "crates/traceless-audit/src/lib.rs";
        let fine =
            "use traceless_core::{trace::{Event, Op}, types::Addr};\n//! traceless_core::oram\n";
        finds(check, &[(path, fine)], &[]);
        for text in ["use traceless_core::oram::Oram;\n", "use traceless_core::{trace, store};\n"] {
            finds(check, &[(path, text)], &[(path, 1)]);
        }
        for text in ["use traceless_core::*;\n", "use traceless_core as t;\n"] {
            finds(check, &[(path, text)], &[(path, 1)]);
        }
    }
}
