//! The first level of cache. The accesses that miss it are the workload of all levels behind it.

use super::{LINE_LEN, Op, Record, line_start};
use crate::cache::{self, Cache, Lookup};
use crate::error::Result;

/// Turns the accesses of a program into the reads and write-backs that leave its first cache.
pub struct Filter {
    cache: Cache,
    /// Instructions since the last record.
    before: u64,
    /// Instructions in all.
    instructions: u64,
}

impl Filter {
    /// A filter with an empty cache.
    pub fn new(config: &cache::Config) -> Result<Self> {
        Ok(Self { cache: Cache::new(config)?, before: 0, instructions: 0 })
    }

    /// Counts an instruction of the program.
    pub fn instruction(&mut self) {
        self.work(1);
    }

    /// Counts so many instructions of the program.
    pub fn work(&mut self, instructions: u64) {
        self.before += instructions;
        self.instructions += instructions;
    }

    /// Instructions so far.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Accesses the lines from `first` to `last`, both named by a byte of them. Hands to `out` the
    /// line that each miss reads, then the line that is written back for it.
    pub fn access(&mut self, op: Op, first: u64, last: u64, mut out: impl FnMut(Record)) {
        let mut addr = line_start(first);
        loop {
            if let Lookup::Miss { victim } = self.cache.access(addr, op) {
                // The operation itself is an instruction, and counts as one when it is replayed.
                let before = self.before.saturating_sub(1);
                self.before = 0;
                out(Record { before, op: Op::Read, addr });
                if let Some(addr) = victim {
                    out(Record { before: 0, op: Op::Write, addr });
                }
            }
            if last - addr < LINE_LEN {
                return;
            }
            addr += LINE_LEN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_misses_pass() {
        let mut filter = Filter::new(&cache::Config { bytes: 2 * LINE_LEN, ways: 1 }).unwrap();
        let mut records = vec![];
        let mut access = |filter: &mut Filter, op, first, last| {
            filter.instruction();
            filter.access(op, first, last, |record| records.push(record));
        };
        access(&mut filter, Op::Write, 60, 66);
        access(&mut filter, Op::Read, 0, 0);
        access(&mut filter, Op::Read, 130, 130);
        let record = |before, op, addr| Record { before, op, addr };
        let expected = [
            record(0, Op::Read, 0),
            record(0, Op::Read, 64),
            record(1, Op::Read, 128),
            record(0, Op::Write, 0),
        ];
        assert_eq!(records, expected);
        assert_eq!(filter.instructions(), 3);
    }
}
