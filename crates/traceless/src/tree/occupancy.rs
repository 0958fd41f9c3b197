//! How full a tree and its stash are: the measure for a shape.
//!
//! A tree of 8 levels with four slots a bucket, half full, of which random blocks are accessed:
//!
//! ```
//! use traceless::Addr;
//! use traceless::rng::SeededRng;
//! use traceless::tree::occupancy::OccupancyModel;
//! use traceless::tree::{BareTree, Shape};
//!
//! # fn main() -> traceless::Result {
//! let tree = BareTree::new(Shape::uniform(8, 4)?, 0);
//! let rng = Box::new(SeededRng::new(1));
//! let mut model = OccupancyModel::new(tree, (512, 1), 200, rng, BareTree::place)?;
//! let occupancy = model.run(2000, |rng| Addr(rng.below(512)))?;
//!
//! assert_eq!(occupancy.evictions, 0, "the stash never has more than 200 blocks");
//! assert!(occupancy.mean() < 20.0 && occupancy.quantile(0.01) < 40);
//! // The leaves are fuller than the level in the middle.
//! assert!(occupancy.levels[7] > occupancy.levels[4]);
//! # Ok(())
//! # }
//! ```

use super::{BucketTree, Engine, Header};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::rng::Rng;
use traceless_core::types::{Addr, Leaf};

/// Limit of the stash of a tree under observation: more blocks than any trusted memory has room
/// for, so that the true number is measured.
const STASH_MAX: usize = 1 << 20;

/// Number of accesses between two measurements of the levels, each on a random path.
const LOOK_EVERY: u64 = 64;

/// Number of accesses in a row after which a stash counts as one that cannot be emptied.
const EVICTIONS_MAX: u64 = 2_000_000;

/// A Path ORAM that holds all of its blocks, for measurements: a block is nothing but its label.
pub struct OccupancyModel<T> {
    engine: Engine<T>,
    /// The label of each bundle, a group of neighbouring blocks that share a label and are accessed
    /// together.
    labels: Vec<u32>,
    bundle: u32,
    /// A stash with more blocks is emptied.
    above: usize,
    rng: Box<dyn Rng>,
    headers: Vec<Header>,
}

/// The result of a measurement.
#[derive(Clone, Debug)]
pub struct Occupancy {
    /// Number of requested accesses.
    pub accesses: u64,
    /// Number of accesses that only emptied the stash.
    pub evictions: u64,
    /// For each number of blocks, the accesses after which so many were in the stash.
    pub stash: Vec<u64>,
    /// The share of full slots on each level.
    pub levels: Vec<f64>,
}

impl<T: BucketTree> OccupancyModel<T> {
    /// `blocks` blocks in `tree`, each as deep as there is room for it: `place` puts a block into
    /// the tree, or returns `false` if there is no room. Then the block goes into the stash.
    /// `bundle` neighbours share a label.
    pub fn new(
        tree: T,
        (blocks, bundle): (u32, u32),
        above: usize,
        mut rng: Box<dyn Rng>,
        mut place: impl FnMut(&mut T, Header) -> bool,
    ) -> Result<Self> {
        let leaves = tree.shape().leaves();
        let mut engine = Engine::new(tree, STASH_MAX);
        let mut labels = vec![0; blocks.div_ceil(bundle) as usize];
        for label in &mut labels {
            *label = rng.below(leaves) as u32;
        }
        for addr in 0..blocks {
            let label = labels[(addr / bundle) as usize];
            let header = Header::new(Addr(addr.into()), Leaf(label.into()));
            if !place(engine.tree_mut(), header) {
                engine.put(header, &[])?;
            }
        }
        let headers = vec![Header::EMPTY; engine.shape().path_slots()];
        let mut observed = Self { engine, labels, bundle, above, rng, headers };
        observed.empty_stash()?;
        Ok(observed)
    }

    /// The engine.
    pub fn engine(&self) -> &Engine<T> {
        &self.engine
    }

    /// Makes `accesses` accesses to the blocks that `next` returns, and measures the occupancy.
    pub fn run(
        &mut self,
        accesses: u64,
        mut next: impl FnMut(&mut dyn Rng) -> Addr,
    ) -> Result<Occupancy> {
        let levels = self.engine.shape().levels();
        let mut seen = Occupancy { accesses, evictions: 0, stash: vec![], levels: vec![] };
        let (mut full, mut looks) = (vec![0u64; levels], 0);
        for nth in 0..accesses {
            let addr = next(&mut *self.rng);
            self.access(addr)?;
            let blocks = self.engine.stash().len();
            if seen.stash.len() <= blocks {
                seen.stash.resize(blocks + 1, 0);
            }
            seen.stash[blocks] += 1;
            seen.evictions += self.empty_stash()?;
            if nth % LOOK_EVERY == 0 {
                self.look(&mut full)?;
                looks += 1;
            }
        }
        let shape = self.engine.shape();
        let slots = (0..levels).map(|level| (shape.z(level) * looks).max(1) as f64);
        seen.levels = full.iter().zip(slots).map(|(&full, slots)| full as f64 / slots).collect();
        Ok(seen)
    }

