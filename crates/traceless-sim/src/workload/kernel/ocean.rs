//! Currents in a square basin, in two layers: stencils over many fields, and in each step of time
//! an equation for each layer, solved by a multigrid solver with red and black points. Each thread
//! has a square of every grid. In memory, either the points of a square are contiguous, or the rows
//! of the whole grid are.

use super::threads::{Array, Space, ThreadKernel, ThreadMemory};
use traceless::rng::{Rng, SeededRng};

const LAYERS: usize = 2;
const STEPS: usize = 6;
/// Cycles of the solver in a step, and sweeps before and after each coarser grid.
const CYCLES: usize = 4;
const SWEEPS: usize = 2;

/// A square grid with a border of zeros.
struct Grid {
    /// Points of a row without the border, and squares of threads side by side.
    width: usize,
    squares: usize,
    contiguous: bool,
    points: Array<f64>,
}

impl Grid {
    fn new(space: &mut Space, shape: &Shape, width: usize, value: impl FnMut() -> f64) -> Self {
        let Shape { squares, contiguous } = *shape;
        let mut grid = Self { width, squares, contiguous, points: space.array([]) };
        let len = if contiguous { squares * (width / squares + 2) } else { width + 2 };
        let mut points = vec![0.0; len * len];
        let inside = (1..=width).flat_map(|row| (1..=width).map(move |column| (row, column)));
        for ((row, column), value) in inside.zip(core::iter::repeat_with(value)) {
            points[grid.place(row, column)] = value;
        }
        grid.points = space.array(points);
        grid
    }

    /// A grid of zeros.
    fn zeros(space: &mut Space, shape: &Shape, width: usize) -> Self {
        Self::new(space, shape, width, || 0.0)
    }

    #[inline]
    fn place(&self, row: usize, column: usize) -> usize {
        if !self.contiguous {
            return row * (self.width + 2) + column;
        }
        // Squares at the edge have the border, too, so each has room for it.
        let side = self.width / self.squares;
        let square = |nth: usize| (nth.saturating_sub(1) / side).min(self.squares - 1);
        let (down, right) = (square(row), square(column));
        let first = (down * self.squares + right) * (side + 2) * (side + 2);
        first + (row - down * side) * (side + 2) + (column - right * side)
    }

    #[inline]
    fn load(&self, memory: &mut ThreadMemory, row: usize, column: usize) -> f64 {
        self.points.load(memory, self.place(row, column))
    }

    #[inline]
    fn store(&self, memory: &mut ThreadMemory, row: usize, column: usize, value: f64) {
        self.points.store(memory, self.place(row, column), value);
    }

    /// The sum of the four neighbours.
    #[inline]
    fn around(&self, memory: &mut ThreadMemory, row: usize, column: usize) -> f64 {
        memory.work(6);
        self.load(memory, row - 1, column)
            + self.load(memory, row + 1, column)
            + self.load(memory, row, column - 1)
            + self.load(memory, row, column + 1)
    }

    /// Calls `at` for each of the thread's points.
    #[inline]
    fn each(&self, memory: &mut ThreadMemory, mut at: impl FnMut(&mut ThreadMemory, usize, usize)) {
        let side = self.width / self.squares;
        let (down, right) = (memory.thread() / self.squares, memory.thread() % self.squares);
        for row in down * side + 1..=(down + 1) * side {
            for column in right * side + 1..=(right + 1) * side {
                at(memory, row, column);
            }
        }
    }
}

/// How grids are split.
struct Shape {
    squares: usize,
    contiguous: bool,
}

/// A grid of the solver: the solution so far, and the right side of its equation.
struct GridLevel {
    solution: Grid,
    right: Grid,
}

/// The fields of a layer.
struct Layer {
    current: Grid,
    before: Grid,
    curl: Grid,
    drift: Grid,
    friction: Grid,
}

/// Simulates random currents for some steps.
pub struct Ocean {
    layers: Vec<Layer>,
    levels: Vec<GridLevel>,
}

/// Whether so many threads can have a square each.
pub fn takes(n: usize, threads: usize) -> bool {
    let squares = threads.isqrt();
    squares * squares == threads && squares.is_power_of_two() && squares <= n - 2
}

impl Ocean {
    /// A simulation on a grid of `n` points a row.
    pub fn new(space: &mut Space, n: usize, contiguous: bool, threads: usize, seed: u64) -> Self {
        let shape = &Shape { squares: threads.isqrt(), contiguous };
        let mut rng = SeededRng::new(seed);
        let layers = (0..LAYERS).map(|_| Layer {
            current: Grid::new(space, shape, n - 2, || rng.below(2000) as f64 / 1000.0 - 1.0),
            before: Grid::zeros(space, shape, n - 2),
            curl: Grid::zeros(space, shape, n - 2),
            drift: Grid::zeros(space, shape, n - 2),
            friction: Grid::zeros(space, shape, n - 2),
        });
        let layers = layers.collect();
        let mut levels = vec![];
        let mut width = n - 2;
        while width >= shape.squares.max(2) {
            let solution = Grid::zeros(space, shape, width);
            levels.push(GridLevel { solution, right: Grid::zeros(space, shape, width) });
            width /= 2;
        }
        Self { layers, levels }
    }

