//! Gradient-boosted regression trees: each tree is fitted to what the trees before it leave
//! unexplained (Friedman, "Greedy function approximation", 2001; regularised as `XGBoost` does).
//!
//! Trees are complete and have three levels, so that a guess takes three comparisons a tree. The
//! best split is found by trying every value: features are sorted once, for all trees.

/// Levels of splits of a tree.
const DEPTH: usize = 3;
const SPLITS: usize = (1 << DEPTH) - 1;
const LEAVES: usize = 1 << DEPTH;
/// The number of trees.
const TREES: usize = 20;
/// The learning rate: the part of what a tree explains that is added to the guess.
const RATE: f64 = 0.3;
/// The fewest rows on each side of a split.
const SIDE_MIN: u32 = 20;
/// Regularisation: this many rows of residue 0 are added to each leaf.
const LAMBDA: f64 = 1.0;
/// The guess without any tree.
const BASE: f32 = 0.5;

/// Trees that were fitted to examples.
pub struct BoostedTrees {
    trees: Vec<Tree>,
    features: usize,
}

/// A complete tree: the children of split `n` are `2 n + 1` and `2 n + 2`.
struct Tree {
    splits: [Split; SPLITS],
    leaves: [f32; LEAVES],
}

/// A split: rows with a feature of at most the limit go left.
#[derive(Clone, Copy)]
struct Split {
    feature: usize,
    limit: f32,
}

impl Split {
    /// A split that sends all rows left.
    const NONE: Self = Self { feature: 0, limit: f32::INFINITY };
}

/// The sum of some rows' residues, and the number of rows.
#[derive(Clone, Copy, Default)]
struct Sums {
    residue: f64,
    rows: u32,
}

impl Sums {
    fn add(&mut self, residue: f64) {
        self.residue += residue;
        self.rows += 1;
    }

    fn without(self, other: Self) -> Self {
        Self { residue: self.residue - other.residue, rows: self.rows - other.rows }
    }

    /// How much a leaf of these rows explains.
    fn score(self) -> f64 {
        self.residue * self.residue / (f64::from(self.rows) + LAMBDA)
    }

    /// The value that a leaf of these rows adds to a guess.
    fn leaf(self) -> f64 {
        RATE * self.residue / (f64::from(self.rows) + LAMBDA)
    }
}

impl BoostedTrees {
    /// Learns the target of each row. `rows` are rows of `features` features, one after the other.
    pub fn fit(rows: &[f32], features: usize, targets: &[f32]) -> Self {
        assert_eq!(rows.len(), features * targets.len(), "rows are whole");
        let examples = Examples::new(rows, features);
        let mut guesses = vec![f64::from(BASE); targets.len()];
        let trees = (0..TREES).map(|_| {
            let residues = targets.iter().zip(&guesses).map(|(t, g)| f64::from(*t) - g);
            examples.tree(&residues.collect::<Vec<_>>(), &mut guesses)
        });
        Self { trees: trees.collect(), features }
    }

    /// The guesses at some rows.
    pub fn guess<'a>(&'a self, rows: &'a [f32]) -> impl Iterator<Item = f32> + 'a {
        rows.chunks_exact(self.features).map(|row| {
            self.trees.iter().fold(BASE, |guess, tree| guess + tree.leaves[tree.leaf_of(row)])
        })
    }
}

impl Tree {
    fn leaf_of(&self, row: &[f32]) -> usize {
        let mut at = 0;
        for _ in 0..DEPTH {
            let Split { feature, limit } = self.splits[at];
            at = 2 * at + 1 + usize::from(row[feature] > limit);
        }
        at - SPLITS
    }
}

/// Rows to learn from, feature by feature.
struct Examples {
    /// For each feature, the value of each row.
    columns: Vec<Vec<f32>>,
    /// For each feature, the rows in the order of their value.
    orders: Vec<Vec<u32>>,
}

impl Examples {
    fn new(rows: &[f32], features: usize) -> Self {
        let column = |feature| rows.iter().skip(feature).step_by(features).copied().collect();
        let columns: Vec<Vec<f32>> = (0..features).map(column).collect();
        let order = |column: &Vec<f32>| {
            let mut order: Vec<u32> = (0..column.len() as u32).collect();
            order.sort_by(|a, b| column[*a as usize].total_cmp(&column[*b as usize]));
            order
        };
        let orders = columns.iter().map(order).collect();
        Self { columns, orders }
    }

    /// The tree that explains most of the residues. Its values are added to the guesses.
    fn tree(&self, residues: &[f64], guesses: &mut [f64]) -> Tree {
        let mut tree = Tree { splits: [Split::NONE; SPLITS], leaves: [0.0; LEAVES] };
        // For each row, its node on the current level.
        let mut nodes = vec![0_usize; residues.len()];
        for level in 0..DEPTH {
            let splits = self.splits(residues, &nodes, 1 << level);
            for (row, node) in nodes.iter_mut().enumerate() {
                let Split { feature, limit } = splits[*node];
                *node = 2 * *node + usize::from(self.columns[feature][row] > limit);
            }
            let first = (1 << level) - 1;
            tree.splits[first..first + splits.len()].copy_from_slice(&splits);
        }
        let sums = sums(residues, &nodes, LEAVES);
        for (leaf, sums) in tree.leaves.iter_mut().zip(&sums) {
            *leaf = sums.leaf() as f32;
        }
        for (guess, node) in guesses.iter_mut().zip(nodes) {
            *guess += sums[node].leaf();
        }
        tree
    }

