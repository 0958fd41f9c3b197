//! The binary format of ChampSim: the instructions of a program, recorded before any cache.
//!
//! An instruction is 64 bytes, numbers in little-endian order: its address (8); whether it is a
//! branch, and taken (1 each); registers written (2) and read (4); addresses in memory written (2
//! of 8 bytes) and read (4 of 8), zero if there are fewer. A first cache turns it into a workload.

use super::{Filter, Op, Record, Workload};
use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::io::{BufRead, ErrorKind};
use std::path::{Path, PathBuf};

const INSTRUCTION_LEN: usize = 64;
const ADDR_LEN: usize = 8;
const WRITTEN: core::ops::Range<usize> = 16..32;
const READ: core::ops::Range<usize> = 32..64;

/// The accesses of a recorded program that pass a first cache, read as they are needed.
pub struct ChampSim {
    path: PathBuf,
    bytes: Box<dyn BufRead + Send>,
    filter: Filter,
    /// Records of the last instruction that were not handed out yet.
    passed: VecDeque<Record>,
    instructions: u64,
}

impl ChampSim {
    /// The program recorded in `bytes`, behind `filter`; errors name it `path`.
    pub fn from_reader(bytes: impl BufRead + Send + 'static, path: &Path, filter: Filter) -> Self {
        let (bytes, passed) = (Box::new(bytes), VecDeque::new());
        Self { path: path.into(), bytes, filter, passed, instructions: 0 }
    }

    /// Executes the next instruction. False at the end.
    fn execute(&mut self) -> Result<bool> {
        let fail = |source| Error::Io { path: self.path.clone(), source };
        if self.bytes.fill_buf().map_err(fail)?.is_empty() {
            return Ok(false);
        }
        self.instructions += 1;
        let mut instruction = [0; INSTRUCTION_LEN];
        self.bytes.read_exact(&mut instruction).map_err(|source| match source.kind() {
            ErrorKind::UnexpectedEof => Error::Workload {
                path: self.path.clone(),
                record: self.instructions,
                what: "it is cut short",
            },
            _ => fail(source),
        })?;
        self.filter.instruction();
        for (op, range) in [(Op::Read, READ), (Op::Write, WRITTEN)] {
            for addr in instruction[range].as_chunks::<ADDR_LEN>().0 {
                let addr = u64::from_le_bytes(*addr);
                if addr > 0 {
                    self.filter.access(op, addr, addr, |record| self.passed.push_back(record));
                }
            }
        }
        Ok(true)
    }
}

impl Workload for ChampSim {
    fn next(&mut self) -> Result<Option<Record>> {
        while self.passed.is_empty() {
            if !self.execute()? {
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

    fn instruction(read: &[u64], written: &[u64]) -> Vec<u8> {
        let mut bytes = vec![0xff; INSTRUCTION_LEN];
        bytes[16..].fill(0);
        for (range, addrs) in [(READ, read), (WRITTEN, written)] {
            for (nth, addr) in addrs.iter().enumerate() {
                let first = range.start + nth * ADDR_LEN;
                bytes[first..first + ADDR_LEN].copy_from_slice(&addr.to_le_bytes());
            }
        }
        bytes
    }

    fn records(bytes: Vec<u8>) -> Result<Vec<Record>> {
        let filter = Filter::new(&Config { bytes: 4 * LINE_LEN, ways: 1 }).unwrap();
        let bytes = std::io::Cursor::new(bytes);
        let mut workload = ChampSim::from_reader(bytes, Path::new("w"), filter);
        let mut records = vec![];
        while let Some(record) = workload.next()? {
            records.push(record);
        }
        Ok(records)
    }

    #[test]
    fn misses_of_instructions_become_records() {
        let program = [
            instruction(&[], &[]),
            instruction(&[0x47, 0x80, 0x40, 0xc0], &[0x81, 0x100]),
            instruction(&[], &[]),
            instruction(&[], &[]),
            instruction(&[0x188], &[]),
        ];
        let record = |before, op, addr| Record { before, op, addr };
        let expected = [
            record(1, Op::Read, 0x40),
            record(0, Op::Read, 0x80),
            record(0, Op::Read, 0xc0),
            record(0, Op::Read, 0x100),
            record(2, Op::Read, 0x180),
            record(0, Op::Write, 0x80),
        ];
        assert_eq!(records(program.concat()).unwrap(), expected);
        assert!(records(program.concat()[..5 * INSTRUCTION_LEN - 1].to_vec()).is_err());
        assert_eq!(records(vec![]).unwrap(), []);
    }
}
