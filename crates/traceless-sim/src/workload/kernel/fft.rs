//! A Fourier transform in six steps: the numbers as a square matrix, so that all transforms are of
//! rows.

use super::{Array, Memory};
use core::f64::consts::TAU;
use traceless::rng::{Rng, Seeded};

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

    /// So many parts of a turn, clockwise.
    fn turned(part: usize, parts: usize) -> Self {
        let angle = -TAU * part as f64 / parts as f64;
        Self { re: angle.cos(), im: angle.sin() }
    }
}

/// Transforms 2^m random numbers.
pub fn run(memory: &mut Memory, m: u32, seed: u64) -> Vec<Complex> {
    let (n, rows) = (1usize << m, 1usize << (m / 2));
    let mut numbers = memory.array(drawn(n, seed));
    let mut other = memory.array(vec![Complex::default(); n]);
    let twiddles =
        memory.array((0..n).map(|at| Complex::turned(at / rows * (at % rows), n)).collect());
    let roots = memory.array((0..rows / 2).map(|at| Complex::turned(at, rows)).collect());
    transpose(memory, &numbers, &mut other, rows);
    for row in 0..rows {
        if memory.is_unheard() {
            return vec![];
        }
        transform(memory, &mut other, row * rows, &roots);
        for at in row * rows..(row + 1) * rows {
            let twiddled = other.load(memory, at).times(twiddles.load(memory, at));
            other.store(memory, at, twiddled);
            memory.work(8);
        }
    }
    transpose(memory, &other, &mut numbers, rows);
    for row in 0..rows {
        if memory.is_unheard() {
            return vec![];
        }
        transform(memory, &mut numbers, row * rows, &roots);
    }
    transpose(memory, &numbers, &mut other, rows);
    other.values
}

/// Columns become rows.
fn transpose(memory: &mut Memory, from: &Array<Complex>, to: &mut Array<Complex>, rows: usize) {
    for row in 0..rows {
        for column in 0..rows {
            let number = from.load(memory, column * rows + row);
            to.store(memory, row * rows + column, number);
            memory.work(4);
        }
    }
}

/// Transforms the row that begins at `first`, in its place.
fn transform(
    memory: &mut Memory,
    numbers: &mut Array<Complex>,
    first: usize,
    roots: &Array<Complex>,
) {
    let len = 2 * roots.values.len();
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
                let root = roots.load(memory, at * (len / 2 / half));
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

fn drawn(n: usize, seed: u64) -> Vec<Complex> {
    let mut rng = Seeded::new(seed);
    let mut part = || rng.below(1000) as f64 / 1000.0;
    (0..n).map(|_| Complex { re: part(), im: part() }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::alone;
    use super::*;

    #[test]
    fn it_is_the_sum_over_all_turns() {
        let (m, n) = (8, 256);
        let numbers = drawn(n, 1);
        let transformed = alone(|memory| run(memory, m, 1));
        for (k, found) in transformed.into_iter().enumerate() {
            let term = |at: usize| numbers[at].times(Complex::turned(at * k % n, n));
            let sum = (0..n).map(term).fold(Complex::default(), Complex::plus);
            let off = found.minus(sum);
            assert!(off.re.hypot(off.im) < 1e-9, "{k}: {found:?} {sum:?}");
        }
    }
}
