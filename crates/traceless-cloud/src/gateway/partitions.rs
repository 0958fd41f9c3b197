//! The partitions of the tree, one at each host, and the rounds that are in progress in them.
//!
//! The trees below the gateway's root are divided among hosts: each has whole trees, with their
//! roots. A query goes to the host that has its leaf, which was drawn at random at the last access,
//! so the hosts together observe what one host would, and each of them the part that is its own.
//! Neither padded batches nor dummies are needed to hide which host a request goes to.
//!
//! Rounds go to the trees in turn. A round needs nothing of another tree, so rounds of several
//! partitions are in progress at once, one in each. They begin in the order of their numbers,
//! whichever host is slow: the order in which trees are written is independent of the data.

use super::plan::NodePlan;
use super::record::Record;
use super::stash::EvictionEntry;
use crate::error::{Error, Result};
use crate::geometry::{Geometry, Node};
use crate::store::NodeVersion;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// What a host does until its next commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// The round with this number.
    Round(u64),
    /// The renewal of one node.
    Renewal,
    /// The copy of a node of another host.
    Copy(NodeVersion),
}

/// A round, renewal or copy that is in progress.
pub struct Running {
    pub(super) attempt: u64,
    pub(super) work: Work,
    /// How many rounds had begun when it began, with itself.
    pub(super) begun: u64,
    pub(super) evictions: Vec<EvictionEntry>,
    pub(super) plans: Vec<NodePlan>,
    /// Blocks accessed since the plan was made: the places in the plan are wrong for them.
    pub(super) touched: HashSet<u32>,
}

impl Running {
    /// The number of the round; `None` for other work.
    pub fn round(&self) -> Option<u64> {
        if let Work::Round(number) = self.work { Some(number) } else { None }
    }

    /// The version that is copied; `None` for other work.
    pub fn copy(&self) -> Option<NodeVersion> {
        if let Work::Copy(version) = self.work { Some(version) } else { None }
    }

    /// How many rounds had begun when it began, with itself.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Its nodes.
    pub fn nodes(&self) -> Vec<Node> {
        self.plans.iter().map(|plan| plan.node).collect()
    }

    /// The versions that it creates.
    pub fn versions(&self) -> Vec<NodeVersion> {
        let version = |plan: &NodePlan| NodeVersion { node: plan.node, attempt: self.attempt };
        self.copy().into_iter().chain(self.plans.iter().map(version)).collect()
    }
}

/// The part of the tree at one host.
#[derive(Default)]
pub struct Partition {
    /// How many commits its host has made, of rounds, renewals and copies.
    pub sequence: u64,
    /// The round, renewal or copy in progress.
    pub running: Option<Running>,
}

/// A tree that is to move to another host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeMove {
    /// The tree's root.
    pub root: usize,
    /// The partition that gets it.
    pub to: usize,
}

/// All partitions, and the order of rounds.
pub struct Partitions {
    all: Vec<Partition>,
    /// The partition of each tree, by its root.
    of_root: Vec<u32>,
    /// How many rounds have begun.
    begun: u64,
    /// Rounds that have failed, and are to be made again before any other.
    failed: BTreeSet<u64>,
    /// The nodes of the tree that moves next which its new host has, with their attempts.
    copied: BTreeMap<Node, u64>,
    /// How many of the first partitions are to have trees.
    kept: usize,
}

impl Partitions {
    /// One partition with all trees.
    pub fn new(geometry: &Geometry) -> Self {
        Self {
            all: vec![Partition::default()],
            of_root: vec![0; geometry.roots as usize],
            begun: 0,
            failed: BTreeSet::new(),
            copied: BTreeMap::new(),
            kept: 1,
        }
    }

    /// How many partitions there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// The partition of each tree, by its root.
    pub fn of_roots(&self) -> &[u32] {
        &self.of_root
    }

    /// The partition of the tree with this root.
    pub fn of_root(&self, root: usize) -> usize {
        self.of_root[root] as usize
    }

    /// A partition.
    pub fn get(&self, partition: usize) -> &Partition {
        &self.all[partition]
    }

    /// A partition, to be changed.
    pub fn get_mut(&mut self, partition: usize) -> &mut Partition {
        &mut self.all[partition]
    }

    /// The rounds, renewals and copies in progress.
    pub fn running(&self) -> impl Iterator<Item = &Running> {
        self.all.iter().filter_map(|partition| partition.running.as_ref())
    }

    /// The same, to be changed.
    pub fn running_mut(&mut self) -> impl Iterator<Item = &mut Running> {
        self.all.iter_mut().filter_map(|partition| partition.running.as_mut())
    }

    /// How many rounds have begun. Some of them may be in progress, or may have failed.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Sets how many rounds have begun, all of which are committed.
    pub fn set_begun(&mut self, begun: u64) {
        self.begun = begun;
    }

    /// The number of the round that begins next.
    pub fn next_round(&self) -> u64 {
        self.failed.first().copied().unwrap_or(self.begun)
    }

    /// Takes note that the next round begins.
    pub fn begin_round(&mut self) {
        if self.failed.pop_first().is_none() {
            self.begun += 1;
        }
    }

    /// Takes note that a round has failed.
    pub fn fail_round(&mut self, round: u64) {
        self.failed.insert(round);
        // Rounds after which none has begun count as not begun.
        while self.begun.checked_sub(1).is_some_and(|last| self.failed.remove(&last)) {
            self.begun -= 1;
        }
    }

