//! Claims about the random places that users' accesses draw.

use traceless_audit::{ALPHA, Claim, Distance, Draws, Verdict, are_indistinguishable, worst_of};

/// The draws of one user.
pub struct UserDraws<'a> {
    pub name: &'a str,
    /// One element for each tree.
    pub draws: &'a [Draws],
}

/// The [tests of draws](Draws) of each user, and of pairs of users by their number; of each test
/// only the worst claim.
pub fn claims_of_draws(
    scheme: &str,
    users: &[UserDraws<'_>],
    pairs: &[(usize, usize)],
) -> Vec<Claim> {
    let mut by_test: Vec<Vec<Claim>> = vec![];
    for UserDraws { name, draws } in users {
        for (tree, draws) in draws.iter().enumerate().filter(|(_, d)| !d.drawn.is_empty()) {
            for claim in draws.claims(&format!("{name}, tree {tree}")) {
                let same = |other: &&mut Vec<Claim>| kind(&other[0]) == kind(&claim);
                match by_test.iter_mut().find(same) {
                    Some(claims) => claims.push(claim),
                    None => by_test.push(vec![claim]),
                }
            }
        }
    }
    let (mut spreads, mut predictions) = (vec![], vec![]);
    for &(a, b) in pairs {
        let (a, b) = (&users[a], &users[b]);
        for (tree, (a_draws, b_draws)) in a.draws.iter().zip(b.draws).enumerate() {
            let what = format!("{} and {}, tree {tree}", a.name, b.name);
            spreads.push(a_draws.have_distribution_of(b_draws, &what));
            predictions.push(are_indistinguishable(a_draws, b_draws, &what));
        }
    }
    by_test.extend([spreads, predictions].into_iter().filter(|tests| !tests.is_empty()));
    let named = |tests: &Vec<Claim>| format!("{scheme}: {}", kind(&tests[0]));
    by_test.into_iter().filter_map(|tests| worst_of(named(&tests), tests)).collect()
}

/// A claim that always passes, about a count that no scheme claims to hide: by how much the count
/// differs between the users of each pair.
pub fn count_differences(
    name: String,
    noun: &str,
    users: &[(&str, Vec<u64>)],
    pairs: &[(usize, usize)],
) -> Claim {
    let distance_of = |&(a, b): &(usize, usize)| {
        let (a, b) = (&users[a], &users[b]);
        let both_ask = !a.1.is_empty() && !b.1.is_empty();
        both_ask.then(|| (Distance::of_samples(&a.1, &b.1), a, b))
    };
    let compared: Vec<_> = pairs.iter().filter_map(distance_of).collect();
    let differ = compared.iter().filter(|(distance, ..)| distance.p < ALPHA).count() as u64;
    let most = compared.iter().max_by(|a, b| a.0.greatest.total_cmp(&b.0.greatest));
    let mean = |of: &[u64]| of.iter().sum::<u64>() as f64 / of.len().max(1) as f64;
    let most = most.filter(|_| differ > 0).map_or(String::new(), |(distance, a, b)| {
        let Distance { greatest, p } = distance;
        let (mean_a, mean_b) = (mean(&a.1), mean(&b.1));
        format!(
            ", most {} and {}: {mean_a:.2} and {mean_b:.2} in the mean, {greatest:.2} apart, \
             p = {p:.1e}",
            a.0, b.0
        )
    });
    let (noun, all) = (format!("not claimed to be hidden: {noun}"), compared.len());
    let evidence = format!("{noun} differ in {differ} of {all} pairs{most}");
    Claim::exact(name, Verdict::Pass, differ, "reported, not judged", evidence)
}

/// Pairs of users by their number among `users`.
pub fn pair_indices<U: PartialEq>(users: &[U], pairs: &[(U, U)]) -> Vec<(usize, usize)> {
    let nth = |user| users.iter().position(|other| other == user).expect("listed");
    pairs.iter().map(|(a, b)| (nth(a), nth(b))).collect()
}

/// The kind of a claim: its name without the user.
fn kind(claim: &Claim) -> &str {
    claim.name.split(": ").next().unwrap_or(&claim.name)
}
