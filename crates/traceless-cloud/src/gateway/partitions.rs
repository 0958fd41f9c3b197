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
use std::collections::{BTreeSet, HashSet};

/// A round or renewal that is in progress.
pub struct Running {
    pub(super) attempt: u64,
    /// The number of the round; `None` for the renewal of one node.
    pub(super) round: Option<u64>,
    /// How many rounds had begun when it began, with itself.
    pub(super) begun: u64,
    pub(super) evictions: Vec<EvictionEntry>,
    pub(super) plans: Vec<NodePlan>,
    /// Blocks accessed since the plan was made: the places in the plan are wrong for them.
    pub(super) touched: HashSet<u32>,
}

impl Running {
    /// The number of the round; `None` for the renewal of one node.
    pub fn round(&self) -> Option<u64> {
        self.round
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
        self.plans.iter().map(version).collect()
    }
}

/// The part of the tree at one host.
#[derive(Default)]
pub struct Partition {
    /// How many commits its host has made, of rounds and of renewals.
    pub sequence: u64,
    /// The round or renewal in progress.
    pub running: Option<Running>,
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
}

impl Partitions {
    /// One partition with all trees.
    pub fn new(geometry: &Geometry) -> Self {
        Self {
            all: vec![Partition::default()],
            of_root: vec![0; geometry.roots as usize],
            begun: 0,
            failed: BTreeSet::new(),
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

    /// The rounds and renewals in progress.
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
        Record::Divide {
            sequences: self.all.iter().map(|one| one.sequence).collect(),
            of_root: self.of_root.clone(),
            failed: self.failed.iter().copied().collect(),
        }
    }

    /// The record that divides a tree which was never written to.
    pub fn divided_among(&self, count: usize) -> Record {
        Record::Divide {
            sequences: vec![0; count],
            of_root: (0..self.of_root.len()).map(|root| (root % count) as u32).collect(),
            failed: Vec::new(),
        }
    }

    /// Restores a division, while nothing is in progress.
    pub fn restore(&mut self, sequences: &[u64], of_root: Vec<u32>, failed: &[u64]) -> Result {
        let wrong = Error::State("the division of the tree");
        let is_known = |partition: &u32| (*partition as usize) < sequences.len();
        let fits = of_root.len() == self.of_root.len() && of_root.iter().all(is_known);
        let is_before = |round: &u64| *round < self.begun;
        if sequences.len() < self.all.len() || !fits || !failed.iter().all(is_before) {
            return Err(wrong);
        }
        if self.running().next().is_some() {
            return Err(wrong);
        }
        let partition = |&sequence| Partition { sequence, running: None };
        self.all = sequences.iter().map(partition).collect();
        (self.of_root, self.failed) = (of_root, failed.iter().copied().collect());
        Ok(())
    }
}
