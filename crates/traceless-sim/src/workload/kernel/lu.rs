//! A matrix in two triangles, block by block.

use super::{Array, Memory};
use traceless::rng::{Rng, Seeded};

/// Rows of a block.
pub const BLOCK: usize = 16;

struct Matrix {
    n: usize,
    contiguous: bool,
    elements: Array<f64>,
}

impl Matrix {
    fn place(&self, row: usize, column: usize) -> usize {
        if !self.contiguous {
            return row * self.n + column;
        }
        let block = row / BLOCK * (self.n / BLOCK) + column / BLOCK;
        (block * BLOCK + row % BLOCK) * BLOCK + column % BLOCK
    }

    #[inline]
    fn load(&self, memory: &mut Memory, row: usize, column: usize) -> f64 {
        self.elements.load(memory, self.place(row, column))
    }

    #[inline]
    fn store(&mut self, memory: &mut Memory, row: usize, column: usize, value: f64) {
        let place = self.place(row, column);
        self.elements.store(memory, place, value);
    }

    /// Takes `factor` times part of one row from another: columns from `from` to `to`.
    fn subtract(
        &mut self,
        memory: &mut Memory,
        (target, source): (usize, usize),
        factor: f64,
        columns: core::ops::Range<usize>,
    ) {
        for column in columns {
            let value = self.load(memory, source, column);
            let was = self.load(memory, target, column);
            self.store(memory, target, column, was - factor * value);
            memory.work(4);
        }
    }
}

/// Factors a random matrix with a heavy diagonal; both triangles take its place, row by row.
pub fn run(memory: &mut Memory, n: usize, contiguous: bool, seed: u64) -> Vec<f64> {
    let mut matrix = Matrix { n, contiguous, elements: memory.array(vec![0.0; n * n]) };
    for (place, element) in drawn(n, seed).into_iter().enumerate() {
        matrix.store(memory, place / n, place % n, element);
        memory.work(6);
    }
    for first in (0..n).step_by(BLOCK) {
        let last = first + BLOCK;
        for row in first + 1..n {
            // The diagonal block, and those below it.
            for column in first..last.min(row) {
                if column < row {
                    eliminate(memory, &mut matrix, row, column, column + 1..last);
                }
            }
        }
        for source in first..last {
            // Those beside it.
            for target in source + 1..last {
                let factor = matrix.load(memory, target, source);
                matrix.subtract(memory, (target, source), factor, last..n);
            }
        }
        for rows in (last..n).step_by(BLOCK) {
            for columns in (last..n).step_by(BLOCK) {
                if memory.is_unheard() {
                    return vec![];
                }
                update(memory, &mut matrix, first, rows, columns);
            }
        }
    }
    let place = |place| matrix.elements.values[matrix.place(place / n, place % n)];
    (0..n * n).map(place).collect()
}

/// Makes an element zero, and keeps the factor in its place.
fn eliminate(
    memory: &mut Memory,
    matrix: &mut Matrix,
    row: usize,
    column: usize,
    columns: core::ops::Range<usize>,
) {
    let factor = matrix.load(memory, row, column) / matrix.load(memory, column, column);
    matrix.store(memory, row, column, factor);
    memory.work(3);
    matrix.subtract(memory, (row, column), factor, columns);
}

/// The block at these rows and columns, less the product of those before it.
fn update(memory: &mut Memory, matrix: &mut Matrix, first: usize, rows: usize, columns: usize) {
    for row in rows..rows + BLOCK {
        for source in first..first + BLOCK {
            let factor = matrix.load(memory, row, source);
            matrix.subtract(memory, (row, source), factor, columns..columns + BLOCK);
        }
    }
}

fn drawn(n: usize, seed: u64) -> Vec<f64> {
    let mut rng = Seeded::new(seed);
    let element = |place: usize| {
        let small = rng.below(1000) as f64 / 1000.0;
        if place / n == place % n { small + n as f64 } else { small }
    };
    (0..n * n).map(element).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::alone;
    use super::*;

    #[test]
    fn the_triangles_multiply_to_the_matrix() {
        let n = 48;
        for contiguous in [true, false] {
            let triangles = alone(|memory| run(memory, n, contiguous, 1));
            let lower = |row: usize, k: usize| if row == k { 1.0 } else { triangles[row * n + k] };
            for (place, element) in drawn(n, 1).into_iter().enumerate() {
                let (row, column) = (place / n, place % n);
                let terms = 0..=row.min(column);
                let product: f64 = terms.map(|k| lower(row, k) * triangles[k * n + column]).sum();
                assert!((product - element).abs() < 1e-9, "{row}, {column}: {product} {element}");
            }
        }
    }
}
