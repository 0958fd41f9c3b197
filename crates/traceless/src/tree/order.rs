//! The order of the paths in deterministic evictions.

use super::Shape;
use traceless_core::types::Leaf;

/// Paths in reverse-lexicographic order: consecutive paths turn different ways at the root, every
/// second one turns another way below it, and so on. So all buckets of a level are visited equally
/// often, with pauses as long as possible, and the order is public.
///
/// The Oblivious client uses the same order. It reads a label from its lowest bit, so that counting
/// through its labels gives this order.
#[derive(Default)]
pub struct EvictionOrder {
    next: u64,
}

impl EvictionOrder {
    /// The next path in a tree of this shape.
    pub fn next(&mut self, shape: &Shape) -> Leaf {
        let (number, levels) = (self.next, shape.levels());
        self.next = (number + 1) % shape.leaves();
        if shape.arity() == 2 {
            // One bit for each level below the root; a root alone has none.
            let unused = u64::BITS - (levels as u32 - 1);
            return Leaf(number.reverse_bits().checked_shr(unused).unwrap_or(0));
        }
        let (mut rest, mut leaf) = (number, 0);
        for _ in 1..levels {
            leaf = leaf * u64::from(shape.arity()) + rest % u64::from(shape.arity());
            rest /= u64::from(shape.arity());
        }
        Leaf(leaf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn order(levels: usize, arity: u32, count: u64) -> Vec<u64> {
        let shape = Shape::new(vec![1; levels], arity).unwrap();
        let mut order = EvictionOrder::default();
        (0..count).map(|_| order.next(&shape).0).collect()
    }

    #[test]
    fn one_path_after_the_other() {
        assert_eq!(order(1, 2, 3), [0, 0, 0]);
        assert_eq!(order(4, 2, 9), [0, 4, 2, 6, 1, 5, 3, 7, 0]);
        assert_eq!(order(3, 3, 10), [0, 3, 6, 1, 4, 7, 2, 5, 8, 0]);
    }

    /// Each run of as many paths as a level has buckets visits every bucket.
    #[test]
    fn all_buckets_of_a_level_are_met_equally_often() {
        for arity in [2, 3] {
            let shape = Shape::new(vec![1; 5], arity).unwrap();
            let paths = order(5, arity, 2 * shape.leaves());
            for level in 0..5 {
                for run in paths.chunks_exact(shape.buckets(level) as usize) {
                    let mut met: Vec<_> =
                        run.iter().map(|&leaf| shape.bucket(Leaf(leaf), level)).collect();
                    met.sort_unstable();
                    assert!(met.iter().copied().eq(0..shape.buckets(level)));
                }
            }
        }
    }
}
