//! The LU decomposition of a matrix, block by block. In memory, the matrix is stored column by
//! column; or block by block, each block column by column. Blocks belong to threads in a repeating
//! two-dimensional pattern.

use super::threads::{Array, Space, ThreadKernel, ThreadMemory};
use core::ops::Range;
use traceless::rng::{Rng, SeededRng};

/// Rows of a block.
pub const BLOCK: usize = 16;

/// A random matrix with a heavy diagonal, and then its two triangles in the same place. The stored
/// diagonal is that of the lower triangle; the upper one's is all ones.
pub struct Lu {
    n: usize,
    contiguous: bool,
    elements: Array<f64>,
}

/// The part of a column that is in a block.
#[derive(Clone, Copy)]
struct LuColumn {
    /// The row of blocks that the block is in.
    block: usize,
    column: usize,
}

impl Lu {
    pub fn new(space: &mut Space, n: usize, contiguous: bool, seed: u64) -> Self {
        let mut lu = Self { n, contiguous, elements: space.array([]) };
        let drawn = drawn(n, seed);
        let mut placed = vec![0.0; n * n];
        for (nth, element) in drawn.into_iter().enumerate() {
            placed[lu.place(nth / n, nth % n)] = element;
        }
        lu.elements = space.array(placed);
        lu
    }

    fn place(&self, row: usize, column: usize) -> usize {
        self.first(LuColumn { block: row / BLOCK, column }) + row % BLOCK
    }

    /// The place of the first element of a column of a block; its other elements follow.
    fn first(&self, LuColumn { block, column }: LuColumn) -> usize {
        if !self.contiguous {
            return column * self.n + block * BLOCK;
        }
        let blocks = self.n / BLOCK;
        ((column / BLOCK * blocks + block) * BLOCK + column % BLOCK) * BLOCK
    }

    fn columns(block: usize) -> Range<usize> {
        block * BLOCK..(block + 1) * BLOCK
    }

    fn load(&self, memory: &mut ThreadMemory, row: usize, column: usize) -> f64 {
        self.elements.load(memory, self.place(row, column))
    }

    /// Divides an element by the diagonal element of its row.
    fn divide(&self, memory: &mut ThreadMemory, row: usize, column: usize) -> f64 {
        let quotient = self.load(memory, row, column) / self.load(memory, row, row);
        self.elements.store(memory, self.place(row, column), quotient);
        memory.work(4);
        quotient
    }

    /// Subtracts `factor` times the second column of a block from the first, from row `from` on.
    fn subtract(
        &self,
        memory: &mut ThreadMemory,
        (target, source): (LuColumn, LuColumn),
        factor: f64,
        from: usize,
    ) {
        let (target, source) = (self.first(target), self.first(source));
        for row in from..BLOCK {
            let was = self.elements.load(memory, target + row);
            let value = self.elements.load(memory, source + row);
            self.elements.store(memory, target + row, was - factor * value);
            memory.work(4);
        }
    }

    /// Factors a block of the diagonal into both triangles.
    fn factor(&self, memory: &mut ThreadMemory, nth: usize) {
        let columns = Self::columns(nth);
        for source in columns.clone() {
            self.eliminate(memory, nth, source, source + 1..columns.end);
        }
    }

    /// Makes a row of `columns` a row of the upper triangle, and subtracts it from the rows below.
    fn eliminate(
        &self,
        memory: &mut ThreadMemory,
        nth: usize,
        source: usize,
        columns: Range<usize>,
    ) {
        for column in columns {
            let factor = self.divide(memory, source, column);
            let pair = (LuColumn { block: nth, column }, LuColumn { block: nth, column: source });
            self.subtract(memory, pair, factor, source % BLOCK + 1);
        }
    }

    /// Factors a block below the diagonal block.
    fn below(&self, memory: &mut ThreadMemory, block: usize, nth: usize) {
        for source in Self::columns(nth) {
            for column in source + 1..Self::columns(nth).end {
                let factor = self.load(memory, source, column);
                let pair = (LuColumn { block, column }, LuColumn { block, column: source });
                self.subtract(memory, pair, factor, 0);
            }
        }
    }

    /// Factors a block to the right of the diagonal block.
    fn beside(&self, memory: &mut ThreadMemory, block: usize, nth: usize) {
        for source in Self::columns(nth) {
            self.eliminate(memory, nth, source, Self::columns(block));
        }
    }

    /// Subtracts from any further block the product of the blocks beside and above it.
    fn update(&self, memory: &mut ThreadMemory, (row, column): (usize, usize), nth: usize) {
        for source in Self::columns(nth) {
            for column in Self::columns(column) {
                let factor = self.load(memory, source, column);
                let pair =
                    (LuColumn { block: row, column }, LuColumn { block: row, column: source });
                self.subtract(memory, pair, factor, 0);
            }
        }
    }
}

impl ThreadKernel for Lu {
    fn run(&self, memory: &mut ThreadMemory) {
        let blocks = self.n / BLOCK;
        let board = SharedColumns::new(memory);
        for nth in 0..blocks {
            if board.is_own(nth, nth) {
                self.factor(memory, nth);
            }
            if !memory.barrier() {
                return;
            }
            for row in (nth + 1..blocks).filter(|row| board.is_own(*row, nth)) {
                self.below(memory, row, nth);
            }
            for column in (nth + 1..blocks).filter(|column| board.is_own(nth, *column)) {
                self.beside(memory, column, nth);
            }
            if !memory.barrier() {
                return;
            }
            for row in nth + 1..blocks {
                for column in (nth + 1..blocks).filter(|column| board.is_own(row, *column)) {
                    self.update(memory, (row, column), nth);
                }
            }
        }
    }
}

/// The assignment of blocks to threads.
struct SharedColumns {
    thread: usize,
    rows: usize,
    columns: usize,
}

impl SharedColumns {
    fn new(memory: &ThreadMemory) -> Self {
        let threads = memory.threads();
        let rows = (1..=threads.isqrt()).rev().find(|rows| threads.is_multiple_of(*rows));
        let rows = rows.expect("1 divides every number");
        Self { thread: memory.thread(), rows, columns: threads / rows }
    }

    fn is_own(&self, row: usize, column: usize) -> bool {
        row % self.rows * self.columns + column % self.columns == self.thread
    }
}

fn drawn(n: usize, seed: u64) -> Vec<f64> {
    let mut rng = SeededRng::new(seed);
    let element = |place: usize| {
        let small = rng.below(1000) as f64 / 1000.0;
        if place / n == place % n { small + n as f64 } else { small }
    };
    (0..n * n).map(element).collect()
}

#[cfg(test)]
mod tests {
    use super::super::threads::tests::alone;
    use super::*;

    #[test]
    fn the_triangles_multiply_to_the_matrix() {
        let n = 48;
        for (contiguous, threads) in [(true, 1), (false, 1), (true, 4), (false, 6)] {
            let lu = alone(threads, |space| Lu::new(space, n, contiguous, 1));
            let at = |row, column| lu.elements.peek(lu.place(row, column));
            let upper = |k: usize, column| if k == column { 1.0 } else { at(k, column) };
            for (place, element) in drawn(n, 1).into_iter().enumerate() {
                let (row, column) = (place / n, place % n);
                let terms = 0..=row.min(column);
                let product: f64 = terms.map(|k| at(row, k) * upper(k, column)).sum();
                assert!((product - element).abs() < 1e-9, "{row}, {column}: {product} {element}");
            }
        }
    }
}