    /// A number for the tree with this root, in which rounds are counted as for one partition: all
    /// its rounds before this number are committed, and no other one.
    pub fn round_at(&self, root: usize) -> u64 {
        let is_own = |round: &u64| (round % self.of_root.len() as u64) as usize == root;
        let running = self.running().filter_map(Running::round).find(is_own);
        let uncommitted = running.or_else(|| self.failed.iter().copied().find(is_own));
        uncommitted.unwrap_or(self.begun)
    }

    /// Whether no node was ever written.
    pub fn are_unused(&self) -> bool {
        self.begun == 0 && self.all.iter().all(|one| one.sequence == 0)
    }

    /// The record of the present division.
    pub fn record(&self) -> Record {
        self.record_of(self.of_root.clone())
    }

    fn record_of(&self, of_root: Vec<u32>) -> Record {
        Record::Divide {
            sequences: self.all.iter().map(|one| one.sequence).collect(),
            of_root,
            failed: self.failed.iter().copied().collect(),
        }
    }

    /// The record after which there are `count` partitions. Trees that were written to stay.
    pub fn divided_among(&self, count: usize) -> Record {
        let mut divided = self.record();
        if let Record::Divide { sequences, of_root, .. } = &mut divided {
            sequences.resize(count, 0);
            if self.are_unused() {
                *of_root = (0..of_root.len()).map(|root| (root % count) as u32).collect();
            }
        }
        divided
    }

    /// The record after which a tree is at its new host.
    pub fn moved(&self, TreeMove { root, to }: TreeMove) -> Record {
        let mut of_root = self.of_root.clone();
        of_root[root] = to as u32;
        self.record_of(of_root)
    }

    /// The next tree that moves: from a host that is to have none, or from the one with most trees
    /// to the one with fewest. `None` once their numbers differ by one at most.
    pub fn next_move(&self) -> Option<TreeMove> {
        let trees = self.tree_counts();
        let to = (0..self.kept).min_by_key(|&partition| trees[partition])?;
        let drained = (self.kept..trees.len()).find(|&partition| trees[partition] > 0);
        let from = drained.or_else(|| (0..self.kept).max_by_key(|&partition| trees[partition]))?;
        let root = self.of_root.iter().rposition(|&partition| partition as usize == from)?;
        (drained.is_some() || trees[from] > trees[to] + 1).then_some(TreeMove { root, to })
    }

    /// How many of the first partitions are to have trees.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Lets only the first `count` partitions have trees. Another tree may move next now, or go to
    /// another host, so no copies count.
    pub fn keep(&mut self, count: usize) -> Result {
        if !(1..=self.all.len()).contains(&count) {
            return Err(Error::State("the division of the tree"));
        }
        self.kept = count;
        self.copied.clear();
        Ok(())
    }

    /// Whether all trees are in the first `count` partitions.
    pub fn are_within(&self, count: usize) -> bool {
        self.of_root.iter().all(|&partition| (partition as usize) < count)
    }

    /// How many trees each partition has.
    pub fn tree_counts(&self) -> Vec<usize> {
        let mut trees = vec![0; self.all.len()];
        for &partition in &self.of_root {
            trees[partition as usize] += 1;
        }
        trees
    }

    /// Whether the new host of the tree that moves next has this version.
    pub fn is_copied(&self, version: NodeVersion) -> bool {
        self.copied.get(&version.node) == Some(&version.attempt)
    }

    /// The versions that the new host of the tree that moves next has.
    pub fn copied(&self) -> impl Iterator<Item = NodeVersion> {
        self.copied.iter().map(|(&node, &attempt)| NodeVersion { node, attempt })
    }

    /// Takes note that the new host of the tree that moves next has a version.
    pub fn note_copy(&mut self, version: NodeVersion) {
        self.copied.insert(version.node, version.attempt);
    }

    /// Begins to copy a version to a partition.
    pub fn begin_copy(&mut self, partition: u32, version: NodeVersion) -> Result {
        let begun = self.begun;
        let to = self.all.get_mut(partition as usize).filter(|to| to.running.is_none());
        to.ok_or(Error::State("the gateway's log"))?.running = Some(Running {
            attempt: version.attempt,
            work: Work::Copy(version),
            begun,
            evictions: Vec::new(),
            plans: Vec::new(),
            touched: HashSet::new(),
        });
        Ok(())
    }

    /// Restores a division, while nothing is in progress.
    pub fn restore(&mut self, sequences: &[u64], of_root: Vec<u32>, failed: &[u64]) -> Result {
        let wrong = Error::State("the division of the tree");
        let is_known = |partition: &u32| (*partition as usize) < sequences.len();
        let fits = of_root.len() == self.of_root.len() && of_root.iter().all(is_known);
        let is_before = |round: &u64| *round < self.begun;
        if !fits || !failed.iter().all(is_before) {
            return Err(wrong);
        }
        if self.running().next().is_some() {
            return Err(wrong);
        }
        if sequences.len() != self.all.len() {
            self.kept = sequences.len();
        }
        let partition = |&sequence| Partition { sequence, running: None };
        self.all = sequences.iter().map(partition).collect();
        (self.of_root, self.failed) = (of_root, failed.iter().copied().collect());
        self.copied.clear();
        Ok(())
    }
}
