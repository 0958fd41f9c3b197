//! Finds the number of leaves of a tree when a trace does not show all of them.
//!
//! With few accesses and many places, the rank of a place among the observed ones is not its rank
//! among all. But the leaves of a tree, and the elements of an array, are at equal distances; and
//! if the observed places span nearly a power of two of these distances, that is the number of
//! leaves.

use crate::accesses::{Accesses, greatest_divisor};
use crate::columns::recurrence_of;
use crate::draws::Draws;

/// If leaves are drawn at random, a gap at an end of more than this many times the mean distance of
/// observed leaves has a probability of 10^-13.
const MISSING: f64 = 30.0;

/// With fewer places, a trace of random draws shows all of them.
const LEAVES_MIN: u64 = 64;

/// The leaf of each access of two users, if the places fit the leaves of a full tree or
/// the elements of an array, a power of two of them; else nothing. `distinct` are the values of
/// `place` of all accesses, in order.
pub(crate) fn leaves(users: [&Accesses; 2], place: usize, distinct: &[u64]) -> Option<[Draws; 2]> {
    let [a, b] = users;
    let (least, most) = (*distinct.first()?, *distinct.last()?);
    let unit = distinct.windows(2).fold(0, |unit, two| greatest_divisor(unit, two[1] - two[0]));
    if unit == 0 {
        return None;
    }
    let range = (most - least) / unit + 1;
    let places = range.checked_next_power_of_two().filter(|places| *places >= LEAVES_MIN)?;
    let missing = places - range;
    let usual = places as f64 / (a.len() + b.len()) as f64;
    if missing as f64 > 2.0 * MISSING * usual {
        return None;
    }
    // Before the first leaf of a tree there are as many buckets as leaves, less one; the first
    // element of an array is assumed at a multiple of the array's size.
    let from_zero = least / unit;
    let is_tree = (places - 1..2 * places - 1).contains(&from_zero);
    let offset = (from_zero + u64::from(is_tree)) % places;
    let offset = if offset <= missing { offset } else { 0 };
    let recurrence = recurrence_of(users, place);
    Some(users.map(|user| Draws {
        places,
        drawn:
            user.all.iter().map(|access| (access.places[place] - least) / unit + offset).collect(),
        recurrence,
        ..Draws::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mixer::Mixer;
    use core::convert::Infallible;
    use traceless_core::trace::{Event, Op, Surface};

    fn accesses(places: &[u64]) -> Accesses {
        let event = |op, at| Event { time: 0, surface: Surface::Storage, op, at, len: 256 };
        let events: Vec<Event> =
            places.iter().flat_map(|&at| [Op::Read, Op::Write].map(|op| event(op, at))).collect();
        Accesses::segment(|| Ok(events.iter().copied().map(Ok::<_, Infallible>))).unwrap()
    }

    fn of(a: &Accesses, b: &Accesses) -> Option<[Draws; 2]> {
        let all = a.all.iter().chain(&b.all).map(|access| access.places[0]);
        let distinct: std::collections::BTreeSet<u64> = all.collect();
        leaves([a, b], 0, &distinct.into_iter().collect::<Vec<_>>())
    }

    #[test]
    fn leaves_are_numbered_by_their_addresses() {
        let mut rng = Mixer(1);
        let mut drawn = || (0..4000).map(|_| rng.below(1 << 16)).collect::<Vec<u64>>();
        let users = [drawn(), drawn()];
        for (base, unit) in [((1 << 16) - 1, 256), (0, 320), (1 << 20, 4096)] {
            let [a, b] = users.each_ref().map(|user| {
                accesses(&user.iter().map(|leaf| (base + leaf) * unit).collect::<Vec<_>>())
            });
            let found = of(&a, &b).unwrap();
            assert_eq!(found[0].places, 1 << 16);
            assert_eq!(found.map(|draws| draws.drawn), users, "{base} {unit}");
        }
    }

    #[test]
    fn addresses_without_a_tree_have_no_leaves() {
        let mut rng = Mixer(2);
        let mut drawn =
            |of: u64| accesses(&(0..4000).map(|_| 64 * rng.below(of)).collect::<Vec<u64>>());
        assert!(of(&drawn(50_000), &drawn(50_000)).is_none());
        assert!(of(&accesses(&[64; 9]), &accesses(&[64; 9])).is_none());
        assert!(of(&accesses(&[]), &accesses(&[])).is_none());
    }
}
