//! Counts of pairs of classes, and tests whether one class depends on the other.

use crate::stats::chi_square_tail;

/// Classes of places, or of secrets, in pairs of the two: so few that a byte numbers all pairs.
pub(crate) const PAIR_CLASSES: u64 = 16;

/// The number of values of a byte.
const LANE: usize = 1 << 8;

/// Pairs that are counted at a time, or a few more: they stay in a cache.
const AT_ONCE: usize = 4096;

/// Separate counts of the same pairs. With a single count, an increment would wait for the one
/// before it if both are of the same pair.
const LANES: usize = 4;

/// How often each pair of classes occurs.
pub(crate) struct Table {
    columns: usize,
    counts: Vec<u64>,
}

impl Table {
    pub fn new(rows: usize, columns: usize) -> Self {
        Self { columns, counts: vec![0; rows * columns] }
    }

    #[inline]
    pub fn add(&mut self, row: usize, column: usize) {
        self.counts[row * self.columns + column] += 1;
    }

    /// Adds pairs of rows and columns, up to the end of the shorter. The table has at most 256
    /// pairs of classes.
    pub fn add_all(&mut self, rows: &[u8], columns: &[u8]) {
        let pairs = rows.len().min(columns.len());
        self.add_first_of(AT_ONCE, AT_ONCE, &rows[..pairs], &columns[..pairs]);
    }

    /// Adds the pairs of classes that are `lag` apart: each class is in one pair at most.
    pub fn add_apart(&mut self, classes: &[u8], lag: usize) {
        let later = classes.get(lag..).unwrap_or_default();
        self.add_first_of(lag, 2 * lag, &classes[..later.len()], later);
    }

    /// Adds the `first` pairs of each `of`.
    fn add_first_of(&mut self, first: usize, of: usize, rows: &[u8], columns: &[u8]) {
        assert!(self.counts.len() <= LANE, "a byte tells all pairs of classes");
        let width = self.columns as u8;
        let pair = |(row, column): (&u8, &u8)| row.wrapping_mul(width).wrapping_add(*column);
        let at_once = AT_ONCE.next_multiple_of(of);
        let mut lanes = Lanes([[0; LANE]; LANES]);
        let mut pairs = Vec::with_capacity(at_once.min(rows.len()));
        for (rows, columns) in rows.chunks(at_once).zip(columns.chunks(at_once)) {
            pairs.clear();
            pairs.extend(rows.iter().zip(columns).map(pair));
            pairs.chunks(of).for_each(|some| lanes.count(&some[..first.min(some.len())]));
        }
        for lane in &lanes.0 {
            self.counts.iter_mut().zip(lane).for_each(|(count, more)| *count += more);
        }
    }

    /// Pearson's statistic of dependence, its degrees of freedom, and the probability of at least
    /// this statistic if there is no dependence.
    ///
    /// Even if some classes are rare, its mean equals its degrees of freedom. The likelihood ratio,
    /// mutual information times twice the pairs, is larger.
    pub fn dependence(&self) -> (f64, f64, f64) {
        let statistic = self.sum(|observed, expected| (observed - expected).powi(2) / expected);
        let (rows, columns) = self.margins();
        let used = |sums: &[u64]| sums.iter().filter(|&&n| n > 0).count().saturating_sub(1) as f64;
        let df = used(&rows) * used(&columns);
        (statistic, df, chi_square_tail(statistic, df))
    }

    /// The mutual information of the two classes, in bits.
    pub fn information(&self) -> f64 {
        let nats =
            self.sum(
                |observed, expected| {
                    if observed > 0.0 { observed * (observed / expected).ln() } else { 0.0 }
                },
            );
        let all = self.counts.iter().sum::<u64>().max(1) as f64;
        nats / all / core::f64::consts::LN_2
    }