    fn access(&mut self, addr: Addr) -> Result {
        let new = self.draw();
        let bundle = u64::from(self.bundle);
        let label = &mut self.labels[(addr.0 / bundle) as usize];
        let old = core::mem::replace(label, new.0 as u32);
        self.engine.fetch(Leaf(old.into()))?;
        let first = addr.0 / bundle * bundle;
        for addr in (first..first + bundle).map(Addr) {
            self.engine.relabel(addr, new)?;
        }
        self.engine.evict()
    }

    /// Background eviction; returns how many accesses it took. A tree without any room is an error,
    /// as the stash would grow without end.
    fn empty_stash(&mut self) -> Result<u64> {
        let mut evictions = 0;
        while self.engine.stash().len() > self.above {
            let leaf = self.draw();
            self.engine.dummy(leaf)?;
            evictions += 1;
            if evictions > EVICTIONS_MAX {
                let (blocks, limit) = (self.engine.stash().len() as u64, self.above as u64);
                return Err(Error::StashOverflow { blocks, limit });
            }
        }
        Ok(evictions)
    }

    /// Counts the full slots of a random path that is independent of all accesses.
    fn look(&mut self, full: &mut [u64]) -> Result {
        let leaf = self.draw();
        self.engine.tree_mut().read_path(leaf, &mut self.headers)?;
        let shape = self.engine.shape();
        for (level, full) in full.iter_mut().enumerate() {
            let slots = shape.path_start(level)..shape.path_start(level + 1);
            *full += self.headers[slots].iter().filter(|h| !h.is_empty()).count() as u64;
        }
        Ok(())
    }

    fn draw(&mut self) -> Leaf {
        Leaf(self.rng.below(self.engine.shape().leaves()))
    }
}

impl Occupancy {
    /// Accesses that only emptied the stash, per requested access.
    pub fn evictions_per_access(&self) -> f64 {
        self.evictions as f64 / self.accesses as f64
    }

    /// Average number of blocks in the stash.
    pub fn mean(&self) -> f64 {
        let sum: u64 = (0..).zip(&self.stash).map(|(blocks, n): (u64, _)| blocks * n).sum();
        sum as f64 / self.accesses as f64
    }

    /// The share of the accesses after which the stash held more than `blocks` blocks.
    pub fn above(&self, blocks: usize) -> f64 {
        let more: u64 = self.stash.iter().skip(blocks + 1).sum();
        more as f64 / self.accesses as f64
    }

