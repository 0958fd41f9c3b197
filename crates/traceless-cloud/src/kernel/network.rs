//! A Beneš network for any number of rows.
//!
//! A network of n rows is a layer of exchanges between its halves, a network of each half, and
//! another layer. If n is odd, the last row skips both layers. The network runs depth first, so
//! that rows stay in the cache while they are used, and its exchanges are one fixed list. The
//! halves are independent, so a second thread can take one of them.

use super::Slab;
use super::slab::{ROW, Rows};
use crate::fork_join::ForkJoin;
use alloc::vec::Vec;
use core::ops::Range;
use traceless_sys::ct::{self, InMemory, Kernel, MovingBlock as _, Vector, hide_all};

/// Words of each row that pass through a half's network together, so that they stay in the
/// processor's cache.
const COLUMN: usize = 48;

/// Exchanges of consecutive rows: `first + i` with `first + apart + i`.
#[derive(Clone, Copy)]
struct Run {
    first: u32,
    apart: u32,
}

/// Consecutive exchanges. Rows are counted from the half's first row.
struct Runs {
    /// Each run has exactly `apart` exchanges.
    list: Vec<Run>,
    switches: usize,
}

impl Runs {
    fn new(rows: usize) -> Self {
        let mut list = Vec::new();
        lay_out(0, rows, &mut list);
        let switches = list.iter().map(|run| run.apart as usize).sum();
        Self { list, switches }
    }
}

/// A network for one number of rows.
pub struct Network {
    rows: usize,
    halves: [Runs; 2],
}

impl Network {
    /// The network of `rows` rows, at most 2^16.
    pub fn new(rows: usize) -> Self {
        assert!(0 < rows && rows <= crate::geometry::ROWS_MAX, "rows of a node");
        Self { rows, halves: [rows / 2, rows - rows / 2].map(Runs::new) }
    }

    /// How many rows it permutes.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many exchanges it has, with one control bit each.
    pub fn switches(&self) -> usize {
        let layers = if self.rows > 2 { 2 } else { 1 };
        let inside: usize = self.halves.iter().map(|half| half.switches).sum();
        layers * (self.rows / 2) + inside
    }

    /// Bytes of the control bits.
    pub fn control_len(&self) -> usize {
        self.switches().div_ceil(8)
    }

    /// Bytes that the list of exchanges and their masks take up.
    pub fn bytes(&self) -> usize {
        let runs: usize = self.halves.iter().map(|half| half.list.len()).sum();
        runs * size_of::<Run>() + self.switches() * size_of::<u32>()
    }

    /// The control bits that send row i to row `dest[i]`, for all i.
    pub fn route(&self, dest: &[u32]) -> Vec<u8> {
        assert!(dest.len() == self.rows, "a destination for each row");
        let mut bits = super::route::Bits::with_capacity(self.switches());
        super::route::route(dest, &mut bits);
        assert!(bits.len() == self.switches(), "router and network agree");
        bits.into_bytes()
    }

    /// The pairs of rows that may be exchanged, in the order of the control bits.
    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let half = self.rows / 2;
        let across = move || (0..half).map(move |row| (row, half + row));
        let inside = self.halves.iter().zip([0, half]).flat_map(|(runs, start)| {
            let pairs = |run: &Run| {
                let (first, apart) = (run.first as usize, run.apart as usize);
                (first..first + apart).map(move |row| (row, row + apart))
            };
            let pairs = runs.list.iter().flat_map(pairs);
            pairs.map(move |(above, below)| (start + above, start + below))
        });
        let last = if self.rows > 2 { half } else { 0 };
        across().chain(inside).chain(across().take(last))
    }

    /// Permutes the rows as the secret `control` says. `masks` is a work buffer.
    pub fn permute(
        &self,
        control: &[u8],
        masks: &mut Vec<u32>,
        slab: &mut Slab,
        threads: &dyn ForkJoin,
    ) {
        assert!(control.len() == self.control_len() && slab.rows() >= self.rows, "as announced");
        self.unpack(control, masks);
        let half = self.rows / 2;
        let (first, rest) = masks.split_at(half);
        let (upper, rest) = rest.split_at(self.halves[0].switches);
        let (lower, last) = rest.split_at(self.halves[1].switches);
        let mut rows = slab.rows_mut(self.rows);
        across(&mut rows, half, first, threads);
        {
            let (mut above, mut below) = rows.split_at(half);
            let [upper_runs, lower_runs] = &self.halves;
            threads.join(
                &mut || {
                    ct::dispatch(HalfExchanges {
                        runs: upper_runs,
                        masks: upper,
                        rows: &mut above,
                    });
                },
                &mut || {
                    ct::dispatch(HalfExchanges {
                        runs: lower_runs,
                        masks: lower,
                        rows: &mut below,
                    });
                },
            );
        }
        if !last.is_empty() {
            across(&mut rows, half, last, threads);
        }
    }

    /// Makes a mask of each control bit: all ones or all zeros.
    fn unpack(&self, control: &[u8], masks: &mut Vec<u32>) {
        masks.clear();
        let bit = |i: usize| u32::from(control[i / 8] >> (i % 8) & 1);
        masks.extend((0..self.switches()).map(|i| 0_u32.wrapping_sub(bit(i))));
        hide_all(masks);
    }
}

