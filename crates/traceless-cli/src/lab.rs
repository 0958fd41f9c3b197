//! Commands that the program traceless-lab runs: benches, and audits that run schemes.
//!
//! They keep their names here. Whoever has both programs side by side, as a build of the workspace
//! leaves them, notices no difference.

use crate::entry::sibling;
use crate::failure::{self, Failure};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;

const PROGRAM: &str = "traceless-lab";

/// Commands that have another name there: the first words here, and there.
const RENAMED: [([&str; 2], [&str; 2]); 3] = [
    (["volume", "bench"], ["bench", "volume"]),
    (["sim", "floors"], ["bench", "simulator"]),
    (["audit", "floors"], ["bench", "auditor"]),
];

/// Becomes the program traceless-lab, with the words of this command line. Returns only if that
/// cannot be started.
pub fn run() -> Result<(), Failure> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let error = sibling(PROGRAM).args(renamed(&words)).exec();
    if words.iter().any(|word| word == "--json") {
        failure::tell_as_json();
    }
    let command = words.iter().take_while(|word| !word.to_string_lossy().starts_with('-'));
    let command: Vec<_> = command.map(|word| word.to_string_lossy()).collect();
    Err(Failure::usage(format!(
        "`traceless {}` needs the program {PROGRAM}, which is neither beside this one nor in PATH \
         ({error}); in a checkout of Traceless: cargo install --path crates/{PROGRAM}",
        command.join(" ")
    )))
}

/// The words with which traceless-lab does what these do here.
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
