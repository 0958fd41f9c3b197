//! The main area of `DetWoORAM`, which may begin small: how many places it has, and which place
//! each refresh is of.
//!
//! Refreshes go over the main area in passes, place by place. Between two passes it may get more
//! places, and the holding area as many slots as belong to them. A *stage* is the passes with one
//! number of places; all that an observer of the writes learns of the pages are the stages.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use traceless_block::detwo::{DetWoLocation, Passes, Refresh};

/// What the number of places in the main area follows from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Growth {
    /// The number of pages: there is a place for each from the beginning.
    #[default]
    Whole,
    /// How many pages have left so far. Writes still follow from that number alone.
    Evictions,
    /// How many pages were away at a time, at most. An observer of the store learns this number, to
    /// within a quarter.
    Pages,
}

impl Growth {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Whole, Self::Evictions, Self::Pages];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Evictions => "evictions",
            Self::Pages => "pages",
        }
    }
}

/// Places at the beginning, at least.
const PLACES_MIN: u64 = 256;

/// Numbers of a stage in memory.
const STAGE_WORDS: usize = 4;

/// A main area, by what is public of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MainArea {
    /// The number of pages, and of places when it has all.
    pub pages: u64,
    /// The refreshes for each page that leaves.
    pub refresh: Refresh,
    /// How it grows, if it [can](Self::can_grow): else all places are there from the beginning.
    pub growth: Growth,
}

impl MainArea {
    /// A main area with a place for each page from the beginning.
    pub fn whole(pages: u64, refresh: Refresh) -> Self {
        Self { pages, refresh, growth: Growth::Whole }
    }

    /// Whether a main area with this ratio can grow: else pages may come faster than places.
    pub fn can_grow(refresh: Refresh) -> bool {
        refresh.p() > refresh.q()
    }

    /// Whether it begins with fewer places than pages.
    pub fn grows(self) -> bool {
        self.growth != Growth::Whole && self.first_places() < self.pages
    }

    fn first_places(self) -> u64 {
        match self.growth {
            Growth::Whole => self.pages,
            // No place is refreshed twice for one page that leaves.
            _ => PLACES_MIN.max(self.refresh.at_most(1)).max(self.places_for(0)).min(self.pages),
        }
    }

    /// How many places are enough for a pass that begins with `used` of them in use: each page that
    /// leaves meanwhile may need one more.
    fn places_for(self, used: u64) -> u64 {
        if !Self::can_grow(self.refresh) {
            return self.pages;
        }
        let (p, q) = (u64::from(self.refresh.p()), u64::from(self.refresh.q()));
        // Places n, of which the pass takes up to ceil(n q / p) + 1: n (p - q) / p >= used + 2.
        let enough = (u128::from(used) + 2) * u128::from(p);
        u64::try_from(enough.div_ceil(u128::from(p - q))).unwrap_or(u64::MAX).min(self.pages)
    }

    /// The number of places after `places`, which are too few: the next step that is enough. All
    /// steps follow from the first number, so they show how many are wanted to within a quarter.
    fn next_places(self, places: u64, wanted: u64) -> u64 {
        let mut next = places + places / 4;
        while next < wanted {
            next += next / 4;
        }
        next.min(self.pages)
    }

    /// How many numbers in memory a [`Schedule`] takes.
    pub(super) fn schedule_words(self) -> usize {
        let (mut places, mut stages) = (self.first_places(), 1);
        while places < self.pages {
            places = self.next_places(places, 0);
            stages += 1;
        }
        1 + stages * STAGE_WORDS
    }
}

/// Passes with one number of places.
#[derive(Clone, Copy)]
struct Stage {
    /// The first refresh.
    refresh: u64,
    places: u64,
    /// The first write.
    write: u64,
    /// The slot of that write in the holding area.
    hold: u64,
}

/// Which place each refresh is of, and which slot of the holding area each write goes to. Its
/// numbers change only while no refresh is begun.
#[derive(Clone, Copy)]
pub struct Schedule<'a> {
    area: MainArea,
    /// The number of the newest stage, and [`STAGE_WORDS`] of each.
    words: &'a [AtomicU64],
}

