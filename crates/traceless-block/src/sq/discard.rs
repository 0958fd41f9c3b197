//! Discards of dead runs: what no merge, reader or recovery needs any more is given back to the
//! store, if that takes discards.
//!
//! Generations of a level die k at a time, and are overwritten long after. Which ones are dead
//! follows from the number of flushes alone, and so does when they are discarded: with each flush a
//! k-th of a generation, so that no flush waits long. An opening discards all that is dead. The
//! last level has one copy of each block, and no dead runs.

use super::Sq;
use super::schedule::Schedule;
use crate::log::STRIPE;
use core::ops::Range;
use traceless_core::store::Area;
use traceless_core::types::Slot;

impl Sq {
    /// Discards what died with the last flush.
    pub(super) fn discard_newly_dead(&self) {
        self.discard(|runs| runs.newly_dead(self.flushes));
    }

    /// Discards all that is dead, places that were never written included.
    pub(super) fn discard_all_dead(&self) {
        self.discard(|runs| runs.dead(self.flushes));
    }

    fn discard(&self, dead: impl Fn(&DeadRuns) -> Range<u64>) {
        if self.life.is_read_only() || !self.store.takes_discards() {
            return;
        }
        let areas = core::iter::once(&self.log).chain(self.levels.iter().map(|level| &level.area));
        for (level, area) in areas.enumerate() {
            let slots = dead(&DeadRuns::new(self, level, area));
            let first = Slot(slots.start % area.slots());
            let count = slots.end.saturating_sub(slots.start);
            let extents = area.whole_stripes(first, count);
            if !extents.is_empty() {
                self.store.discard(&extents);
            }
        }
    }
}

/// The dead runs of a level, as numbers of the slots that overwrite them next.
struct DeadRuns<'a> {
    schedule: &'a Schedule,
    level: usize,
    /// Slots of a bucket, and of the ring.
    bucket: u64,
    slots: u64,
    /// Flushes that a recovery may go back.
    kept: u64,
}

impl<'a> DeadRuns<'a> {
    fn new(sq: &'a Sq, level: usize, area: &Area) -> Self {
        Self {
            schedule: &sq.schedule,
            level,
            bucket: sq.bucket(),
            slots: area.slots(),
            kept: sq.geometry.kept_buckets(),
        }
    }

    /// All dead slots after `flushes` flushes, but for the bucket that is written next.
    fn dead(&self, flushes: u64) -> Range<u64> {
        let next = self.schedule.delivered(self.level, flushes) + 1;
        next * self.bucket..self.given_up(flushes)
    }

    /// The dead slots of which a discard is due after `flushes` flushes and was not before, with
    /// the beginning of a stripe that has some of them.
    fn newly_dead(&self, flushes: u64) -> Range<u64> {
        let (dead, before) = (self.dead(flushes), self.given_up(flushes - 1));
        if before == dead.end {
            return before..before;
        }
        dead.start.max(before - (STRIPE - 1))..dead.end
    }

    /// One more than the last slot that a discard is due for.
    fn given_up(&self, flushes: u64) -> u64 {
        let settled = flushes.saturating_sub(self.kept);
        self.schedule.given_up(self.level, settled) * self.bucket + self.slots
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::super::SqGeometry;
    use super::*;
    use alloc::sync::Arc;
    use alloc::vec;
    use traceless_core::store::MemStore;

    fn geometries() -> impl Iterator<Item = SqGeometry> {
        [(2, 4), (3, 3), (4, 2), (16, 1), (5, 3)].into_iter().flat_map(|(fanout, levels)| {
            let blocks = 3 * u64::from(fanout).pow(u32::from(levels)) * 4;
            let shape = SqGeometry::with_shape(blocks, 64, 4, fanout, levels).unwrap();
            [false, true].map(|amortized| SqGeometry { amortized, ..shape })
        })
    }

    fn runs<'a>(geometry: &SqGeometry, schedule: &'a Schedule, level: usize) -> DeadRuns<'a> {
        let (bucket, slots) = (u64::from(geometry.bucket), geometry.ring(level).slots);
        DeadRuns { schedule, level, bucket, slots, kept: geometry.kept_buckets() }
    }

    /// A recovery that goes back as far as it ever does needs nothing that was discarded, and what
    /// was written over it stays.
    #[test]
    fn nothing_that_is_needed_or_was_written_since_is_discarded() {
        for geometry in geometries() {
            let schedule = geometry.schedule();
            for level in 0..schedule.last() {
                let runs = runs(&geometry, &schedule, level);
                for flushes in 1..6 * schedule.width(schedule.last()) {
                    let back = flushes.saturating_sub(geometry.kept_buckets());
                    let needed = schedule.oldest(level, back) * schedule.width(level) * runs.bucket;
                    let written = schedule.delivered(level, flushes) * runs.bucket;
                    let dead = [runs.dead(flushes), runs.newly_dead(flushes)];
                    for dead in dead.into_iter().filter(|dead| !dead.is_empty()) {
                        assert!(dead.end <= needed + runs.slots, "{geometry:?} {level} {flushes}");
                        assert!(dead.start > written, "{geometry:?} {level} {flushes}");
                    }
                }
            }
        }
    }

    /// Once the last group that died is given up, all that is dead is discarded but for the stripes
    /// at both ends.
    #[test]
    fn all_that_is_dead_is_discarded_in_time() {
        for geometry in geometries() {
            let schedule = geometry.schedule();
            for level in 0..schedule.last() {
                let (runs, layout) = (runs(&geometry, &schedule, level), geometry.ring(level));
                let area = Area::new(Arc::new(MemStore::new(layout.len())), 0, layout, "test");
                let mut is_discarded = vec![false; runs.slots as usize];
                let discard = |is_discarded: &mut [bool], dead: Range<u64>| {
                    let count = dead.end.saturating_sub(dead.start);
                    for extent in area.whole_stripes(Slot(dead.start % runs.slots), count) {
                        let slot = |at: u64| at.div_ceil(layout.stripe_len()) * STRIPE;
                        let end = slot(extent.end()).min(runs.slots);
                        is_discarded[slot(extent.at) as usize..end as usize].fill(true);
                    }
                };
                discard(&mut is_discarded, runs.dead(0));
                let mut compared = 0;
                for flushes in 1..5 * schedule.width(schedule.last()) {
                    for bucket in schedule.deliveries(level, flushes - 1) {
                        for slot in bucket * runs.bucket..(bucket + 1) * runs.bucket {
                            is_discarded[(slot % runs.slots) as usize] = false;
                        }
                    }
                    discard(&mut is_discarded, runs.newly_dead(flushes));
                    let settled = flushes.saturating_sub(runs.kept);
                    let dead = schedule.oldest(level, settled) * schedule.width(level);
                    if dead == schedule.given_up(level, settled) {
                        let left = runs.dead(flushes);
                        let left = left.filter(|slot| !is_discarded[(slot % runs.slots) as usize]);
                        assert!(
                            left.count() < 2 * STRIPE as usize,
                            "{geometry:?} {level} {flushes}"
                        );
                        compared += 1;
                    }
                }
                assert!(compared > 10);
            }
        }
    }
}
