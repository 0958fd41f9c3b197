//! Parsing that the text formats with one operation a line share.

use crate::error::{Error, Result};
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

/// The longest line in bytes: a file without line ends is refused without reading it whole.
const LINE_MAX: u64 = 1 << 16;

/// Characters that an error shows of a wrong word.
const SHOWN_MAX: usize = 32;

/// Lines of words, one after the other.
pub struct Lines {
    path: PathBuf,
    bytes: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    nth: u64,
}

impl Lines {
    /// The lines of `bytes`; errors name it `path`.
    pub fn new(bytes: impl BufRead + Send + 'static, path: &Path) -> Self {
        Self { path: path.into(), bytes: Box::new(bytes), line: Vec::new(), nth: 0 }
    }

    /// The result of `parse` for the next line's words; none at the end.
    #[inline]
    pub fn next<T>(
        &mut self,
        parse: impl FnOnce(&mut dyn Iterator<Item = &[u8]>) -> Result<T, String>,
    ) -> Result<Option<T>> {
        self.line.clear();
        let read = self.bytes.by_ref().take(LINE_MAX).read_until(b'\n', &mut self.line);
        let read = read.map_err(|source| Error::Io { path: self.path.clone(), source })?;
        if read == 0 {
            return Ok(None);
        }
        self.nth += 1;
        if read as u64 == LINE_MAX {
            let what = "it is too long for a line of text: it may be in another format".to_owned();
            return Err(Error::Line { path: self.path.clone(), line: self.nth, what });
        }
        let words = self.line.split(u8::is_ascii_whitespace);
        let parsed = parse(&mut words.filter(|word| !word.is_empty()));
        parsed.map(Some).map_err(|what| Error::Line {
            path: self.path.clone(),
            line: self.nth,
            what,
        })
    }
}

/// The name of a number format, and its parser.
pub type NumberFormat = (&'static str, fn(&[u8]) -> Option<u64>);

/// Decimal.
pub const DECIMAL: NumberFormat = ("decimal", decimal);

/// Hexadecimal, with or without `0x`.
pub const HEXADECIMAL: NumberFormat =
    ("hexadecimal", |word| hexadecimal(word.strip_prefix(b"0x").unwrap_or(word)));

/// Hexadecimal with `0x`, or else decimal.
pub const EITHER: NumberFormat = ("decimal or 0x-hexadecimal", |word| {
    word.strip_prefix(b"0x").map_or_else(|| decimal(word), hexadecimal)
});

/// Parses the next word of a line as the number called `what`.
#[inline]
pub fn number(
    words: &mut dyn Iterator<Item = &[u8]>,
    what: &str,
    (format, read): NumberFormat,
) -> Result<u64, String> {
    let word = words.next().ok_or_else(|| format!("there is no {what}"))?;
    let refused = || {
        let word = String::from_utf8_lossy(word);
        let word: String = word.escape_debug().take(SHOWN_MAX).collect();
        format!("the {what}, `{word}`, is no {format} number below 2^64")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: Vec<u8>) -> String {
        let mut lines = Lines::new(std::io::Cursor::new(bytes), Path::new("x"));
        lines.next(|words| number(words, "number", DECIMAL)).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_text_is_neither_read_nor_shown_as_a_whole() {
        let junk = refused([b"\x1b[31m\xff\x00".as_slice(), &[b'a'; 1000], b"\n"].concat());
        assert!(junk.len() < 150 && !junk.chars().any(char::is_control), "{junk:?}");
        let endless = std::io::Read::chain(std::io::repeat(b'1'), std::io::empty());
        let mut lines = Lines::new(std::io::BufReader::new(endless), Path::new("x"));
        let error = lines.next(|_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("too long for a line"), "{error}");
        assert!(refused(vec![b'1'; LINE_MAX as usize - 1]).contains("no decimal number"));
    }
}
