//! Which dirty line is written back early (IR-DWB; ir-oram, section IV-D).

use crate::cache::Cache;
use serde::Serialize;
use std::collections::VecDeque;
use traceless::rng::{Rng, SeededRng};

/// The line that is offered, and how the next one is found.
pub struct EarlyWriteBack {
    pointer: Option<u64>,
    search: Search,
    counts: EarlyCounts,
}

/// What the offers and searches led to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct EarlyCounts {
    /// Lines that were offered.
    pub offered: u64,
    /// Offered lines that were used again, or had to leave, before they were written back.
    pub aborted: u64,
    /// Searches of the whole cache that found no line.
    pub in_vain: u64,
}

enum Search {
    /// A pointer goes from set to set. The paper does not limit the sets that a search looks at in
    /// a cycle, so passing over sets takes no time; but a search in vain is followed by a pause,
    /// and the next one begins at a random set.
    Scan { next: u64, pause: u64, paused_until: u64, rng: Box<SeededRng> },
    /// A queue of dirty lines, each added when it becomes the next to leave its set; it holds at
    /// most `room` lines.
    Queue { lines: VecDeque<u64>, room: usize },
}

impl EarlyWriteBack {
    /// Finds lines by a pointer that goes through the cache. After a search in vain it pauses for
    /// `pause` cycles.
    pub fn scan(seed: u64, pause: u64) -> Self {
        let rng = Box::new(SeededRng::new(seed));
        Self::new(Search::Scan { next: 0, pause, paused_until: 0, rng })
    }

    /// Finds lines in a queue of at most `room` lines.
    pub fn queue(room: usize) -> Self {
        Self::new(Search::Queue { lines: VecDeque::new(), room })
    }

    fn new(search: Search) -> Self {
        Self { pointer: None, search, counts: EarlyCounts::default() }
    }

    /// The counts so far.
    pub fn counts(&self) -> EarlyCounts {
        self.counts
    }

    /// The first cycle from `now` on in which a search may find a line, as far as is known.
    pub fn searches_at(&self, now: u64) -> u64 {
        match &self.search {
            Search::Scan { paused_until, .. } => now.max(*paused_until),
            Search::Queue { lines, .. } if lines.is_empty() => u64::MAX,
            Search::Queue { .. } => now,
        }
    }

    /// The next line to be offered. The pointer stays on it until it is written back or aborted.
    pub fn find(&mut self, cache: &Cache, now: u64) -> Option<u64> {
        self.pointer = match &mut self.search {
            Search::Scan { next, pause, paused_until, rng } => {
                if now < *paused_until {
                    return None;
                }
                let sets = (*next..cache.sets()).chain(0..*next);
                let found = sets.into_iter().find_map(|set| cache.dirty_victim(set));
                if let Some(addr) = found {
                    *next = (cache.set_of(addr) + 1) % cache.sets();
                } else {
                    *paused_until = now + *pause;
                    *next = rng.below(cache.sets());
                    self.counts.in_vain += 1;
                }
                found
            }
            Search::Queue { lines, .. } => core::iter::from_fn(|| lines.pop_front())
                .find(|&addr| cache.dirty_victim(cache.set_of(addr)) == Some(addr)),
        };
        self.counts.offered += u64::from(self.pointer.is_some());
        self.pointer
    }

    /// Whether the line under the pointer is no longer the next to leave its set, after an access
    /// to the set of `addr`. Then the pointer is cleared.
    pub fn is_aborted(&mut self, cache: &Cache, addr: u64) -> bool {
        let set = cache.set_of(addr);
        let victim = cache.dirty_victim(set);
        if let (Search::Queue { lines, room }, Some(victim)) = (&mut self.search, victim)
            && lines.len() < *room
            && !lines.contains(&victim)
        {
            lines.push_back(victim);
        }
        let Some(pointer) = self.pointer.filter(|&pointer| cache.set_of(pointer) == set) else {
            return false;
        };
        if victim == Some(pointer) {
            return false;
        }
        self.pointer = None;
        self.counts.aborted += 1;
        true
    }

    /// Marks the line under the pointer as written back.
    pub fn finish(&mut self, cache: &mut Cache) {
        if let Some(pointer) = self.pointer.take() {
            cache.clean_victim(cache.set_of(pointer));
        }
    }
}