    /// The best split of each node of a level.
    fn splits(&self, residues: &[f64], nodes: &[usize], count: usize) -> Vec<Split> {
        let all = sums(residues, nodes, count);
        let mut best: Vec<(f64, Split)> =
            all.iter().map(|all| (all.score(), Split::NONE)).collect();
        for (feature, order) in self.orders.iter().enumerate() {
            let column = &self.columns[feature];
            let mut left = vec![Sums::default(); count];
            let mut last = vec![f32::INFINITY; count];
            for &row in order {
                let row = row as usize;
                let (node, value) = (nodes[row], column[row]);
                let right = all[node].without(left[node]);
                // Rows of equal values stay on one side: they come one after the other in the
                // order.
                if last[node] < value && left[node].rows >= SIDE_MIN && right.rows >= SIDE_MIN {
                    let score = left[node].score() + right.score();
                    if score > best[node].0 {
                        best[node] = (score, Split { feature, limit: between(last[node], value) });
                    }
                }
                left[node].add(residues[row]);
                last[node] = value;
            }
        }
        best.into_iter().map(|(_, split)| split).collect()
    }
}

/// The sums of the rows of each node.
fn sums(residues: &[f64], nodes: &[usize], count: usize) -> Vec<Sums> {
    let mut sums = vec![Sums::default(); count];
    residues.iter().zip(nodes).for_each(|(residue, node)| sums[*node].add(*residue));
    sums
}

/// A limit with `low` at or below it and `high`, which is greater, above it.
fn between(low: f32, high: f32) -> f32 {
    let middle = low + (high - low) / 2.0;
    if middle < high { middle } else { low }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "what is exact here is compared exactly")]
mod tests {
    use super::*;
    use crate::mixer::Mixer;

    fn guess(boosting: &BoostedTrees, row: &[f32]) -> f32 {
        boosting.guess(row).next().unwrap()
    }

    /// Rows of three features. The target is 1 if the first two are on the same side of the middle.
    fn exclusive(seed: u64, rows: usize) -> (Vec<f32>, Vec<f32>) {
        let mut rng = Mixer(seed << 32);
        let rows: Vec<f32> = (0..3 * rows).map(|_| rng.below(1000) as f32).collect();
        let same = |row: &[f32]| f32::from((row[0] < 500.0) == (row[1] < 500.0));
        let targets = rows.chunks(3).map(same).collect();
        (rows, targets)
    }

    #[test]
    fn trees_learn_what_depends_on_two_features() {
        let (rows, targets) = exclusive(1, 2000);
        let boosting = BoostedTrees::fit(&rows, 3, &targets);
        let (rows, targets) = exclusive(2, 2000);
        let right = boosting.guess(&rows).zip(&targets).filter(|(g, t)| (*g > 0.5) == (**t > 0.5));
        let right = right.count();
        assert!(right > 1800, "{right}");
    }

    #[test]
    fn trees_fit_both_sides_of_a_step() {
        let rows: Vec<f32> = (0..100).map(|nth| nth as f32).collect();
        let targets: Vec<f32> = (0..100).map(|nth| f32::from(nth >= 40)).collect();
        let boosting = BoostedTrees::fit(&rows, 1, &targets);
        assert!(guess(&boosting, &[39.0]) < 0.1 && guess(&boosting, &[40.0]) > 0.9);
        let first = &boosting.trees[0];
        assert_eq!(first.splits[0].limit, 39.5);
        // 40 rows are 0.5 below the base, and 60 above; regularisation draws both leaves a little
        // to 0.
        let leaf = |rows: f64| (0.3 * 0.5 * rows / (rows + 1.0)) as f32;
        assert_eq!(first.leaves[first.leaf_of(&[0.0])], -leaf(40.0));
        assert_eq!(first.leaves[first.leaf_of(&[99.0])], leaf(60.0));
    }

    #[test]
    fn splits_have_enough_rows_and_do_not_divide_equal_rows() {
        let rows: Vec<f32> = (0..100).map(|nth| nth as f32).collect();
        let outliers: Vec<f32> = (0..100).map(|nth| f32::from(nth >= 90)).collect();
        let split = BoostedTrees::fit(&rows, 1, &outliers).trees[0].splits[0];
        assert_eq!(split.limit, 79.5, "at least 20 rows on each side");
        let same = vec![7.0; 100];
        let alike = BoostedTrees::fit(&same, 1, &outliers);
        assert!(alike.trees.iter().all(|tree| tree.splits[0].limit == f32::INFINITY));
        assert!((guess(&alike, &[7.0]) - 0.1).abs() < 0.02);
    }

    #[test]
    fn a_limit_lies_between_any_two_values() {
        let tiny = f32::from_bits(1);
        for (low, high) in [(0.0, 1.0), (0.0, tiny), (-tiny, tiny), (1.0, 1.0_f32.next_up())] {
            let limit = between(low, high);
            assert!(low <= limit && limit < high, "{low} {high}");
        }
    }
}
