//! The time of each bucket's delivery and the location of a block: both follow from the number of
//! flushes.
//!
//! Flush number g ends with the `bucket`-th write since the flush before. Bucket g of level 0 is
//! complete by then, and from `start(i)` on each flush delivers one bucket to level i, merged from
//! the k newest complete generations of level i - 1; k^i buckets are one generation of level i. The
//! last level, H, is in address order and takes a window of slots instead: k^H flushes rewrite all
//! of it, which is a pass.

use alloc::vec::Vec;
use core::ops::Range;

/// The schedule of one geometry. Levels are numbered from 0 to H, H being the last.
pub(super) struct Schedule {
    /// The fan-out, k.
    fanout: u64,
    /// Slots of a pass over the last level.
    addresses: u64,
    /// Whether a whole generation is merged when its sources are complete.
    amortized: bool,
    /// k^i for each level, H included.
    widths: Vec<u64>,
    /// The first flush that delivers to each level, H included.
    starts: Vec<u64>,
}

impl Schedule {
    /// A schedule with `levels` levels before the last.
    pub fn new(fanout: u64, levels: usize, addresses: u64, amortized: bool) -> Self {
        let (mut widths, mut starts) = (Vec::from([1]), Vec::from([0]));
        for level in 1..=levels {
            widths.push(widths[level - 1] * fanout);
            // One flush later than the sources allow, so that two merges never begin at once.
            let late = u64::from(level > 1);
            starts.push(starts[level - 1] + widths[level] + late);
        }
        Self { fanout, addresses, amortized, widths, starts }
    }

    /// H, which is also the number of levels before the last.
    pub fn last(&self) -> usize {
        self.widths.len() - 1
    }

    /// Buckets in a generation of `level`; for the last level, flushes in a pass.
    pub fn width(&self, level: usize) -> u64 {
        self.widths[level]
    }

    /// The first flush that delivers to `level`.
    pub fn start(&self, level: usize) -> u64 {
        self.starts[level]
    }

    /// Number of buckets delivered to a level after `flushes` flushes.
    pub fn delivered(&self, level: usize, flushes: u64) -> u64 {
        let one_by_one = flushes.saturating_sub(self.starts[level]);
        if self.amortized { one_by_one.next_multiple_of(self.widths[level]) } else { one_by_one }
    }

    /// The buckets that flush `flush` delivers to `level`.
    pub fn deliveries(&self, level: usize, flush: u64) -> Range<u64> {
        self.delivered(level, flush)..self.delivered(level, flush + 1)
    }

    /// Number of refreshes of the last level before delivery `bucket` to it, including the
    /// refreshes of its creation.
    pub fn refreshes_before(&self, bucket: u64) -> u64 {
        let (n, pass) = (self.addresses, self.widths[self.last()]);
        let done = u128::from(bucket) * u128::from(n) / u128::from(pass);
        n + u64::try_from(done).expect("no volume lives for 2^60 flushes")
    }

    /// Number of refreshes of the last level after `flushes` flushes.
    pub fn refreshed(&self, flushes: u64) -> u64 {
        self.refreshes_before(self.delivered(self.last(), flushes))
    }

    /// The first refresh that carries a write to `address` in flush `time`.
    pub fn refresh_of(&self, time: u64, address: u64) -> u64 {
        (time / self.widths[self.last()] + 1) * self.addresses + address
    }

    /// The level before the last, and the generation in it, that hold the writes of flush `time`
    /// after `flushes` flushes. `None` if by this rule they have reached the last level.
    pub fn locate(&self, time: u64, flushes: u64) -> Option<(usize, u64)> {
        let level = (0..self.last()).find(|&i| flushes < self.leaves(i, time))?;
        Some((level, time / self.widths[level]))
    }

    /// Maximum number of flushes until a write has reached the last level.
    pub fn oldest_time(&self) -> u64 {
        self.starts[self.last()] + 2 * self.widths[self.last()] + 2
    }

    /// Number of flushes after which writes of flush `time` are no longer read from `level`.
    fn leaves(&self, level: usize, time: u64) -> u64 {
        let width = self.widths[level + 1];
        self.starts[level + 1] + (time / width + 1) * width
    }

