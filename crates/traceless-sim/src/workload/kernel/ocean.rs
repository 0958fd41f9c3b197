//! Currents in a square basin: stencils over many fields, and in each step of time an equation that
//! a multigrid solver with red and black points solves.

use super::{Array, Memory};
use traceless::rng::{Rng, Seeded};

const STEPS: usize = 6;
/// Cycles of the solver in a step, and sweeps before and after each coarser grid.
const CYCLES: usize = 4;
const SWEEPS: usize = 2;

/// A square grid with a border of zeros.
struct Grid {
    n: usize,
    points: Array<f64>,
}

impl Grid {
    fn new(memory: &mut Memory, n: usize) -> Self {
        Self { n, points: memory.array(vec![0.0; n * n]) }
    }

    #[inline]
    fn load(&self, memory: &mut Memory, row: usize, column: usize) -> f64 {
        self.points.load(memory, row * self.n + column)
    }

    #[inline]
    fn store(&mut self, memory: &mut Memory, row: usize, column: usize, value: f64) {
        self.points.store(memory, row * self.n + column, value);
    }

    /// The sum of the four neighbours.
    #[inline]
    fn around(&self, memory: &mut Memory, row: usize, column: usize) -> f64 {
        memory.work(6);
        self.load(memory, row - 1, column)
            + self.load(memory, row + 1, column)
            + self.load(memory, row, column - 1)
            + self.load(memory, row, column + 1)
    }
}

/// A grid of the solver: what is looked for, and the right side.
struct Level {
    solution: Grid,
    right: Grid,
}

/// Lets a random current go on for some steps. Returns what is left of the last equation, relative
/// to its right side.
pub fn run(memory: &mut Memory, n: usize, seed: u64) -> f64 {
    let mut rng = Seeded::new(seed);
    let mut levels = vec![];
    let mut width = n - 2;
    while width >= 2 {
        let solution = Grid::new(memory, width + 2);
        levels.push(Level { solution, right: Grid::new(memory, width + 2) });
        width /= 2;
    }
    let [mut current, mut curl, mut drift] = [(); 3].map(|()| Grid::new(memory, n));
    for row in 1..n - 1 {
        for column in 1..n - 1 {
            current.store(memory, row, column, rng.below(2000) as f64 / 1000.0 - 1.0);
            memory.work(4);
        }
    }
    let mut left = 1.0;
    for _ in 0..STEPS {
        laplacian(memory, &current, &mut curl);
        jacobian(memory, &current, &curl, &mut drift);
        for row in 1..n - 1 {
            for column in 1..n - 1 {
                let sum = curl.load(memory, row, column) + 0.1 * drift.load(memory, row, column);
                levels[0].right.store(memory, row, column, sum);
                memory.work(4);
            }
        }
        for _ in 0..CYCLES {
            cycle(memory, &mut levels);
        }
        if memory.is_unheard() {
            return left;
        }
        left = residual(memory, &levels[0]);
        for row in 1..n - 1 {
            for column in 1..n - 1 {
                let solved = levels[0].solution.load(memory, row, column);
                current.store(memory, row, column, solved);
                memory.work(3);
            }
        }
    }
    left
}

fn laplacian(memory: &mut Memory, of: &Grid, into: &mut Grid) {
    for row in 1..of.n - 1 {
        for column in 1..of.n - 1 {
            let value = of.around(memory, row, column) - 4.0 * of.load(memory, row, column);
            into.store(memory, row, column, value);
        }
    }
}

fn jacobian(memory: &mut Memory, one: &Grid, two: &Grid, into: &mut Grid) {
    for row in 1..one.n - 1 {
        for column in 1..one.n - 1 {
            let mut slope = |grid: &Grid, down: usize, right: usize| {
                grid.load(memory, row + down, column + right)
                    - grid.load(memory, row - down, column - right)
            };
            let turned = slope(one, 0, 1) * slope(two, 1, 0) - slope(one, 1, 0) * slope(two, 0, 1);
            memory.work(9);
            into.store(memory, row, column, turned / 4.0);
        }
    }
}

/// From the finest grid to the coarsest, and back.
fn cycle(memory: &mut Memory, levels: &mut [Level]) {
    let Some((fine, coarser)) = levels.split_first_mut() else { return };
    if coarser.is_empty() {
        relax(memory, fine, SWEEPS * 10);
        return;
    }
    relax(memory, fine, SWEEPS);
    let coarse = &mut coarser[0];
    for row in 1..coarse.right.n - 1 {
        for column in 1..coarse.right.n - 1 {
            let mut sum = 0.0;
            for (down, right) in [(1, 1), (1, 0), (0, 1), (0, 0)] {
                sum += defect(memory, fine, 2 * row - down, 2 * column - right);
            }
            coarse.right.store(memory, row, column, sum);
            coarse.solution.store(memory, row, column, 0.0);
            memory.work(6);
        }
    }
    cycle(memory, coarser);
    let coarse = &coarser[0];
    for row in 1..fine.solution.n - 1 {
        for column in 1..fine.solution.n - 1 {
            let step = coarse.solution.load(memory, row.div_ceil(2), column.div_ceil(2));
            let was = fine.solution.load(memory, row, column);
            fine.solution.store(memory, row, column, was + step);
            memory.work(6);
        }
    }
    relax(memory, fine, SWEEPS);
}

/// What is missing at a point.
fn defect(memory: &mut Memory, level: &Level, row: usize, column: usize) -> f64 {
    let around = level.solution.around(memory, row, column);
    let here = level.solution.load(memory, row, column);
    level.right.load(memory, row, column) - (around - 4.0 * here)
}

fn relax(memory: &mut Memory, level: &mut Level, sweeps: usize) {
    let n = level.solution.n;
    for colour in (0..2).cycle().take(2 * sweeps) {
        for row in 1..n - 1 {
            for column in (1 + (row + colour) % 2..n - 1).step_by(2) {
                let around = level.solution.around(memory, row, column);
                let right = level.right.load(memory, row, column);
                level.solution.store(memory, row, column, (around - right) / 4.0);
                memory.work(3);
            }
        }
    }
}

fn residual(memory: &mut Memory, level: &Level) -> f64 {
    let (mut missing, mut all) = (0.0, 0.0);
    for row in 1..level.right.n - 1 {
        for column in 1..level.right.n - 1 {
            missing += defect(memory, level, row, column).abs();
            all += level.right.load(memory, row, column).abs();
            memory.work(4);
        }
    }
    missing / all
}

#[cfg(test)]
mod tests {
    use super::super::tests::alone;
    use super::*;

    #[test]
    fn the_equation_is_solved() {
        let left = alone(|memory| run(memory, 66, 1));
        assert!(left < 0.05, "{left}");
    }
}