impl<'a> Schedule<'a> {
    /// The schedule with these numbers, [`MainArea::schedule_words`] of them.
    pub fn new(area: MainArea, words: &'a [AtomicU64]) -> Self {
        Self { area, words }
    }

    /// Sets the first stage, where the numbers are zeros.
    pub fn begin(self) {
        self.set(0, Stage { refresh: 0, places: self.area.first_places(), write: 0, hold: 0 });
    }

    /// How many places there are.
    #[cfg(test)]
    fn places(self) -> u64 {
        self.current().places
    }

    /// How many refreshes belong to so many writes.
    pub fn due(self, writes: u64) -> u64 {
        self.area.refresh.after(writes)
    }

    /// The place that a refresh is of.
    pub fn place_of(self, refresh: u64) -> u64 {
        let stage = self.newest(|stage| stage.refresh <= refresh);
        (refresh - stage.refresh) % stage.places
    }

    /// How many refreshes, from this one on, are of places that follow each other.
    pub fn rest_of_pass(self, refresh: u64) -> u64 {
        let stage = self.newest(|stage| stage.refresh <= refresh);
        stage.places - (refresh - stage.refresh) % stage.places
    }

    /// The slot of the holding area that a write goes to.
    pub fn hold_slot(self, write: u64) -> u64 {
        let stage = self.newest(|stage| stage.write <= write);
        (stage.hold + write - stage.write) % self.area.refresh.writes_for(stage.places)
    }

    /// Where the newest copy of a place's page lies, which left by this write last, when so many
    /// refreshes are done.
    pub fn locate(self, place: u64, write: u64, refreshed: u64) -> DetWoLocation {
        if self.next(place, self.due(write)) >= refreshed {
            return DetWoLocation::Hold(write);
        }
        self.last(place, refreshed).map_or(DetWoLocation::Nowhere, DetWoLocation::Main)
    }

    /// Ends the stage if a write completes a pass, and there are then too few places for the next
    /// one: `used` counts what the growth follows from, this write included. The refreshes of the
    /// write are not begun yet.
    pub fn end_write(self, write: u64, used: u64) {
        let stage = self.current();
        if stage.places == self.area.pages {
            return;
        }
        let passes = |writes| (self.due(writes) - stage.refresh) / stage.places;
        let complete = passes(write + 1);
        let wanted = self.area.places_for(used);
        if complete == passes(write) || wanted <= stage.places {
            return;
        }
        // Slots of the holding area go on in their order, so none is used again earlier than in a
        // holding area that stays as it is.
        let next = Stage {
            refresh: stage.refresh + complete * stage.places,
            places: self.area.next_places(stage.places, wanted),
            write: write + 1,
            hold: self.hold_slot(write + 1),
        };
        let nth = self.words[0].load(Relaxed) as usize + 1;
        self.set(nth, next);
        self.words[0].store(nth as u64, Relaxed);
    }

    /// The next refresh of a place, from refresh number `from` on.
    fn next(self, place: u64, from: u64) -> u64 {
        let mut later: Option<Stage> = None;
        let stage = self.newest(|stage| {
            let is_it = stage.refresh <= from;
            if !is_it {
                later = Some(*stage);
            }
            is_it
        });
        let passes = Passes { blocks: stage.places, refresh: self.area.refresh };
        let next = stage.refresh + passes.next(place, from - stage.refresh);
        // The first pass of a later stage is over all places.
        later.filter(|later| later.refresh <= next).map_or(next, |later| later.refresh + place)
    }

    /// The last refresh of a place below refresh number `refreshed`.
    fn last(self, place: u64, refreshed: u64) -> Option<u64> {
        let mut end = refreshed;
        for stage in self.stages() {
            let done = end.saturating_sub(stage.refresh);
            if done > place && place < stage.places {
                let nth = done - 1;
                return Some(stage.refresh + nth - (nth - place) % stage.places);
            }
            end = end.min(stage.refresh);
        }
        None
    }

