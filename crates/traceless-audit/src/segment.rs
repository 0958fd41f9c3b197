//! Cuts a trace of an unknown scheme into accesses.
//!
//! An access is a row of reads and the writes after them. In a trace of only reads or only writes,
//! it is all events of one time; without times, each event. Some schemes (Ring ORAM) read paths for
//! several accesses before they write: a longer row of reads is cut at each return to the place at
//! which paths begin, and at the end of a path.

use crate::access::Access;
use crate::accesses::Accesses;
use crate::footprint::Footprint;
use core::ops::RangeInclusive;
use std::collections::BTreeMap;
use std::sync::Arc;
use traceless_core::trace::{Event, Op};

/// The most events of an access; further events are another one. A trace that reads once and then
/// only writes has no natural accesses.
const ACCESS_EVENTS_MAX: usize = 1 << 20;

/// The fewest rows of reads that show a path, and their least share of all rows.
const ROWS_MIN: usize = 100;
const SHARE_MIN: f64 = 0.25;

impl Accesses {
    /// Cuts a trace, which is read two or three times, because only its end shows how accesses
    /// begin. A sync belongs to the access before it. The memory used is 96 bytes for each access,
    /// and 4 bytes for each read and write of the first 16 million.
    ///
    /// # Errors
    /// The first failure of `read`, or of what it returns.
    pub fn segment<E, I>(mut read: impl FnMut() -> Result<I, E>) -> Result<Self, E>
    where
        I: Iterator<Item = Result<Event, E>>,
    {
        let rule = BoundaryRule::of(read()?)?;
        let accesses = Self::segment_by(&rule, read()?)?;
        match rule.with_path_of(&accesses) {
            Some(rule) => Self::segment_by(&rule, read()?),
            None => Ok(accesses),
        }
    }

    fn segment_by<E>(
        rule: &BoundaryRule,
        trace: impl Iterator<Item = Result<Event, E>>,
    ) -> Result<Self, E> {
        let (mut all, mut footprint) = (vec![], Footprint::default());
        let (mut events, mut events_before) = (Vec::<Event>::new(), 0);
        let mut segmenter = rule.segmenter();
        let mut end = |events: &mut Vec<Event>| {
            let access = Access { events_before, first: footprint.len(), ..Access::of(events) };
            for event in events.iter() {
                footprint.add(event);
            }
            all.push(access);
            events_before += events.len() as u64;
            events.clear();
        };
        for event in trace {
            let event = event?;
            let is_next = segmenter.begins_with(&event);
            if is_next || events.len() == ACCESS_EVENTS_MAX {
                end(&mut events);
            }
            events.push(event);
        }
        if !events.is_empty() {
            end(&mut events);
        }
        Ok(Self { all, footprint: Arc::new(footprint), ..Self::default() })
    }
}

/// The rule that finds where an access begins.
#[derive(Clone, Default)]
struct BoundaryRule {
    /// Whether a trace both reads and writes, and writes are not rare.
    has_both: bool,
    has_times: bool,
    /// The range of places of each read of a path; empty if no row holds several paths.
    path: Vec<RangeInclusive<u64>>,
}

/// With more reads than this for each write, writes do not belong to every access.
const RARE: u64 = 32;

impl BoundaryRule {
    /// Finds the rule from a trace's events, without paths.
    pub fn of<E>(events: impl Iterator<Item = Result<Event, E>>) -> Result<Self, E> {
        let (mut reads, mut writes, mut has_times) = (0_u64, 0_u64, false);
        for event in events {
            let Event { op, time, .. } = event?;
            reads += u64::from(op == Op::Read);
            writes += u64::from(op == Op::Write);
            has_times |= time != 0;
        }
        Ok(Self { has_both: reads > 0 && writes * RARE > reads, has_times, path: vec![] })
    }

    /// Adds the paths that the accesses show; nothing if they show none.
    pub fn with_path_of(self, accesses: &Accesses) -> Option<Self> {
        if !self.has_both {
            return None;
        }
        let path = path_of(accesses)?;
        Some(Self { path, ..self })
    }

    /// A cutter for one trace.
    pub fn segmenter(&self) -> Segmenter<'_> {
        Segmenter { rule: self, before: None, reads: 0, is_path: true }
    }

    fn is_start_of_path(&self, event: &Event) -> bool {
        self.path.first().is_some_and(|first| first.contains(&event.at))
    }
}

/// Decides event by event where accesses begin.
struct Segmenter<'a> {
    rule: &'a BoundaryRule,
    before: Option<Event>,
    /// Reads of the access so far, and whether they go along a path.
    reads: usize,
    is_path: bool,
}

impl Segmenter<'_> {
    /// Whether an access begins with `event`. Must be called for every event, in order.
    pub fn begins_with(&mut self, event: &Event) -> bool {
        let begins = self.before.as_ref().is_some_and(|before| self.is_next(before, event));
        self.before = Some(*event);
        if begins {
            (self.reads, self.is_path) = (0, true);
        }
        let path = &self.rule.path;
        self.is_path &= path.get(self.reads).is_some_and(|level| level.contains(&event.at));
        self.reads += 1;
        begins
    }

    fn is_next(&self, before: &Event, event: &Event) -> bool {
        let BoundaryRule { has_both, has_times, path } = &self.rule;
        match (has_both, event.op) {
            (true, Op::Read) if before.op != Op::Read => true,
            (true, Op::Read) => {
                let is_whole = self.is_path && self.reads == path.len();
                let returns =
                    self.rule.is_start_of_path(event) && !self.rule.is_start_of_path(before);
                !path.is_empty() && (is_whole || returns)
            }
            (true, _) | (false, Op::Sync) => false,
            (false, _) => !has_times || before.time != event.time,
        }
    }
}

