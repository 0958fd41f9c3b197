//! How often a place comes again soon, beside how often chance has it.

use crate::draws::Draws;
use crate::numbered::numbered;

/// What one window saw.
#[derive(Clone, Copy, Default)]
pub(crate) struct Seen {
    /// Draws of a place that was drawn by one of the accesses in the window before.
    pub hits: u64,
    /// As many as chance has, given what was in the window each time; and their variance. Both are
    /// exact, since each draw is independent of all before it if the claim is true.
    pub expected: f64,
    pub variance: f64,
}

/// Windows worth looking at, in accesses: the widest finds places that come again late, narrow ones
/// find few that come again soon.
pub(crate) fn windows(draws: &Draws) -> Vec<usize> {
    let widest = (draws.places / 4 / draws.each as u64).min(draws.accesses() as u64 / 4).max(1);
    let part = |share: f64| (widest as f64).powf(share).round() as usize;
    let mut windows = vec![part(1.0 / 3.0), part(2.0 / 3.0), widest as usize];
    windows.dedup();
    windows
}

/// What each of `windows` sees.
pub(crate) fn again(draws: &Draws, windows: &[usize]) -> Vec<Seen> {
    let gaps = Gaps::of(draws);
    windows.iter().map(|&window| gaps.seen(draws, window)).collect()
}

/// How far each draw is from those of the same place, in accesses.
struct Gaps {
    /// From the one before.
    before: Vec<u32>,
    /// From the next one.
    after: Vec<u32>,
}

/// There is no other.
const NEVER: u32 = u32::MAX;

impl Gaps {
    fn of(draws: &Draws) -> Self {
        let places = numbered(&draws.drawn, draws.places);
        let each = draws.each as u32;
        let mut last = vec![NEVER; 1 + places.iter().copied().max().unwrap_or(0) as usize];
        let mut before = Vec::with_capacity(places.len());
        let mut after = vec![NEVER; places.len()];
        for (draw, &place) in (0..).zip(&places) {
            let earlier = core::mem::replace(&mut last[place as usize], draw);
            let gap = if earlier == NEVER { NEVER } else { draw / each - earlier / each };
            before.push(gap);
            if let Some(after) = after.get_mut(earlier as usize) {
                *after = gap;
            }
        }
        Self { before, after }
    }

    fn seen(&self, draws: &Draws, window: usize) -> Seen {
        let (all, each) = (draws.places as f64, draws.each as f64);
        // Places of one access are different: of a few places, that leaves less to chance.
        let apart = if all > 1.0 { (all - each) / (all - 1.0) } else { 0.0 };
        let farther = |gap: &&u32| **gap as usize > window;
        let mut seen = Seen::default();
        // Places in the window.
        let mut different = 0u64;
        for (access, before) in self.before.chunks_exact(draws.each).enumerate() {
            if let Some(left) = access.checked_sub(window + 1) {
                let left = &self.after[left * draws.each..][..draws.each];
                different -= left.iter().filter(farther).count() as u64;
            }
            let share = different as f64 / all;
            seen.expected += each * share;
            seen.variance += each * share * (1.0 - share) * apart;
            let new = before.iter().filter(farther).count();
            seen.hits += (before.len() - new) as u64;
            different += new as u64;
        }
        seen
    }
}
