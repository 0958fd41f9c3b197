//! A mutant, parsed from its name.

use std::fmt;

/// A small change of the code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mutant {
    /// The file, from the root of the repository.
    pub file: String,
    /// The line, from 1 on.
    pub line: usize,
    /// The change, as cargo-mutants describes it.
    pub change: String,
    /// The whole name, as cargo-mutants prints it.
    name: String,
}

impl Mutant {
    /// Parses a name: `file:line:column: change`.
    pub fn parse(name: &str) -> Option<Self> {
        let (place, change) = name.split_once(": ")?;
        let mut parts = place.split(':');
        let (file, line) = (parts.next()?.to_owned(), parts.next()?.parse().ok()?);
        Some(Self { file, line, change: change.to_owned(), name: name.to_owned() })
    }

    /// A regular expression that matches this name only.
    pub fn pattern(&self) -> String {
        let mut pattern = String::from("^");
        for c in self.name.chars() {
            // Other characters must not be escaped: `\<` is the beginning of a word.
            if r"\.+*?()|[]{}^$".contains(c) {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern + "$"
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_where_and_what() {
        let name = "crates/a/src/b.rs:12:9: replace B::c -> Result with Ok(())";
        let mutant = Mutant::parse(name).unwrap();
        assert_eq!((&mutant.file[..], mutant.line), ("crates/a/src/b.rs", 12));
        assert_eq!(mutant.change, "replace B::c -> Result with Ok(())");
        assert_eq!(mutant.to_string(), name);
        assert!(Mutant::parse("no mutant").is_none());
        let pattern = Mutant::parse("a_b.rs:1:2: a + (b) -> c").unwrap().pattern();
        assert_eq!(pattern, r"^a_b\.rs:1:2: a \+ \(b\) -> c$");
    }
}
