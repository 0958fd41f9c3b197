//! Comments and names of functions name their subject: words that point at a subject elsewhere are
//! findings.

use super::Finding;
use super::tree::Tree;
use crate::rust_text::functions;

/// Pronouns and verbs of speech that leave the subject to the reader.
const RIDDLES: [&str; 23] = [
    "anybody",
    "asked",
    "asks",
    "everybody",
    "nobody",
    "others",
    "seen",
    "somebody",
    "such",
    "tell",
    "telling",
    "tells",
    "theirs",
    "those",
    "told",
    "whatever",
    "who",
    "whoever",
    "whom",
    "whose",
    "thereof",
    "therein",
    "whereof",
];

/// The start of a line comment of any kind.
const COMMENT: &str = "//";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in &tree.rust {
        for (index, line) in file.prose.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix(COMMENT) else { continue };
            for word in words(comment).filter(|word| is_riddle(word)) {
                let what = format!("`{word}` in a comment");
                found.push(Finding::new(&file.path, index + 1, what, "name the subject"));
            }
        }
        for function in functions(&file.code) {
            for word in function.name.split('_').filter(|word| is_riddle(word)) {
                let what = format!("`{word}` in the name of {}", function.name);
                let line = function.first_line;
                found.push(Finding::new(&file.path, line, what, "name the subject"));
            }
        }
    }
    found
}

fn is_riddle(word: &str) -> bool {
    RIDDLES.iter().any(|riddle| riddle.eq_ignore_ascii_case(word))
}

/// The words of a comment outside code: what stands between backticks is a name, not a word.
fn words(comment: &str) -> impl Iterator<Item = &str> {
    let prose = comment.split('`').step_by(2);
    prose.flat_map(|part| part.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds;
    use super::check;

    const LIB: &str = "crates/a/src/lib.rs";

    #[test]
    fn a_comment_without_its_subject_is_found() {
        let text = "/// Who is where.\nfn a() {}\n    // As nobody sees.\n//! Told.\n";
        finds(check, &[(LIB, text)], &[(LIB, 1), (LIB, 3), (LIB, 4)]);
    }

    #[test]
    fn a_function_without_its_subject_is_found() {
        let text = "fn of_whom() {}\n#[cfg(test)]\nmod tests {\n    fn nobody_waits() {}\n}\n";
        finds(check, &[(LIB, text)], &[(LIB, 1), (LIB, 4)]);
    }

    #[test]
    fn quoted_names_and_strings_are_fine() {
        let text = "/// Calls `told` and `is_such`.\nconst A: &str = \"// who\";\n";
        finds(check, &[(LIB, text)], &[]);
    }
}
