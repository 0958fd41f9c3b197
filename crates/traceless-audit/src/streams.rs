//! Two traces cut into what is public and what is drawn, where accesses are of several kinds.
//!
//! A scheme with more than one tree accesses each in its turn, and some evict along paths in an
//! order that all the world knows. The places of all accesses in a row are not drawn at random
//! then, but those of each kind are, once what is public is left out.

use crate::accesses::{ACCESSES_MIN, Access, Accesses};
use crate::template::Template;

/// Accesses of as many kinds have no schedule.
const KINDS_MAX: usize = 16;

/// Accesses of a kind after which its schedule begins anew, at most.
const PERIOD_MAX: usize = 64;

/// What is drawn of one kind of accesses, by each of two users.
pub(crate) struct Stream {
    /// Of which kind, counted from 1 in the order in which they are first seen.
    pub kind: usize,
    pub users: [Accesses; 2],
}

/// The drawn part of two traces, if both follow one schedule: their accesses are of the same kinds
/// in the same order, and of each kind, those that are at the same place in both traces come at
/// equal distances. Nothing if there is no schedule, or too little beside it.
pub(crate) fn streams(a: &Accesses, b: &Accesses) -> Option<Vec<Stream>> {
    // The last access may be cut short by the end of the recording.
    let common = a.len().min(b.len()).checked_sub(1)?;
    let users = [a, b].map(|user| (&user.all[..common], &user.secrets[..]));
    let [(of_a, _), (of_b, _)] = users;
    if of_a.iter().zip(of_b).any(|(a, b)| a.template != b.template) {
        return None;
    }
    let kinds = kinds(of_a)?;
    let mut drawn = vec![];
    for (nth, kind) in kinds.iter().enumerate() {
        let of_kind: Vec<usize> = (0..common).filter(|&i| of_a[i].template == *kind).collect();
        let same: Vec<bool> = of_kind.iter().map(|&i| of_a[i].places == of_b[i].places).collect();
        let public = public(&same);
        let chosen = |i: &usize| !public[i % public.len()];
        let left: Vec<usize> = (0..of_kind.len()).filter(chosen).map(|i| of_kind[i]).collect();
        if (1..ACCESSES_MIN).contains(&left.len()) {
            return None;
        }
        if !left.is_empty() {
            drawn.push(Stream { kind: nth + 1, users: users.map(|(all, s)| part(all, s, &left)) });
        }
    }
    let has_schedule = drawn.iter().map(|stream| stream.users[0].len()).sum::<usize>() < common;
    (!drawn.is_empty() && (kinds.len() > 1 || has_schedule)).then_some(drawn)
}

/// The kinds of accesses as they are first seen; nothing if there are too many.
fn kinds(all: &[Access]) -> Option<Vec<Template>> {
    let mut kinds = vec![];
    for access in all {
        if !kinds.contains(&access.template) {
            kinds.push(access.template);
            if kinds.len() > KINDS_MAX {
                return None;
            }
        }
    }
    Some(kinds)
}

/// Which of a period's accesses are public: those that are the `same` in both traces each time, if
/// the others mostly are not. Without such a period, none.
fn public(same: &[bool]) -> Vec<bool> {
    let of_period = |period: usize| {
        let nth = |first| same.iter().skip(first).step_by(period);
        let mut public = vec![];
        for first in 0..period {
            let (all, alike) = (nth(first).count(), nth(first).filter(|same| **same).count());
            if alike < all && 2 * alike > all {
                return None;
            }
            public.push(alike == all);
        }
        public.contains(&true).then_some(public)
    };
    (1..=PERIOD_MAX.min(same.len() / 2)).find_map(of_period).unwrap_or_else(|| vec![false])
}

fn part(all: &[Access], secrets: &[u64], left: &[usize]) -> Accesses {
    let secrets =
        if secrets.is_empty() { vec![] } else { left.iter().map(|&i| secrets[i]).collect() };
    Accesses { all: left.iter().map(|&i| all[i]).collect(), secrets }
}