    fn newest(self, is_it: impl FnMut(&Stage) -> bool) -> Stage {
        self.stages().find(is_it).expect("the first stage begins with everything")
    }

    /// All stages, the newest first.
    fn stages(self) -> impl Iterator<Item = Stage> {
        let newest = self.words[0].load(Relaxed) as usize;
        (0..=newest).rev().map(move |nth| self.stage(nth))
    }

    fn current(self) -> Stage {
        self.stage(self.words[0].load(Relaxed) as usize)
    }

    fn stage(self, nth: usize) -> Stage {
        let words = &self.words[1 + nth * STAGE_WORDS..][..STAGE_WORDS];
        let [refresh, places, write, hold] = [0, 1, 2, 3].map(|word| words[word].load(Relaxed));
        Stage { refresh, places, write, hold }
    }

    fn set(self, nth: usize, stage: Stage) {
        let words = &self.words[1 + nth * STAGE_WORDS..][..STAGE_WORDS];
        let Stage { refresh, places, write, hold } = stage;
        for (word, number) in words.iter().zip([refresh, places, write, hold]) {
            word.store(number, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec;
    use alloc::vec::Vec;

    fn words(area: MainArea) -> Vec<AtomicU64> {
        let words: Vec<_> = (0..area.schedule_words()).map(|_| AtomicU64::new(0)).collect();
        Schedule::new(area, &words).begin();
        words
    }

    /// Copies of all places, each by the write or refresh that made it.
    struct Copies {
        main: BTreeMap<u64, u64>,
        hold: BTreeMap<u64, u64>,
        last: BTreeMap<u64, u64>,
    }

    impl Copies {
        /// Follows `writes` writes of the places that `place` gives, for a schedule that grows, and
        /// compares where each newest copy is. Returns how many places there are in the end.
        fn follow(area: MainArea, writes: u64, place: impl Fn(u64, u64) -> u64) -> u64 {
            let words = words(area);
            let schedule = Schedule::new(area, &words);
            let mut copies =
                Self { main: BTreeMap::new(), hold: BTreeMap::new(), last: BTreeMap::new() };
            let (mut used, mut refreshed) = (0, 0);
            for write in 0..writes {
                let place = place(write, used);
                assert!(place <= used && place < schedule.places(), "{area:?} {write}");
                used = used.max(place + 1);
                copies.hold.insert(schedule.hold_slot(write), write);
                copies.last.insert(place, write);
                let counted = if area.growth == Growth::Pages { used } else { write + 1 };
                schedule.end_write(write, counted);
                let due = refreshed..schedule.due(write + 1);
                let mut places: Vec<u64> = due.clone().map(|nth| schedule.place_of(nth)).collect();
                places.sort_unstable();
                places.dedup();
                // Workers do the refreshes of one write in any order.
                let is_once = places.len() as u64 == due.end - due.start;
                assert!(is_once, "{area:?}: a place is refreshed twice for one write");
                while refreshed < schedule.due(write + 1) {
                    let place = schedule.place_of(refreshed);
                    copies.check(schedule, place, refreshed);
                    copies.main.insert(place, refreshed);
                    refreshed += 1;
                }
                let all = if write % 97 == 0 { 0..used } else { place..place + 1 };
                all.for_each(|place| copies.check(schedule, place, refreshed));
            }
            schedule.places()
        }

        /// The newest copy is in the slot where the schedule has it.
        fn check(&self, schedule: Schedule, place: u64, refreshed: u64) {
            let Some(&write) = self.last.get(&place) else { return };
            match schedule.locate(place, write, refreshed) {
                DetWoLocation::Hold(found) => {
                    assert_eq!(found, write);
                    assert_eq!(self.hold.get(&schedule.hold_slot(write)), Some(&write));
                }
                DetWoLocation::Main(found) => {
                    assert_eq!(self.main.get(&place), Some(&found), "{place} {refreshed}");
                    assert!(found >= schedule.due(write), "the copy has the last write");
                }
                DetWoLocation::Nowhere => panic!("{place} was written"),
            }
        }
    }

    const RATIOS: [(u32, u32); 7] = [(1, 1), (3, 1), (2, 1), (5, 2), (1, 3), (11, 10), (300, 1)];

    #[test]
    fn the_newest_copy_is_where_the_schedule_has_it() {
        for (p, q) in RATIOS {
            let refresh = Refresh::new(p, q).unwrap();
            for growth in Growth::ALL {
                for pages in [100, 257, 3000, 20_000] {
                    let area = MainArea { pages, refresh, growth };
                    if pages < refresh.at_most(1) {
                        continue;
                    }
                    // Each write takes a place, while there are any; later ones use all again.
                    let all = Copies::follow(area, 3 * pages.min(4000), |write, used| {
                        if used < pages { used } else { write * write % pages }
                    });
                    assert!(all >= pages.min(4000), "{area:?}: {all}");
                    // One write in seven takes a place.
                    Copies::follow(area, 6000, |write, used| {
                        let is_new = write % 7 == 0 && used < pages;
                        if is_new { used } else { (write * 31 + write / 5) % used.max(1) }
                    });
                }
            }
        }
    }

    #[test]
    fn a_few_pages_take_a_few_places() {
        let refresh = Refresh::new(3, 1).unwrap();
        let with = |growth| MainArea { pages: 1 << 18, refresh, growth };
        let few = |growth| {
            Copies::follow(
                with(growth),
                100_000,
                |write, used| {
                    if used < 1000 { used } else { write % 1000 }
                },
            )
        };
        // 1,000 and half of it again for what may come in a pass, and a quarter more.
        assert!((1500..1900).contains(&few(Growth::Pages)), "{}", few(Growth::Pages));
        assert!((100_000..190_000).contains(&few(Growth::Evictions)));
        let short = Copies::follow(with(Growth::Evictions), 80, |_, used| used.min(9));
        assert_eq!(short, PLACES_MIN);
        assert!(!with(Growth::Whole).grows() && with(Growth::Pages).grows());
        assert!(!MainArea { refresh: Refresh::ONE, ..with(Growth::Pages) }.grows());
    }

    /// The places of all refreshes and the slots of all writes, and how many places there are after
    /// each write, of a program that uses so many places.
    fn schedule_of(area: MainArea, most: u64) -> Vec<u64> {
        let words = words(area);
        let schedule = Schedule::new(area, &words);
        let mut numbers = vec![];
        for write in 0..4000 {
            numbers.extend([schedule.hold_slot(write), schedule.places()]);
            let used = if area.growth == Growth::Pages { most.min(write + 1) } else { write + 1 };
            schedule.end_write(write, used);
            let refreshes = schedule.due(write)..schedule.due(write + 1);
            numbers.extend(refreshes.map(|refresh| schedule.place_of(refresh)));
        }
        numbers
    }

    #[test]
    fn only_growth_by_pages_depends_on_the_pages() {
        let refresh = Refresh::new(3, 1).unwrap();
        for growth in Growth::ALL {
            let area = MainArea { pages: 5000, refresh, growth };
            let [few, many] = [500, 3000].map(|most| schedule_of(area, most));
            assert_eq!(few == many, growth != Growth::Pages, "{growth:?}");
        }
    }

    /// So they show how many pages there are to within a quarter.
    #[test]
    fn numbers_of_places_are_steps_of_a_quarter() {
        let refresh = Refresh::new(3, 1).unwrap();
        let area = MainArea { pages: 10_000, refresh, growth: Growth::Pages };
        let mut steps = vec![PLACES_MIN];
        while *steps.last().unwrap() < area.pages {
            let last = steps.last().unwrap();
            steps.push((last + last / 4).min(area.pages));
        }
        for used in (1..4000).step_by(7) {
            let words = words(area);
            let schedule = Schedule::new(area, &words);
            for write in 0..4000 {
                schedule.end_write(write, used.min(write + 1));
                assert!(steps.contains(&schedule.places()), "{used}: {}", schedule.places());
            }
        }
    }
}
