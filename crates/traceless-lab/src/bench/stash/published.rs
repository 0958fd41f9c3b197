//! Published results about stashes and levels.

use serde::Serialize;

/// Stash sizes, and the probability that more blocks wait.
#[derive(Serialize)]
pub struct StashBound {
    pub label: &'static str,
    /// The Z of the trees that it holds for.
    pub z: u8,
    pub source: &'static str,
    /// Blocks in the stash, and the share of accesses after which more wait.
    pub points: Vec<(f64, f64)>,
}

/// The share of full slots on a level, counted from the leaves, as in ir-oram's figure 3.
#[derive(Serialize)]
pub struct LevelShare {
    pub above_leaves: usize,
    pub share: f64,
}

/// Stefanov et al.: measured sizes at Z = 4 and 5 for 2^-80 to 2^-256, extended along a line to
/// probabilities that can be measured in less than years, and the proven bound for Z = 5.
pub fn bounds() -> Vec<StashBound> {
    const TABLE: &str = "Stefanov et al., required stash size at 2^-80 and 2^-128, extended";
    vec![
        StashBound { label: "Z = 4, published", z: 4, source: TABLE, points: line(89.0, 147.0) },
        StashBound { label: "Z = 5, published", z: 5, source: TABLE, points: line(63.0, 105.0) },
        StashBound {
            label: "Z = 5, proven",
            z: 5,
            source: "Stefanov et al., theorem 1: 14 * 0.6002^R, with a leaf for each block",
            points: (0..=40).map(|r| (f64::from(r), 14.0 * 0.6002f64.powi(r))).collect(),
        },
    ]
}

/// The line through the stash sizes for 2^-80 and 2^-128.
fn line(at_80: f64, at_128: f64) -> Vec<(f64, f64)> {
    let blocks_per_bit = (at_128 - at_80) / 48.0;
    let point = |bits: u32| {
        let blocks = at_80 - (80.0 - f64::from(bits)) * blocks_per_bit;
        (blocks, 0.5f64.powf(f64::from(bits)))
    };
    (0..=80).map(point).filter(|point| point.0 >= 0.0 && point.1 > 1e-12).collect()
}

/// Z = 4, half full, random accesses: about 30 % of the slots in the middle are full, and 70 % of
/// the leaves' slots.
pub fn levels() -> Vec<LevelShare> {
    let middle = (3..=14).map(|above_leaves| LevelShare { above_leaves, share: 0.3 });
    std::iter::once(LevelShare { above_leaves: 0, share: 0.7 }).chain(middle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_fall_and_meet_the_printed_values() {
        for bound in bounds() {
            assert!(bound.points.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 > w[1].1));
            assert!(bound.points.len() > 10, "{}", bound.label);
        }
        let proven = &bounds()[2].points;
        assert!((proven[10].1 - 14.0 * 0.006_067).abs() < 1e-3);
    }
}
