//! The leaves of a tree of which not all were seen.
//!
//! Where few accesses are seen of many places, the order of those seen is not the order of all. But
//! the addresses of a tree's leaves, and of an array, lie as far from each other each; and if they
//! fill nearly a power of two of such steps, they are so many.

use crate::accesses::{Accesses, greatest_divisor};
use crate::columns::again;
use crate::draws::Draws;

/// Of leaves that are drawn at random, so many times the mean distance of those seen are missing at
/// an end in one of 10^13 cases.
const MISSING: f64 = 30.0;

/// Fewer places of which not all were seen were not drawn at random.
const LEAVES_MIN: u64 = 64;

/// The leaf of each access of two users, if places are where the leaves of a full tree or the
/// elements of an array would be, a power of two of them; else nothing. `known` is where the
/// `place` of all accesses is, in order.
pub(crate) fn leaves(users: [&Accesses; 2], place: usize, known: &[u64]) -> Option<[Draws; 2]> {
    let [a, b] = users;
    let (least, most) = (*known.first()?, *known.last()?);
    let unit = known.windows(2).fold(0, |unit, two| greatest_divisor(unit, two[1] - two[0]));
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
    // The first leaf is after as many buckets as a tree has above its leaves, less one; the first
    // element is at a multiple of the size of an array.
    let from_zero = least / unit;
    let is_tree = (places - 1..2 * places - 1).contains(&from_zero);
    let offset = (from_zero + u64::from(is_tree)) % places;
    let offset = if offset <= missing { offset } else { 0 };
    let again = again(users, place);
    Some(users.map(|user| Draws {
        places,
        drawn:
            user.all.iter().map(|access| (access.places[place] - least) / unit + offset).collect(),
        again,
        ..Draws::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mixer::Mixer;
    use core::convert::Infallible;
    use traceless::trace::{Event, Op, Surface};

    fn accesses(places: &[u64]) -> Accesses {
        let event = |op, at| Event { time: 0, surface: Surface::Storage, op, at, len: 256 };
        let events: Vec<Event> =
            places.iter().flat_map(|&at| [Op::Read, Op::Write].map(|op| event(op, at))).collect();
        Accesses::cut(|| Ok(events.iter().copied().map(Ok::<_, Infallible>))).unwrap()
    }

    fn of(a: &Accesses, b: &Accesses) -> Option<[Draws; 2]> {
        let all = a.all.iter().chain(&b.all).map(|access| access.places[0]);
        let known: std::collections::BTreeSet<u64> = all.collect();
        leaves([a, b], 0, &known.into_iter().collect::<Vec<_>>())
    }

    #[test]
    fn leaves_are_known_by_their_addresses() {
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
    fn what_is_no_tree_has_no_leaves() {
        let mut rng = Mixer(2);
        let mut drawn =
            |of: u64| accesses(&(0..4000).map(|_| 64 * rng.below(of)).collect::<Vec<u64>>());
        assert!(of(&drawn(50_000), &drawn(50_000)).is_none());
        assert!(of(&accesses(&[64; 9]), &accesses(&[64; 9])).is_none());
        assert!(of(&accesses(&[]), &accesses(&[])).is_none());
    }
}
