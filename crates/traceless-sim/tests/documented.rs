//! docs/simulator.md names all schemes, and all keys of a machine.

use std::path::Path;
use traceless_sim::constant;
use traceless_sim::machine::Machine;
use traceless_sim::oram::{LayoutKind, Scheme};

const DOCUMENT: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/simulator.md"));

fn keys(value: &serde_json::Value, into: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(table) => {
            for (key, value) in table {
                into.push(key.clone());
                keys(value, into);
            }
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| keys(value, into)),
        _ => {}
    }
}

/// Every machine in experiments/, and one with all parts.
fn machines() -> Vec<Machine> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/machines");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        toml::from_str(&text).unwrap()
    };
    let mut machines: Vec<Machine> = std::fs::read_dir(folder).unwrap().map(read).collect();
    let mut all = Machine::ir_oram();
    all.oram = all.oram.map(|oram| oram.resolved());
    all.constant = Some(constant::Config::default());
    machines.push(all);
    machines
}

#[test]
fn every_key_of_a_machine_is_documented() {
    let mut all = vec![];
    for machine in machines() {
        keys(&serde_json::to_value(machine).unwrap(), &mut all);
    }
    all.sort();
    all.dedup();
    assert!(all.len() > 90, "{}", all.len());
    for key in all {
        let named = [format!("`{key}`"), format!("`[{key}]`"), format!("{{ {key} =")];
        assert!(named.iter().any(|name| DOCUMENT.contains(name)), "`{key}` is not documented");
    }
}

#[test]
fn every_scheme_is_documented() {
    for (name, _) in Scheme::NAMED {
        assert!(DOCUMENT.contains(&format!("`{name}`")), "`{name}` is not documented");
    }
    for layout in [LayoutKind::Buckets, LayoutKind::Spread] {
        let name = serde_json::to_value(layout).unwrap();
        assert!(DOCUMENT.contains(&format!("`{}`", name.as_str().unwrap())));
    }
}
