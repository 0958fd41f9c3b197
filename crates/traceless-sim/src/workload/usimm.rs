//! The text format of USIMM and of the memory scheduling championship.
//!
//! One line an operation: `<before> R <addr> <pc>` or `<before> W <addr>`; `before` is decimal,
//! addresses and program counters are hexadecimal. The program counter means nothing here.

use super::{Op, Record, Workload};
use crate::error::{Error, Result};
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// A workload in that format, read as it is needed. Files that end in `.gz` are unpacked.
pub struct Usimm {
    path: PathBuf,
    lines: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    record: u64,
}

impl Usimm {
    /// The workload in the file at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|source| Error::Io { path: path.into(), source })?;
        let packed = path.extension().is_some_and(|ending| ending == "gz");
        let bytes: Box<dyn Read + Send> = if packed {
            Box::new(MultiGzDecoder::new(BufReader::new(file)))
        } else {
            Box::new(file)
        };
        Ok(Self::from_reader(bytes, path))
    }

    /// The workload that `bytes` say; errors name it `path`.
    pub fn from_reader(bytes: impl Read + Send + 'static, path: &Path) -> Self {
        let lines = Box::new(BufReader::with_capacity(1 << 16, bytes));
        Self { path: path.into(), lines, line: Vec::new(), record: 0 }
    }
}

impl Workload for Usimm {
    fn next(&mut self) -> Result<Option<Record>> {
        self.line.clear();
        let read = self.lines.read_until(b'\n', &mut self.line);
        let read = read.map_err(|source| Error::Io { path: self.path.clone(), source })?;
        if read == 0 {
            return Ok(None);
        }
        self.record += 1;
        parse(&self.line).map(Some).map_err(|what| Error::Workload {
            path: self.path.clone(),
            record: self.record,
            what,
        })
    }
}

fn parse(line: &[u8]) -> Result<Record, &'static str> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let before = words.next().and_then(|word| number(word, 10));
    let before = before.ok_or("it begins with no decimal number")?;
    let op = match words.next() {
        Some(b"R") => Op::Read,
        Some(b"W") => Op::Write,
        _ => return Err("its second word is neither R nor W"),
    };
    let addr = words.next().map(|word| word.strip_prefix(b"0x").unwrap_or(word));
    let addr = addr.and_then(|word| number(word, 16)).ok_or("it has no hexadecimal address")?;
    Ok(Record { before, op, addr })
}

fn number(word: &[u8], radix: u32) -> Option<u64> {
    let add = |sum: u64, &digit: &u8| {
        let digit = char::from(digit).to_digit(radix)?;
        sum.checked_mul(radix.into())?.checked_add(digit.into())
    };
    if word.is_empty() { None } else { word.iter().try_fold(0, add) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(matches!(found, Err(Error::Workload { record: 2, .. })), "{line}: {found:?}");
        }
    }
}