fn lay_out(first: usize, rows: usize, runs: &mut Vec<Run>) {
    if rows < 2 {
        return;
    }
    let half = rows / 2;
    // The lower half has the odd row, at its end, so that all pairs are equally far apart.
    let run = Run { first: first as u32, apart: half as u32 };
    runs.push(run);
    if rows > 2 {
        lay_out(first, half, runs);
        lay_out(first + half, rows - half, runs);
        runs.push(run);
    }
}

/// A layer of exchanges between the two halves of `rows`, with `half` rows each.
fn across(rows: &mut Rows<'_>, half: usize, masks: &[u32], threads: &dyn ForkJoin) {
    let (mut above, mut below) = rows.split_at(half);
    let middle = half / 2;
    let (mut a, mut b) = above.split_at(middle);
    let (mut c, mut d) = below.split_at(middle);
    let (first, second) = masks.split_at(middle);
    threads.join(
        &mut || ct::dispatch(Across { above: &mut a, below: &mut c, masks: first }),
        &mut || ct::dispatch(Across { above: &mut b, below: &mut d, masks: second }),
    );
}

/// Exchanges rows of one half with the corresponding rows of the other.
struct Across<'a, 'b> {
    above: &'a mut Rows<'b>,
    below: &'a mut Rows<'b>,
    masks: &'a [u32],
}

impl Kernel for Across<'_, '_> {
    type Output = ();

    #[expect(clippy::inline_always, reason = "compiled once for each level of processors")]
    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        exchange(v, self.above.words_mut().zip(self.below.words_mut()), self.masks, 0..ROW);
    }
}

/// All exchanges within a half.
struct HalfExchanges<'a, 'b> {
    runs: &'a Runs,
    masks: &'a [u32],
    rows: &'a mut Rows<'b>,
}

impl Kernel for HalfExchanges<'_, '_> {
    type Output = ();

    #[expect(clippy::inline_always, reason = "compiled once for each level of processors")]
    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        for from in (0..ROW).step_by(COLUMN) {
            let mut masks = self.masks;
            for run in &self.runs.list {
                let (first, apart) = (run.first as usize, run.apart as usize);
                let (now, later) = masks.split_at(apart);
                let (mut above, mut below) = self.rows.split_at(first + apart);
                let pairs = above.words_mut().skip(first).zip(below.words_mut());
                exchange(v, pairs, now, from..ROW.min(from + COLUMN));
                masks = later;
            }
        }
    }
}

