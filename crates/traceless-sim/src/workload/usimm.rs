//! The text format of USIMM and of the memory scheduling championship.
//!
//! One line an operation: `<before> R <addr> <pc>` or `<before> W <addr>`; `before` is decimal,
//! addresses and program counters are hexadecimal. The program counter is ignored.

use super::text::{DECIMAL, HEXADECIMAL, Lines, number};
use super::{Op, Record, Workload};
use crate::error::Result;
use std::io::BufRead;
use std::path::Path;

/// A workload in USIMM's format, read as it is needed.
pub struct Usimm(Lines);

impl Usimm {
    /// The workload in `bytes`; errors name it `path`.
    pub fn from_reader(bytes: impl BufRead + Send + 'static, path: &Path) -> Self {
        Self(Lines::new(bytes, path))
    }
}

impl Workload for Usimm {
    fn next(&mut self) -> Result<Option<Record>> {
        self.0.next(|words| {
            let before = number(words, "number of instructions before it", DECIMAL)?;
            let op = match words.next() {
                Some(b"R") => Op::Read,
                Some(b"W") => Op::Write,
                _ => return Err("its second word is neither R nor W".to_owned()),
            };
            let addr = number(words, "address", HEXADECIMAL)?;
            Ok(Record { before, op, addr })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn read(text: &'static str) -> Vec<Result<Option<Record>>> {
        let mut workload = Usimm::from_reader(text.as_bytes(), Path::new("w"));
        (0..=text.lines().count()).map(|_| workload.next()).collect()
    }

    #[test]
    fn lines_become_records() {
        let records = read("10 R 0x40 0x400000\n0 W 0xffc0\n7 R 80 0\r\n");
        let records: Vec<_> = records.into_iter().map(Result::unwrap).collect();
        let record = |before, op, addr| Some(Record { before, op, addr });
        assert_eq!(
            records,
            [
                record(10, Op::Read, 64),
                record(0, Op::Write, 0xffc0),
                record(7, Op::Read, 128),
                None
            ]
        );
    }

    #[test]
    fn nonsense_is_refused_and_named() {
        for line in ["", "x", "1", "1 Q 0", "1 R", "1 R 0x", "1 R g", "99999999999999999999 R 0"] {
            let text: &'static str = String::leak(format!("1 R 0 0\n{line}\n"));
            let found = read(text).remove(1);
            assert!(matches!(found, Err(Error::Line { line: 2, .. })), "{line}: {found:?}");
        }
    }

    #[test]
    fn numbers_that_are_too_large_are_named() {
        let large = [
            ("18446744073709551616 R 0 0", "the number of instructions before it"),
            ("1 W 0x10000000000000000", "the address"),
        ];
        for (line, field) in large {
            let error = read(line).remove(0).unwrap_err().to_string();
            assert!(error.starts_with(&format!("w, line 1: {field}, ")), "{error}");
            assert!(error.ends_with("below 2^64"), "{error}");
        }
        let most = read("18446744073709551615 R 0xffffffffffffffff 0").remove(0).unwrap();
        assert_eq!(most, Some(Record { before: u64::MAX, op: Op::Read, addr: u64::MAX }));
    }
}
