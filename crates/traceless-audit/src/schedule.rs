//! Divides two traces with accesses of several kinds into public accesses and drawn ones.
//!
//! A scheme with several trees accesses each in its turn, some schemes evict along paths in a
//! public order, and some shuffle everything now and then. The places of all accesses in a row are
//! then not drawn at random, but the places of each kind are, once public ones are left out.

use crate::access::{Access, HIGH, LOW, PLACES};
use crate::accesses::Accesses;
use crate::order::{Order, order};
use crate::template::Template;
use std::collections::{HashMap, HashSet};

/// Accesses of more kinds than this have no schedule.
const KINDS_MAX: usize = 64;

/// The most stretches of places that no access crosses: more of them do not come from several
/// trees.
const REGIONS_MAX: usize = 16;

/// The fewest repetitions that show a schedule: a coincidence in each of them is not chance.
const PERIODS_MIN: usize = 8;

/// The most periods that are tested closely.
const PERIODS_TRIED: usize = 64;

/// Two places are near if their distance is less than this share of the range of all places: they
/// may differ in the slot of a bucket, but hardly in the bucket.
const NEAR: f64 = 1.0 / 16.0;

/// The fewest accesses that show whether one place decides another.
const DECIDED_MIN: usize = 100;

/// The accesses of one kind, of each of two users.
pub(crate) struct Kind {
    /// The number of the kind, from 1, in the order of first appearance.
    pub nth: usize,
    pub all: [Accesses; 2],
    /// The accesses at places that are not public.
    pub drawn: [Accesses; 2],
    /// Whether its accesses come in a public order, and not by chance.
    pub is_regular: bool,
}

/// Two traces with accesses of several kinds, or with partly public places.
pub(crate) struct Schedule {
    pub kinds: Vec<Kind>,
    pub order: Order,
}

/// The schedule of two traces; nothing if all accesses are alike, or of too many kinds.
pub(crate) fn schedule(a: &Accesses, b: &Accesses) -> Option<Schedule> {
    // The last access may be cut short by the end of the recording.
    let [all_a, all_b] = [a, b].map(|user| &user.all[..user.len().saturating_sub(1)]);
    let regions = regions(all_a.iter().chain(all_b));
    let mut numbers: HashMap<(Template, usize), usize> = HashMap::new();
    let mut kinds_of = |all: &[Access]| -> Vec<usize> {
        let number = |access: &Access| {
            let region = regions.partition_point(|low| *low <= access.places[LOW]);
            let next = numbers.len();
            *numbers.entry((access.kind, region)).or_insert(next)
        };
        all.iter().map(number).collect()
    };
    let kinds = [kinds_of(all_a), kinds_of(all_b)];
    let number = numbers.len();
    if number == 0 || number > KINDS_MAX {
        return None;
    }
    let order = order(&kinds[0], &kinds[1], number);
    let mut found = vec![];
    for (nth, &is_regular) in order.is_regular.iter().enumerate() {
        let mut of_kind = kinds.each_ref().map(|kinds| -> Vec<usize> {
            (0..kinds.len()).filter(|&access| kinds[access] == nth).collect()
        });
        if is_regular {
            let both = of_kind[0].len().min(of_kind[1].len());
            for nths in &mut of_kind {
                nths.truncate(both);
            }
        }
        let all = [a.part(&of_kind[0]), b.part(&of_kind[1])];
        let public = if is_regular { public(&all[0], &all[1]) } else { vec![false] };
        let drawn = all.each_ref().map(|all| {
            let private = (0..all.len()).filter(|nth| !public[nth % public.len()]);
            all.part(&private.collect::<Vec<_>>())
        });
        found.push(Kind { nth: nth + 1, all, drawn, is_regular });
    }
    let is_public = |kind: &Kind| kind.drawn[0].len() < kind.all[0].len();
    let has_schedule = number > 1 || found.iter().any(is_public);
    has_schedule.then_some(Schedule { kinds: found, order })
}

/// The beginnings of the stretches of places that no access crosses: each of several trees is one.
/// If there are too many, the whole memory counts as one stretch.
fn regions<'a>(all: impl Iterator<Item = &'a Access>) -> Vec<u64> {
    let mut extents: Vec<(u64, u64)> =
        all.map(|access| (access.places[LOW], access.places[HIGH])).collect();
    extents.sort_unstable();
    let mut regions = vec![];
    let mut end = None;
    for (low, high) in extents.into_iter().filter(|(low, high)| low <= high) {
        if end.is_none_or(|end| end < low) {
            regions.push(low);
        }
        end = end.max(Some(high));
    }
    if regions.len() > REGIONS_MAX { vec![] } else { regions }
}

