//! What formats of one line an operation share.

use crate::error::{Error, Result};
use std::io::BufRead;
use std::path::{Path, PathBuf};

/// Lines of words, one after the other.
pub struct Lines {
    path: PathBuf,
    bytes: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    nth: u64,
}

impl Lines {
    /// Those of `bytes`; errors name it `path`.
    pub fn new(bytes: impl BufRead + Send + 'static, path: &Path) -> Self {
        Self { path: path.into(), bytes: Box::new(bytes), line: Vec::new(), nth: 0 }
    }

    /// What `parse` makes of the next line's words; none at the end.
    #[inline]
    pub fn next<T>(
        &mut self,
        parse: impl FnOnce(&mut dyn Iterator<Item = &[u8]>) -> Result<T, String>,
    ) -> Result<Option<T>> {
        self.line.clear();
        let read = self.bytes.read_until(b'\n', &mut self.line);
        if read.map_err(|source| Error::Io { path: self.path.clone(), source })? == 0 {
            return Ok(None);
        }
        self.nth += 1;
        let words = self.line.split(u8::is_ascii_whitespace);
        let parsed = parse(&mut words.filter(|word| !word.is_empty()));
        parsed.map(Some).map_err(|what| Error::Line {
            path: self.path.clone(),
            line: self.nth,
            what,
        })
    }
}

/// How a number is written, and what reads it.
pub type Written = (&'static str, fn(&[u8]) -> Option<u64>);

/// In decimal.
pub const DECIMAL: Written = ("decimal", decimal);

/// In hexadecimal, with or without `0x`.
pub const HEXADECIMAL: Written =
    ("hexadecimal", |word| hexadecimal(word.strip_prefix(b"0x").unwrap_or(word)));

/// In hexadecimal with `0x`, or else in decimal.
pub const EITHER: Written = ("decimal or 0x-hexadecimal", |word| {
    word.strip_prefix(b"0x").map_or_else(|| decimal(word), hexadecimal)
});

/// The next word of a line, which is the number `what`.
#[inline]
pub fn number(
    words: &mut dyn Iterator<Item = &[u8]>,
    what: &str,
    (written, read): Written,
) -> Result<u64, String> {
    let word = words.next().ok_or_else(|| format!("there is no {what}"))?;
    let refused = || {
        let word = String::from_utf8_lossy(word);
        format!("the {what}, `{word}`, is no {written} number below 2^64")
    };
    read(word).ok_or_else(refused)
}

/// A decimal number.
pub fn decimal(word: &[u8]) -> Option<u64> {
    digits(word, 10)
}

/// A hexadecimal number, without `0x`.
pub fn hexadecimal(word: &[u8]) -> Option<u64> {
    digits(word, 16)
}

fn digits(word: &[u8], radix: u32) -> Option<u64> {
    let add = |sum: u64, &digit: &u8| {
        let digit = char::from(digit).to_digit(radix)?;
        sum.checked_mul(radix.into())?.checked_add(digit.into())
    };
    if word.is_empty() { None } else { word.iter().try_fold(0, add) }
}
