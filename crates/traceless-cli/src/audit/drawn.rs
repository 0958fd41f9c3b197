//! The claims about what users draw.

use traceless_audit::{Claim, Draws, cannot_be_told_apart, worst_of};

/// What was drawn for one user.
pub struct OfUser<'a> {
    pub name: &'a str,
    /// From each tree.
    pub drawn: &'a [Draws],
}

/// The [tests of draws](Draws) of each user, and of pairs of them by their number; of each test the
/// worst.
pub fn claims_of_draws(scheme: &str, users: &[OfUser<'_>], pairs: &[(usize, usize)]) -> Vec<Claim> {
    let mut by_test: Vec<Vec<Claim>> = vec![];
    for OfUser { name, drawn } in users {
        for (tree, draws) in drawn.iter().enumerate().filter(|(_, d)| !d.drawn.is_empty()) {
            for claim in draws.claims(&format!("{name}, tree {tree}")) {
                let same = |other: &&mut Vec<Claim>| kind(&other[0]) == kind(&claim);
                match by_test.iter_mut().find(same) {
                    Some(others) => others.push(claim),
                    None => by_test.push(vec![claim]),
                }
            }
        }
    }
    let (mut alike, mut learned) = (vec![], vec![]);
    for &(a, b) in pairs {
        let (a, b) = (&users[a], &users[b]);
        for (tree, (a_draws, b_draws)) in a.drawn.iter().zip(b.drawn).enumerate() {
            let what = format!("{} and {}, tree {tree}", a.name, b.name);
            alike.push(a_draws.are_spread_as(b_draws, &what));
            learned.push(cannot_be_told_apart(a_draws, b_draws, &what));
        }
    }
    by_test.extend([alike, learned].into_iter().filter(|tests| !tests.is_empty()));
    let named = |tests: &Vec<Claim>| format!("{scheme}: {}", kind(&tests[0]));
    by_test.into_iter().filter_map(|tests| worst_of(named(&tests), tests)).collect()
}

/// Pairs of users by their number among `users`.
pub fn numbered<U: PartialEq>(users: &[U], pairs: &[(U, U)]) -> Vec<(usize, usize)> {
    let nth = |user| users.iter().position(|other| other == user).expect("listed");
    pairs.iter().map(|(a, b)| (nth(a), nth(b))).collect()
}

/// What a claim says, without of whom.
fn kind(claim: &Claim) -> &str {
    claim.name.split(": ").next().unwrap_or(&claim.name)
}