/// The accesses in each period of a kind that are public: they are at the same place in both traces
/// each time, and the other accesses mostly are not. None if there is no period.
fn public(a: &Accesses, b: &Accesses) -> Vec<bool> {
    let same_at = |place: usize| -> Vec<bool> {
        a.all.iter().zip(&b.all).map(|(a, b)| a.places[place] == b.places[place]).collect()
    };
    let same: Vec<bool> = a.all.iter().zip(&b.all).map(|(a, b)| a.places == b.places).collect();
    let found = period(&same);
    if found != [false] || same.is_empty() {
        return found;
    }
    let both = || a.all.iter().chain(&b.all);
    let different =
        |place: usize| both().map(|access| access.places[place]).collect::<HashSet<u64>>().len();
    let varying_place = (0..PLACES).max_by_key(|&place| different(place)).expect("some");
    let varying = || both().map(|access| access.places[varying_place]);
    let range = varying().max().unwrap_or(0) - varying().min().unwrap_or(0);
    // Accesses with equal or neighbouring values of `place` are near in the other place as well.
    let decides = |place: usize| {
        let mut places: Vec<(u64, u64)> =
            both().map(|access| (access.places[place], access.places[varying_place])).collect();
        // The sort is stable: accesses with the same `place` keep their order.
        places.sort_by_key(|(place, _)| *place);
        let near = |two: &[(u64, u64)]| two[0].1.abs_diff(two[1].1) as f64 <= NEAR * range as f64;
        places.len() >= DECIDED_MIN && places.windows(2).all(near)
    };
    let mut other_places = (0..PLACES).filter(|place| *place != varying_place);
    let is_public = other_places
        .any(|place| same_at(place).iter().all(|same| *same) && range > 0 && decides(place));
    vec![is_public]
}

/// The accesses of a period that are the `same` in both traces each time, if the other accesses
/// mostly are not. None if there is no period.
fn period(same: &[bool]) -> Vec<bool> {
    let drawn: Vec<usize> = (0..same.len()).filter(|&nth| !same[nth]).take(64).collect();
    let of_period = |period: usize| {
        let mut same_counts = vec![0; period];
        same.iter()
            .enumerate()
            .for_each(|(nth, same)| same_counts[nth % period] += usize::from(*same));
        let public = (0..period).map(|first| {
            let all = (same.len() - first).div_ceil(period);
            (same_counts[first] == all || 2 * same_counts[first] <= all)
                .then_some(same_counts[first] == all)
        });
        let public: Vec<bool> = public.collect::<Option<_>>()?;
        public.contains(&true).then_some(public)
    };
    // An access that is drawn is mostly drawn one period later, too.
    let may_be = |period: &usize| {
        let later = drawn.iter().filter_map(|nth| same.get(nth + period));
        2 * later.clone().filter(|same| **same).count() <= later.count()
    };
    let periods = (1..=same.len() / PERIODS_MIN).filter(may_be).take(PERIODS_TRIED);
    let found =
        if drawn.is_empty() { of_period(1) } else { periods.into_iter().find_map(of_period) };
    found.unwrap_or_else(|| vec![false])
}

