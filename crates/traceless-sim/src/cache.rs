//! Set-associative caches that write back.
//!
//! ```
//! use traceless_sim::cache::{Cache, Config, Lookup};
//! use traceless_sim::workload::Op;
//!
//! # fn main() -> traceless_sim::Result {
//! // One set of two lines.
//! let mut cache = Cache::new(&Config { bytes: 128, ways: 2 })?;
//! assert_eq!(cache.access(0, Op::Write), Lookup::Miss { victim: None });
//! assert_eq!(cache.access(64, Op::Read), Lookup::Miss { victim: None });
//! assert_eq!(cache.access(32, Op::Read), Lookup::Hit);
//! // The least recently used line leaves; it is clean.
//! assert_eq!(cache.access(128, Op::Read), Lookup::Miss { victim: None });
//! assert_eq!(cache.access(192, Op::Read), Lookup::Miss { victim: Some(0) });
//! # Ok(())
//! # }
//! ```

use crate::error::{Error, Result};
use crate::workload::{LINE_LEN, Op};
use serde::{Deserialize, Serialize};

/// Size and associativity of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Bytes that the cache holds.
    pub bytes: u64,
    /// Lines of a set.
    pub ways: u32,
}

impl Config {
    /// The first-level cache through which the authors' workloads went.
    pub const L1: Self = Self { bytes: 256 << 10, ways: 2 };

    /// The last level of the IR-ORAM paper's Table I.
    pub const LLC: Self = Self { bytes: 2 << 20, ways: 8 };

    /// Refuses sizes that do not divide into a power of two of sets, and caches that are too large.
    pub fn check(&self) -> Result {
        let Self { bytes, ways } = *self;
        let sets = bytes / LINE_LEN / u64::from(ways.max(1));
        if !sets.is_power_of_two() || bytes != sets * u64::from(ways) * LINE_LEN {
            let what = "its bytes are 64 times its ways times a power of two, the sets: 1 or more";
            return Err(Error::Cache(what));
        }
        if bytes > BYTES_MAX {
            return Err(Error::Cache("it is larger than 64 GiB"));
        }
        Ok(())
    }

    fn sets(&self) -> u64 {
        self.bytes / LINE_LEN / u64::from(self.ways)
    }
}

/// Lines of memory that were used lately: each set keeps its most recently used.
pub struct Cache {
    /// Set by set, the most recently used line first.
    lines: Vec<Line>,
    ways: usize,
    sets: u64,
}

#[derive(Clone, Copy, Default)]
struct Line {
    /// One more than the number of the line, or 0 if there is none.
    tag: u64,
    dirty: bool,
}

/// The result of an access to a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The line is in the cache.
    Hit,
    /// The line was not in the cache, and has taken the place of another one. If that one was
    /// written since it came in, `victim` is the address of its first byte.
    Miss {
        /// The line that must be written back.
        victim: Option<u64>,
    },
}

/// A line that has left the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Victim {
    /// The first byte of the line.
    pub addr: u64,
    /// Whether the line was written since it came in.
    pub dirty: bool,
}

impl Cache {
    /// An empty cache.
    pub fn new(config: &Config) -> Result<Self> {
        config.check()?;
        let (sets, ways) = (config.sets(), config.ways);
        let lines = vec![Line::default(); (sets * u64::from(ways)) as usize];
        Ok(Self { lines, ways: ways as usize, sets })
    }

    /// Accesses the line of byte `addr`.
    #[inline]
    pub fn access(&mut self, addr: u64, op: Op) -> Lookup {
        match self.replace(addr, op) {
            None => Lookup::Hit,
            Some(victim) => Lookup::Miss { victim: victim.filter(|v| v.dirty).map(|v| v.addr) },
        }
    }

    /// Accesses the line of byte `addr` and returns the line that left for it, clean or dirty;
    /// `None` if the cache holds the line.
    #[inline]
    pub fn replace(&mut self, addr: u64, op: Op) -> Option<Option<Victim>> {
        let number = addr / LINE_LEN;
        let set = self.set_mut(addr);
        let here = set.iter().position(|line| line.tag == number + 1);
        let last = here.unwrap_or(set.len() - 1);
        let was = set[last];
        set.copy_within(..last, 1);
        let dirty = op == Op::Write;
        if here.is_some() {
            set[0] = Line { dirty: was.dirty | dirty, ..was };
            return None;
        }
        set[0] = Line { tag: number + 1, dirty };
        Some(Self::victim(was))
    }

    /// Brings in a line that was not requested, in front of the last `behind` lines of its set, and
    /// returns the line that left for it. Does nothing if the cache holds the line, or if a dirty
    /// line would have to leave: its write-back costs more than the new line is worth.
    pub fn insert(&mut self, addr: u64, behind: usize) -> Option<Victim> {
        let number = addr / LINE_LEN;
        let set = self.set_mut(addr);
        let last = set.len() - 1;
        if set[last].dirty || set.iter().any(|line| line.tag == number + 1) {
            return None;
        }
        let (at, was) = (last.saturating_sub(behind), set[last]);
        set.copy_within(at..last, at + 1);
        set[at] = Line { tag: number + 1, dirty: false };
        Self::victim(was)
    }

    /// Whether the cache holds the line of byte `addr`.
    pub fn holds(&self, addr: u64) -> bool {
        let first = self.set_of(addr) as usize * self.ways;
        self.lines[first..first + self.ways].iter().any(|line| line.tag == addr / LINE_LEN + 1)
    }

    /// Marks a line as clean, if it is in the cache, and returns whether it was dirty.
    pub fn clean(&mut self, addr: u64) -> bool {
        let number = addr / LINE_LEN;
        let line = self.set_mut(addr).iter_mut().find(|line| line.tag == number + 1);
        line.is_some_and(|line| core::mem::take(&mut line.dirty))
    }

