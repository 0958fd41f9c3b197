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
    let gaps = gaps(&numbered(&draws.drawn, draws.places), draws.each);
    windows.iter().map(|&window| seen(draws, &gaps, window)).collect()
}

/// The gap of what was not drawn before.
const NEVER: u32 = u32::MAX;

/// How many accesses, of so many draws `each`, before each draw its place was last drawn.
pub(crate) fn gaps(places: &[u32], each: usize) -> Vec<u32> {
    let mut last = vec![NEVER; 1 + places.iter().copied().max().unwrap_or(0) as usize];
    let gap = |(draw, &place): (u32, &u32)| {
        let earlier = core::mem::replace(&mut last[place as usize], draw);
        if earlier == NEVER { NEVER } else { draw / each as u32 - earlier / each as u32 }
    };
    (0..).zip(places).map(gap).collect()
}

fn seen(draws: &Draws, gaps: &[u32], window: usize) -> Seen {
    let (all, each) = (draws.places as f64, draws.each as f64);
    // Places of one access are different: of a few places, that leaves less to chance.
    let apart = if all > 1.0 { (all - each) / (all - 1.0) } else { 0.0 };
    // Draws of each access in the window whose place has not come again; the accesses go round.
    let mut alone = vec![0; (window + 1).next_power_of_two()];
    let at = alone.len() - 1;
    let mut seen = Seen::default();
    // Places in the window.
    let mut different = 0u64;
    for (access, of_access) in gaps.chunks_exact(draws.each).enumerate() {
        if let Some(left) = access.checked_sub(window + 1) {
            different -= alone[left & at];
        }
        let share = different as f64 / all;
        seen.expected += each * share;
        seen.variance += each * share * (1.0 - share) * apart;
        alone[access & at] = draws.each as u64;
        let mut new = 0;
        for &gap in of_access {
            if gap as usize > window {
                new += 1;
            } else {
                alone[(access - gap as usize) & at] -= 1;
            }
        }
        seen.hits += draws.each as u64 - new;
        different += new;
    }
    seen
}