/// Exchanges these words of as many pairs of rows as there are masks.
#[expect(clippy::inline_always, reason = "compiled once for each level of processors")]
#[inline(always)]
fn exchange<'a, V: Vector>(
    v: V,
    pairs: impl Iterator<Item = (&'a mut [u64], &'a mut [u64])>,
    masks: &[u32],
    words: Range<usize>,
) {
    for ((a, b), mask) in pairs.zip(masks) {
        InMemory::new(v, &mut a[words.clone()]).exchange(&mut b[words.clone()], *mask);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::fork_join::{OneThread, TwoThreads};
    use traceless_core::rng::{Rng, SeededRng};

    pub(crate) fn shuffled(rows: usize, rng: &mut dyn Rng) -> Vec<u32> {
        let mut dest: Vec<u32> = (0..rows as u32).collect();
        for i in (1..rows).rev() {
            dest.swap(i, rng.below(i as u64 + 1) as usize);
        }
        dest
    }

    fn permuted(network: &Network, dest: &[u32], threads: &dyn ForkJoin) -> Slab {
        let mut slab = Slab::new(dest.len()).unwrap();
        for row in 0..dest.len() {
            slab.row_mut(row).fill(row as u8);
            slab.row_mut(row)[..4].copy_from_slice(&(row as u32).to_le_bytes());
        }
        network.permute(&network.route(dest), &mut Vec::new(), &mut slab, threads);
        slab
    }

    #[test]
    fn every_row_reaches_its_target() {
        let mut rng = SeededRng::new(5);
        for rows in (1..40).chain([100, 127, 128, 129, 1000, 4896]) {
            let network = Network::new(rows);
            let ends: [Vec<u32>; 2] =
                [(0..rows as u32).collect(), (0..rows as u32).rev().collect()];
            for dest in ends.into_iter().chain((0..4).map(|_| shuffled(rows, &mut rng))) {
                let threads: &dyn ForkJoin = if rows % 2 == 0 { &OneThread } else { &TwoThreads };
                let slab = permuted(&network, &dest, threads);
                for (row, &to) in dest.iter().enumerate() {
                    let there = slab.row(to as usize);
                    assert_eq!(there[..4], (row as u32).to_le_bytes(), "{rows} rows");
                    assert!(there[4..].iter().all(|&byte| byte == row as u8));
                }
            }
        }
    }

    #[test]
    fn all_permutations_of_six_rows() {
        let network = Network::new(6);
        let mut dest = [0, 1, 2, 3, 4, 5];
        let mut count = 0;
        loop {
            let slab = permuted(&network, &dest, &OneThread);
            for (row, &to) in dest.iter().enumerate() {
                assert_eq!(slab.row(to as usize)[0], row as u8);
            }
            count += 1;
            // The next permutation in lexicographic order.
            let Some(i) = (0..5).rev().find(|&i| dest[i] < dest[i + 1]) else { break };
            let j = (i + 1..6).rev().find(|&j| dest[j] > dest[i]).unwrap();
            dest.swap(i, j);
            dest[i + 1..].reverse();
        }
        assert_eq!(count, 720);
    }

    #[test]
    fn control_bits_are_close_to_the_minimum() {
        for (rows, most) in [(4096, 47_104), (4896, 58_000), (8192, 102_400)] {
            assert!(Network::new(rows).switches() <= most, "{}", Network::new(rows).switches());
        }
    }

    /// The touched rows, in order, of a network that always exchanges, or (`skips`) of one that
    /// touches only rows that move.
    fn touched(network: &Network, dest: &[u32], skips: bool) -> Vec<(usize, usize)> {
        let mut masks = Vec::new();
        network.unpack(&network.route(dest), &mut masks);
        let mut touched = Vec::new();
        let half = network.rows / 2;
        let mut each = |masks: &mut &[u32], first: usize, apart: usize| {
            let (now, later) = masks.split_at(apart);
            for (row, mask) in (first..).zip(now) {
                if !skips || *mask != 0 {
                    touched.push((row, row + apart));
                }
            }
            *masks = later;
        };
        let mut masks = &masks[..];
        each(&mut masks, 0, half);
        for (runs, start) in network.halves.iter().zip([0, half]) {
            for run in &runs.list {
                each(&mut masks, start + run.first as usize, run.apart as usize);
            }
        }
        each(&mut masks, 0, half);
        touched
    }

    #[test]
    fn touched_rows_are_the_same_for_all_permutations() {
        let network = Network::new(200);
        let mut rng = SeededRng::new(6);
        let (first, second) = (shuffled(200, &mut rng), shuffled(200, &mut rng));
        assert_eq!(touched(&network, &first, false), touched(&network, &second, false));
        // The planted fault, which the comparison must catch.
        assert_ne!(touched(&network, &first, true), touched(&network, &second, true));
    }
}
