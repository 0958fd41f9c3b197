//! Tests whether a bit is a sum of other bits, modulo 2, in every case.

use crate::labels::Bits;
use crate::mixer::Mixer;

/// Columns of bits, one in each row. Rows are cases.
pub(crate) struct Columns {
    rows: usize,
    /// The independent columns, reduced, each with a row in which no later column has a bit.
    independent: Vec<(usize, Vec<u64>)>,
}

/// A column in which the rarer value has less than this share of all cases is no evidence: it may
/// be constant in most cases.
const RARER_MIN: f64 = 0.25;

/// Rows for each column, and some more. If the rarer value has a share of at least a quarter, a
/// column is a given sum of other columns by chance with a probability of 0.75 for each row, times
/// the number of all sums.
pub(crate) fn rows_for(columns: usize) -> usize {
    3 * columns + 120
}

/// The probability that one of `tests` columns is by chance a sum of `columns` other ones in all
/// rows.
pub(crate) fn sum_by_chance(rows: usize, columns: usize, tests: usize) -> f64 {
    let bits =
        columns as f64 + rows as f64 * (1.0 - RARER_MIN).log2() + (tests.max(1) as f64).log2();
    bits.exp2().min(1.0)
}

impl Columns {
    pub fn new(rows: usize) -> Self {
        Self { rows, independent: vec![] }
    }

    /// Adds a column, and returns whether it is a sum of the columns before.
    pub fn is_sum(&mut self, bits: impl ExactSizeIterator<Item = bool>) -> bool {
        assert_eq!(bits.len(), self.rows, "a column has a bit in each row");
        let mut column = Bits::of(bits).words;
        for (row, other) in &self.independent {
            if column[row / 64] >> (row % 64) & 1 == 1 {
                column.iter_mut().zip(other).for_each(|(word, other)| *word ^= other);
            }
        }
        let Some(nth) = column.iter().position(|word| *word != 0) else { return true };
        self.independent.push((64 * nth + column[nth].trailing_zeros() as usize, column));
        false
    }

    /// The number of independent columns.
    pub fn rank(&self) -> usize {
        self.independent.len()
    }
}

/// Whether both values of a bit are common enough for a sum to be evidence.
pub(crate) fn is_even(ones: usize, all: usize) -> bool {
    let share = ones as f64 / all.max(1) as f64;
    (RARER_MIN..=1.0 - RARER_MIN).contains(&share)
}

/// Selects `rows` of the cases from `first` on, in order.
pub(crate) fn cases(first: usize, all: usize, rows: usize) -> Option<Vec<usize>> {
    let rest = all.checked_sub(first).filter(|rest| *rest >= rows)?;
    let step = rest / rows;
    let mut mixer = Mixer(rest as u64);
    // A random case of each stretch, independent of any period of the trace.
    let case = |nth: usize| first + nth * step + mixer.below(step as u64) as usize;
    Some((0..rows).map(case).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_of_columns_is_found_unless_one_row_differs() {
        let mut rng = Mixer(1);
        let rows = rows_for(40);
        let mut any = || (0..rows).map(|_| rng.below(2) == 1).collect::<Vec<bool>>();
        let terms: Vec<Vec<bool>> = (0..40).map(|_| any()).collect();
        let unrelated = any();
        let mut sum: Vec<bool> =
            (0..rows).map(|row| terms[3][row] ^ terms[17][row] ^ terms[39][row]).collect();
        let mut columns = Columns::new(rows);
        assert!(terms.iter().all(|column| !columns.is_sum(column.iter().copied())));
        assert!(columns.is_sum(sum.iter().copied()));
        sum[rows / 2] ^= true;
        assert!(!columns.is_sum(sum.into_iter()));
        assert!(!columns.is_sum(unrelated.into_iter()));
        assert_eq!(columns.rank(), 42);
        assert!(sum_by_chance(rows, 40, 9) < 1e-9);
    }

    #[test]
    fn cases_are_in_order_and_in_range() {
        for (first, all, rows) in [(0, 10, 10), (5, 900, 100), (0, 7, 0)] {
            if rows == 0 {
                continue;
            }
            let cases = cases(first, all, rows).unwrap();
            assert!(cases.len() == rows && cases.windows(2).all(|two| two[0] < two[1]));
            assert!(cases[0] >= first && cases[rows - 1] < all);
        }
        assert_eq!(cases(5, 10, 6), None);
    }
}
