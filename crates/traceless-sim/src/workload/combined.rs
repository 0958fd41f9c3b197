//! Several workloads in one.

use super::{Record, Workload};
use crate::error::Result;

/// The first operations of a workload.
pub struct Prefix {
    workload: Box<dyn Workload>,
    left: u64,
}

impl Prefix {
    /// At most `len` operations of `workload`.
    pub fn new(workload: Box<dyn Workload>, len: u64) -> Self {
        Self { workload, left: len }
    }
}

impl Workload for Prefix {
    fn next(&mut self) -> Result<Option<Record>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.workload.next()
    }
}

/// One workload after the other, each to its end.
pub struct Chain {
    workloads: Vec<Box<dyn Workload>>,
    nth: usize,
}

impl Chain {
    /// `workloads` in this order.
    pub fn new(workloads: Vec<Box<dyn Workload>>) -> Self {
        Self { workloads, nth: 0 }
    }
}

impl Workload for Chain {
    fn next(&mut self) -> Result<Option<Record>> {
        while let Some(workload) = self.workloads.get_mut(self.nth) {
            if let Some(record) = workload.next()? {
                return Ok(Some(record));
            }
            self.nth += 1;
        }
        Ok(None)
    }
}

/// Workloads that take turns, as programs do on one core. A workload that has ended is skipped.
pub struct Turns {
    workloads: Vec<Box<dyn Workload>>,
    /// The workload that has its turn, and the operations that are left of the turn.
    nth: usize,
    left: u64,
    turn: u64,
}

impl Turns {
    /// Each of `workloads` for `turn` operations, over and over.
    pub fn new(workloads: Vec<Box<dyn Workload>>, turn: u64) -> Self {
        assert!(turn > 0, "a turn is some operations");
        Self { workloads, nth: 0, left: turn, turn }
    }
}

impl Workload for Turns {
    fn next(&mut self) -> Result<Option<Record>> {
        while !self.workloads.is_empty() {
            if self.left == 0 {
                self.nth = (self.nth + 1) % self.workloads.len();
                self.left = self.turn;
            }
            self.left -= 1;
            if let Some(record) = self.workloads[self.nth].next()? {
                return Ok(Some(record));
            }
            drop(self.workloads.remove(self.nth));
            if self.nth == self.workloads.len() {
                self.nth = 0;
            }
            self.left = self.turn;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{LINE_LEN, Op};

    fn lines(first: u64, count: u64) -> Box<dyn Workload> {
        let record = |line| Record { before: 0, op: Op::Read, addr: line * LINE_LEN };
        Box::new((first..first + count).map(record))
    }

    fn all(mut workload: impl Workload) -> Vec<u64> {
        let next = || workload.next().unwrap();
        std::iter::from_fn(next).map(|record| record.addr / LINE_LEN).collect()
    }

    #[test]
    fn parts_come_in_their_order() {
        let three = || vec![lines(10, 3), lines(20, 0), lines(30, 5)];
        assert_eq!(all(Chain::new(three())), [10, 11, 12, 30, 31, 32, 33, 34]);
        assert_eq!(all(Turns::new(three(), 2)), [10, 11, 30, 31, 12, 32, 33, 34]);
        assert_eq!(all(Prefix::new(lines(10, 3), 2)), [10, 11]);
        assert_eq!(all(Prefix::new(lines(10, 3), 9)), [10, 11, 12]);
        assert!(all(Chain::new(vec![])).is_empty() && all(Turns::new(vec![], 1)).is_empty());
    }
}
