//! How many reads find a copy of their value at the gateway.

/// Values that are counted one by one, the most popular first. Less popular ones are counted in
/// groups, each longer than the last by this factor.
const COUNTED: f64 = 1000.0;
const GROWTH: f64 = 1.02;
/// Steps of the search for the time that a copy stays. Each halves its range.
const STEPS: u32 = 100;

/// The share of requests for one of the `kept` values used last, of `values` with popularities that
/// follow Zipf's law with the exponent `skew` (Che's approximation).
pub fn hit_share(values: f64, kept: f64, skew: f64) -> f64 {
    if kept >= values {
        return 1.0;
    }
    let groups = groups(values, skew);
    let share_of = |time: f64, popularity: f64| -(-popularity * time).exp_m1();
    // A copy stays until as many other values were requested as there is room for.
    let (mut low, mut high) = (0.0, 1.0);
    let is_short = |time: f64| {
        let present: f64 = groups.iter().map(|(count, p)| count * share_of(time, *p)).sum();
        present < kept
    };
    while is_short(high) {
        high *= 2.0;
    }
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if is_short(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    groups.iter().map(|(count, p)| count * p * share_of(low, *p)).sum()
}

/// Groups of values by popularity: how many there are, and the share of requests for each of them.
fn groups(values: f64, skew: f64) -> Vec<(f64, f64)> {
    let (mut groups, mut rank, mut len) = (Vec::new(), 1.0, 1.0);
    while rank <= values {
        let count = f64::min(len, values - rank + 1.0);
        let middle = rank + (count - 1.0) / 2.0;
        groups.push((count, middle.powf(-skew)));
        rank += count;
        if rank > COUNTED {
            len = (len * GROWTH).ceil();
        }
    }
    let total: f64 = groups.iter().map(|(count, weight)| count * weight).sum();
    groups.into_iter().map(|(count, weight)| (count, weight / total)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::testing::{BLOCK, in_memory};
    use traceless_core::rng::{Rng as _, SeededRng};

    #[test]
    fn groups_are_all_values_and_all_requests() {
        for (values, skew) in [(1.0, 0.0), (999.0, 0.99), (123_456.0, 0.7), (1e9, 1.2)] {
            let groups = groups(values, skew);
            assert!(groups.len() < 2500, "{}", groups.len());
            let count: f64 = groups.iter().map(|(count, _)| count).sum();
            let requests: f64 = groups.iter().map(|(count, share)| count * share).sum();
            assert!((count - values).abs() < 0.5 && (requests - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn requests_that_are_all_alike_hit_as_many_as_are_kept() {
        for kept in [1.0, 500.0, 70_000.0] {
            let share = hit_share(100_000.0, kept, 0.0);
            assert!((share - kept / 100_000.0).abs() < 0.001, "{kept} {share}");
        }
        assert!((hit_share(100.0, 100.0, 0.5) - 1.0).abs() < 1e-9);
        assert!(hit_share(1e9, 1e6, 0.99) > 0.5, "a thousandth of all");
    }

    /// A gateway's own copies, with what is at hand between two rounds.
    #[test]
    fn a_gateway_hits_as_often_as_predicted() {
        const VALUES: u64 = 3000;
        for (kept, skew) in [(300, 0.99), (900, 0.99), (1500, 0.6)] {
            let mut gateway = in_memory(VALUES, 11);
            for id in 0..VALUES {
                gateway.put(id, &[id as u8; BLOCK]).unwrap();
            }
            gateway.keep_copies(kept * BLOCK);
            let weights = (1..=VALUES).map(|rank| (rank as f64).powf(-skew));
            let sums: Vec<f64> = weights
                .scan(0.0, |sum, weight| {
                    *sum += weight;
                    Some(*sum)
                })
                .collect();
            let mut rng = SeededRng::new(12);
            let mut run = |requests: u32| {
                for _ in 0..requests {
                    let drawn = rng.next_u64() as f64 / u64::MAX as f64 * sums[sums.len() - 1];
                    let rank = sums.partition_point(|sum| *sum < drawn).min(sums.len() - 1);
                    assert_eq!(gateway.get(rank as u64 * 7 % VALUES).unwrap().len(), BLOCK);
                }
                gateway.counts().queries
            };
            let requests = 20_000;
            let warm = run(requests);
            let queries = run(requests) - warm;
            let share = 1.0 - queries as f64 / f64::from(requests);
            let predicted = hit_share(VALUES as f64, kept as f64, skew);
            assert!((share - predicted).abs() < 0.05, "{kept} {skew}: {share} {predicted}");
        }
    }
}
