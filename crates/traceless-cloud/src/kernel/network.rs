//! A Beneš network for any number of rows.
//!
//! A network of n rows is a layer of exchanges between its halves, a network of each half, and a
//! layer again; where n is odd the last row skips both layers. It runs depth first, so that what
//! lies close is done while it is near, and its exchanges are one fixed list.

use super::Slab;
use alloc::vec::Vec;
use traceless_sys::ct::{self, Held as _, InMemory, Kernel, Vector, hide_all};

/// Exchanges of neighbouring rows with neighbouring rows: `first + i` with `first + apart + i`.
#[derive(Clone, Copy)]
struct Run {
    first: u32,
    apart: u32,
}

/// A network for one number of rows.
pub struct Network {
    rows: usize,
    /// Each with as many exchanges as its rows are apart, but for one where that is not so: the
    /// lower half of three rows has two. So all have `apart` exchanges.
    runs: Vec<Run>,
    switches: usize,
}

impl Network {
    /// The network of so many rows, at most 2^16.
    pub fn new(rows: usize) -> Self {
        assert!(0 < rows && rows <= crate::geometry::ROWS_MAX, "rows of a node");
        let mut runs = Vec::new();
        lay_out(0, rows, &mut runs);
        let switches = runs.iter().map(|run| run.apart as usize).sum();
        Self { rows, runs, switches }
    }

    /// Rows it permutes.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Exchanges: one control bit each.
    pub fn switches(&self) -> usize {
        self.switches
    }

    /// Bytes of its control bits.
    pub fn control_len(&self) -> usize {
        self.switches.div_ceil(8)
    }

    /// Bytes that its list of exchanges takes up, and their masks.
    pub fn bytes(&self) -> usize {
        self.runs.len() * size_of::<Run>() + self.switches * size_of::<u32>()
    }

    /// The control bits that send row i to row `dest[i]`, for all i.
    pub fn route(&self, dest: &[u32]) -> Vec<u8> {
        assert!(dest.len() == self.rows, "a destination for each row");
        let mut bits = super::route::Bits::with_capacity(self.switches);
        super::route::route(dest, &mut bits);
        assert!(bits.len() == self.switches, "router and network agree");
        bits.into_bytes()
    }

    /// Calls `each` for every exchange in order, with its number and rows.
    #[expect(clippy::inline_always, reason = "called by work that is compiled for each processor")]
    #[inline(always)]
    fn walk(&self, mut each: impl FnMut(usize, usize, usize)) {
        let mut switch = 0;
        for run in &self.runs {
            let (first, apart) = (run.first as usize, run.apart as usize);
            for row in first..first + apart {
                each(switch, row, row + apart);
                switch += 1;
            }
        }
    }

    /// Permutes the rows as `control` says, which is secret. `masks` is room for work.
    pub fn permute(&self, control: &[u8], masks: &mut Vec<u32>, slab: &mut Slab) {
        assert!(control.len() == self.control_len() && slab.rows() >= self.rows, "as announced");
        self.unpack(control, masks);
        ct::dispatch(Exchanges { network: self, masks, slab });
    }

    /// One mask for each control bit: all ones or zeros.
    fn unpack(&self, control: &[u8], masks: &mut Vec<u32>) {
        masks.clear();
        let bit = |i: usize| u32::from(control[i / 8] >> (i % 8) & 1);
        masks.extend((0..self.switches).map(|i| 0_u32.wrapping_sub(bit(i))));
        hide_all(masks);
    }
}

fn lay_out(first: usize, rows: usize, runs: &mut Vec<Run>) {
    if rows < 2 {
        return;
    }
    let half = rows / 2;
    // The lower half has the odd row. So that pairs are equally far apart, it lies at the end.
    let run = Run { first: first as u32, apart: half as u32 };
    runs.push(run);
    if rows > 2 {
        lay_out(first, half, runs);
        lay_out(first + half, rows - half, runs);
        runs.push(run);
    }
}

struct Exchanges<'a> {
    network: &'a Network,
    masks: &'a [u32],
    slab: &'a mut Slab,
}

impl Kernel for Exchanges<'_> {
    type Output = ();

    #[expect(clippy::inline_always, reason = "compiled once for each level of processors")]
    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let Self { network, masks, slab } = self;
        network.walk(|switch, a, b| {
            let (a, b) = slab.pair_mut(a, b);
            InMemory::new(v, a).exchange(b, masks[switch]);
        });
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use traceless::rng::{Rng, Seeded};

    pub(crate) fn shuffled(rows: usize, rng: &mut dyn Rng) -> Vec<u32> {
        let mut dest: Vec<u32> = (0..rows as u32).collect();
        for i in (1..rows).rev() {
            dest.swap(i, rng.below(i as u64 + 1) as usize);
        }
        dest
    }

    fn permuted(network: &Network, dest: &[u32]) -> Slab {
        let mut slab = Slab::new(dest.len()).unwrap();
        for row in 0..dest.len() {
            slab.row_mut(row).fill(row as u8);
            slab.row_mut(row)[..4].copy_from_slice(&(row as u32).to_le_bytes());
        }
        network.permute(&network.route(dest), &mut Vec::new(), &mut slab);
        slab
    }

    #[test]
    fn every_row_arrives() {
        let mut rng = Seeded::new(5);
        for rows in (1..40).chain([100, 127, 128, 129, 1000, 4896]) {
            let network = Network::new(rows);
            let ends: [Vec<u32>; 2] =
                [(0..rows as u32).collect(), (0..rows as u32).rev().collect()];
            for dest in ends.into_iter().chain((0..4).map(|_| shuffled(rows, &mut rng))) {
                let slab = permuted(&network, &dest);
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
            let slab = permuted(&network, &dest);
            for (row, &to) in dest.iter().enumerate() {
                assert_eq!(slab.row(to as usize)[0], row as u8);
            }
            count += 1;
            // The next in lexicographic order.
            let Some(i) = (0..5).rev().find(|&i| dest[i] < dest[i + 1]) else { break };
            let j = (i + 1..6).rev().find(|&j| dest[j] > dest[i]).unwrap();
            dest.swap(i, j);
            dest[i + 1..].reverse();
        }
        assert_eq!(count, 720);
    }

    #[test]
    fn control_bits_are_about_as_many_as_a_permutation_takes() {
        for (rows, most) in [(4096, 47_104), (4896, 58_000), (8192, 102_400)] {
            assert!(Network::new(rows).switches() <= most, "{}", Network::new(rows).switches());
        }
    }

    /// The rows that are touched, in order, by a network that exchanges or that moves only what
    /// has to be moved.
    fn touched(network: &Network, dest: &[u32], skips: bool) -> Vec<(usize, usize)> {
        let mut masks = Vec::new();
        network.unpack(&network.route(dest), &mut masks);
        let mut touched = Vec::new();
        network.walk(|switch, a, b| {
            if !skips || masks[switch] != 0 {
                touched.push((a, b));
            }
        });
        touched
    }

    #[test]
    fn the_rows_touched_are_the_same_for_all_permutations() {
        let network = Network::new(200);
        let mut rng = Seeded::new(6);
        let (some, others) = (shuffled(200, &mut rng), shuffled(200, &mut rng));
        assert_eq!(touched(&network, &some, false), touched(&network, &others, false));
        // The planted fault, which the comparison must catch.
        assert_ne!(touched(&network, &some, true), touched(&network, &others, true));
    }
}