/// For each access of `of`, the place of another kind drawn last before it, numbered from 1; 0 if
/// there is none.
pub(crate) fn last_drawn_before(of: &Accesses, other: &Accesses, drawn: &[u64]) -> Vec<u64> {
    let mut next = other.all.iter().zip(drawn).peekable();
    let mut last = 0;
    let before = |access: &Access| {
        while let Some((_, place)) =
            next.next_if(|(other, _)| other.events_before < access.events_before)
        {
            last = place + 1;
        }
        last
    };
    of.all.iter().map(before).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Judgement, judge};
    use crate::mixer::Mixer;
    use crate::report::{Claim, Verdict};
    use core::convert::Infallible;
    use traceless_core::trace::{Event, Op, Request, Surface};

    /// Reads and writes a path of a tree that begins at `base`.
    fn path(events: &mut Vec<Event>, base: u64, levels: u32, leaf: u64) {
        for op in [Op::Read, Op::Write] {
            events.extend((0..=levels).map(|level| {
                let bucket = (1u64 << level) - 1 + (leaf >> (levels - level));
                let at = base + bucket * 256;
                Event { time: 0, surface: Surface::Storage, op, at, len: 256 }
            }));
        }
    }

    fn segment(events: &[Event]) -> Accesses {
        Accesses::segment(|| Ok(events.iter().copied().map(Ok::<_, Infallible>))).unwrap()
    }

    /// A foreign Circuit ORAM: an access to a random leaf, and an eviction along the next path,
    /// which is public. In one access of `reuses` the leaf is that of the access before, in one
    /// eviction of `strays` the path is a random one.
    fn circuit(seed: u64, reuses: u64, strays: u64) -> Accesses {
        let mut rng = Mixer(seed << 32);
        let (mut events, mut leaf) = (vec![], 0);
        for access in 0..4000u64 {
            if reuses == 0 || rng.below(reuses) > 0 {
                leaf = rng.below(1024);
            }
            path(&mut events, 0, 10, leaf);
            let strays = strays > 0 && rng.below(strays) == 0;
            let next = (access % 1024).reverse_bits() >> 54;
            path(&mut events, 0, 10, if strays { rng.below(1024) } else { next });
        }
        segment(&events)
    }

    /// A foreign recursive ORAM, with its map in a tree of its own. In one access of `shares` the
    /// leaf of the data is the one below that of the map.
    fn recursive(seed: u64, shares: u64) -> Accesses {
        let mut rng = Mixer(seed << 32);
        let mut events = vec![];
        for _ in 0..4000 {
            let (map, data) = (rng.below(128), rng.below(1024));
            path(&mut events, 1 << 24, 7, map);
            let shares = shares > 0 && rng.below(shares) == 0;
            path(&mut events, 0, 10, if shares { 8 * map } else { data });
        }
        segment(&events)
    }

    fn all_hold(claims: &[Claim]) -> bool {
        claims.iter().all(|claim| claim.verdict == Verdict::Pass)
    }

    fn pass(judgement: &Judgement) -> bool {
        all_hold(&judgement.alone) && all_hold(&judgement.together)
    }

    #[test]
    fn sound_schemes_with_a_schedule_pass() {
        for seed in 1..6 {
            let judgement = judge(&circuit(seed, 0, 0), &circuit(seed + 10, 0, 0));
            assert!(pass(&judgement), "{judgement:?}");
            let claim = judgement.alone.last().unwrap();
            assert!(claim.evidence.starts_with("4000 of 7999"), "{judgement:?}");
            let judgement = judge(&recursive(seed, 0), &recursive(seed + 10, 0));
            assert!(pass(&judgement), "{judgement:?}");
        }
    }

    #[test]
    fn leaking_schemes_with_a_schedule_fail() {
        let honest = circuit(1, 0, 0);
        assert!(!pass(&judge(&honest, &circuit(2, 20, 0))));
        assert!(!pass(&judge(&honest, &circuit(2, 0, 20))));
        assert!(!pass(&judge(&recursive(1, 0), &recursive(2, 10))));
    }

    #[test]
    fn places_that_are_equal_by_chance_are_not_public() {
        let mut same = vec![false; 300];
        assert_eq!(period(&same), [false]);
        same.iter_mut().step_by(3).for_each(|same| *same = true);
        assert_eq!(period(&same), [true, false, false]);
        same[0] = false;
        assert_eq!(period(&same), [false]);
        assert_eq!(period(&[true; 10]), [true]);
    }

    /// One draw after each five hundred accesses at public places.
    #[test]
    fn long_periods_are_found_after_enough_repetitions() {
        let same: Vec<bool> = (0..5010).map(|nth| nth % 501 != 500).collect();
        let found = period(&same);
        assert_eq!((found.len(), found.iter().filter(|public| !**public).count()), (501, 1));
        assert_eq!(period(&same[..3000]), [false], "it is seen six times");
    }

    /// One access of ten is odd: its last event is a byte shorter, or a sync follows. With `leaks`,
    /// reads never are.
    #[test]
    fn kinds_of_accesses_that_depend_on_requests_are_found() {
        let user = |seed: u64, leaks: bool, syncs: bool| {
            let mut rng = Mixer(seed << 32);
            let (mut events, mut requests) = (vec![], vec![]);
            for _ in 0..4000 {
                let op = if rng.below(2) == 0 { Op::Read } else { Op::Write };
                requests.push(Request {
                    events_before: events.len() as u64,
                    op,
                    at: 64 * rng.below(99),
                    len: 64,
                });
                path(&mut events, 0, 10, rng.below(1024));
                let last = events.last_mut().expect("a path");
                if rng.below(10) == 0 && (!leaks || op == Op::Write) {
                    let sync = Event { op: Op::Sync, at: 0, len: 0, ..*last };
                    if syncs {
                        events.push(sync);
                    } else {
                        last.len = 255;
                    }
                }
            }
            segment(&events).with_secrets(requests.into_iter().map(Ok::<_, Infallible>)).unwrap()
        };
        let found = |leaks, syncs| {
            let judgement = judge(&user(1, false, syncs), &user(2, leaks, syncs));
            assert!(all_hold(&judgement.alone), "{judgement:?}");
            let kinds = judgement.together.iter().filter(|claim| claim.name.contains("kinds tell"));
            kinds.map(|claim| claim.verdict).collect::<Vec<_>>()
        };
        for syncs in [false, true] {
            assert_eq!(found(false, syncs), [Verdict::Pass; 4]);
            let [pass, leak] = [Verdict::Pass, Verdict::Leak];
            assert_eq!(found(true, syncs), [pass, pass, leak, leak]);
        }
    }
}
