//! Commands that the program traceless-lab runs: benches, and audits that run schemes.
//!
//! The names of these commands stay here. If traceless-lab lies beside this program, as a build of
//! the workspace leaves it, users notice no difference.

use crate::entry::sibling;
use crate::failure::{self, Failure};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;

const PROGRAM: &str = "traceless-lab";

/// Commands with another name in traceless-lab: the first words here, and the first words there.
const RENAMED: [([&str; 2], [&str; 2]); 3] = [
    (["volume", "bench"], ["bench", "volume"]),
    (["sim", "floors"], ["bench", "simulator"]),
    (["audit", "floors"], ["bench", "auditor"]),
];

/// Replaces this process by traceless-lab with the words of this command line. Returns only if that
/// fails.
pub fn run() -> Result<(), Failure> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let error = sibling(PROGRAM).args(renamed(&words)).exec();
    if words.iter().any(|word| word == "--json") {
        failure::print_as_json();
    }
    let command = words.iter().take_while(|word| !word.to_string_lossy().starts_with('-'));
    let command: Vec<_> = command.map(|word| word.to_string_lossy()).collect();
    Err(Failure::usage(format!(
        "`traceless {}` needs the program {PROGRAM}, which is neither beside this one nor in PATH \
         ({error}); in a checkout of Traceless: cargo install --path crates/{PROGRAM}",
        command.join(" ")
    )))
}

/// The words that traceless-lab expects for `words`.
fn renamed(words: &[OsString]) -> Vec<OsString> {
    let found = RENAMED.iter().find(|(here, _)| words.starts_with(&here.map(OsString::from)));
    let Some((here, there)) = found else { return words.to_vec() };
    there.iter().map(OsString::from).chain(words[here.len()..].iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_keep_their_words_or_get_new_ones() {
        let renamed = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let words = renamed(&words).into_iter().map(|word| word.into_string().unwrap());
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(renamed("volume bench --json"), "bench volume --json");
        assert_eq!(renamed("sim floors"), "bench simulator");
        assert_eq!(renamed("bench tree --blocks 4"), "bench tree --blocks 4");
        assert_eq!(renamed("audit --self-test"), "audit --self-test");
    }
}
