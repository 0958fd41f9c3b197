//! Inside any crate: imports between files form no circle, not even a long one.
//!
//! A file and its own modules count as one: they may import each other. Items under `#[cfg(test)]`
//! are exempt, as a test may import anything.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::Finding;
use super::imports::{self, Path, imports, place};
use super::tree::{RustFile, Tree};
use crate::rust_text::{line_of, without_tests, words};

const REMEDY: &str = "move what both sides need into a file below them, or to where it is used";

/// The most re-exports that are followed from a name to its file.
const HANDED_ON_MAX: usize = 8;

/// A file of a crate, with the path of its module.
struct Node<'a> {
    modules: Path,
    file: &'a RustFile,
    /// The code without tests.
    code: String,
    /// The names that it imports by `use`; `*` for all names of another file.
    names: Vec<(String, Path)>,
}

/// For each file of a crate, by its index: the files that it imports, and the line of the first
/// import of each.
type Graph = Vec<BTreeMap<usize, usize>>;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<Node>> = BTreeMap::new();
    for file in &tree.rust {
        if let Some((root, modules)) = place(&file.path) {
            let code = without_tests(&file.code);
            let names = imports::names(&code, &modules);
            let modules = modules.into_iter().map(str::to_owned).collect();
            crates.entry(root).or_default().push(Node { modules, file, code, names });
        }
    }
    crates.iter().flat_map(|(root, nodes)| check_crate(root, nodes)).collect()
}

/// One finding for each circle; a file that is in a circle is named in at least one finding.
fn check_crate(root: &str, nodes: &[Node]) -> Vec<Finding> {
    let graph = graph(nodes);
    let mut found = Vec::new();
    let mut named = HashSet::new();
    for start in 0..nodes.len() {
        let Some(circle) = circle(&graph, start).filter(|_| !named.contains(&start)) else {
            continue;
        };
        let path = |node: &usize| &nodes[*node].file.path[root.len() + 1..];
        let way: Vec<&str> = circle.iter().map(path).collect();
        let what = format!("imports in a circle: {}", way.join(" -> "));
        let line = graph[start][&circle[1]];
        found.push(Finding::new(&nodes[start].file.path, line, what, REMEDY));
        named.extend(circle);
    }
    found
}

fn graph(nodes: &[Node]) -> Graph {
    let places = nodes.iter().enumerate().map(|(place, node)| (&node.modules[..], place));
    let known = ModuleIndex { nodes, places: places.collect() };
    let imported = nodes.iter().map(|node| {
        let modules: Vec<&str> = node.modules.iter().map(String::as_str).collect();
        let mut imported = BTreeMap::new();
        for (at, path) in imports(&node.code, &modules) {
            for target in known.targets(path) {
                if !nodes[target].modules.starts_with(&node.modules) {
                    imported.entry(target).or_insert(line_of(&node.code, at));
                }
            }
        }
        imported
    });
    imported.collect()
}

/// The files of a crate, with an index by module path.
struct ModuleIndex<'a> {
    nodes: &'a [Node<'a>],
    places: HashMap<&'a [String], usize>,
}

impl ModuleIndex<'_> {
    /// The file that `path` leads to, and the files that re-export the item on the way.
    fn targets(&self, mut path: Path) -> Vec<usize> {
        let mut found = Vec::new();
        for _ in 0..HANDED_ON_MAX {
            let Some(place) = self.file(&path) else { break };
            found.push(place);
            let depth = self.nodes[place].modules.len();
            let Some(origin) = path.get(depth).and_then(|name| self.origin(place, name)) else {
                break;
            };
            path = [&origin[..], &path[depth + 1..]].concat();
        }
        found
    }

    /// The file that defines or re-exports what `path` names.
    fn file(&self, path: &[String]) -> Option<usize> {
        (0..=path.len()).rev().find_map(|length| self.places.get(&path[..length]).copied())
    }

    /// The path that `name` stands for in a file that imports it.
    fn origin(&self, place: usize, name: &str) -> Option<Path> {
        let names = &self.nodes[place].names;
        if let Some((_, path)) = names.iter().find(|(known, _)| known == name) {
            return Some(path.clone());
        }
        let all = names.iter().filter(|(known, _)| known == "*");
        all.map(|(_, path)| [&path[..path.len() - 1], &[name.to_owned()]].concat()).find(|path| {
            let file = self.file(path).filter(|file| *file != place);
            file.is_some_and(|file| defines(&self.nodes[file].code, name))
        })
    }
}

