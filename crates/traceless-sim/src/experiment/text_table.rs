//! Tables for people to read.
//!
//! ```
//! use traceless_sim::experiment::text_table::{TextTable, shortened};
//!
//! let mut table = TextTable::new(vec!["workload".to_owned(), "slowdown".to_owned()]);
//! for (workload, slowdown) in [("mcf", 12.345), ("lbm", 3.0)] {
//!     table.add_row([workload.to_owned(), shortened(slowdown)]);
//! }
//! assert_eq!(
//!     table.to_string().lines().collect::<Vec<_>>(),
//!     [" workload  slowdown", " mcf           12.3", " lbm           3.00"]
//! );
//! ```

use std::fmt;

/// A text table without rules. The first column has words, the rest have numbers.
pub struct TextTable {
    /// The header, and then the rows; all have the same number of cells.
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table without rows.
    pub fn new(header: Vec<String>) -> Self {
        Self { rows: vec![header] }
    }

    /// Adds a row of as many cells as the header has.
    pub fn add_row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.rows[0].len(), "rows have a cell for each column");
        self.rows.push(cells);
    }
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        for (nth, row) in self.rows.iter().enumerate() {
            if nth > 0 {
                writeln!(f)?;
            }
            write!(f, " {:<width$}", row[0], width = widths[0])?;
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                write!(f, "  {cell:>width$}")?;
            }
        }
        Ok(())
    }
}

/// A number with about three significant digits.
pub fn shortened(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0..100.0 => format!("{value:.1}"),
        1.0..10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_left_aligned_and_numbers_right_aligned() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let mut table = TextTable::new(row(["name", "β", "long header"]));
        table.add_row(row(["a", "1.25", "3"]));
        assert_eq!(table.to_string(), " name     β  long header\n a     1.25            3");
    }
}
