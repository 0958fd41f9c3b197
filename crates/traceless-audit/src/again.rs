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
    let places = numbered(&draws.drawn, draws.places);
    let of = |access: usize| &places[access * draws.each..][..draws.each];
    let (all, each) = (draws.places as f64, draws.each as f64);
    // Places of one access are different: of a few places, that leaves less to chance.
    let apart = if all > 1.0 { (all - each) / (all - 1.0) } else { 0.0 };
    let mut last = vec![NEVER; 1 + places.iter().copied().max().unwrap_or(0) as usize];
    let mut seen = vec![Seen::default(); windows.len()];
    // Different places in each window.
    let mut different = vec![0u64; windows.len()];
    for access in 0..draws.accesses() {
        for (window, different) in windows.iter().zip(&mut different) {
            if let Some(left) = access.checked_sub(window + 1) {
                let gone = of(left).iter().filter(|&&p| last[p as usize] == left as u32).count();
                *different -= gone as u64;
            }
        }
        for (seen, &different) in seen.iter_mut().zip(&different) {
            let share = different as f64 / all;
            seen.expected += each * share;
            seen.variance += each * share * (1.0 - share) * apart;
        }
        for &place in of(access) {
            let before = core::mem::replace(&mut last[place as usize], access as u32);
            for ((window, seen), different) in windows.iter().zip(&mut seen).zip(&mut different) {
                let hit = before != NEVER && access - before as usize <= *window;
                seen.hits += u64::from(hit);
                *different += u64::from(!hit);
            }
        }
    }
    seen
}

const NEVER: u32 = u32::MAX;
