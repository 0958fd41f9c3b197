use super::*;
use crate::distance::Distance;
use crate::mixer::Mixer;
use crate::stats::ALPHA;

/// Accesses to a Path ORAM of `places` leaves. `choose` selects the next leaf of a block, with its
/// faults.
fn leaves(seed: u64, places: u64, mut choose: impl FnMut(&mut Mixer, u64, u64) -> u64) -> Draws {
    let mut rng = Mixer(seed << 32);
    let mut position: Vec<u64> = (0..1024).map(|_| rng.below(places)).collect();
    let mut draws = Draws { noun: "leaves", places, ..Draws::default() };
    for _ in 0..100_000 {
        let block = rng.below(1024);
        let leaf = position[block as usize];
        draws.drawn.push(leaf);
        draws.secrets.push(block);
        position[block as usize] = choose(&mut rng, leaf, block);
    }
    draws
}

/// Writes that draw three slots each.
fn slots(seed: u64, mut draw: impl FnMut(&mut Mixer, u64, u64) -> u64) -> Draws {
    let mut rng = Mixer(seed << 32);
    let (places, noun) = (512, "written slots");
    let mut draws = Draws { noun, places, each: 3, ..Draws::default() };
    for i in 0..8000 {
        let address = rng.below(256);
        let mut slots: Vec<u64> = vec![];
        while slots.len() < 3 {
            let slot = draw(&mut rng, i, address);
            if !slots.contains(&slot) {
                slots.push(slot);
            }
        }
        slots.sort_unstable();
        draws.drawn.extend(slots);
        draws.secrets.push(address);
    }
    draws
}

fn p_values(draws: &Draws) -> Vec<f64> {
    draws.claims("").iter().map(|claim| claim.p.unwrap()).collect()
}

#[test]
fn sound_draws_raise_no_alarm_and_their_p_values_are_uniform() {
    let mut of_claims = vec![vec![]; CLAIMS + 1];
    for seed in 0..100 {
        let one = leaves(seed, 4096, |rng, _, _| rng.below(4096));
        let other = leaves(1000 + seed, 4096, |rng, _, _| rng.below(4096));
        let mut p = p_values(&one);
        p.push(one.have_distribution_of(&other, "").p.unwrap());
        assert!(p.iter().all(|&p| p > 1e-5), "seed {seed}: {p:?}");
        of_claims.iter_mut().zip(p).for_each(|(all, p)| all.push(p));
    }
    for (nth, p) in of_claims.into_iter().enumerate() {
        // A bounded probability is too large, which is the safe side.
        let is_bound = [AT_ANY_DISTANCE, SEVERAL, GIVEN_EARLIER].contains(&nth);
        let distance =
            if is_bound { Distance::below_uniform(&p) } else { Distance::from_uniform(&p) };
        assert!(distance.p > 1e-3, "claim {nth} is {distance:?} from uniform");
    }
}

/// So few draws that each pair of classes occurs a few times; users request any block, or mostly a
/// few of them; and there are as many places as classes, or few.
#[test]
fn short_and_uneven_draws_raise_alarms_no_more_often_than_stated() {
    for (places, hot) in [(4, false), (128, true), (512, false), (512, true)] {
        let mut of_claims = vec![vec![]; CLAIMS + 1];
        for seed in 0..300 {
            let mut draws = [2 * seed, 2 * seed + 1].map(|seed| {
                let mut draws = leaves(seed, places, |rng, _, _| rng.below(places));
                draws.drawn.truncate(1280);
                draws
            });
            let mut rng = Mixer(seed);
            let mut ask = |_| {
                let blocks = if hot && rng.below(50) > 0 { 8 } else { 2048 };
                rng.below(blocks)
            };
            draws[0].secrets = (0..1280).map(&mut ask).collect();
            let mut p = p_values(&draws[0]);
            p.push(draws[0].have_distribution_of(&draws[1], "").p.unwrap());
            of_claims.iter_mut().zip(p).for_each(|(all, p)| all.push(p));
        }
        for (nth, p) in of_claims.into_iter().enumerate() {
            let small = Distance::below_uniform(&p);
            assert!(small.p > 1e-3, "{places} places, claim {nth}: {small:?}");
            assert!(p.iter().all(|&p| p > 1e-5), "{places} places, claim {nth}: {p:?}");
        }
    }
}

#[test]
fn sound_slots_raise_no_alarm() {
    for seed in 0..40 {
        let p = p_values(&slots(seed, |rng, _, _| rng.below(512)));
        assert!(p.iter().all(|&p| p > 1e-5), "seed {seed}: {p:?}");
    }
}

/// The indices of the claims of one user that do not hold.
fn alarms(draws: &Draws) -> Vec<usize> {
    let found = p_values(draws).into_iter().enumerate().filter(|(_, p)| *p < ALPHA);
    found.map(|(nth, _)| nth).collect()
}