    /// The smallest number of blocks that the stash exceeded after at most a `share` of the
    /// accesses.
    pub fn quantile(&self, share: f64) -> usize {
        (0..self.stash.len()).find(|&blocks| self.above(blocks) <= share).unwrap_or(0)
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::super::ir_alloc::{BASE, IR_ALLOC1, IR_ALLOC4};
    use super::super::{BareTree, Shape};
    use super::*;
    use std::collections::BTreeSet;
    use traceless_core::rng::SeededRng;

    fn half_full<T: BucketTree>(
        tree: T,
        above: usize,
        place: impl FnMut(&mut T, Header) -> bool,
    ) -> OccupancyModel<T> {
        let blocks = 2 << tree.shape().levels();
        OccupancyModel::new(tree, (blocks, 1), above, Box::new(SeededRng::new(1)), place).unwrap()
    }

    fn bare(shape: Shape, above: usize) -> OccupancyModel<BareTree> {
        half_full(BareTree::new(shape, 0), above, BareTree::place)
    }

    fn random(blocks: u64) -> impl FnMut(&mut dyn Rng) -> Addr {
        move |rng| Addr(rng.below(blocks))
    }

    fn is_near(value: f64, want: f64, by: f64) -> bool {
        (value - want).abs() <= by
    }

    /// Section III-B of the paper, and a model in C: few blocks on the middle levels.
    fn is_used_as_published(levels: &[f64]) -> bool {
        let wants = [(0, 0.690, 0.01), (1, 0.367, 0.01), (2, 0.257, 0.01), (5, 0.26, 0.03)];
        wants.iter().all(|&(up, want, by)| is_near(levels[levels.len() - 1 - up], want, by))
    }

    #[test]
    fn four_slots_are_used_as_in_the_model() {
        let mut tree = bare(BASE.shape(14).unwrap(), 200);
        tree.run(100_000, random(1 << 15)).unwrap();
        let seen = tree.run(300_000, random(1 << 15)).unwrap();
        assert!(is_used_as_published(&seen.levels), "{:?}", seen.levels);
        assert_eq!((seen.evictions, seen.stash.iter().sum::<u64>()), (0, 300_000));
        assert!(is_near(seen.above(0), 0.0175, 0.004) && seen.above(10) < 1e-4);
        assert!(seen.quantile(0.05) == 0 && seen.quantile(0.0) < 40);
        assert!(everything_is_where_it_belongs(&mut tree));
    }

    /// The model's numbers for 18 levels, three of them cached.
    #[test]
    fn allocations_need_evictions_as_in_the_model() {
        let evictions = |shape: &Shape, above, of_all: u64| {
            let mut tree = bare(shape.clone(), above);
            tree.run(300_000, random((1 << 19) / of_all)).unwrap();
            let seen = tree.run(300_000, random((1 << 19) / of_all)).unwrap();
            (seen.evictions_per_access(), seen.mean())
        };
        let (first, last) = (IR_ALLOC1.shape(18).unwrap(), IR_ALLOC4.shape(18).unwrap());
        assert!(is_near(evictions(&first, 50, 1).0, 0.095, 0.015));
        let (evicted, mean) = evictions(&first, 200, 1);
        assert!(evicted < 0.001 && is_near(mean, 102.0, 15.0), "{mean}");
        assert!(is_near(evictions(&last, 200, 1).0, 0.311, 0.04));
        assert!(evictions(&last, 200, 1000).0 < 0.01, "a small working set needs nearly none");
    }

    /// Each block is exactly once in the tree, on the path of its label, or in the stash.
    fn everything_is_where_it_belongs<T: BucketTree>(observed: &mut OccupancyModel<T>) -> bool {
        let stash = observed.engine.stash().headers().iter();
        let mut found: Vec<Addr> = stash.map(|header| header.addr()).collect();
        let (mut looked_at, mut is_right) = (BTreeSet::new(), true);
        let shape = observed.engine.shape().clone();
        for leaf in (0..shape.leaves()).map(Leaf) {
            observed.engine.tree_mut().read_path(leaf, &mut observed.headers).unwrap();
            for level in 0..shape.levels() {
                if !looked_at.insert((level, shape.bucket(leaf, level))) {
                    continue;
                }
                let slots = shape.path_start(level)..shape.path_start(level + 1);
                for header in observed.headers[slots].iter().filter(|h| !h.is_empty()) {
                    let label = observed.labels[header.addr().0 as usize];
                    is_right &= header.leaf() == Leaf(label.into());
                    is_right &= shape.meet(header.leaf(), leaf) >= level;
                    found.push(header.addr());
                }
            }
        }
        found.sort_unstable();
        is_right && found.into_iter().eq((0..observed.labels.len() as u64).map(Addr))
    }

    /// The planted faults of the model in C, translated to where a path's blocks are written.
    #[derive(Clone, Copy, PartialEq)]
    enum Fault {
        None,
        TooDeep,
        StashCut,
        RootFirst,
    }

    struct Faulty(BareTree, Fault);

    impl BucketTree for Faulty {
        fn shape(&self) -> &Shape {
            self.0.shape()
        }
        fn body_len(&self) -> usize {
            0
        }
        fn read_path(&mut self, leaf: Leaf, headers: &mut [Header]) -> Result {
            self.0.read_path(leaf, headers)
        }
        fn body(&self, _: usize) -> &[u8] {
            &[]
        }
        fn body_mut(&mut self, _: usize) -> &mut [u8] {
            &mut []
        }
        fn copy_body(&mut self, _: usize, _: usize) {}
        fn write_path(&mut self, headers: &[Header]) -> Result {
            let mut headers = headers.to_vec();
            match self.1 {
                // Four slots a bucket: slot 40 is one level deeper than slot 36.
                Fault::TooDeep if headers[40].is_empty() => headers.swap(36, 40),
                Fault::StashCut => headers[0] = Header::EMPTY,
                // A block may always be higher up.
                Fault::RootFirst => headers.sort_by_key(|header| header.is_empty()),
                Fault::None | Fault::TooDeep => {}
            }
            self.0.write_path(&headers)
        }
        fn sync(&mut self) -> Result {
            self.0.sync()
        }
    }

    #[test]
    fn mutants_are_caught() {
        let run = |fault| {
            let tree = Faulty(BareTree::new(BASE.shape(14).unwrap(), 0), fault);
            let mut tree = half_full(tree, 20_000, |tree, header| tree.0.place(header));
            tree.run(100_000, random(1 << 15)).unwrap();
            let seen = tree.run(300_000, random(1 << 15)).unwrap();
            (everything_is_where_it_belongs(&mut tree), is_used_as_published(&seen.levels))
        };
        assert_eq!(run(Fault::None), (true, true), "the wrapper itself is honest");
        assert!(!run(Fault::TooDeep).0, "a block is not on its path");
        assert!(!run(Fault::StashCut).0, "a block is nowhere");
        assert_eq!(run(Fault::RootFirst), (true, false), "nothing is lost, but it fills the top");
    }

    #[test]
    fn a_stash_that_cannot_be_emptied_is_an_error() {
        let tree = BareTree::new(Shape::uniform(2, 1).unwrap(), 0);
        let rng = Box::new(SeededRng::new(1));
        let full = OccupancyModel::new(tree, (5, 1), 0, rng, BareTree::place);
        assert!(matches!(full.err(), Some(Error::StashOverflow { blocks: 2, limit: 0 })));
    }
}
