//! Documents: each can be reached, each page of docs/ is in the site's summary, each link has a
//! target, each crate is on the map.

use super::Finding;
use super::tree::{Tree, has_extension};
use crate::rust_text::line_of;

const ENTRIES: [&str; 2] = ["README.md", "ARCHITECTURE.md"];
/// The pages of the site.
const SUMMARY: &str = "docs/SUMMARY.md";
/// Listed in the summary by the site's own build, in a page of their own.
const RECORDS: &str = "docs/decisions";
const MAP: &str = "ARCHITECTURE.md";
/// Documents that newcomers read as a whole.
const LINES_MAX: [(&str, usize); 2] = [("README.md", 120), (MAP, 300)];
/// Phrases that go out of date without notice.
const STALE: [&str; 3] = ["not yet", "for now", "so far"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let documents = || tree.texts().filter(|(path, _)| has_extension(path, "md"));
    let (mut reached, mut pages) = (Vec::new(), Vec::new());
    for (path, text) in documents() {
        for (line, target) in links(text) {
            let Some(target) = resolve(path, &target) else { continue };
            if !exists(tree, &target) {
                let what = format!("a link to {target}, which does not exist");
                found.push(Finding::new(path, line, what, "mend the link"));
            }
            if ENTRIES.contains(&path) {
                reached.push(target);
            } else if path == SUMMARY {
                pages.push(target);
            }
        }
    }
    for (path, _) in documents() {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let has = |targets: &[String]| targets.iter().any(|target| target == path);
        if folder.is_empty() && path != ENTRIES[0] && !has(&reached) {
            let what = "reached from nowhere";
            found.push(Finding::new(path, 1, what, "link it from README.md or ARCHITECTURE.md"));
        }
        let is_page = (folder == "docs" || folder.starts_with("docs/")) && folder != RECORDS;
        if is_page && path != SUMMARY && !has(&pages) {
            found.push(Finding::new(path, 1, "no page of the site", "list it in docs/SUMMARY.md"));
        }
    }
    found.extend(unmapped_crates(tree));
    found.extend(stale_names(tree));
    for (path, lines_max) in LINES_MAX {
        let lines = tree.text(path).unwrap_or_default().lines().count();
        if lines > lines_max {
            let what = format!("{lines} lines, of {lines_max} at most");
            found.push(Finding::new(path, lines_max + 1, what, "move details to docs"));
        }
    }
    found
}

/// Files that the map names and that do not exist, and words for plans.
fn stale_names(tree: &Tree) -> Vec<Finding> {
    let map = tree.text(MAP).unwrap_or_default();
    let mut found = Vec::new();
    for (index, line) in map.lines().enumerate() {
        for name in line.split('`').skip(1).step_by(2).filter(|name| has_extension(name, "rs")) {
            let below = format!("/{name}");
            if !tree.files.iter().any(|file| file.path == name || file.path.ends_with(&below)) {
                let what = format!("{name}, which does not exist");
                found.push(Finding::new(MAP, index + 1, what, "name the file that does it now"));
            }
        }
        for word in STALE.iter().filter(|word| line.contains(*word)) {
            let what = format!("\"{word}\"");
            found.push(Finding::new(MAP, index + 1, what, "say what stands, not what is to come"));
        }
    }
    found
}

fn unmapped_crates(tree: &Tree) -> Vec<Finding> {
    let map = tree.text(MAP).unwrap_or_default();
    let names = |name: &str| {
        let part = |c: char| c.is_alphanumeric() || "-_".contains(c);
        map.match_indices(name).any(|(at, _)| {
            let before = map[..at].chars().next_back();
            let after = map[at + name.len()..].chars().next();
            !before.is_some_and(part) && !after.is_some_and(part)
        })
    };
    let crates = tree.manifests().filter_map(|(folder, path, _)| {
        let name = folder.strip_prefix("crates/")?;
        let what = format!("{name} is not on the map");
        (!names(name)).then(|| Finding::new(path, 1, what, "name it in ARCHITECTURE.md"))
    });
    crates.collect()
}

