//! The text format of Ramulator's processor: `<before> <read> [<written back>]`, all decimal, or
//! hexadecimal with `0x`.

use super::text::{EITHER, Lines, number};
use super::{Op, Record, Workload, line_start};
use crate::error::Result;
use std::io::BufRead;
use std::path::Path;

/// A workload in Ramulator's format, read as it is needed.
pub struct Ramulator {
    lines: Lines,
    /// The second operation of the line that was read last.
    written_back: Option<Record>,
}

impl Ramulator {
    /// The workload in `bytes`; errors name it `path`.
    pub fn from_reader(bytes: impl BufRead + Send + 'static, path: &Path) -> Self {
        Self { lines: Lines::new(bytes, path), written_back: None }
    }
}

impl Workload for Ramulator {
    fn next(&mut self) -> Result<Option<Record>> {
        if let Some(record) = self.written_back.take() {
            return Ok(Some(record));
        }
        let read = self.lines.next(|words| {
            let before = number(words, "number of instructions before it", EITHER)?;
            let addr = number(words, "address", EITHER)?;
            let mut rest = words.peekable();
            let back = match rest.peek() {
                None => None,
                Some(_) => Some(number(&mut rest, "second address", EITHER)?),
            };
            Ok((Record { before, op: Op::Read, addr: line_start(addr) }, back))
        })?;
        Ok(read.map(|(record, back)| {
            self.written_back =
                back.map(|addr| Record { before: 0, op: Op::Write, addr: line_start(addr) });
            record
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_operation_or_two() {
        let text = "3 20734017\n1 0x40 191\n";
        let mut workload = Ramulator::from_reader(text.as_bytes(), Path::new("w"));
        let mut next = || workload.next().unwrap();
        let record = |before, op, addr| Some(Record { before, op, addr });
        assert_eq!(next(), record(3, Op::Read, 20_734_016));
        assert_eq!(next(), record(1, Op::Read, 64));
        assert_eq!(next(), record(0, Op::Write, 128));
        assert_eq!(next(), None);
        for line in ["", "x", "1", "1 y", "1 2 z"] {
            let text: &'static str = String::leak(format!("{line}\n"));
            assert!(Ramulator::from_reader(text.as_bytes(), Path::new("w")).next().is_err());
        }
    }
}