/// The range of places of each read of a path, if rows of reads hold several paths: then rows
/// return, always after the same number of reads, to where they began. Paths may go up or down.
fn path_of(accesses: &Accesses) -> Option<Vec<RangeInclusive<u64>>> {
    [false, true].into_iter().find_map(|falls| {
        // For each number of reads, the rows that return after it.
        let mut returns: BTreeMap<usize, usize> = BTreeMap::new();
        let mut run = vec![];
        for nth in 0..accesses.len() {
            reads_of(accesses, nth, falls, &mut run);
            if let Some(reads) = returns_after(&run) {
                *returns.entry(reads).or_default() += 1;
            }
        }
        let (&reads, &runs) = returns.iter().max_by_key(|(_, runs)| **runs)?;
        let all: usize = returns.values().sum();
        let share = runs as f64 / accesses.len() as f64;
        if runs < ROWS_MIN || 2 * runs < all || share < SHARE_MIN {
            return None;
        }
        let mut levels = vec![(u64::MAX, 0u64); reads];
        for nth in 0..accesses.len() {
            reads_of(accesses, nth, falls, &mut run);
            if returns_after(&run) == Some(reads) {
                for ((low, high), at) in levels.iter_mut().zip(&run) {
                    (*low, *high) = ((*low).min(*at), (*high).max(*at));
                }
            }
        }
        let rise = levels.windows(2).all(|two| two[0].1 < two[1].0);
        // A trace may not show all places of a level: its range extends to the observed places of
        // the neighbouring levels.
        let reach = |level: usize| {
            let low = level.checked_sub(1).map_or(0, |before| levels[before].1 + 1);
            let high = levels.get(level + 1).map_or(u64::MAX, |next| next.0 - 1);
            if falls { !high..=!low } else { low..=high }
        };
        rise.then(|| (0..reads).map(reach).collect())
    })
}

/// The places of the reads that an access begins with; complemented if paths fall, so that they
/// rise.
fn reads_of(accesses: &Accesses, nth: usize, falls: bool, run: &mut Vec<u64>) {
    run.clear();
    let reads =
        accesses.footprint_of(nth).into_iter().flatten().take_while(|event| !event.is_write);
    let place = |number| accesses.footprint.place(number);
    run.extend(reads.map(|event| if falls { !place(event.number) } else { place(event.number) }));
}

/// The number of reads after which a row returns to before the place of its second read: only the
/// first place of a path lies there.
fn returns_after(run: &[u64]) -> Option<usize> {
    let second = run.get(1)?;
    (run[0] < *second).then(|| run.iter().skip(2).position(|at| at < second))?.map(|nth| nth + 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mixer::Mixer;
    use core::convert::Infallible;
    use traceless_core::trace::Surface;

    /// Paths of four levels, three in a row before a write; some are followed by reads and writes
    /// of the last level.
    fn runs(falls: bool) -> Vec<Event> {
        let event = |op, at| Event { time: 0, surface: Surface::Storage, op, at, len: 8 };
        let mut rng = Mixer(7);
        let mut events = vec![];
        for nth in 1..=3000 {
            let leaf = rng.below(8);
            let mut path: Vec<u64> = (0..4).map(|l| 1000 * l + 8 * (leaf >> (3 - l))).collect();
            if falls {
                path.reverse();
            }
            events.extend(path.into_iter().map(|at| event(Op::Read, at)));
            if nth % 7 == 0 {
                events.extend([Op::Read, Op::Write].map(|op| event(op, 3000 + 8 * leaf)));
            }
            if nth % 3 == 0 {
                events.extend([Op::Read, Op::Write].map(|op| event(op, 0)));
            }
        }
        events
    }

    #[test]
    fn runs_of_several_paths_are_segmented() {
        for falls in [false, true] {
            let events = runs(falls);
            let accesses =
                Accesses::segment(|| Ok(events.iter().copied().map(Ok::<_, Infallible>)));
            let accesses = accesses.unwrap();
            // 3000 paths, an eviction after each three, and a bucket after each seven.
            assert_eq!(accesses.len(), 3000 + 1000 + 428, "{falls}");
            let paths =
                (0..accesses.len()).filter(|&nth| accesses.footprint_of(nth).unwrap().len() == 4);
            assert_eq!(paths.count(), 3000);
        }
    }

    #[test]
    fn runs_that_do_not_return_are_one_access() {
        assert_eq!(returns_after(&[]), None);
        assert_eq!(returns_after(&[5, 9, 12, 20]), None);
        assert_eq!(returns_after(&[9, 5, 4]), None, "it does not rise");
        assert_eq!(returns_after(&[5, 9, 12, 20, 6, 9]), Some(4));
    }

    fn segment(events: &[Event]) -> Accesses {
        Accesses::segment(|| Ok(events.iter().copied().map(Ok::<_, Infallible>))).unwrap()
    }

    #[test]
    fn an_access_has_a_greatest_length() {
        let event = |op| Event { time: 0, surface: Surface::Storage, op, at: 0, len: 1 };
        let mut events = vec![event(Op::Write); 2 * ACCESS_EVENTS_MAX];
        events[0].op = Op::Read;
        assert_eq!(segment(&events).len(), 2);
        assert_eq!(segment(&events).all[1].events_before, ACCESS_EVENTS_MAX as u64);
    }

    #[test]
    fn segmentation_returns_reader_failures() {
        for fails in [1, 2] {
            let mut reads = 0;
            let read = || {
                reads += 1;
                if reads == fails { Err("gone") } else { Ok(std::iter::once(Err("broken"))) }
            };
            let found = Accesses::segment::<&str, std::iter::Once<Result<Event, &str>>>(read);
            assert_eq!(found.unwrap_err(), if fails == 1 { "gone" } else { "broken" });
        }
    }
}