/// What was drawn last of another kind before each access of `of`, numbered from 1: 0 before any.
pub(crate) fn drawn_before(of: &Accesses, other: &Accesses, drawn: &[u64]) -> Vec<u64> {
    let mut next = other.all.iter().zip(drawn).peekable();
    let mut last = 0;
    let before = |access: &Access| {
        while let Some((_, place)) = next.next_if(|(other, _)| other.seen < access.seen) {
            last = place + 1;
        }
        last
    };
    of.all.iter().map(before).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accesses::{Judged, judge};
    use crate::mixer::Mixer;
    use crate::report::{Claim, Verdict};
    use core::convert::Infallible;
    use traceless::trace::{Asked, Event, Op, Surface};

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

    fn cut(events: &[Event]) -> Accesses {
        Accesses::cut(|| Ok(events.iter().copied().map(Ok::<_, Infallible>))).unwrap()
    }

    /// A Circuit ORAM of other people: an access to a random leaf, and an eviction along the next
    /// path, which is public. In one access of `reuses` the leaf is that of the access before, in
    /// one eviction of `strays` the path is a random one.
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
        cut(&events)
    }

    /// A recursive ORAM of other people, its map in a tree of its own. In one access of `shares`
    /// the leaf of the data is the one below that of the map.
    fn recursive(seed: u64, shares: u64) -> Accesses {
        let mut rng = Mixer(seed << 32);
        let mut events = vec![];
        for _ in 0..4000 {
            let (map, data) = (rng.below(128), rng.below(1024));
            path(&mut events, 1 << 24, 7, map);
            let shares = shares > 0 && rng.below(shares) == 0;
            path(&mut events, 0, 10, if shares { 8 * map } else { data });
        }
        cut(&events)
    }

    fn all_hold(claims: &[Claim]) -> bool {
        claims.iter().all(|claim| claim.verdict == Verdict::Pass)
    }

    fn pass(judged: &Judged) -> bool {
        all_hold(&judged.alone) && all_hold(&judged.together)
    }

    #[test]
    fn sound_schemes_with_a_schedule_pass() {
        for seed in 1..6 {
            let judged = judge(&circuit(seed, 0, 0), &circuit(seed + 10, 0, 0));
            assert!(pass(&judged), "{judged:?}");
            assert!(judged.alone[0].evidence.starts_with("4000 of 8000"), "{judged:?}");
            let judged = judge(&recursive(seed, 0), &recursive(seed + 10, 0));
            assert!(pass(&judged), "{judged:?}");
        }
    }

    #[test]
    fn broken_schemes_with_a_schedule_do_not() {
        let honest = circuit(1, 0, 0);
        assert!(!pass(&judge(&honest, &circuit(2, 20, 0))));
        assert!(!pass(&judge(&honest, &circuit(2, 0, 20))));
        assert!(!pass(&judge(&recursive(1, 0), &recursive(2, 10))));
    }

    #[test]
    fn what_is_the_same_now_and_then_is_not_public() {
        let mut same = vec![false; 300];
        assert_eq!(public(&same), [false]);
        same.iter_mut().step_by(3).for_each(|same| *same = true);
        assert_eq!(public(&same), [true, false, false]);
        same[0] = false;
        assert_eq!(public(&same), [false]);
        assert_eq!(public(&[true; 10]), [true]);
    }

    /// In one access of twenty for a write, and in no other, a byte less is written.
    #[test]
    fn accesses_that_look_otherwise_when_something_is_asked_for_are_found() {
        let user = |seed: u64, tells: bool| {
            let mut rng = Mixer(seed << 32);
            let (mut events, mut asked) = (vec![], vec![]);
            for _ in 0..4000 {
                let op = if rng.below(2) == 0 { Op::Read } else { Op::Write };
                asked.push(Asked {
                    seen: events.len() as u64,
                    op,
                    at: 64 * rng.below(99),
                    len: 64,
                });
                path(&mut events, 0, 10, rng.below(1024));
                if rng.below(10) == 0 && (!tells || op == Op::Write) {
                    events.last_mut().expect("a path").len = 255;
                }
            }
            cut(&events).with_secrets(asked.into_iter().map(Ok::<_, Infallible>)).unwrap()
        };
        let found = |tells| {
            let judged = judge(&user(1, false), &user(2, tells));
            assert!(all_hold(&judged.alone), "{judged:?}");
            let kinds = judged.together.iter().filter(|claim| claim.name.contains("kinds tell"));
            kinds.map(|claim| claim.verdict).collect::<Vec<_>>()
        };
        assert_eq!(found(false), [Verdict::Pass, Verdict::Pass]);
        assert_eq!(found(true), [Verdict::Pass, Verdict::Leak]);
    }
}