    /// The oldest generation of `level` that is needed after `flushes` flushes.
    pub fn oldest(&self, level: usize, flushes: u64) -> u64 {
        let width = self.widths[level + 1];
        // Groups of k generations expire together: group j after `start + (j + 1) width` flushes.
        (flushes.saturating_sub(self.starts[level + 1]) / width) * self.fanout
    }

    /// Number of the first buckets of `level` that are given up after `flushes` flushes: of the k
    /// generations that died last, k buckets more with each flush.
    pub fn given_up(&self, level: usize, flushes: u64) -> u64 {
        let width = self.widths[level + 1];
        let since = flushes.saturating_sub(self.starts[level + 1]);
        let (groups, flushes_ago) = (since / width, since % width);
        let of_last = ((flushes_ago + 1) * self.fanout).min(width);
        groups.checked_sub(1).map_or(0, |before| before * width + of_last)
    }

    /// Number of flushes after which generation `generation` of `level` is not needed any more.
    pub fn last_use(&self, level: usize, generation: u64) -> u64 {
        self.starts[level + 1] + (generation / self.fanout + 1) * self.widths[level + 1]
    }

    /// The generations of the level before that are merged into generation `generation` of a level,
    /// or into a pass.
    pub fn sources(&self, generation: u64) -> Range<u64> {
        generation * self.fanout..(generation + 1) * self.fanout
    }
}

#[cfg(test)]
mod tests {
    use super::super::geometry::SqGeometry;
    use super::*;

    fn schedule(fanout: u32, levels: u8, amortized: bool) -> (Schedule, SqGeometry) {
        let blocks = 3 * u64::from(fanout).pow(u32::from(levels)) * 4;
        let mut geometry = SqGeometry::with_shape(blocks, 64, 4, fanout, levels).unwrap();
        geometry.amortized = amortized;
        (geometry.schedule(), geometry)
    }

    #[test]
    fn sources_are_complete_and_nothing_is_overwritten_while_it_is_needed() {
        for (fanout, levels) in [(2, 4), (3, 3), (4, 2), (16, 1), (5, 3)] {
            for amortized in [false, true] {
                let (s, geometry) = schedule(fanout, levels, amortized);
                for flush in 0..6 * s.width(s.last()) {
                    for level in 1..=s.last() {
                        for bucket in s.deliveries(level, flush) {
                            let sources = s.sources(bucket / s.width(level));
                            let whole = s.delivered(level - 1, flush.max(1)) / s.width(level - 1);
                            assert!(sources.end <= whole.max(flush), "incomplete at {flush}");
                            assert!(s.oldest(level - 1, flush) <= sources.start);
                        }
                    }
                    for level in 0..s.last() {
                        let ring = geometry.ring_buckets(level) - geometry.kept_buckets();
                        let end = s.deliveries(level, flush).end;
                        // Overwritten buckets were not needed any more when the flush began.
                        let overwritten = end.saturating_sub(ring);
                        let needed = s.oldest(level, flush) * s.width(level);
                        assert!(overwritten <= needed, "{fanout} {level} {flush}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_block_is_in_one_level_after_another() {
        let (s, _) = schedule(3, 3, false);
        for time in 0..200 {
            let mut level = 0;
            for flushes in time..2000 {
                let Some((now, generation)) = s.locate(time, flushes) else {
                    let newest = s.refresh_of(time, s.addresses - 1);
                    assert!(newest < s.refreshed(flushes));
                    continue;
                };
                assert!(now == level || now == level + 1);
                level = now;
                assert!(generation >= s.oldest(now, flushes));
                assert!(flushes < s.leaves(now, generation * s.width(now)));
                // The whole generation is complete.
                let complete = s.start(now) + (generation + 1) * s.width(now);
                assert!(now == 0 || flushes >= complete);
            }
        }
    }

    #[test]
    fn no_time_is_kept_beyond_its_limit() {
        for amortized in [false, true] {
            let (s, _) = schedule(3, 2, amortized);
            // The start, two passes, and two flushes.
            assert_eq!((s.start(2), s.width(2)), (3 + 9 + 1, 9));
            assert_eq!(s.oldest_time(), 13 + 18 + 2);
            for time in 0..100 {
                let there = |flushes| s.refreshed(flushes) > s.refresh_of(time, s.addresses - 1);
                assert!(there(time + s.oldest_time()), "{time}");
            }
        }
    }
}
