//! Judges models of other schemes: sound ones pass, and each fault is found by its own detector and
//! by no other, so that the test fails without that detector.

use super::*;
use crate::models::{ANY, Fault, HOT, Leak, SCAN, User, path, ring, square_root, two_trees};

type Scheme = fn([u64; 2], User, Fault) -> Accesses;

const SCHEMES: [(&str, Scheme, u64); 3] =
    [("two trees", two_trees, 3000), ("square root", square_root, 6000), ("ring", ring, 6000)];

/// All claims about two users of a scheme.
fn claims(
    scheme: Scheme,
    users: [User; 2],
    fault: Fault,
    [seed, accesses]: [u64; 2],
) -> Vec<Claim> {
    let [a, b] = [0, 1].map(|nth| scheme([2 * seed + nth, accesses], users[nth as usize], fault));
    let judgement = judge(&a, &b);
    assert_eq!(judgement.too_few, None);
    [judgement.alone, judgement.together].concat()
}

fn found(claims: &[Claim]) -> Vec<&str> {
    let fails = claims.iter().filter(|claim| claim.verdict != Verdict::Pass);
    fails.map(|claim| claim.name.as_str()).collect()
}

/// The variable `TRACELESS_AUDIT_SEEDS` sets a larger number of seeds.
#[test]
fn sound_schemes_pass_with_uniform_p_values() {
    let seeds = std::env::var("TRACELESS_AUDIT_SEEDS").ok();
    let seeds = seeds.map_or(9, |seeds| seeds.parse().expect("a number of seeds"));
    for (name, scheme, accesses) in SCHEMES {
        let mut all: HashMap<String, Vec<f64>> = HashMap::new();
        for seed in 0..seeds {
            let users = [[HOT, SCAN], [ANY, HOT], [SCAN, ANY]][seed as usize % 3];
            let claims = claims(scheme, users, Fault::None, [seed, accesses]);
            assert_eq!(found(&claims), [""; 0], "{name}, seed {seed}");
            for claim in claims {
                let p = claim.p.into_iter();
                all.entry(claim.name).or_default().extend(p);
            }
        }
        for (claim, p) in all.into_iter().filter(|(_, p)| !p.is_empty()) {
            let small = Distance::below_uniform(&p);
            let [least, uniform] =
                [p.iter().copied().fold(1.0, f64::min), Distance::from_uniform(&p).p];
            println!(
                "{name}, {claim}: least {least:.1e}, small {:.2}, uniform {uniform:.2}",
                small.p
            );
            assert!(small.p > 1e-4 && least > 1e-6, "{name}, {claim}: {p:?}");
        }
    }
}

#[test]
fn each_fault_is_found_by_its_own_detector_only() {
    let planted: [(Scheme, [User; 2], Fault, &str); 6] = [
        (two_trees, [HOT, ANY], Fault::SameLeaf, "do not depend on those of other kinds"),
        (ring, [HOT, ANY], Fault::OldLeaf, "at any distance"),
        (ring, [HOT, ANY], Fault::FixedSlot, "each event"),
        (ring, [ANY, ANY], Fault::Eager, "what comes by chance tells nothing of secrets"),
        (ring, [HOT, ANY], Fault::SkipsHits, "whether they cause events"),
        (square_root, [HOT, ANY], Fault::SkipsHits, "whether they cause events"),
    ];
    for (scheme, users, fault, detector) in planted {
        let claims = claims(scheme, users, fault, [7, 9000]);
        let found = found(&claims);
        // These faults show twice: at a thousand distances and at any; beside requests and other
        // accesses.
        let also = match fault {
            Fault::OldLeaf => "long before",
            Fault::Eager => "those of other kinds",
            _ => detector,
        };
        let by_it = |name: &&str| name.contains(detector) || name.contains(also);
        assert!(!found.is_empty() && found.iter().all(by_it), "{fault:?}: {found:?}");
    }
}

#[test]
fn rereads_stray_evictions_and_early_reshuffles_are_found() {
    let planted: [(Scheme, Fault, &str); 3] = [
        (square_root, Fault::Rereads, "come again"),
        (ring, Fault::Strays, "kind 2"),
        (ring, Fault::Eager, "accesses that come by chance"),
    ];
    for (scheme, fault, detector) in planted {
        let claims = claims(scheme, [HOT, ANY], fault, [7, 9000]);
        let found = found(&claims);
        assert!(found.iter().any(|name| name.contains(detector)), "{fault:?}: {found:?}");
    }
}

/// Accesses that suffice to find each leak.
const ENOUGH: u64 = 100_000;

#[test]
fn each_leak_is_found_by_its_own_detector() {
    const GIVEN_EARLIER: &str = "secrets beside earlier ones: B";
    const DISTANCE: &str = "at any distance";
    let planted = [
        (Leak::XorBefore(1), GIVEN_EARLIER),
        (Leak::XorBefore(2), GIVEN_EARLIER),
        (Leak::XorBefore(16), GIVEN_EARLIER),
        (Leak::Difference, GIVEN_EARLIER),
        (Leak::XorOfSameBlock, GIVEN_EARLIER),
        (Leak::NextToSameBlock, GIVEN_EARLIER),
        (Leak::DeepBit, GIVEN_EARLIER),
        (Leak::EqualTo(1500), DISTANCE),
        (Leak::EqualTo(40_000), DISTANCE),
        (Leak::LeftHalf, "both halves equally often"),
        (Leak::Parity, GIVEN_EARLIER),
        (Leak::Counter, GIVEN_EARLIER),
        (Leak::SumOfTwo, "several earlier ones"),
        (Leak::Changed, GIVEN_EARLIER),
        (Leak::OtherBit, GIVEN_EARLIER),
        (Leak::SumOfFour, GIVEN_EARLIER),
        (Leak::Order, "kinds tell nothing of secrets beside earlier ones"),
    ];
    let honest = path([1, ENOUGH], ANY, None);
    let sound = judge(&honest, &path([2, ENOUGH], ANY, None));
    assert_eq!(found(&[sound.alone, sound.together].concat()), [""; 0]);
    for (nth, (leak, detector)) in (3..).zip(planted) {
        let judgement = judge(&honest, &path([nth, ENOUGH], ANY, Some(leak)));
        let claims = [judgement.alone, judgement.together].concat();
        let found = found(&claims);
        // A block that keeps a bit of its leaf shows it by itself as well, and halves show twice.
        let shows_twice = |name: &str| match leak {
            Leak::LeftHalf => name.ends_with(": A and B"),
            // With so few leaves, a middle bit is among the four highest.
            Leak::DeepBit => name.contains("secrets: B"),
            Leak::XorOfSameBlock => name.contains("each level") || name.contains("secrets: B"),
            _ => false,
        };
        let by_it = |name: &&str| name.contains(detector) || shows_twice(name);
        assert!(!found.is_empty() && found.iter().all(by_it), "{leak:?}: {found:?}");
        assert!(found.iter().any(|name| name.contains(detector)), "{leak:?}: {found:?}");
    }
}
