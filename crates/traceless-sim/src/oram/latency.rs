//! How long operations take.

use serde::Serialize;
use traceless::controller::Kind;

/// Levels of the position map that reads are told apart by; more count as the last.
pub const READ_LEVELS: usize = 5;

/// How long operations of one kind took, in cycles.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Latency {
    /// Operations.
    pub count: u64,
    /// On average.
    pub mean: f64,
    /// Half of them took no longer; up to a sixteenth too high.
    pub p50: u64,
    /// 99 of 100 took no longer; up to a sixteenth too high.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

/// How long all of them took. A request takes from the time when it comes from the last cache to
/// the time when its line is in the processor, a path access from its begin to its end.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Latencies {
    /// Lines read.
    pub reads: Latency,
    /// Those of them that took no path access: the block was in the stash, or in the tree top
    /// where that is searched first.
    pub reads_at_hand: Latency,
    /// Those that did, by how many accesses to the position map came before that to the block,
    /// from none on: then the PLB, or what is in its place, had the label.
    pub reads_by_map: [Latency; READ_LEVELS],
    /// Lines that came back, until they are in the processor's part of the memory.
    pub write_backs: Latency,
    /// Path accesses.
    pub paths: PathLatencies,
}

/// Those of path accesses, by what they were for.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct PathLatencies {
    /// A block that a program uses.
    pub data: Latency,
    /// A block of the position map.
    pub map: Latency,
    /// Nothing.
    pub dummy: Latency,
    /// They only emptied a stash.
    pub eviction: Latency,
    /// In place of dummies.
    pub early: Latency,
}

/// Buckets of a power of two.
const PARTS: u64 = 16;
const PART_BITS: u32 = PARTS.ilog2();

/// How often each time was taken, to a sixteenth of it.
#[derive(Default)]
pub struct Times {
    /// As many buckets as the longest took.
    buckets: Vec<u64>,
    count: u64,
    sum: u64,
    max: u64,
}

impl Times {
    /// Something took so many cycles.
    #[inline]
    pub fn add(&mut self, cycles: u64) {
        let bucket = bucket(cycles);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum += cycles;
        self.max = self.max.max(cycles);
    }

    /// What it came to.
    pub fn latency(&self) -> Latency {
        Latency {
            count: self.count,
            mean: self.sum as f64 / self.count.max(1) as f64,
            p50: self.within(50),
            p99: self.within(99),
            max: self.max,
        }
    }

    /// The longest that so many of a hundred took, or a little more.
    fn within(&self, per_cent: u64) -> u64 {
        let wanted = (self.count * per_cent).div_ceil(100);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        bucket.map_or(0, |bucket| longest(bucket).min(self.max))
    }
}

/// Which bucket a time is in: small ones have one each.
fn bucket(cycles: u64) -> usize {
    let shift = (cycles | PARTS).ilog2() - PART_BITS;
    (u64::from(shift) * PARTS + (cycles >> shift)) as usize
}

/// The longest time in a bucket.
fn longest(bucket: usize) -> u64 {
    let shift = (bucket as u64 / PARTS).saturating_sub(1);
    let first = bucket as u64 - shift * PARTS;
    (first << shift) + ((1 << shift) - 1)
}

/// What is measured while a scheme runs.
#[derive(Default)]
pub struct Measured {
    at_hand: Times,
    by_map: [Times; READ_LEVELS],
    reads: Times,
    write_backs: Times,
    data: Times,
    map: Times,
    dummy: Times,
    eviction: Times,
    early: Times,
}

impl Measured {
    /// A line was read, after so many accesses to the map, or without any path access.
    pub fn read(&mut self, map: Option<usize>, cycles: u64) {
        self.reads.add(cycles);
        match map {
            None => self.at_hand.add(cycles),
            Some(levels) => self.by_map[levels.min(READ_LEVELS - 1)].add(cycles),
        }
    }

    /// A line came back.
    pub fn write_back(&mut self, cycles: u64) {
        self.write_backs.add(cycles);
    }

    /// A path access ended.
    pub fn path(&mut self, kind: Kind, is_early: bool, cycles: u64) {
        let times = match kind {
            Kind::Dummy => &mut self.dummy,
            Kind::Eviction => &mut self.eviction,
            _ if is_early => &mut self.early,
            Kind::Data => &mut self.data,
            Kind::PosMap(_) => &mut self.map,
        };
        times.add(cycles);
    }

    /// What all of it came to.
    pub fn latencies(&self) -> Latencies {
        let Self { at_hand, by_map, reads, write_backs, .. } = self;
        let mut reads_by_map = [Latency::default(); READ_LEVELS];
        for (latency, times) in reads_by_map.iter_mut().zip(by_map) {
            *latency = times.latency();
        }
        Latencies {
            reads: reads.latency(),
            reads_at_hand: at_hand.latency(),
            reads_by_map,
            write_backs: write_backs.latency(),
            paths: PathLatencies {
                data: self.data.latency(),
                map: self.map.latency(),
                dummy: self.dummy.latency(),
                eviction: self.eviction.latency(),
                early: self.early.latency(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless::rng::{Rng, Seeded};

    #[test]
    fn buckets_follow_each_other() {
        let mut next = 0;
        for nth in 0..bucket(u64::MAX) {
            assert_eq!((bucket(next), bucket(longest(nth))), (nth, nth));
            assert!(longest(nth) - next <= next / PARTS, "no wider than a sixteenth");
            next = longest(nth) + 1;
        }
        assert_eq!(longest(bucket(u64::MAX)), u64::MAX);
    }

    #[test]
    fn quantiles_are_those_of_all_times_to_a_sixteenth() {
        let mut rng = Seeded::new(1);
        for most in [1, 12, 900, 1 << 20, 1 << 40] {
            let (mut times, mut all) = (Times::default(), vec![]);
            for _ in 0..1000 {
                let cycles = rng.below(most) * rng.below(3);
                times.add(cycles);
                all.push(cycles);
            }
            all.sort_unstable();
            let Latency { count, mean, p50, p99, max } = times.latency();
            assert_eq!((count, max), (1000, all[999]));
            let sum: u64 = all.iter().sum();
            assert!((mean - sum as f64 / 1000.0).abs() < 1e-9 * mean.max(1.0));
            for (told, exact) in [(p50, all[499]), (p99, all[989])] {
                assert!((exact..=exact + exact / PARTS).contains(&told), "{told} for {exact}");
            }
        }
        assert_eq!(Times::default().latency(), Latency::default());
    }
}
