//! The claims about what users draw, and what becomes of those that are suspicious.

use traceless_audit::{ALPHA, Claim, Draws, Verdict, cannot_be_told_apart, worst_of};

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

/// What a claim says, without of whom.
fn kind(claim: &Claim) -> &str {
    claim.name.split(": ").next().unwrap_or(&claim.name)
}

/// The claims of runs with `seed`. What is suspicious is run again with another.
pub fn with_another_run<E>(
    seed: u64,
    claims: impl Fn(u64) -> Result<Vec<Claim>, E>,
) -> Result<Vec<Claim>, E> {
    let once = claims(seed)?;
    if !once.iter().any(needs_another_run) {
        return Ok(once);
    }
    let again = claims(seed.wrapping_add(0x5eed))?;
    Ok(repeated(once, &again))
}

/// Below this a claim is suspicious. Twice in a row is seen once in 10^8 times.
const SUSPICIOUS: f64 = 1e-4;

fn is_suspicious(claim: &Claim) -> bool {
    claim.p.is_some_and(|p| p < SUSPICIOUS)
}

fn needs_another_run(claim: &Claim) -> bool {
    is_suspicious(claim) && claim.verdict == Verdict::Pass
}

/// What is suspicious in both of two runs does not hold.
fn repeated(mut claims: Vec<Claim>, again: &[Claim]) -> Vec<Claim> {
    for (claim, again) in claims.iter_mut().zip(again) {
        if is_suspicious(claim) && is_suspicious(again) {
            claim.verdict = Verdict::Leak;
            claim.evidence = format!("{}; and again: {}", claim.evidence, again.evidence);
        }
    }
    claims
}

/// That claims about `scheme` find the fault that was planted in it, or nothing in a sound twin.
pub fn is_found(scheme: &str, fault: Option<&str>, claims: &[Claim]) -> Claim {
    let found: Vec<_> = claims.iter().filter(|claim| claim.verdict != Verdict::Pass).collect();
    let name = match fault {
        None => format!("the detector finds nothing in {scheme}"),
        Some(fault) => format!("the detector catches {scheme}: {fault}"),
    };
    let evidence = found.first().map_or_else(
        || format!("none of {} claims fails", claims.len()),
        |first| format!("{} of {} claims fail: {}", found.len(), claims.len(), first.evidence),
    );
    let is_right = found.is_empty() == fault.is_none();
    let verdict = if is_right { Verdict::Pass } else { Verdict::Fault };
    let power = format!("each claim at {ALPHA:e}");
    Claim::exact(name, verdict, found.len() as u64, &power, evidence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_suspicious_twice_does_not_hold() {
        let claims = |ps: &[f64]| -> Vec<Claim> {
            let claim = |&p: &f64| {
                let verdict = if p < ALPHA { Verdict::Leak } else { Verdict::Pass };
                Claim { p: Some(p), ..Claim::exact("c", verdict, 0, "none", "seen") }
            };
            ps.iter().map(claim).collect()
        };
        assert!(claims(&[0.5, 2e-4]).iter().all(|claim| !needs_another_run(claim)));
        assert!(needs_another_run(&claims(&[2e-5])[0]));
        assert!(!needs_another_run(&claims(&[1e-9])[0]), "that is a leak at once");
        let exact = Claim::exact("c", Verdict::Pass, 0, "none", "");
        assert!(!needs_another_run(&exact), "nothing in it is chance");
        let found = repeated(claims(&[2e-5, 2e-5, 0.5, 1e-9]), &claims(&[3e-5, 0.5, 3e-5, 0.5]));
        let verdicts: Vec<Verdict> = found.iter().map(|claim| claim.verdict).collect();
        assert_eq!(verdicts, [Verdict::Leak, Verdict::Pass, Verdict::Pass, Verdict::Leak]);
        assert_eq!(found[0].evidence, "seen; and again: seen");
    }
}