const UNIFORM: usize = 0;
const SERIAL: usize = 1;
const NEAR: usize = 2;
const RECURRENCE: usize = 3;
const AUTOCORRELATION: usize = 4;
const AT_ANY_DISTANCE: usize = 5;
const HALVES: usize = 6;
const LEVELS: usize = 7;
const SEVERAL: usize = 8;
const SECRET: usize = 9;
const GIVEN_EARLIER: usize = 10;
const CLAIMS: usize = 11;

#[test]
fn leaves_that_are_not_redrawn_are_found() {
    let forgets =
        leaves(1, 4096, |rng, leaf, _| if rng.below(20) == 0 { leaf } else { rng.below(4096) });
    assert_eq!(alarms(&forgets), [RECURRENCE, AUTOCORRELATION, GIVEN_EARLIER]);
    let hot = |share: u64| {
        let mut draws = leaves(2, 1 << 20, |rng, _, _| rng.below(1 << 20));
        // One block is requested again and again, and its new leaf is forgotten now and then.
        for i in 1..draws.drawn.len() {
            if (i as u64).is_multiple_of(share) {
                draws.drawn[i] = draws.drawn[i - 1];
            }
        }
        draws
    };
    assert!(alarms(&hot(1000)).contains(&RECURRENCE));
}

#[test]
fn early_recurrence_is_found_with_an_unknown_number_of_places() {
    let sooner = |draws: &Draws| draws.do_not_recur_sooner("").p.unwrap();
    // So many places that most never occur.
    let places = 1 << 20;
    let clean: Vec<f64> =
        (0..20).map(|seed| sooner(&leaves(seed, places, |rng, _, _| rng.below(places)))).collect();
    assert!(clean.iter().all(|&p| p > 1e-4), "{clean:?}");
    let mut last = 0;
    let soon = leaves(8, places, |rng, _, _| {
        last = if rng.below(200) == 0 { last } else { rng.below(places) };
        last
    });
    assert!(sooner(&soon) < ALPHA);
}

#[test]
fn a_preferred_half_of_the_tree_is_found() {
    let biased =
        leaves(
            3,
            4096,
            |rng, _, _| {
                if rng.below(20) == 0 { rng.below(2048) } else { rng.below(4096) }
            },
        );
    assert!([UNIFORM, HALVES].iter().all(|claim| alarms(&biased).contains(claim)));
    let even = leaves(4, 4096, |rng, _, _| rng.below(4096) & !u64::from(rng.below(20) == 0));
    let lowest = alarms(&even);
    assert!(lowest.contains(&UNIFORM) && lowest.contains(&LEVELS), "the lowest bit counts as well");
}

#[test]
fn neighbours_in_the_tree_are_found_at_their_depth() {
    let mut near = leaves(5, 1 << 20, |rng, _, _| rng.below(1 << 20));
    let mut rng = Mixer(6);
    for i in 1..near.drawn.len() {
        // The same subtree of eight levels, a little more often than once in 256.
        if rng.below(256) == 0 {
            let leaf = near.drawn[i];
            near.drawn[i] = near.drawn[i - 1] >> 12 << 12 | leaf & 0xfff;
        }
    }
    assert_eq!(alarms(&near), [NEAR, AUTOCORRELATION]);
}

#[test]
fn draws_that_depend_on_the_block_are_found() {
    let own = leaves(
        7,
        4096,
        |rng, _, block| {
            if rng.below(10) == 0 { block * 4 } else { rng.below(4096) }
        },
    );
    assert!(alarms(&own).contains(&SECRET));
    let drifts = slots(4, |rng, i, _| {
        rng.below(32) * 16 + if rng.below(2) == 0 { i % 16 } else { rng.below(16) }
    });
    assert!(alarms(&drifts).contains(&SERIAL));
}

#[test]
fn slots_with_a_fault_are_found() {
    let clean = slots(99, |rng, _, _| rng.below(512));
    let biased = slots(1, |rng, _, _| if rng.below(8) == 0 { 0 } else { rng.below(512) });
    assert!(alarms(&biased).contains(&UNIFORM));
    assert!(biased.have_distribution_of(&clean, "").p.unwrap() < ALPHA);
    let own = slots(2, |rng, _, a| if rng.below(3) == 0 { a * 2 } else { rng.below(512) });
    assert!(alarms(&own).contains(&SECRET));
    let mut before = 0;
    let again = slots(3, |rng, _, _| {
        before = if rng.below(4) == 0 { before } else { rng.below(512) };
        before
    });
    assert!(alarms(&again).contains(&RECURRENCE));
}

#[test]
fn few_accesses_and_few_places_raise_no_alarm() {
    for places in [1, 2, 3, 1000] {
        for accesses in [0, 1, 2, 7, 40] {
            let mut rng = Mixer(places * 100 + accesses);
            let drawn: Vec<u64> = (0..accesses).map(|_| rng.below(places)).collect();
            let secrets = (0..accesses).collect();
            let few = Draws { noun: "leaves", places, drawn, secrets, ..Draws::default() };
            let claims = few.claims("");
            assert!(claims.iter().all(|c| c.p.is_some_and(|p| p > 1e-5 && p <= 1.0)), "{claims:?}");
            assert!(few.have_distribution_of(&few, "").p.unwrap() > 0.5);
        }
    }
}