/// The targets of the links in a Markdown text, with their lines; links in code do not count.
fn links(text: &str) -> Vec<(usize, String)> {
    let text = without_code(text);
    let mut found = Vec::new();
    for (at, _) in text.match_indices("](") {
        let rest = &text[at + 2..];
        let target = rest[..rest.find(')').unwrap_or(0)].split_whitespace().next();
        found.extend(target.map(|target| (line_of(&text, at), target.to_owned())));
    }
    for (index, line) in text.lines().enumerate() {
        let Some((label, target)) = line.split_once("]: ") else { continue };
        let target = target.split_whitespace().next().filter(|_| label.starts_with('['));
        found.extend(target.map(|target| (index + 1, target.to_owned())));
    }
    found
}

/// `text` with fenced blocks and code spans blanked.
fn without_code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut fenced = false;
    for line in text.split_inclusive('\n') {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if fenced || fence {
            out.push('\n');
            continue;
        }
        let mut span = false;
        for c in line.chars() {
            span ^= c == '`';
            out.push(if span && c != '\n' { ' ' } else { c });
        }
    }
    out
}

/// The path from the root that a link in the document at `path` leads to; `None` if it leads out
/// of the repository, or to a heading of the same document.
fn resolve(path: &str, target: &str) -> Option<String> {
    let target = target.split('#').next().unwrap_or_default();
    if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn exists(tree: &Tree, target: &str) -> bool {
    let folder = format!("{target}/");
    target.is_empty()
        || tree.files.iter().any(|file| file.path == target || file.path.starts_with(&folder))
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds;
    use super::check;

    #[test]
    fn a_document_that_nothing_links_to_is_found() {
        let readme = ("README.md", "See [map].\n\n[map]: ARCHITECTURE.md\n");
        let map = ("ARCHITECTURE.md", "\n");
        finds(check, &[readme, map], &[]);
        finds(check, &[readme, map, ("SECURITY.md", "\n")], &[("SECURITY.md", 1)]);
    }

    #[test]
    fn a_page_that_the_site_does_not_list_is_found() {
        let summary = ("docs/SUMMARY.md", "- [a](a.md)\n- [b](b/c.md)\n");
        let (a, b) = (("docs/a.md", "[c](b/d.md)\n"), ("docs/b/c.md", "\n"));
        let record = ("docs/decisions/001-x.md", "\n");
        finds(check, &[summary, a, b, ("docs/b/d.md", ""), record], &[("docs/b/d.md", 1)]);
    }

    #[test]
    fn a_link_to_nothing_is_found() {
        let text = "[a](crates)\n[b](gone.md#x \"title\")\n`[c](d)` [d](https://e/f) [e](#f)\n\
                    ```\n[g](h)\n```\n\n[i]: ../j\n";
        let files = [("README.md", text), ("crates/traceless/x", "")];
        finds(check, &files, &[("README.md", 2), ("README.md", 8)]);
    }

    #[test]
    fn a_crate_that_is_not_on_the_map_is_found() {
        let readme = ("README.md", "[map](ARCHITECTURE.md)\n");
        let map = ("ARCHITECTURE.md", "The command is `traceless-cli`.\n");
        let cli = ("crates/traceless-cli/Cargo.toml", "");
        let library = ("crates/traceless/Cargo.toml", "");
        finds(check, &[readme, map, cli, library], &[("crates/traceless/Cargo.toml", 1)]);
    }

    #[test]
    fn a_file_that_is_gone_and_words_of_what_is_to_come_are_found_on_the_map() {
        let readme = ("README.md", "[map](ARCHITECTURE.md)\n");
        let map = "See `nbd/wire.rs` and `lib.rs`.\nSee `nbd/gone.rs`.\nNot so far.\n`a b`\n";
        let files = [
            readme,
            ("ARCHITECTURE.md", map),
            ("crates/x/src/nbd/wire.rs", ""),
            ("crates/x/src/lib.rs", ""),
        ];
        finds(check, &files, &[("ARCHITECTURE.md", 2), ("ARCHITECTURE.md", 3)]);
    }

    #[test]
    fn a_readme_that_is_too_long_is_found() {
        let long = "line\n".repeat(121);
        finds(check, &[("README.md", &long)], &[("README.md", 121)]);
        finds(check, &[("README.md", &"line\n".repeat(120))], &[]);
    }
}
