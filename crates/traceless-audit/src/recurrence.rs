//! How often a place is drawn again soon, compared with chance.

use crate::dense_index::numbered;
use crate::draws::{Draws, Recurrence, Test, worst};
use crate::mixer::Mixer;
use crate::report::Claim;
use crate::stats::{claim_from_p, count_tail, deviation_found, many_tail, smallest_of};

/// The counts of one window.
#[derive(Clone, Copy, Default)]
struct WindowCount {
    /// Draws of a place that one of the accesses in the window before also drew.
    hits: u64,
    /// The number of hits expected by chance, given the places in the window each time; and its
    /// variance. Both are exact if the claim is true, since each draw is then independent of all
    /// before it.
    expected: f64,
    variance: f64,
}

impl Draws {
    /// The claim that a place is drawn again within a window as often as by chance, at full
    /// resolution.
    pub fn recur_by_chance(&self, what: &str) -> Claim {
        let windows = windows(self);
        let name = self.name("do not come again", what);
        self.recur_by_chance_within(name, &windows, &window_counts(self, &windows), "by chance")
    }

    /// The claim that a place is drawn again within a window as often as if the accesses had come
    /// in another order, for use when the number of places is not known.
    pub fn do_not_recur_sooner(&self, what: &str) -> Claim {
        const SHUFFLES: usize = 20;
        let windows = windows(self);
        let hits =
            |draws: &Self| window_counts(draws, &windows).into_iter().map(|observed| observed.hits);
        let mut other = self.clone();
        let mut mixer = Mixer(self.drawn.len() as u64);
        let mut sums = vec![0; windows.len()];
        for _ in 0..SHUFFLES {
            mixer.shuffle(&mut other.drawn);
            sums.iter_mut().zip(hits(&other)).for_each(|(sum, hits)| *sum += hits);
        }
        let found: Vec<WindowCount> = sums
            .iter()
            .zip(hits(self))
            .map(|(&sum, hits)| {
                let expected = sum as f64 / SHUFFLES as f64;
                // The mean over the shuffles varies by chance, too.
                WindowCount { hits, expected, variance: expected * (1.0 + 1.0 / SHUFFLES as f64) }
            })
            .collect();
        let name = self.name("do not come again sooner", what);
        self.recur_by_chance_within(name, &windows, &found, "in another order")
    }

    /// The claim that in none of `windows` more draws, or fewer, are hits than expected; `of` names
    /// the expectation.
    fn recur_by_chance_within(
        &self,
        name: String,
        windows: &[usize],
        found: &[WindowCount],
        of: &str,
    ) -> Claim {
        let test = |observed: &WindowCount| {
            let z = (observed.hits as f64 - observed.expected) / observed.variance.sqrt().max(1e-9);
            let tail = match self.recurrence {
                Recurrence::ByChance => count_tail,
                Recurrence::Later => many_tail,
            };
            (z, 0.0, tail(observed.hits, observed.expected, observed.variance))
        };
        let tests: Vec<Test> = found.iter().map(test).collect();
        let nth = worst(&tests);
        let ((z, _, p), observed, all) = (tests[nth], found[nth], self.drawn.len());
        let evidence = format!(
            "{} of {all} came again within {} accesses, {:.0} expected {of}, z = {z:.2}",
            observed.hits, windows[nth], observed.expected
        );
        let share = deviation_found(tests.len()) * observed.variance.max(1.0).sqrt();
        let percent = 100.0 * share / all.max(1) as f64;
        let power = format!("{percent:.2} % of places that come again are found");
        claim_from_p(name, z, smallest_of(tests.len(), p), power, &evidence)
    }
}

/// Windows to test, in accesses: the widest finds places that are drawn again late, narrow ones
/// find few that are drawn again soon.
fn windows(draws: &Draws) -> Vec<usize> {
    let widest = (draws.places / 4 / draws.each as u64).min(draws.accesses() as u64 / 4).max(1);
    let part = |share: f64| (widest as f64).powf(share).round() as usize;
    let mut windows = vec![part(1.0 / 3.0), part(2.0 / 3.0), widest as usize];
    windows.dedup();
    windows
}

/// The counts of each of `windows`.
fn window_counts(draws: &Draws, windows: &[usize]) -> Vec<WindowCount> {
    let gaps = gaps(&numbered(&draws.drawn, draws.places), draws.each);
    windows.iter().map(|&window| observed(draws, &gaps, window)).collect()
}

/// The gap of a place that was not drawn before.
const NEVER: u32 = u32::MAX;

/// For each draw, the accesses since its place was last drawn; each access makes `each` draws.
pub(crate) fn gaps(places: &[u32], each: usize) -> Vec<u32> {
    let mut last = vec![NEVER; 1 + places.iter().copied().max().unwrap_or(0) as usize];
    let gap = |(draw, &place): (u32, &u32)| {
        let earlier = core::mem::replace(&mut last[place as usize], draw);
        if earlier == NEVER { NEVER } else { draw / each as u32 - earlier / each as u32 }
    };
    (0..).zip(places).map(gap).collect()
}

fn observed(draws: &Draws, gaps: &[u32], window: usize) -> WindowCount {
    let (all, each) = (draws.places as f64, draws.each as f64);
    // The places of one access are different: with few places, that leaves less to chance.
    let apart = if all > 1.0 { (all - each) / (all - 1.0) } else { 0.0 };
    // For each access in the window, how many of its places were not drawn again; a ring buffer.
    let mut unrepeated = vec![0; (window + 1).next_power_of_two()];
    let mask = unrepeated.len() - 1;
    let mut observed = WindowCount::default();
    // Different places in the window.
    let mut different = 0u64;
    for (access, of_access) in gaps.chunks_exact(draws.each).enumerate() {
        if let Some(left) = access.checked_sub(window + 1) {
            different -= unrepeated[left & mask];
        }
        let share = different as f64 / all;
        observed.expected += each * share;
        observed.variance += each * share * (1.0 - share) * apart;
        unrepeated[access & mask] = draws.each as u64;
        let mut new = 0;
        for &gap in of_access {
            if gap as usize > window {
                new += 1;
            } else {
                unrepeated[(access - gap as usize) & mask] -= 1;
            }
        }
        observed.hits += draws.each as u64 - new;
        different += new;
    }
    observed
}
