//! What formats of one line an operation share.

use crate::error::{Error, Result};
use std::io::BufRead;
use std::path::{Path, PathBuf};

/// Lines of words, one after the other.
pub struct Lines {
    path: PathBuf,
    bytes: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    record: u64,
}

impl Lines {
    /// Those of `bytes`; errors name it `path`.
    pub fn new(bytes: impl BufRead + Send + 'static, path: &Path) -> Self {
        Self { path: path.into(), bytes: Box::new(bytes), line: Vec::new(), record: 0 }
    }

    /// What `parse` makes of the next line's words; none at the end.
    #[inline]
    pub fn next<T>(
        &mut self,
        parse: impl FnOnce(&mut dyn Iterator<Item = &[u8]>) -> Result<T, &'static str>,
    ) -> Result<Option<T>> {
        self.line.clear();
        let read = self.bytes.read_until(b'\n', &mut self.line);
        if read.map_err(|source| Error::Io { path: self.path.clone(), source })? == 0 {
            return Ok(None);
        }
        self.record += 1;
        let words = self.line.split(u8::is_ascii_whitespace);
        let parsed = parse(&mut words.filter(|word| !word.is_empty()));
        parsed.map(Some).map_err(|what| Error::Workload {
            path: self.path.clone(),
            record: self.record,
            what,
        })
    }
}

/// A number, hexadecimal if it begins with `0x`.
pub fn number(word: &[u8]) -> Option<u64> {
    word.strip_prefix(b"0x").map_or_else(|| decimal(word), hexadecimal)
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