    /// One step of a layer. Its new current is the solution of the step's equation. False if the
    /// receiver has ended.
    fn step(&self, memory: &mut ThreadMemory, layer: &Layer) -> bool {
        let Layer { current, before, curl, drift, friction } = layer;
        laplacian(memory, current, curl);
        laplacian(memory, before, friction);
        if !memory.barrier() {
            return false;
        }
        jacobian(memory, current, curl, drift);
        let right = &self.levels[0].right;
        right.each(memory, |memory, row, column| {
            let sum = curl.load(memory, row, column)
                + 0.1 * drift.load(memory, row, column)
                + 0.01 * friction.load(memory, row, column);
            right.store(memory, row, column, sum);
            memory.work(6);
        });
        if !memory.barrier() {
            return false;
        }
        for _ in 0..CYCLES {
            if !cycle(memory, &self.levels) {
                return false;
            }
        }
        let solution = &self.levels[0].solution;
        current.each(memory, |memory, row, column| {
            let was = current.load(memory, row, column);
            before.store(memory, row, column, was);
            let solved = solution.load(memory, row, column);
            current.store(memory, row, column, solved);
            memory.work(4);
        });
        memory.barrier()
    }
}

impl ThreadKernel for Ocean {
    fn run(&self, memory: &mut ThreadMemory) {
        for _ in 0..STEPS {
            for layer in &self.layers {
                if !self.step(memory, layer) {
                    return;
                }
            }
        }
    }
}

fn laplacian(memory: &mut ThreadMemory, of: &Grid, into: &Grid) {
    of.each(memory, |memory, row, column| {
        let value = of.around(memory, row, column) - 4.0 * of.load(memory, row, column);
        into.store(memory, row, column, value);
    });
}

fn jacobian(memory: &mut ThreadMemory, one: &Grid, two: &Grid, into: &Grid) {
    one.each(memory, |memory, row, column| {
        let mut slope = |grid: &Grid, down: usize, right: usize| {
            grid.load(memory, row + down, column + right)
                - grid.load(memory, row - down, column - right)
        };
        let turned = slope(one, 0, 1) * slope(two, 1, 0) - slope(one, 1, 0) * slope(two, 0, 1);
        memory.work(9);
        into.store(memory, row, column, turned / 4.0);
    });
}

/// A cycle of the solver, from the finest grid to the coarsest and back. False if the receiver has
/// ended.
fn cycle(memory: &mut ThreadMemory, levels: &[GridLevel]) -> bool {
    let Some((fine, coarser)) = levels.split_first() else { return true };
    let Some(coarse) = coarser.first() else { return relax(memory, fine, SWEEPS * 10) };
    if !relax(memory, fine, SWEEPS) {
        return false;
    }
    coarse.right.each(memory, |memory, row, column| {
        let mut sum = 0.0;
        for (down, right) in [(1, 1), (1, 0), (0, 1), (0, 0)] {
            sum += defect(memory, fine, 2 * row - down, 2 * column - right);
        }
        coarse.right.store(memory, row, column, sum);
        coarse.solution.store(memory, row, column, 0.0);
        memory.work(6);
    });
    if !memory.barrier() || !cycle(memory, coarser) {
        return false;
    }
    fine.solution.each(memory, |memory, row, column| {
        let step = coarse.solution.load(memory, row.div_ceil(2), column.div_ceil(2));
        let was = fine.solution.load(memory, row, column);
        fine.solution.store(memory, row, column, was + step);
        memory.work(6);
    });
    memory.barrier() && relax(memory, fine, SWEEPS)
}

/// The defect of the equation at a point: the right side less the left.
fn defect(memory: &mut ThreadMemory, level: &GridLevel, row: usize, column: usize) -> f64 {
    let around = level.solution.around(memory, row, column);
    let here = level.solution.load(memory, row, column);
    level.right.load(memory, row, column) - (around - 4.0 * here)
}

/// Sweeps over the points of one colour, then over the other points. False if the receiver has
/// ended.
fn relax(memory: &mut ThreadMemory, level: &GridLevel, sweeps: usize) -> bool {
    for colour in (0..2).cycle().take(2 * sweeps) {
        level.solution.each(memory, |memory, row, column| {
            if (row + column) % 2 == colour {
                let around = level.solution.around(memory, row, column);
                let right = level.right.load(memory, row, column);
                level.solution.store(memory, row, column, (around - right) / 4.0);
                memory.work(3);
            }
        });
        if !memory.barrier() {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::threads::tests::alone;
    use super::*;

    /// The sum of the last equation's defects, relative to its right side.
    fn left(ocean: &Ocean) -> f64 {
        let GridLevel { solution, right } = &ocean.levels[0];
        let at = |grid: &Grid, row, column| grid.points.peek(grid.place(row, column));
        let (mut missing, mut all) = (0.0, 0.0);
        for row in 1..=right.width {
            for column in 1..=right.width {
                let around = at(solution, row - 1, column)
                    + at(solution, row + 1, column)
                    + at(solution, row, column - 1)
                    + at(solution, row, column + 1);
                let here = at(right, row, column);
                missing += (here - (around - 4.0 * at(solution, row, column))).abs();
                all += here.abs();
            }
        }
        missing / all
    }

    #[test]
    fn the_equation_is_solved() {
        let solved = [(1, true), (1, false), (4, true), (4, false)].map(|(threads, contiguous)| {
            let ocean = alone(threads, |space| Ocean::new(space, 66, contiguous, threads, 1));
            left(&ocean)
        });
        assert!(solved[0] < 0.05, "{solved:?}");
        // The solution does not depend on the number of threads, nor on the layout.
        assert_eq!(solved.map(f64::to_bits), [solved[0].to_bits(); 4]);
    }

    #[test]
    fn each_point_has_a_place() {
        for (contiguous, squares) in [(true, 1), (true, 4), (false, 2)] {
            let grid = Grid::zeros(&mut Space::default(), &Shape { squares, contiguous }, 16);
            let mut places: Vec<_> =
                (0..18 * 18).map(|nth| grid.place(nth / 18, nth % 18)).collect();
            assert!(places.iter().all(|place| *place < grid.points.len()));
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), 18 * 18);
        }
    }
}