    /// The sum of `adds` over all possible pairs of classes, from the observed count of each pair
    /// and the count expected if the classes are independent.
    fn sum(&self, adds: impl Fn(f64, f64) -> f64) -> f64 {
        let (rows, columns) = self.margins();
        let all = rows.iter().sum::<u64>() as f64;
        let mut sum = 0.0;
        for (row, counts) in rows.iter().zip(self.counts.chunks(self.columns)) {
            for (column, &observed) in columns.iter().zip(counts) {
                let expected = *row as f64 * *column as f64 / all;
                if expected > 0.0 {
                    sum += adds(observed as f64, expected);
                }
            }
        }
        sum
    }

    fn margins(&self) -> (Vec<u64>, Vec<u64>) {
        let rows = self.counts.chunks(self.columns).map(|row| row.iter().sum()).collect();
        let column = |c| self.counts.iter().skip(c).step_by(self.columns).sum();
        (rows, (0..self.columns).map(column).collect())
    }
}

/// How often each number was counted.
struct Lanes([[u64; LANE]; LANES]);

impl Lanes {
    #[inline]
    fn count(&mut self, numbers: &[u8]) {
        let (whole, rest) = numbers.as_chunks::<LANES>();
        for some in whole {
            self.0.iter_mut().zip(some).for_each(|(lane, nth)| lane[usize::from(*nth)] += 1);
        }
        self.0.iter_mut().zip(rest).for_each(|(lane, nth)| lane[usize::from(*nth)] += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependence_is_measured_in_a_table() {
        let mut table = Table::new(2, 2);
        for (row, column, times) in [(0, 0, 30), (0, 1, 10), (1, 0, 10), (1, 1, 30)] {
            (0..times).for_each(|_| table.add(row, column));
        }
        let (statistic, df, p) = table.dependence();
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-3;
        assert!(near(statistic, 20.0) && near(df, 1.0) && near(p, 7.744e-6));
        // One bit, less the entropy of a quarter.
        assert!((table.information() - (1.0 - 0.811_278)).abs() < 1e-5);
    }

    #[test]
    fn adding_many_pairs_equals_adding_each() {
        let mut mixer = crate::mixer::Mixer(1);
        for (rows, columns) in [(16, 16), (1, 1), (3, 5), (256, 1), (1, 256)] {
            for n in [0, 1, 2, 3, 4, 5, 31, 32, 33, 4095, 4096, 4097, 10_000] {
                let mut any = |of: usize| (0..n).map(|_| mixer.below(of as u64) as u8).collect();
                let (a, b): (Vec<u8>, Vec<u8>) = (any(rows), any(columns));
                let (mut table, mut one_by_one) =
                    (Table::new(rows, columns), Table::new(rows, columns));
                table.add_all(&a, &b[n / 3..]);
                let pairs = a.iter().zip(&b[n / 3..]);
                pairs.for_each(|(a, b)| one_by_one.add(usize::from(*a), usize::from(*b)));
                assert_eq!(table.counts, one_by_one.counts, "{rows}, {columns}, {n}");
            }
        }
    }

    #[test]
    fn pairs_apart_do_not_overlap() {
        let classes: Vec<u8> = (0..5000u32).map(|i| (i * i / 7 % 16) as u8).collect();
        for lag in [1, 2, 3, 5, 16, 300, 4096, 4999, 5000, 5001] {
            let (mut table, mut one_by_one) = (Table::new(16, 16), Table::new(16, 16));
            table.add_apart(&classes, lag);
            for i in (0..classes.len().saturating_sub(lag)).filter(|i| i / lag % 2 == 0) {
                one_by_one.add(usize::from(classes[i]), usize::from(classes[i + lag]));
            }
            assert_eq!(table.counts, one_by_one.counts, "{lag}");
        }
    }

    #[test]
    fn one_class_has_no_dependence() {
        let mut table = Table::new(4, 4);
        (0..100).for_each(|i| table.add(2, i % 4));
        assert_eq!(table.dependence(), (0.0, 0.0, 1.0));
        assert!(table.information().abs() < 1e-12);
        assert_eq!(Table::new(2, 2).dependence(), (0.0, 0.0, 1.0));
    }
}
