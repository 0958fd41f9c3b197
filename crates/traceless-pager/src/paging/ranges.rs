//! A set of addresses, as ranges.

use core::ops::Range;
use std::collections::BTreeMap;

/// Addresses in ranges that do not touch each other.
///
/// ```
/// use traceless_pager::paging::Ranges;
///
/// let mut ranges = Ranges::default();
/// ranges.add(10..20);
/// ranges.add(20..30);
/// ranges.remove(12..14);
/// assert!(ranges.covers(&(14..30)) && !ranges.covers(&(11..15)));
/// assert!(ranges.overlaps(&(0..11)) && !ranges.overlaps(&(12..14)));
/// assert_eq!(ranges.gaps(8..16).collect::<Vec<_>>(), [8..10, 12..14]);
/// ```
#[derive(Default)]
pub struct Ranges {
    /// The end of each range, by its start.
    ends: BTreeMap<usize, usize>,
}

impl Ranges {
    /// No addresses.
    pub const fn new() -> Self {
        Self { ends: BTreeMap::new() }
    }

    /// Adds the addresses of a range.
    pub fn add(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        // Neighbours become one range.
        while let Some((&first, &last)) = self.ends.range(..=end).next_back()
            && last >= start
        {
            self.ends.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.ends.insert(start, end);
    }

    /// Removes the addresses of a range.
    pub fn remove(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        while let Some((&first, &last)) = self.ends.range(..range.end).next_back()
            && last > range.start
        {
            self.ends.remove(&first);
            if first < range.start {
                self.ends.insert(first, range.start);
            }
            if last > range.end {
                self.ends.insert(range.end, last);
            }
        }
    }

    /// Whether any address of the range is in the set.
    pub fn overlaps(&self, range: &Range<usize>) -> bool {
        let before = self.ends.range(..range.end).next_back();
        !range.is_empty() && before.is_some_and(|(_, &last)| last > range.start)
    }

    /// Whether all addresses of the range are in the set.
    pub fn covers(&self, range: &Range<usize>) -> bool {
        self.gaps(range.clone()).next().is_none()
    }

    /// The parts of a range that are not in the set.
    pub fn gaps(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        let Range { mut start, end } = range;
        core::iter::from_fn(move || {
            while start < end {
                let before = self.ends.range(..=start).next_back();
                if let Some((_, &last)) = before.filter(|(_, last)| **last > start) {
                    start = last;
                    continue;
                }
                let next = self.ends.range(start..end).next().map_or(end, |(&first, _)| first);
                let gap = start..next;
                start = next;
                return Some(gap);
            }
            None
        })
    }

    /// All ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.ends.iter().map(|(&start, &end)| start..end)
    }

    /// Whether the set has no address.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless::rng::{Rng, SeededRng};

    #[test]
    fn ranges_agree_with_an_array() {
        let (mut ranges, mut truth) = (Ranges::default(), [false; 64]);
        let mut rng = SeededRng::new(1);
        for _ in 0..20_000 {
            let start = rng.below(64) as usize;
            let range = start..start + rng.below(65 - start as u64) as usize;
            let adds = rng.below(2) == 0;
            truth[range.clone()].fill(adds);
            if adds {
                ranges.add(range);
            } else {
                ranges.remove(range);
            }
            let start = rng.below(64) as usize;
            let range = start..start + rng.below(65 - start as u64) as usize;
            let part = &truth[range.clone()];
            assert_eq!(ranges.overlaps(&range), part.contains(&true));
            assert_eq!(ranges.covers(&range), !part.contains(&false));
            let missing: usize = ranges.gaps(range).map(|gap| gap.len()).sum();
            assert_eq!(missing, part.iter().filter(|there| !**there).count());
            let all: Vec<_> = ranges.iter().collect();
            assert!(all.windows(2).all(|two| two[0].end < two[1].start), "{all:?}");
        }
    }
}
