//! The measured trees and workloads, and the length of each run.

use super::{above, levels};
use crate::args::StashArgs;
use crate::report::failed;
use serde::Serialize;
use traceless::rng::{Rng, SeededRng};
use traceless::tree::ir_alloc::{BASE, IR_ALLOC1, IR_ALLOC2, IR_ALLOC3, IR_ALLOC4, Trial};
use traceless::tree::ir_alloc::{Preset, cached_levels};
use traceless::tree::occupancy::{Occupancy, OccupancyModel};
use traceless::tree::{BareTree, BucketTree, Header, Shape, Substash};
use traceless::types::Addr;
use traceless_cli::failure::Failure;

/// A tree of blocks, and the pattern of accesses to it.
pub struct StashSubject {
    pub name: String,
    pub workload: AccessPattern,
    shape: Shape,
    cached: usize,
    blocks: u32,
    /// Neighbours that share a label.
    bundle: u32,
    above: usize,
    warm_up: u64,
    accesses: u64,
}

/// The pattern of accessed blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AccessPattern {
    /// All blocks at random.
    Random,
    /// One block after the other.
    InTurn,
    /// At random, nine times out of ten in the first tenth.
    Hot,
    /// At random in the first hundredth.
    Hundredth,
    /// At random in the first thousandth.
    Thousandth,
}

impl AccessPattern {
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::InTurn => "in turn",
            Self::Hot => "90/10",
            Self::Hundredth => "1 %",
            Self::Thousandth => "0.1 %",
        }
    }

    /// A generator of the accessed blocks.
    pub fn over(self, blocks: u32) -> impl FnMut(&mut dyn Rng) -> Addr {
        let (blocks, mut turn) = (u64::from(blocks), 0);
        move |rng| {
            Addr(match self {
                Self::Random => rng.below(blocks),
                Self::InTurn => {
                    turn += 1;
                    (turn - 1) % blocks
                }
                Self::Hot => {
                    let among = if rng.below(10) < 9 { (blocks / 10).max(1) } else { blocks };
                    rng.below(among)
                }
                Self::Hundredth => rng.below((blocks / 100).max(1)),
                Self::Thousandth => rng.below((blocks / 1000).max(1)),
            })
        }
    }
}

/// The results of a subject.
#[derive(Serialize)]
pub struct StashRun {
    pub name: String,
    pub workload: &'static str,
    /// Slots per bucket on each level.
    pub z: Vec<usize>,
    pub cached: usize,
    pub blocks: u32,
    pub bundle: u32,
    pub warm_up: u64,
    pub accesses: u64,
    /// Slots of a path below the cached levels.
    pub path_slots: usize,
    /// The share of slots that are missing compared with four per bucket.
    pub loss: f64,
    pub evictions_per_access: f64,
    /// The ratio of slots moved per access, of a tree with four slots per bucket and no evictions
    /// to this tree.
    pub gain: f64,
    pub stash: StashNumbers,
    /// The share of full slots on each level.
    pub utilisation: Vec<f64>,
}

#[derive(Serialize)]
pub struct StashNumbers {
    pub mean: f64,
    pub most: usize,
    /// Blocks that the stash exceeds in at most one access of 10,000.
    pub quantile_1e4: usize,
    /// Blocks that the stash exceeds in at most one access of a million.
    pub quantile_1e6: usize,
    /// Element `n` is the share of accesses after which more than `n` blocks wait.
    pub tail: Vec<f64>,
}

impl StashSubject {
    /// All subjects of the plot.
    pub fn all(args: &StashArgs) -> Result<Vec<Self>, Failure> {
        let mut subjects = vec![];
        let levels_of_z = if args.full { 19 } else { 15 };
        let accesses = args.accesses.unwrap_or(if args.full { 10_000_000 } else { 1_000_000 });
        let leaves = 1u32 << (levels_of_z - 1);
        for (z, blocks, name) in [
            (3, 3 * leaves, "Z = 3, half full"),
            (4, 4 * leaves, "Z = 4, half full"),
            (5, 5 * leaves, "Z = 5, half full"),
            (3, leaves, "Z = 3, a leaf a block"),
            (4, leaves, "Z = 4, a leaf a block"),
            (5, leaves, "Z = 5, a leaf a block"),
        ] {
            let shape = Shape::uniform(levels_of_z, z).map_err(Failure::usage)?;
            for workload in [AccessPattern::Random, AccessPattern::InTurn] {
                subjects.push(Self {
                    name: name.to_owned(),
                    workload,
                    shape: shape.clone(),
                    cached: cached_levels(levels_of_z),
                    blocks,
                    bundle: 1,
                    above: usize::MAX,
                    warm_up: u64::from(blocks),
                    accesses,
                });
            }
        }
        let levels = levels(args);
        let workloads = [
            AccessPattern::Random,
            AccessPattern::Hot,
            AccessPattern::Hundredth,
            AccessPattern::Thousandth,
        ];
        for preset in [BASE, IR_ALLOC1, IR_ALLOC2, IR_ALLOC3, IR_ALLOC4] {
            for workload in workloads {
                subjects.push(Self::of_preset(&preset, workload, levels, args)?);
            }
        }
        Ok(subjects)
    }

