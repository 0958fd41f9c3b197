//! Words that must not stay: unfinished work, silent skips, the paths of one machine.

use super::Finding;
use super::tree::{Tree, is_script};
use crate::rust_text::{line_of, words};

/// Macros that end a program, or litter its output.
const MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// Marks of work that was put off.
const MARKS: [&str; 2] = [concat!("FIX", "ME"), concat!("X", "XX")];

/// Folders that exist on one machine only. The last two are followed by the name of a user.
const HOMES: [&str; 4] =
    [concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// The address of the package index. Only lock files may have it.
const INDEX: &str = concat!("crates", ".io-index");

/// Hosts that a script may name. Packages are installed by name, through their ordinary clients.
const HOSTS: [&str; 3] = ["rustup.rs", "localhost", "127.0.0.1"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in &tree.rust {
        found.extend(rust_words(&file.path, &file.code));
        found.extend(marks(&file.path, &file.prose));
    }
    // The text of lock files and licences is not written here.
    let ours = |path: &str| !path.ends_with("Cargo.lock") && !path.starts_with("LICENSE");
    for (path, text) in tree.texts().filter(|(path, _)| ours(path)) {
        if !super::tree::has_extension(path, "rs") {
            found.extend(marks(path, text));
        }
        found.extend(homes(path, text));
        for (at, _) in text.match_indices(INDEX) {
            let remedy = "leave it to cargo where packages come from";
            found.push(Finding::new(path, line_of(text, at), "a package index", remedy));
        }
        if is_script(path, text) {
            found.extend(hosts(path, text));
        }
    }
    found
}

fn rust_words(path: &str, code: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for name in MACROS {
        for at in words(code, name).filter(|at| code[at + name.len()..].starts_with('!')) {
            let remedy = "finish it or remove it";
            found.push(Finding::new(path, line_of(code, at), format!("{name}!"), remedy));
        }
    }
    for (at, _) in code.match_indices("#[ignore]") {
        let remedy = "give the reason: #[ignore = \"...\"]";
        found.push(Finding::new(path, line_of(code, at), "a test is skipped silently", remedy));
    }
    found
}

fn marks(path: &str, prose: &str) -> Vec<Finding> {
    let finding = |(at, mark): (usize, &str)| {
        Finding::new(path, line_of(prose, at), mark, "do it now, or open an issue")
    };
    let found = MARKS.iter().flat_map(|mark| words(prose, mark).map(|at| (at, *mark)));
    found.map(finding).collect()
}

fn homes(path: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for home in HOMES {
        for (at, _) in text.match_indices(home) {
            let before = text[..at].chars().next_back();
            let after = text[at + home.len()..].chars().next();
            // Only a path that begins here, not the middle of a relative one.
            let begins = before.is_none_or(|c| c.is_whitespace() || "\"'`(=:<[,".contains(c));
            let goes_on = after.is_some_and(|c| c.is_alphanumeric() || "._-".contains(c));
            let named = home.starts_with(HOMES[2]) || home.starts_with(HOMES[3]);
            if begins && (goes_on || !named) {
                let what = "a path of one machine";
                let remedy = "use a path from the root, or a variable";
                found.push(Finding::new(path, line_of(text, at), what, remedy));
            }
        }
    }
    found
}

fn hosts(path: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("://") {
        if !text[..at].ends_with("http") && !text[..at].ends_with("https") {
            continue;
        }
        let rest = &text[at + 3..];
        let ends = |c: char| !(c.is_alphanumeric() || ".-".contains(c));
        let host = &rest[..rest.find(ends).unwrap_or(rest.len())];
        if !HOSTS.contains(&host.trim_end_matches('.')) && !rest.starts_with(['$', '[']) {
            let remedy = "install packages by name, through their ordinary clients";
            let what = format!("the host {host} in a script");
            found.push(Finding::new(path, line_of(text, at), what, remedy));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds;
    use super::{HOMES, INDEX, MARKS, check};

    #[test]
    fn loose_ends_are_found() {
        for text in ["fn f() { todo!() }\n", "fn f() { unimplemented!() }\n", "dbg!(1);\n"] {
            finds(check, &[("a.rs", text)], &[("a.rs", 1)]);
        }
        for mark in MARKS {
            let text = format!("a\n// {mark}: later\n");
            finds(check, &[("a.rs", &text)], &[("a.rs", 2)]);
            finds(check, &[("a.md", &text)], &[("a.md", 2)]);
        }
    }

    #[test]
    fn words_that_only_look_alike_are_fine() {
        let rust = format!("// todo! is a macro.\nfn todo() {{ \"{} dbg!\" }}\n", MARKS[0]);
        finds(check, &[("a.rs", &rust), ("a.sh", "mktemp -d t.XXXXXX\n")], &[]);
    }

    #[test]
    fn a_silent_skip_is_found() {
        finds(check, &[("a.rs", "#[test]\n#[ignore]\nfn f() {}\n")], &[("a.rs", 2)]);
        finds(check, &[("a.rs", "#[test]\n#[ignore = \"needs root\"]\nfn f() {}\n")], &[]);
    }

    #[test]
    fn the_path_of_one_machine_is_found() {
        for home in HOMES {
            finds(check, &[("a.md", &format!("`{home}alice/x`\n"))], &[("a.md", 1)]);
            finds(check, &[("a.rs", &format!("f(\"{home}alice/x\");\n"))], &[("a.rs", 1)]);
        }
        let fine = format!("/run/traceless /dev/nbd0 /usr/share/man target{}x\n", HOMES[1]);
        finds(check, &[("a.md", &fine)], &[]);
    }

    #[test]
    fn where_packages_come_from_is_found() {
        finds(check, &[("a.toml", &format!("# {INDEX}\n"))], &[("a.toml", 1)]);
        finds(check, &[("a.sh", "curl https://packages.example/x\n")], &[("a.sh", 1)]);
        let fine = "curl http://127.0.0.1:80 http://localhost https://rustup.rs. https://$HOST\n";
        finds(check, &[("a.sh", fine), ("Cargo.lock", INDEX)], &[]);
        finds(check, &[("a.md", "See https://packages.example/x\n")], &[]);
    }
}
