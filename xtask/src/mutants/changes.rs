//! What changed in the repository since a commit.

use std::fs;
use std::path::{Path, PathBuf};

use crate::repository::git;
use crate::rust_text;

/// The Rust files in the repository at `root` with code that changed since a commit. A file that
/// only changed in its comments, its blanks or its tests is left out: it has no new mutant.
pub fn changed(root: &Path, since: &str) -> Result<Vec<String>, String> {
    let names = git(root, &["diff", "--name-only", since, "--", "*.rs"])?;
    let names = names.lines().map(str::to_owned);
    Ok(names.filter(|name| has_other_code(root, since, name)).collect())
}

/// Whether a file has other code than in a commit, or is not in both.
fn has_other_code(root: &Path, since: &str, name: &str) -> bool {
    let before = git(root, &["show", &format!("{since}:{name}")]);
    let now = fs::read_to_string(root.join(name));
    match (before, now) {
        (Ok(before), Ok(now)) => code_of(&before) != code_of(&now),
        _ => true,
    }
}

/// The words of the code outside tests, with literals and without comments.
fn code_of(text: &str) -> Vec<String> {
    let (code, prose) = (rust_text::mask(text, false), rust_text::mask(text, true));
    // A byte that only the masking of comments blanks belongs to a comment.
    let is_code = code.bytes().zip(prose.bytes()).map(|(code, prose)| code == prose);
    let bytes = text.bytes().zip(is_code).map(|(byte, is_code)| if is_code { byte } else { b' ' });
    let text = String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned();
    rust_text::without_tests(&text).split_whitespace().map(str::to_owned).collect()
}

/// What changed in the repository at `root` since a commit, as a file for cargo-mutants.
pub fn diff(root: &Path, since: &str) -> Result<PathBuf, String> {
    let text = git(root, &["diff", since, "--", "*.rs"])?;
    let file = root.join("target/mutants/since.diff");
    fs::write(&file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_tests_are_no_change_and_code_is() {
        let base = "/// A.\nfn a() -> u8 {\n    // why\n    1\n}\n";
        assert_eq!(code_of(base), code_of("/// B, longer.\nfn a() -> u8 { 1 }\n"));
        let tests = "#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        assert_eq!(code_of(base), code_of(&format!("{base}{tests}")));
        assert_ne!(code_of(base), code_of(&base.replace("1\n", "2\n")));
        assert_ne!(code_of("const A: &str = \"a // b\";"), code_of("const A: &str = \"a // c\";"));
    }
}
