//! A memory that is known by its bandwidth and its latency alone.
//!
//! Two reads at once: the second line waits until the bus has moved the first:
//!
//! ```
//! use traceless_sim::backend::{Answer, Backend};
//! use traceless_sim::constant::{Config, Straight};
//!
//! # fn main() -> traceless_sim::Result {
//! let config = Config { bytes_per_cycle: 16, latency: 50, ..Config::default() };
//! let mut memory = Straight::new(&config)?;
//! assert_eq!(memory.read(0, 0, 1)?, Answer::At(50));
//! assert_eq!(memory.read(0, 4096, 2)?, Answer::At(54));
//! # Ok(())
//! # }
//! ```

use crate::backend::{Answer, Backend};
use crate::error::{Result, within};
use crate::workload::{LINE_LEN, Op};
use serde::{Deserialize, Serialize};
use traceless::stats::Histogram;

/// A memory with a fixed bandwidth and a fixed latency.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Bytes that the memory moves in a cycle of the processor.
    pub bytes_per_cycle: u64,
    /// Cycles until a line arrives that is read without an ORAM.
    pub latency: u64,
    /// Further cycles that an oblivious access to a tree takes, for its encryption.
    pub oram_latency: u64,
    /// Bytes that the memory holds.
    pub capacity: u64,
}

/// The memory of the paper on unified ORAM: 20 GB/s at 1 GHz.
impl Default for Config {
    fn default() -> Self {
        Self { bytes_per_cycle: 20, latency: 50, oram_latency: 50, capacity: 1 << 40 }
    }
}

impl Config {
    /// Refuses values out of range.
    pub fn check(&self) -> Result {
        within("constant.bytes_per_cycle", self.bytes_per_cycle, 1..=BANDWIDTH_MAX)?;
        within("constant.latency", self.latency, 0..=LATENCY_MAX)?;
        within("constant.oram_latency", self.oram_latency, 0..=LATENCY_MAX)?;
        within("constant.capacity", self.capacity, LINE_LEN..=CAPACITY_MAX)
    }
}

const BANDWIDTH_MAX: u64 = 1 << 20;
const LATENCY_MAX: u64 = 1 << 32;
const CAPACITY_MAX: u64 = 1 << 60;

/// The bus takes no more writes once it is this many cycles behind.
const BEHIND_MAX: u64 = 1000;

/// A bus that moves bytes one after the other, timed to a fraction of a cycle.
pub struct ConstantBus {
    bytes_per_cycle: u64,
    /// When the bus is free, as the number of bytes that it could have moved since the beginning.
    free: u64,
}

impl ConstantBus {
    /// An idle bus.
    pub fn new(config: &Config) -> Self {
        Self { bytes_per_cycle: config.bytes_per_cycle, free: 0 }
    }

    /// Moves bytes from `now` on, or when the bytes before are moved. Returns the cycle of the end.
    pub fn carry(&mut self, now: u64, bytes: u64) -> u64 {
        self.free = self.free.max(now.saturating_mul(self.bytes_per_cycle)) + bytes;
        self.free / self.bytes_per_cycle
    }

    /// The first cycle in which the bus moves nothing any more.
    pub fn free(&self) -> u64 {
        self.free.div_ceil(self.bytes_per_cycle)
    }
}

/// A memory without an ORAM: the addresses of its reads and writes are visible to an adversary.
pub struct Straight {
    config: Config,
    bus: ConstantBus,
    now: u64,
    reads: Histogram,
    writes: Histogram,
}

impl Straight {
    /// An idle memory.
    pub fn new(config: &Config) -> Result<Self> {
        config.check()?;
        Ok(Self {
            config: *config,
            bus: ConstantBus::new(config),
            now: 0,
            reads: Histogram::default(),
            writes: Histogram::default(),
        })
    }

    /// How long reads took, and writes until the bus had carried them.
    pub fn times(&self) -> (&Histogram, &Histogram) {
        (&self.reads, &self.writes)
    }
}

impl Backend for Straight {
    fn capacity(&self) -> u64 {
        self.config.capacity
    }

    /// The latency is that of a single line, its time on the bus included.
    fn read(&mut self, now: u64, _: u64, _: u64) -> Result<Answer> {
        let begins = self.bus.free().max(now);
        self.bus.carry(now, LINE_LEN);
        let there = begins + self.config.latency;
        self.reads.record(there - now);
        Ok(Answer::At(there))
    }

    fn write(&mut self, now: u64, _: u64) -> Result {
        let written = self.bus.carry(now, LINE_LEN);
        self.writes.record(written - now);
        Ok(())
    }

    fn takes_writes(&self) -> bool {
        self.bus.free() <= self.now + BEHIND_MAX
    }

    fn is_written(&self) -> bool {
        self.bus.free() <= self.now
    }

    fn warm(&mut self, _: Op, _: u64) -> Result {
        Ok(())
    }

    fn wake(&self) -> u64 {
        if self.is_written() {
            return u64::MAX;
        }
        // Writes are accepted again before the last of them is written.
        let free = self.bus.free();
        if self.takes_writes() { free } else { free - BEHIND_MAX }
    }

    fn tick(&mut self, now: u64, _: &mut dyn FnMut(u64, u64)) -> Result {
        self.now = now;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line takes 3.2 cycles of the bus: five lines take 16.
    #[test]
    fn lines_follow_each_other() {
        let mut memory = Straight::new(&Config::default()).unwrap();
        let there: Vec<_> = (0..6).map(|n| memory.read(7, n * 64, n).unwrap()).collect();
        let at = [7, 11, 14, 17, 20, 23].map(|begins| Answer::At(begins + 50));
        assert_eq!(there, at);
        assert_eq!(memory.read(1000, 0, 0).unwrap(), Answer::At(1050));
    }

    #[test]
    fn writes_wait_when_the_bus_is_behind() {
        let mut memory = Straight::new(&Config::default()).unwrap();
        let mut taken = 0;
        while memory.takes_writes() {
            memory.write(0, 0).unwrap();
            taken += 1;
        }
        assert_eq!(taken, 313, "1000 cycles of them, and one");
        memory.tick(memory.wake(), &mut |_, _| {}).unwrap();
        assert!(memory.takes_writes() && !memory.is_written());
        memory.tick(memory.wake(), &mut |_, _| {}).unwrap();
        assert!(memory.takes_writes() && memory.is_written());
        assert_eq!(memory.wake(), u64::MAX);
    }

    #[test]
    fn impossible_memories_are_refused() {
        let right = Config::default();
        for wrong in [
            Config { bytes_per_cycle: 0, ..right },
            Config { latency: u64::MAX, ..right },
            Config { oram_latency: u64::MAX, ..right },
            Config { capacity: 0, ..right },
        ] {
            assert!(wrong.check().is_err());
        }
    }
}
