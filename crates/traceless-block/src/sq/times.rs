//! The access-time map in memory: the flush that carried each block's newest write, until the block
//! has reached the last level.

use alloc::vec;
use alloc::vec::Vec;

/// An optional flush number for each block. Takes 2 bytes if blocks reach the last level soon
/// enough that numbers a whole round apart are never in the map at once.
pub(super) enum Times {
    /// One more than the number modulo [`ROUND`]; 0 means none.
    Short(Vec<u16>),
    /// One more than the number; 0 means none.
    Long(Vec<u32>),
}

/// Number of flushes that 2 bytes can distinguish.
const ROUND: u64 = u16::MAX as u64;

impl Times {
    /// Bytes per flush number, if none is older than `oldest` flushes.
    pub fn bytes_each(oldest: u64) -> u64 {
        if oldest < ROUND { 2 } else { 4 }
    }

    /// A map of `len` blocks without flush numbers.
    pub fn new(len: usize, oldest: u64) -> Self {
        match Self::bytes_each(oldest) {
            2 => Self::Short(vec![0; len]),
            _ => Self::Long(vec![0; len]),
        }
    }

    /// The flush of block number `nth`, which is at most `now`.
    pub fn get(&self, nth: usize, now: u64) -> Option<u64> {
        match self {
            Self::Short(times) => {
                let time = u64::from(times[nth]).checked_sub(1)?;
                let ago = (now + ROUND - time) % ROUND;
                Some(now - ago)
            }
            Self::Long(times) => u64::from(times[nth]).checked_sub(1),
        }
    }

    /// Sets or clears the flush of block number `nth`.
    pub fn set(&mut self, nth: usize, flush: Option<u64>) {
        match self {
            Self::Short(times) => times[nth] = flush.map_or(0, |f| (f % ROUND) as u16 + 1),
            Self::Long(times) => times[nth] = flush.map_or(0, |f| f as u32 + 1),
        }
    }

    /// Bytes that the map takes.
    pub fn memory(&self) -> usize {
        match self {
            Self::Short(times) => times.len() * 2,
            Self::Long(times) => times.len() * 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_as_long_as_they_are_young() {
        for oldest in [1000, 1 << 20] {
            let mut times = Times::new(3, oldest);
            assert_eq!(times.get(1, 5), None);
            for flush in [0, 1, 65_533, 65_534, 65_535, 65_536, 200_000, 4_000_000_000] {
                times.set(1, Some(flush));
                for age in [0, 1, 1000] {
                    assert_eq!(times.get(1, flush + age), Some(flush));
                }
                times.set(1, None);
                assert_eq!(times.get(1, flush), None);
            }
        }
    }

    #[test]
    fn short_times_are_of_blocks_that_move_on_soon() {
        // 65,535 flushes ago would read as now.
        for (oldest, bytes) in [(0, 2), (ROUND - 1, 2), (ROUND, 4), (ROUND + 1, 4)] {
            assert_eq!(Times::bytes_each(oldest), bytes);
            assert_eq!(Times::new(3, oldest).memory() as u64, 3 * bytes);
        }
    }
}
