//! Controls: the times of basic operations on this machine, measured in the same run as a path that
//! consists of them.
//!
//! A ratio of a time to the operations that no implementation can avoid means the same on every
//! machine: a slower cipher or a slower memory has a larger control.

mod memory;
mod threads;

use crate::report::{TimePair, cpu_seconds};
use memory::{Chase, Copying};
use serde::{Deserialize, Serialize};
use traceless::rng::System;
use traceless::seal::{Nonce, Sealer, Secret};
use traceless_cli::failure::Failure;

/// Bytes of the memory that misses fall into: more than any cache close to a core.
const MISS_BYTES: usize = 256 << 20;

/// Bytes of the memory that loads hit: less than any first-level cache.
const HIT_BYTES: usize = 16 << 10;

const MISSES: usize = 100_000;
const HITS: usize = 2_000_000;

/// Bytes that the cipher processes for one reading.
const PASS_BYTES: usize = 1 << 25;
/// The fixed cost of a body, as a number of bytes.
const PASS_OVERHEAD: usize = 256;

/// Nanoseconds that one of each operation takes; 0 if it was not measured.
#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize, Debug)]
pub struct OperationTimes {
    /// Sealing or opening one body of the measured length in the first-level cache, the mean of
    /// both.
    pub pass: f64,
    /// Copying 4096 bytes between memory ranges that no cache holds.
    pub copy: f64,
    /// A load that no cache holds, with an address that is the result of the load before.
    pub miss: f64,
    /// A load that the first-level cache holds, with an address that is the result of the load
    /// before.
    pub hit: f64,
    /// Waking another thread and waiting for it.
    pub switch: f64,
    /// 64 bytes to another thread and back, over TCP on the loopback device.
    pub round_trip: f64,
}

/// How many of each operation a unit of work consists of.
#[derive(Clone, Copy, Default, Debug)]
pub struct Operations {
    pub passes: f64,
    /// Copies of 4096 bytes.
    pub copies: f64,
    pub misses: f64,
    pub hits: f64,
    pub switches: f64,
    pub round_trips: f64,
}

impl Operations {
    /// No operations.
    pub const NONE: Self =
        Self { passes: 0.0, copies: 0.0, misses: 0.0, hits: 0.0, switches: 0.0, round_trips: 0.0 };

    /// Nanoseconds of all operations in sequence.
    pub fn ns(&self, reading: &OperationTimes) -> f64 {
        let operations = [
            (self.passes, reading.pass),
            (self.copies, reading.copy),
            (self.misses, reading.miss),
            (self.hits, reading.hit),
            (self.switches, reading.switch),
            (self.round_trips, reading.round_trip),
        ];
        let is_measured = |&(count, ns): &(f64, f64)| count == 0.0 || ns > 0.0;
        assert!(operations.iter().all(is_measured), "a control was not measured: {reading:?}");
        operations.iter().map(|(count, ns)| count * ns).sum()
    }
}

impl OperationTimes {
    fn mean(&self, other: &Self) -> Self {
        let mean = |of: fn(&Self) -> f64| f64::midpoint(of(self), of(other));
        Self {
            pass: mean(|reading| reading.pass),
            copy: mean(|reading| reading.copy),
            miss: mean(|reading| reading.miss),
            hit: mean(|reading| reading.hit),
            switch: mean(|reading| reading.switch),
            round_trip: mean(|reading| reading.round_trip),
        }
    }
}

/// The controls to measure. Times of one thread are processor time, which excludes other load on
/// the machine.
#[derive(Default)]
pub struct Controls {
    pass: Option<Pass>,
    copying: Option<Copying>,
    misses: Option<Chase>,
    hits: Option<Chase>,
    has_switches: bool,
    has_round_trips: bool,
}

impl Controls {
    /// Copies, misses and hits, which any path in memory has.
    pub fn of_memory() -> Self {
        Self {
            copying: Some(Copying::new(MISS_BYTES)),
            misses: Some(Chase::new(MISS_BYTES)),
            ..Self::of_hits()
        }
    }

    /// Hits alone, which measure the speed of the core.
    pub fn of_hits() -> Self {
        Self { hits: Some(Chase::new(HIT_BYTES)), ..Self::default() }
    }

    /// Adds passes of a cipher over bodies of `len` bytes.
    pub fn and_passes(self, sealer: impl Fn(&Secret) -> Box<dyn Sealer>, len: usize) -> Self {
        let sealer = sealer(&Secret::random(&mut System));
        let tag = vec![0; sealer.tag_len()];
        Self { pass: Some(Pass { sealer, body: vec![0; len], tag, version: 0 }), ..self }
    }