    fn of_preset(
        preset: &Preset,
        workload: AccessPattern,
        levels: usize,
        args: &StashArgs,
    ) -> Result<Self, Failure> {
        let shape = preset.shape(levels).map_err(Failure::usage)?;
        let above = above(args, levels);
        Ok(Self {
            name: preset.name.to_owned(),
            workload,
            ..Self::at_steady_state(shape, above, args)
        })
    }

    /// A tree that would be half full with four slots in each bucket, with random accesses. The
    /// warm-up lasts until the tree does not change any more.
    pub fn at_steady_state(shape: Shape, above: usize, args: &StashArgs) -> Self {
        let levels = shape.levels();
        let blocks = 2u32 << levels;
        let accesses = args.accesses.unwrap_or(u64::from(blocks) / 4);
        Self {
            name: String::new(),
            workload: AccessPattern::Random,
            cached: cached_levels(levels),
            shape,
            blocks,
            bundle: args.bundle,
            above,
            warm_up: accesses,
            accesses,
        }
    }

    pub fn run(&self, seed: u64) -> Result<StashRun, Failure> {
        let tree = BareTree::new(self.shape.clone(), 0);
        let occupancy = self.observe(tree, seed, BareTree::place).map_err(failed)?;
        let base = Shape::uniform(self.shape.levels(), 4).map_err(Failure::usage)?;
        let trial = Trial::new(self.shape.clone(), self.cached, occupancy.evictions_per_access());
        let most = occupancy.stash.len() - 1;
        Ok(StashRun {
            name: self.name.clone(),
            workload: self.workload.name(),
            z: (0..self.shape.levels()).map(|level| self.shape.z(level)).collect(),
            cached: self.cached,
            blocks: self.blocks,
            bundle: self.bundle,
            warm_up: self.warm_up,
            accesses: self.accesses,
            path_slots: trial.path_slots,
            loss: trial.loss,
            evictions_per_access: trial.evictions,
            gain: trial.gain(&Trial::new(base, self.cached, 0.0)),
            stash: StashNumbers {
                mean: occupancy.mean(),
                most,
                quantile_1e4: occupancy.quantile(1e-4),
                quantile_1e6: occupancy.quantile(1e-6),
                tail: (0..most).map(|blocks| occupancy.above(blocks)).collect(),
            },
            utilisation: occupancy.levels,
        })
    }

    /// Evictions per access if the cached levels are a sub-stash with as many slots, or an array of
    /// buckets.
    pub fn evictions(&self, seed: u64, has_substash: bool) -> traceless::Result<f64> {
        let occupancy = if has_substash {
            let below = BareTree::new(self.shape.only(|level| level >= self.cached), 0);
            let sets = (self.shape.top(self.cached).slots() as usize).div_ceil(WAYS);
            let tree = Substash::new(self.shape.clone(), self.cached, (sets, WAYS), below);
            let place = |tree: &mut Substash<BareTree>, header: Header| {
                tree.inner_mut().place(header) || tree.place(header)
            };
            self.observe(tree?, seed, place)?
        } else {
            self.observe(BareTree::new(self.shape.clone(), 0), seed, BareTree::place)?
        };
        Ok(occupancy.evictions_per_access())
    }

    fn observe<T: BucketTree>(
        &self,
        tree: T,
        seed: u64,
        place: impl FnMut(&mut T, Header) -> bool,
    ) -> traceless::Result<Occupancy> {
        let rng = Box::new(SeededRng::new(seed));
        let blocks = (self.blocks, self.bundle);
        let mut observed = OccupancyModel::new(tree, blocks, self.above, rng, place)?;
        let mut next = self.workload.over(self.blocks);
        observed.run(self.warm_up, &mut next)?;
        observed.run(self.accesses, next)
    }
}

/// Ways of a set of the sub-stash, as in the paper.
const WAYS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_access_the_blocks_they_name() {
        let mut rng = SeededRng::new(1);
        let mut most = |workload: AccessPattern| {
            let mut next = workload.over(10_000);
            (0..20_000).map(|_| next(&mut rng).0).max().expect("some")
        };
        assert_eq!(most(AccessPattern::InTurn), 9999);
        assert!(most(AccessPattern::Random) > 9900 && most(AccessPattern::Hot) > 9900);
        assert_eq!((most(AccessPattern::Hundredth), most(AccessPattern::Thousandth)), (99, 9));
    }
}