    fn set_mut(&mut self, addr: u64) -> &mut [Line] {
        let first = self.set_of(addr) as usize * self.ways;
        &mut self.lines[first..first + self.ways]
    }

    fn victim(line: Line) -> Option<Victim> {
        line.tag.checked_sub(1).map(|n| Victim { addr: n * LINE_LEN, dirty: line.dirty })
    }

    /// The number of sets.
    pub fn sets(&self) -> u64 {
        self.sets
    }

    /// The set of the line of byte `addr`.
    pub fn set_of(&self, addr: u64) -> u64 {
        (addr / LINE_LEN) & (self.sets - 1)
    }

    /// The line that leaves a set next, if it is dirty.
    pub fn dirty_victim(&self, set: u64) -> Option<u64> {
        let last = self.lines[(set as usize + 1) * self.ways - 1];
        last.dirty.then(|| (last.tag - 1) * LINE_LEN)
    }

    /// Notes that the line that leaves a set next was written back.
    pub fn clean_victim(&mut self, set: u64) {
        self.lines[(set as usize + 1) * self.ways - 1].dirty = false;
    }
}

const BYTES_MAX: u64 = 64 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use traceless::rng::{Rng, SeededRng};

    #[test]
    fn the_least_recently_used_goes() {
        let mut cache = Cache::new(&Config { bytes: 4 * LINE_LEN, ways: 2 }).unwrap();
        let miss = |victim| Lookup::Miss { victim };
        let line = |n: u64| n * LINE_LEN;
        assert_eq!(cache.access(line(0), Op::Write), miss(None));
        assert_eq!(cache.access(line(2) + 63, Op::Read), miss(None));
        assert_eq!(cache.access(line(0), Op::Read), Lookup::Hit);
        assert_eq!(cache.access(line(4), Op::Read), miss(None), "line 2 was clean");
        assert_eq!(cache.access(line(6), Op::Read), miss(Some(line(0))));
        assert_eq!(cache.access(line(1), Op::Read), miss(None), "another set");
    }

    /// Compares the cache with a list of the lines requested from each set.
    #[test]
    fn it_keeps_what_was_used_last() {
        for config in [(1, 1), (8, 1), (8, 8), (64, 4)] {
            let (lines, ways) = config;
            let mut cache = Cache::new(&Config { bytes: lines * LINE_LEN, ways }).unwrap();
            let mut model: HashMap<u64, Vec<(u64, bool)>> = HashMap::new();
            let mut rng = SeededRng::new(1);
            for _ in 0..20_000 {
                let line = rng.below(lines * 3);
                let op = if rng.below(3) == 0 { Op::Write } else { Op::Read };
                let set = model.entry(line % (lines / u64::from(ways))).or_default();
                let here = set.iter().position(|(l, _)| *l == line);
                let older = here.map(|nth| set.remove(nth));
                set.push((line, op == Op::Write || older.is_some_and(|(_, dirty)| dirty)));
                let full = set.len() > ways as usize;
                let (gone, dirty) = if full { set.remove(0) } else { (0, false) };
                let expected = match older {
                    Some(_) => Lookup::Hit,
                    None => Lookup::Miss { victim: dirty.then_some(gone * LINE_LEN) },
                };
                assert_eq!(cache.access(line * LINE_LEN, op), expected);
            }
        }
    }

    #[test]
    fn an_unrequested_line_comes_in_where_it_is_put() {
        let line = |n: u64| n * LINE_LEN;
        // After how many other lines the inserted line leaves a set of four.
        let left = |behind| {
            let mut cache = Cache::new(&Config { bytes: 4 * LINE_LEN, ways: 4 }).unwrap();
            for n in 0..4 {
                cache.access(line(n), Op::Read);
            }
            let victim = cache.insert(line(9), behind);
            assert_eq!(victim, Some(Victim { addr: line(0), dirty: false }));
            assert_eq!(cache.insert(line(9), behind), None, "it is here");
            let mut others = (20..24).map(|n| cache.replace(line(n), Op::Read).flatten().unwrap());
            let gone = others.position(|victim| victim == Victim { addr: line(9), dirty: false });
            gone.expect("it leaves in its turn")
        };
        assert_eq!([0, 1, 3, 8].map(left), [0, 1, 3, 3]);
    }

    #[test]
    fn what_was_written_back_is_clean() {
        let mut cache = Cache::new(&Config { bytes: 2 * LINE_LEN, ways: 2 }).unwrap();
        cache.access(0, Op::Write);
        assert!(cache.holds(1) && !cache.holds(LINE_LEN));
        assert!(cache.clean(5), "it is the same line");
        assert!(!cache.clean(0) && !cache.clean(LINE_LEN));
        cache.access(LINE_LEN, Op::Read);
        let miss = cache.access(2 * LINE_LEN, Op::Read);
        assert_eq!(miss, Lookup::Miss { victim: None });
        cache.access(LINE_LEN, Op::Write);
        cache.access(2 * LINE_LEN, Op::Read);
        assert_eq!(cache.insert(3 * LINE_LEN, 0), None);
        assert!(cache.holds(LINE_LEN) && !cache.holds(3 * LINE_LEN), "it would cost a write");
    }

    #[test]
    fn impossible_caches_are_refused() {
        for (bytes, ways) in [(0, 1), (64, 0), (63, 1), (64 * 3, 1), (64, 2), (1 << 50, 1)] {
            assert!(Cache::new(&Config { bytes, ways }).is_err(), "{bytes} {ways}");
        }
    }
}
