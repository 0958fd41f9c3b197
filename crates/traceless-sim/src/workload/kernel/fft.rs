//! A Fourier transform in six steps. The numbers form a square matrix, so that all transforms are
//! of rows, and threads exchange data in transpositions only. Rows have room for one number more,
//! so that the elements of a column are not all in one set of a cache.

use super::threads::{Array, Space, ThreadKernel, ThreadMemory, Value};
use core::f64::consts::TAU;
use core::ops::Range;
use traceless::rng::{Rng, SeededRng};

/// A complex number.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Complex {
    re: f64,
    im: f64,
}

impl Complex {
    fn times(self, by: Self) -> Self {
        Self { re: self.re * by.re - self.im * by.im, im: self.re * by.im + self.im * by.re }
    }

    fn plus(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }

    fn minus(self, other: Self) -> Self {
        Self { re: self.re - other.re, im: self.im - other.im }
    }

    /// The unit number at `part` of `parts` of a turn, clockwise.
    fn turned(part: usize, parts: usize) -> Self {
        let angle = -TAU * part as f64 / parts as f64;
        Self { re: angle.cos(), im: angle.sin() }
    }
}

impl Value for Complex {
    type Cell = [<f64 as Value>::Cell; 2];

    fn cell(self) -> Self::Cell {
        [self.re.cell(), self.im.cell()]
    }

    fn get([re, im]: &Self::Cell) -> Self {
        Self { re: f64::get(re), im: f64::get(im) }
    }

    fn set([re, im]: &Self::Cell, value: Self) {
        f64::set(re, value.re);
        f64::set(im, value.im);
    }
}

/// A transform of random numbers. After a run the result is in `other`.
pub struct Fft {
    rows: usize,
    numbers: Array<Complex>,
    other: Array<Complex>,
    twiddles: Array<Complex>,
    roots: Array<Complex>,
}

impl Fft {
    /// A transform of 2^m numbers.
    pub fn new(space: &mut Space, m: u32, seed: u64) -> Self {
        let rows = 1 << (m / 2);
        let padded = |of: &dyn Fn(usize, usize) -> Complex| {
            let at = |nth| {
                if nth % (rows + 1) < rows {
                    of(nth / (rows + 1), nth % (rows + 1))
                } else {
                    Complex::default()
                }
            };
            (0..rows * (rows + 1)).map(at).collect::<Vec<_>>()
        };
        let drawn = drawn(rows * rows, seed);
        Self {
            rows,
            numbers: space.array(padded(&|row, column| drawn[row * rows + column])),
            other: space.array(padded(&|_, _| Complex::default())),
            twiddles: space
                .array(padded(&|row, column| Complex::turned(row * column, rows * rows))),
            roots: space.array((0..rows / 2).map(|at| Complex::turned(at, rows))),
        }
    }

    fn place(&self, row: usize, column: usize) -> usize {
        row * (self.rows + 1) + column
    }

    fn row(&self, row: usize) -> Range<usize> {
        self.place(row, 0)..self.place(row, self.rows)
    }

    /// Makes columns of the whole matrix rows of this thread, in the order of the threads that own
    /// them, beginning after its own, so that threads do not all begin with the same rows.
    fn transpose(&self, memory: &mut ThreadMemory, from: &Array<Complex>, to: &Array<Complex>) {
        let (own, threads) = (memory.thread(), memory.threads());
        let mine = memory.part(self.rows, own);
        for thread in (own + 1..threads).chain(0..=own) {
            for row in memory.part(self.rows, thread) {
                for column in mine.clone() {
                    let number = from.load(memory, self.place(row, column));
                    to.store(memory, self.place(column, row), number);
                    memory.work(4);
                }
            }
        }
    }

    /// Transforms a row in its place.
    fn transform(&self, memory: &mut ThreadMemory, numbers: &Array<Complex>, row: usize) {
        let (len, first) = (self.rows, self.place(row, 0));
        let bits = len.trailing_zeros();
        for at in 0..len {
            let mirrored = at.reverse_bits() >> (usize::BITS - bits);
            memory.work(6);
            if at < mirrored {
                let (one, two) =
                    (numbers.load(memory, first + at), numbers.load(memory, first + mirrored));
                numbers.store(memory, first + at, two);
                numbers.store(memory, first + mirrored, one);
            }
        }
        let mut half = 1;
        while half < len {
            for start in (first..first + len).step_by(2 * half) {
                for at in 0..half {
                    let root = self.roots.load(memory, at * (len / 2 / half));
                    let low = numbers.load(memory, start + at);
                    let high = numbers.load(memory, start + at + half).times(root);
                    numbers.store(memory, start + at, low.plus(high));
                    numbers.store(memory, start + at + half, low.minus(high));
                    memory.work(14);
                }
            }
            half *= 2;
        }
    }
}

impl ThreadKernel for Fft {
    fn run(&self, memory: &mut ThreadMemory) {
        let Self { numbers, other, twiddles, .. } = self;
        let rows = memory.part(self.rows, memory.thread());
        self.transpose(memory, numbers, other);
        for row in rows.clone() {
            self.transform(memory, other, row);
            for at in self.row(row) {
                let turned = other.load(memory, at).times(twiddles.load(memory, at));
                other.store(memory, at, turned);
                memory.work(8);
            }
        }
        if !memory.barrier() {
            return;
        }
        self.transpose(memory, other, numbers);
        for row in rows {
            self.transform(memory, numbers, row);
        }
        if memory.barrier() {
            self.transpose(memory, numbers, other);
        }
    }
}

fn drawn(n: usize, seed: u64) -> Vec<Complex> {
    let mut rng = SeededRng::new(seed);
    let mut part = || rng.below(1000) as f64 / 1000.0;
    (0..n).map(|_| Complex { re: part(), im: part() }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::threads::tests::alone;
    use super::*;

    #[test]
    fn it_is_the_sum_over_all_turns() {
        let (m, n) = (8, 256);
        let numbers = drawn(n, 1);
        for threads in [1, 4] {
            let fft = alone(threads, |space| Fft::new(space, m, 1));
            for k in 0..n {
                let found = fft.other.peek(fft.place(k / fft.rows, k % fft.rows));
                let term = |at: usize| numbers[at].times(Complex::turned(at * k % n, n));
                let sum = (0..n).map(term).fold(Complex::default(), Complex::plus);
                let off = found.minus(sum);
                assert!(off.re.hypot(off.im) < 1e-9, "{k}: {found:?} {sum:?}");
            }
        }
    }
}