    /// Adds switches between threads on one processor.
    pub fn and_switches(self) -> Self {
        Self { has_switches: true, ..self }
    }

    /// Adds round trips over TCP.
    pub fn and_round_trips(self) -> Self {
        Self { has_round_trips: true, ..self }
    }

    /// Bytes of memory that the controls hold.
    pub fn bytes(&self) -> u64 {
        let chases = [&self.misses, &self.hits].into_iter().flatten().map(Chase::bytes);
        chases.sum::<u64>() + self.copying.as_ref().map_or(0, Copying::bytes)
    }

    /// Runs `work`, and measures the controls before and after it. Returns the mean of both
    /// readings.
    pub fn beside<T>(
        &mut self,
        work: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<(T, OperationTimes), Failure> {
        let before = self.read()?;
        let outcome = work()?;
        Ok((outcome, before.mean(&self.read()?)))
    }

    /// Processor time of one unit of `work`, which returns the number of its units, and the time of
    /// the operations of a unit.
    pub fn time(
        &mut self,
        unit: &Operations,
        work: impl FnOnce() -> Result<f64, Failure>,
    ) -> Result<TimePair, Failure> {
        let ((seconds, units), reading) = self.beside(|| {
            let start = cpu_seconds();
            let units = work()?;
            Ok((cpu_seconds() - start, units))
        })?;
        Ok(TimePair { ns: seconds * 1e9 / units, control_ns: unit.ns(&reading) })
    }

    fn read(&mut self) -> Result<OperationTimes, Failure> {
        let mut reading = OperationTimes::default();
        if let Some(pass) = &mut self.pass {
            reading.pass = pass.ns();
        }
        if let Some(copying) = &mut self.copying {
            reading.copy = copying.ns();
        }
        if let Some(misses) = &mut self.misses {
            reading.miss = misses.ns(MISSES);
        }
        if let Some(hits) = &mut self.hits {
            reading.hit = hits.ns(HITS);
        }
        if self.has_switches {
            reading.switch = threads::switch_ns()?;
        }
        if self.has_round_trips {
            reading.round_trip = threads::round_trip_ns()?;
        }
        Ok(reading)
    }
}

/// A cipher that seals and opens one body repeatedly.
struct Pass {
    sealer: Box<dyn Sealer>,
    body: Vec<u8>,
    tag: Vec<u8>,
    version: u64,
}

impl Pass {
    fn ns(&mut self) -> f64 {
        let pairs = PASS_BYTES / (self.body.len() + PASS_OVERHEAD) / 2;
        ns_of(2 * pairs, || {
            for _ in 0..pairs {
                self.version += 1;
                let nonce = Nonce::of_fresh_key(self.version);
                self.sealer.seal_in_place(nonce, &[], &mut self.body, &mut self.tag);
                let opened = self.sealer.open_in_place(nonce, &[], &mut self.body, &self.tag);
                assert!(opened.is_ok(), "a body that was sealed opens");
            }
        })
    }
}

/// Nanoseconds of processor time that each of `count` equal steps of some work takes.
fn ns_of(count: usize, work: impl FnOnce()) -> f64 {
    let start = cpu_seconds();
    work();
    (cpu_seconds() - start) * 1e9 / count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless::seal::Cipher;

    #[test]
    fn each_control_takes_time_and_a_miss_more_than_a_hit() {
        let mut controls = Controls::of_memory()
            .and_passes(|key| Cipher::AesGcm.sealer(key), 4096)
            .and_switches()
            .and_round_trips();
        assert!(controls.bytes() > MISS_BYTES as u64);
        let (outcome, reading) = controls.beside(|| Ok(7)).unwrap();
        assert_eq!(outcome, 7);
        assert!(reading.miss > reading.hit, "{reading:?}");
        let one = Operations {
            passes: 1.0,
            copies: 1.0,
            misses: 1.0,
            hits: 1.0,
            switches: 1.0,
            round_trips: 1.0,
        };
        assert!(one.ns(&reading) > reading.round_trip + reading.switch);
    }

    #[test]
    #[should_panic(expected = "a control was not measured")]
    fn a_control_that_was_not_measured_is_no_zero() {
        Operations { passes: 1.0, ..Operations::NONE }.ns(&OperationTimes::default());
    }

    #[test]
    fn operations_add_up() {
        let reading = OperationTimes { miss: 100.0, copy: 500.0, ..OperationTimes::default() };
        let four = Operations { misses: 4.0, copies: 2.0, ..Operations::NONE };
        assert!((four.ns(&reading) - 1400.0).abs() < 1e-9);
        let mean = reading.mean(&OperationTimes::default());
        assert!((four.ns(&mean) - 700.0).abs() < 1e-9);
    }
}
