//! Documents say what they say in few words: all of them together have a limit. Blocks of commands,
//! numbers and tables that a program writes do not count.

use super::Finding;
use super::tree::{Tree, has_extension};

const WORDS_MAX: usize = 50_000;
/// Begins of what a program writes, up to the next line that begins with `END`.
const GENERATED: [&str; 2] = ["<!-- floors:", "<!-- release -->"];
const END: &str = "<!-- /";

pub fn check(tree: &Tree) -> Vec<Finding> {
    check_limit(tree, WORDS_MAX)
}

fn check_limit(tree: &Tree, words_max: usize) -> Vec<Finding> {
    let documents = tree.texts().filter(|(path, _)| {
        has_extension(path, "md") && (path.starts_with("docs/") || !path.contains('/'))
    });
    let counts: Vec<(usize, &str)> = documents.map(|(path, text)| (count(text), path)).collect();
    let sum: usize = counts.iter().map(|(words, _)| words).sum();
    let Some((words, longest)) = counts.iter().max().filter(|_| sum > words_max) else {
        return Vec::new();
    };
    let what = format!("{words} words, and {sum} with all documents, of {words_max} at most");
    vec![Finding::new(longest, 1, what, "leave out what another page says, here or elsewhere")]
}

/// The words of a document: what stands between blanks and has a letter.
fn count(text: &str) -> usize {
    let (mut fenced, mut generated, mut words) = (false, false, 0);
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        generated |= GENERATED.iter().any(|begin| line.starts_with(begin));
        generated &= !line.starts_with(END);
        if !fenced && !fence && !generated && !line.starts_with("<!--") {
            let words_of = line.split_whitespace();
            words += words_of.filter(|word| word.contains(char::is_alphabetic)).count();
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds;
    use super::{check_limit, count};

    #[test]
    fn code_numbers_and_generated_tables_do_not_count() {
        let text = "# A title\n\n| `a` | 2.5 | - |\n\n```sh\nrun it\n```\n\n<!-- floors:x -->\n\n\
                    | b | c |\n<!-- /floors -->\nthe end\n";
        assert_eq!(count(text), 5);
    }

    #[test]
    fn too_many_words_are_found() {
        let files = [("docs/a/b.md", "one two\n"), ("README.md", "one\n"), ("x/y.md", "one two\n")];
        finds(|tree| check_limit(tree, 3), &files, &[]);
        finds(|tree| check_limit(tree, 2), &files, &[("docs/a/b.md", 1)]);
    }
}