/// Whether `code` has an item of this name.
fn defines(code: &str, name: &str) -> bool {
    let items = ["struct", "enum", "union", "trait", "type", "fn", "const", "static"];
    let is_item = |at: usize| items.iter().any(|item| code[..at].trim_end().ends_with(item));
    words(code, name).any(is_item)
}

/// The shortest way along imports from a file back to itself, with that file at both ends.
fn circle(graph: &Graph, start: usize) -> Option<Vec<usize>> {
    let mut before = HashMap::new();
    let mut waiting = VecDeque::from([start]);
    while let Some(file) = waiting.pop_front() {
        for next in graph[file].keys() {
            if !before.contains_key(next) {
                before.insert(*next, file);
                waiting.push_back(*next);
            }
        }
    }
    let mut way = vec![start, *before.get(&start)?];
    while let Some(last) = way.last().filter(|last| **last != start) {
        way.push(before[last]);
    }
    way.reverse();
    Some(way)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check as run, finds};
    use super::check;

    const A: &str = "crates/x/src/a.rs";
    const B: &str = "crates/x/src/b/mod.rs";
    const C: &str = "crates/x/src/b/c.rs";
    const ROOT: &str = "crates/x/src/lib.rs";

    #[test]
    fn a_circle_is_found_however_it_is_spelled() {
        for there in
            ["use crate::b::c;\n", "use super::{d, b::{c::X, e}};\n", "type T = crate::b::c::X;"]
        {
            for back in ["use crate::a;\n", "use super::super::a::{f, g};\n"] {
                finds(check, &[(A, there), (B, ""), (C, back)], &[(A, 1)]);
            }
        }
    }

    #[test]
    fn a_finding_names_every_file_of_a_circle() {
        let files = [
            (A, "\nuse crate::b::c;\n"),
            (B, ""),
            (C, "use crate::d;\n"),
            ("crates/x/src/d.rs", "use crate::{b, a};\n"),
        ];
        let found = run(check, &files);
        assert_eq!(
            found[0].to_string(),
            format!(
                "{A}:2: imports in a circle: a.rs -> b/c.rs -> d.rs -> a.rs; {}",
                super::REMEDY
            )
        );
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn each_circle_is_found() {
        let files = [
            (A, "use crate::{d, b};\n"),
            (B, "use crate::a;\n"),
            ("crates/x/src/d.rs", "\n\nuse crate::a;\n"),
            ("crates/x/tests/y/e.rs", "use super::f;\n"),
            ("crates/x/tests/y/f.rs", "use crate::e;\n"),
        ];
        let expected = [(A, 1), ("crates/x/src/d.rs", 3), ("crates/x/tests/y/e.rs", 1)];
        finds(check, &files, &expected);
    }

    #[test]
    fn a_circle_is_found_behind_names_that_are_handed_on() {
        let root = (ROOT, "pub use b::X;\n");
        let handed_on = (B, "pub use c::X;\n");
        finds(check, &[root, handed_on, (A, "use crate::X;\n"), (C, "use crate::a;\n")], &[(A, 1)]);
        let all = (B, "pub use c::*;\n");
        let c = (C, "use crate::a;\npub struct X;\n");
        finds(check, &[all, (A, "use crate::b::X;\n"), c], &[(A, 1)]);
        finds(check, &[all, (A, "use crate::b::Y;\n"), c], &[]);
    }

    #[test]
    fn imports_without_a_circle_are_fine() {
        let tests = "use crate::b;\n#[cfg(test)]\nmod tests {\n    use crate::d;\n}\n";
        let files = [
            (ROOT, "mod a;\npub use a::Y;\n"),
            (A, tests),
            (B, "mod c;\nuse c::X;\nuse self::c::Z;\n// use crate::a;\n"),
            (C, "use super::W;\nuse core::a;\npub(in crate::b) fn f() {}\n"),
            ("crates/x/src/d.rs", "use crate::{a, b::c};\n"),
            ("crates/y/src/b.rs", "use crate::a;\n"),
        ];
        finds(check, &files, &[]);
    }
}
