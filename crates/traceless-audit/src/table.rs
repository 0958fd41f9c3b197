//! Pairs of classes, counted, and whether one tells of the other.

use crate::odds::chi_square_tail;

/// How often each pair of classes was seen.
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

    #[inline]
    pub fn add_all<'a>(&mut self, pairs: impl Iterator<Item = (&'a u8, &'a u8)>) {
        pairs.for_each(|(&row, &column)| self.add(usize::from(row), usize::from(column)));
    }

    /// Pearson's statistic of dependence, its degrees of freedom, and the probability of such a one
    /// or a larger if there is none.
    ///
    /// Where some classes are rare it is as large as its degrees of freedom all the same, in the
    /// mean. The likelihood ratio, mutual information times twice the pairs, is larger.
    pub fn dependence(&self) -> (f64, f64, f64) {
        let statistic = self.sum(|seen, expected| (seen - expected).powi(2) / expected);
        let (rows, columns) = self.margins();
        let used = |sums: &[u64]| sums.iter().filter(|&&n| n > 0).count().saturating_sub(1) as f64;
        let df = used(&rows) * used(&columns);
        (statistic, df, chi_square_tail(statistic, df))
    }

    /// Bits that one class tells of the other.
    pub fn information(&self) -> f64 {
        let nats =
            self.sum(|seen, expected| if seen > 0.0 { seen * (seen / expected).ln() } else { 0.0 });
        let all = self.counts.iter().sum::<u64>().max(1) as f64;
        nats / all / core::f64::consts::LN_2
    }

    /// The sum of what each pair of classes adds that could be seen: of what was seen, and what is
    /// expected if one tells nothing of the other.
    fn sum(&self, adds: impl Fn(f64, f64) -> f64) -> f64 {
        let (rows, columns) = self.margins();
        let all = rows.iter().sum::<u64>() as f64;
        let mut sum = 0.0;
        for (row, counts) in rows.iter().zip(self.counts.chunks(self.columns)) {
            for (column, &seen) in columns.iter().zip(counts) {
                let expected = *row as f64 * *column as f64 / all;
                if expected > 0.0 {
                    sum += adds(seen as f64, expected);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_depends_and_what_does_not() {
        let mut table = Table::new(2, 2);
        for (row, column, times) in [(0, 0, 30), (0, 1, 10), (1, 0, 10), (1, 1, 30)] {
            (0..times).for_each(|_| table.add(row, column));
        }
        let (statistic, df, p) = table.dependence();
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-3;
        assert!(near(statistic, 20.0) && near(df, 1.0) && near(p, 7.744e-6));
        // One less the entropy of a quarter.
        assert!((table.information() - (1.0 - 0.811_278)).abs() < 1e-5);
    }

    #[test]
    fn one_class_alone_tells_nothing() {
        let mut table = Table::new(4, 4);
        (0..100).for_each(|i| table.add(2, i % 4));
        assert_eq!(table.dependence(), (0.0, 0.0, 1.0));
        assert!(table.information().abs() < 1e-12);
        assert_eq!(Table::new(2, 2).dependence(), (0.0, 0.0, 1.0));
    }
}
