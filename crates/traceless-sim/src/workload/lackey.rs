//! The output of Valgrind's tool lackey with `--trace-mem=yes`.
//!
//! One line an event: `I  <addr>,<size>` for an instruction, ` L`, ` S` and ` M` for data that it
//! loads, stores, or both; addresses are hexadecimal. Other lines are skipped.
//!
//! Of two loads of one line, only the first passes the cache:
//!
//! ```
//! use std::path::Path;
//! use traceless_sim::cache;
//! use traceless_sim::workload::lackey::{Lackey, LackeyLine, parse};
//! use traceless_sim::workload::{Filter, Op, Record, Workload};
//!
//! # fn main() -> traceless_sim::Result {
//! let access = LackeyLine::Access { op: Op::Read, first: 0x1ffe_4400, last: 0x1ffe_4400 };
//! assert_eq!(parse(b" L 1ffe4410,8"), Some(access));
//!
//! let recorded = b"==1== Lackey\nI  04001000,3\n L 1ffe4410,8\nI  04001003,3\n L 1ffe4418,8\n";
//! let filter = Filter::new(&cache::Config::L1)?;
//! let mut workload = Lackey::from_reader(&recorded[..], Path::new("recorded"), filter);
//! let first = Record { before: 0, op: Op::Read, addr: 0x1ffe_4400 };
//! assert_eq!(workload.next()?, Some(first));
//! assert_eq!(workload.next()?, None);
//! # Ok(())
//! # }
//! ```

use super::text::{decimal, hexadecimal};
use super::{Filter, Op, Record, Workload, line_start};
use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::io::BufRead;
use std::path::{Path, PathBuf};

/// A line of lackey's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LackeyLine {
    /// An instruction.
    Instruction,
    /// The lines of memory that an instruction loads or stores. Data that it both loads and stores
    /// counts as stored.
    Access {
        /// Whether the instruction loads or stores.
        op: Op,
        /// First byte of the first line.
        first: u64,
        /// First byte of the last line.
        last: u64,
    },
}

/// Parses a line; `None` if it is not lackey's.
#[inline]
pub fn parse(line: &[u8]) -> Option<LackeyLine> {
    let op = match line {
        [b'I', b' ', ..] => return Some(LackeyLine::Instruction),
        [b' ', b'L', b' ', ..] => Op::Read,
        [b' ', b'S' | b'M', b' ', ..] => Op::Write,
        _ => return None,
    };
    let mut words = line[3..].trim_ascii().split(|&byte| byte == b',');
    let (addr, size) = (hexadecimal(words.next()?)?, decimal(words.next()?)?);
    let last = addr.checked_add(size.max(1) - 1)?;
    Some(LackeyLine::Access { op, first: line_start(addr), last: line_start(last) })
}

/// The accesses of a recorded program that pass a first cache, read as they are needed.
pub struct Lackey {
    path: PathBuf,
    bytes: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    filter: Filter,
    /// Records of the last lines that were not handed out yet.
    passed: VecDeque<Record>,
}

impl Lackey {
    /// The program recorded in `bytes`, behind `filter`; errors name it `path`.
    pub fn from_reader(bytes: impl BufRead + Send + 'static, path: &Path, filter: Filter) -> Self {
        let (bytes, passed) = (Box::new(bytes), VecDeque::new());
        Self { path: path.into(), bytes, line: vec![], filter, passed }
    }

    /// Reads the next line. False at the end. The output ends with other lines than lackey's, so a
    /// cut cannot be detected.
    fn read_line(&mut self) -> Result<bool> {
        self.line.clear();
        let fail = |source| Error::Io { path: self.path.clone(), source };
        if self.bytes.read_until(b'\n', &mut self.line).map_err(fail)? == 0 {
            return Ok(false);
        }
        match parse(&self.line) {
            Some(LackeyLine::Instruction) => self.filter.instruction(),
            Some(LackeyLine::Access { op, first, last }) => {
                self.filter.access(op, first, last, |record| self.passed.push_back(record));
            }
            None => {}
        }
        Ok(true)
    }
}

impl Workload for Lackey {
    fn next(&mut self) -> Result<Option<Record>> {
        while self.passed.is_empty() {
            if !self.read_line()? {
                return Ok(None);
            }
        }
        Ok(self.passed.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Config;
    use crate::workload::LINE_LEN;

    #[test]
    fn misses_of_instructions_become_records() {
        let text = "==7== Lackey\nI  400,3\n L 40,8\nI  403,3\nI  406,3\n M 7c,8\n==7== end\n";
        let filter = Filter::new(&Config { bytes: 2 * LINE_LEN, ways: 1 }).unwrap();
        let mut workload = Lackey::from_reader(text.as_bytes(), Path::new("w"), filter);
        let mut next = || workload.next().unwrap();
        let record = |before, op, addr| Some(Record { before, op, addr });
        assert_eq!(next(), record(0, Op::Read, 0x40));
        assert_eq!(next(), record(1, Op::Read, 0x80));
        assert_eq!((next(), next()), (None, None));
    }

    #[test]
    fn lines_become_steps() {
        let access = |op, first, last| Some(LackeyLine::Access { op, first, last });
        assert_eq!(parse(b"I  04010010,3\n"), Some(LackeyLine::Instruction));
        assert_eq!(parse(b" L 1ffeffe7e8,8\n"), access(Op::Read, 0x1f_feff_e7c0, 0x1f_feff_e7c0));
        assert_eq!(parse(b" S 7c,8"), access(Op::Write, 64, 128));
        assert_eq!(parse(b" M 0,4"), access(Op::Write, 0, 0));
        for line in ["==12== lackey", "", " L", " L x,1", " L 1", " L 1,y", " L ffffffffffffffff,2"]
        {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }
}
