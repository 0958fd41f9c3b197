//! The bill of materials: what was compiled into the programs, as JSON of `CycloneDX`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::{Value, json};

use super::compile::COMMAND_FEATURES;
use super::files::{read_text, write};
use super::platform::Platform;
use super::release::Release;
use super::tools;
use crate::command::{cargo, output};

/// A crate by name and version.
pub type CrateId = (String, String);

/// A crate that was compiled in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Component {
    /// An expression of SPDX.
    pub license: String,
    dependencies: BTreeSet<CrateId>,
}

/// The crates of the programs, of the preloaded library, and of the Python package.
pub type Components = BTreeMap<CrateId, Component>;

/// Writes the bill of a processor's programs, and returns the crates in it.
pub fn write_bill(release: &Release, platform: Platform) -> Result<Components, String> {
    let mut components = Components::new();
    let mut roots = Vec::new();
    for (package, features, target) in [
        ("traceless-cli", &COMMAND_FEATURES[..], platform.musl()),
        ("traceless-attest", &[], platform.musl()),
        ("traceless-preload", &[], platform.gnu()),
        ("traceless-py", &[], platform.gnu()),
    ] {
        let mut tree = Command::new(cargo());
        tree.args(["tree", "--locked", "--package", package, "--target", &target]);
        tree.args(features);
        tree.args(["--edges", "normal,no-proc-macro", "--prefix", "depth"]);
        tree.args(["--format", "|{p}|{l}"]).current_dir(&release.root);
        roots.push(add(&mut components, &output(&mut tree)?)?);
    }
    let sums = checksums(&read_text(&release.root.join("Cargo.lock"))?)?;
    let bill = bill(release, platform, &roots, &components, &sums, &release.time()?)?;
    let text = serde_json::to_string_pretty(&bill).expect("JSON can be written") + "\n";
    let name = format!("traceless-{}-{}-linux.cdx.json", release.version, platform.arch());
    write(&release.out.join(name), text.as_bytes())?;
    Ok(components)
}

/// Adds what `cargo tree` prints, and returns the crate at its root.
fn add(components: &mut Components, text: &str) -> Result<CrateId, String> {
    let mut path: Vec<CrateId> = Vec::new();
    for line in text.lines() {
        let wrong = || format!("cargo tree prints {line}");
        let mut parts = line.trim_end_matches(" (*)").split('|');
        let mut next = || parts.next().ok_or_else(wrong);
        let depth: usize = next()?.parse().map_err(|_| wrong())?;
        let (name, rest) = next()?.split_once(" v").ok_or_else(wrong)?;
        let version = rest.split(' ').next().unwrap_or(rest);
        let id = (name.to_owned(), version.to_owned());
        // An older way to write the same.
        let license = next()?.replace(" / ", " OR ").replace('/', " OR ");
        if license.is_empty() {
            return Err(format!("{name} {version} names no licence"));
        }
        components.entry(id.clone()).or_default().license = license;
        if depth > path.len() {
            return Err(wrong());
        }
        path.truncate(depth);
        if let Some(user) = path.last() {
            let user = components.get_mut(user).expect("it came before");
            user.dependencies.insert(id.clone());
        }
        path.push(id);
    }
    path.into_iter().next().ok_or_else(|| "cargo tree prints nothing".to_owned())
}

/// The SHA-256 digests of the crates of registries.
fn checksums(lock: &str) -> Result<BTreeMap<CrateId, String>, String> {
    let lock = lock.parse::<toml::Table>().map_err(|error| format!("Cargo.lock: {error}"))?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let field = |package: &toml::Value, name: &str| Some(package.get(name)?.as_str()?.to_owned());
    let entry = |package: &toml::Value| {
        let id = (field(package, "name")?, field(package, "version")?);
        Some((id, field(package, "checksum")?))
    };
    Ok(packages.into_iter().flatten().filter_map(entry).collect())
}

fn bill(
    release: &Release,
    platform: Platform,
    roots: &[CrateId],
    components: &Components,
    sums: &BTreeMap<CrateId, String>,
    time: &str,
) -> Result<Value, String> {
    let own = format!("pkg:github/traceless/traceless@{}", release.version);
    let mut properties = vec![
        json!({ "name": "traceless:revision", "value": release.revision }),
        json!({ "name": "traceless:target", "value": platform.musl() }),
    ];
    for (name, value) in tools::versions()? {
        properties.push(json!({ "name": format!("traceless:{name}"), "value": value }));
    }
    let mut edges = vec![json!({
        "ref": own,
        "dependsOn": roots.iter().map(address).collect::<Vec<_>>(),
    })];
    for (id, component) in components {
        let uses: Vec<String> = component.dependencies.iter().map(address).collect();
        edges.push(json!({ "ref": address(id), "dependsOn": uses }));
    }
    let parts: Vec<Value> =
        components.iter().map(|(id, component)| part(id, component, sums.get(id))).collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time,
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "traceless",
                "version": release.version,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
                "externalReferences": [{ "type": "vcs", "url": release.repository }],
            },
            "properties": properties,
        },
        "components": parts,
        "dependencies": edges,
    }))
}

fn part(id: &CrateId, component: &Component, sum: Option<&String>) -> Value {
    let mut part = json!({
        "type": "library",
        "bom-ref": address(id),
        "name": id.0,
        "version": id.1,
        "purl": address(id),
        "licenses": [{ "expression": component.license }],
    });
    if let Some(sum) = sum {
        part["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    part
}

/// A crate's package URL.
fn address((name, version): &CrateId) -> String {
    format!("pkg:cargo/{name}@{version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> CrateId {
        (name.to_owned(), "1.0.0".to_owned())
    }

    #[test]
    fn the_tree_of_cargo_is_read() {
        let text = "0|a v1.0.0 (/x/a)|MIT\n1|b v1.0.0|MIT/Apache-2.0\n2|c v1.0.0|ISC\n\
                    1|c v1.0.0|ISC (*)\n";
        let mut found = Components::new();
        assert_eq!(add(&mut found, text), Ok(id("a")));
        assert_eq!(found[&id("a")].dependencies, BTreeSet::from([id("b"), id("c")]));
        assert_eq!(found[&id("b")].dependencies, BTreeSet::from([id("c")]));
        assert_eq!(found[&id("b")].license, "MIT OR Apache-2.0");
        assert_eq!(found[&id("c")].license, "ISC");
        for wrong in ["", "x|a v1|MIT", "1|a v1|MIT", "0|a v1|", "0|a|MIT", "0|a v1"] {
            assert!(add(&mut Components::new(), wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn checksums_come_from_the_lock_file() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ff\"\n\
                    [[package]]\nname = \"own\"\nversion = \"1.0.0\"\n";
        assert_eq!(checksums(lock).unwrap(), BTreeMap::from([(id("a"), "ff".to_owned())]));
        let known = part(&id("a"), &Component::default(), Some(&"ff".to_owned()));
        assert_eq!(known["hashes"][0]["content"], "ff");
        assert_eq!(known["purl"], "pkg:cargo/a@1.0.0");
        assert!(part(&id("own"), &Component::default(), None).get("hashes").is_none());
    }
}
