//! Trees move to hosts that have fewer of them, beside the clients.
//!
//! One tree moves at a time. Its nodes are copied one after the other as the old host stores them:
//! sealed, under the same attempts. The new host's enclave verifies each copy. Meanwhile queries
//! and rounds of the tree go to the old host, and nodes that they renew are copied again. Once few
//! are left, rounds wait for the last copies, and one record moves the tree.
//!
//! Which nodes are copied, and when, follows from the rounds, from renewals and from the time: the
//! hosts learn nothing about the requests.

use super::Gateway;
use super::commits::fail;
use super::partitions::TreeMove;
use super::record::Record;
use super::rounds::{CopyJob, Outcome, Wait};
use super::sessions::SESSIONS_MAX;
use crate::error::{Error, Result};
use crate::host::{DamagedSlot, Host};
use crate::store::NodeVersion;
use core::time::Duration;
use std::sync::Arc;

/// So many copies in a row may be damaged while the old host's node is not.
const DAMAGED_MAX: usize = 4;

/// The result of [`Gateway::move_step`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveStep {
    /// A node is being copied.
    Copying,
    /// Something else is in progress at a host.
    Busy,
    /// A tree has moved.
    Moved,
    /// Each host has its share of the trees, or trees stay because the rate is constant.
    Done,
}

/// Which nodes are to be copied, and what became of the last copies.
#[derive(Default)]
pub struct CopyResults {
    /// Versions that are to be copied next, the next one last. They may be outdated.
    missing: Vec<NodeVersion>,
    /// Why the last copy failed.
    error: Option<Error>,
    /// A damaged slot of the last copy.
    damaged: Option<DamagedSlot>,
    /// Copies in a row that were damaged while the old host's node was not.
    damaged_in_a_row: usize,
    /// Copies in a row that lost a session.
    lost_in_a_row: usize,
}

impl CopyResults {
    /// The error of the last copy, once.
    pub fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }
}

impl Gateway {
    /// Goes on with the move of trees to new hosts, while no batch is under way. Clients wait for
    /// it only while a tree's last nodes are copied.
    pub(crate) fn move_step(&mut self) -> Result<MoveStep> {
        let Some(tree) = self.next_move() else { return Ok(MoveStep::Done) };
        if self.is_any_lost() {
            self.begin_next_session()?;
        }
        let is_staged_copy = self.links[tree.to].is_staged && self.is_copying(tree.to);
        let wait = if is_staged_copy { Wait::Long } else { Wait::For(Duration::ZERO) };
        self.finish(tree.to, wait)?;
        if self.state.running(tree.to).is_some() {
            return self.copy_results.take_error().map_or(Ok(MoveStep::Busy), Err);
        }
        let damaged = self.copy_results.damaged.as_ref().map(|slot| slot.node);
        if let Some(node) = damaged
            && self.is_in_round(node)?
        {
            return Ok(MoveStep::Busy);
        }
        self.check_last_copy()?;
        match self.next_to_copy(tree) {
            Some(version) => self.begin_copy(tree.to, version)?,
            None => return self.complete_move(tree),
        }
        Ok(MoveStep::Copying)
    }

    /// The version that is copied next: of the lower layers first, as the upper ones are renewed
    /// most often. `None` once few are left.
    fn next_to_copy(&mut self, tree: TreeMove) -> Option<NodeVersion> {
        for _ in 0..2 {
            while let Some(version) = self.copy_results.missing.pop() {
                let is_current = self.state.index.attempt(version.node) == version.attempt;
                if is_current && !self.state.partitions.is_copied(version) {
                    return Some(version);
                }
            }
            let missing = self.state.versions_to_copy(tree.root);
            if missing.len() <= self.last_nodes() {
                break;
            }
            self.copy_results.missing = missing;
        }
        None
    }

    /// The host of a copy of which it is unknown whether its commit happened.
    pub(crate) fn host_in_doubt(&self) -> Option<Arc<dyn Host>> {
        let in_doubt = (0..self.links.len())
            .find(|&partition| self.links[partition].is_staged && self.is_copying(partition));
        in_doubt.map(|partition| self.links[partition].host.clone())
    }

    /// How many trees each host has.
    pub fn tree_counts(&self) -> Vec<usize> {
        self.state.partitions.tree_counts()
    }

    /// Each host with the roots of its trees.
    pub(crate) fn hosts_with_roots(&self) -> Vec<(Arc<dyn Host>, Vec<u32>)> {
        let of_root = self.state.partitions.of_roots();
        let roots = |partition| {
            let is_own = |root: &u32| of_root[*root as usize] as usize == partition;
            (0..of_root.len() as u32).filter(is_own).collect()
        };
        let host = |partition: usize| (self.links[partition].host.clone(), roots(partition));
        (0..self.links.len()).map(host).collect()
    }

    /// Lets only the first `count` hosts have trees: the trees of the last ones move to them, until
    /// these can be left out.
    pub fn keep_trees_at(&mut self, count: usize) -> Result {
        if !(1..=self.links.len()).contains(&count) {
            return Err(Error::Parameters("one host at least keeps its trees"));
        }
        if count == self.state.partitions.kept() {
            return Ok(());
        }
        // The verdict about a copy must not come later: it would count for another host.
        self.send_pending()?;
        self.settle()?;
        self.copy_results = CopyResults::default();
        self.log_and_apply(Record::Keep { partitions: count as u32 }).map(drop)
    }

    /// Whether trees are still to move to other hosts.
    pub fn has_moves(&self) -> bool {
        self.state.partitions.next_move().is_some()
    }

    /// Whether the next step of the move has to wait for the end of a copy or round.
    pub(crate) fn is_move_busy(&mut self) -> Result<bool> {
        self.note_commits()?;
        Ok(self.next_move().is_some_and(|tree| {
            let link = &self.links[tree.to];
            let is_under_way = link.outcome.is_none() && !link.is_staged && !link.is_lost;
            is_under_way && self.state.running(tree.to).is_some()
        }))
    }

    /// The next tree to move. At a constant rate none does: copies have no ticks.
    fn next_move(&self) -> Option<TreeMove> {
        let next = self.state.partitions.next_move();
        next.filter(|_| self.constant_rate.is_none())
    }

    /// So many nodes are copied while rounds wait, as a round renews.
    fn last_nodes(&self) -> usize {
        self.state.params.geometry.layers
    }

    /// Copies a tree's last nodes, and moves the tree.
    fn complete_move(&mut self, tree: TreeMove) -> Result<MoveStep> {
        // Sessions may be lost, and copies may fail.
        for _ in 0..2 * self.last_nodes() + DAMAGED_MAX {
            self.send_pending()?;
            self.settle()?;
            self.check_last_copy()?;
            if let Some(&version) = self.state.versions_to_copy(tree.root).last() {
                self.begin_copy(tree.to, version)?;
                self.finish(tree.to, Wait::Long)?;
            } else if self.state.pending.is_empty() {
                self.log_and_apply(self.state.partitions.moved(tree))?;
                self.hosts.divide(self.state.partitions.of_roots());
                self.copy_results = CopyResults::default();
                // The copies were verified: what was damaged is at the old host.
                let moved = self.state.params.geometry.nodes_of(tree.root);
                moved.for_each(|node| self.found_damage.forget(node));
                return Ok(MoveStep::Moved);
            }
        }
        Ok(MoveStep::Copying)
    }

    /// Begins to copy a version of a node to the partition that gets its tree.
    fn begin_copy(&mut self, to: usize, version: NodeVersion) -> Result {
        if self.state.has_old_pending(to) {
            // The next commit makes unreadable what they read.
            self.send_pending()?;
        }
        let from = self.state.partition_of_node(version.node);
        if self.state.running(to).is_some() || self.is_any_lost() {
            return Ok(());
        }
        let NodeVersion { node, attempt } = version;
        self.log_and_apply(Record::Copy { partition: to as u32, node: node.0, attempt })?;
        let root = self.state.params.geometry.root_of(node);
        let source = (self.links[from].host.clone(), self.links[from].sessions);
        let link = &mut self.links[to];
        link.is_staged = false;
        link.worker.copy(CopyJob {
            source,
            version,
            round: self.state.partitions.round_at(root),
            sequence: self.state.partitions.get(to).sequence + 1,
        });
        Ok(())
    }

    /// Takes the result of a copy. What is wrong with it fails the next step of the move, and no
    /// request of a client.
    pub(super) fn finish_copy(
        &mut self,
        partition: usize,
        version: NodeVersion,
        outcome: Outcome,
    ) -> Result {
        let Outcome { staged, committed, lost_source, .. } = outcome;
        let is_lost = |result: &Result| matches!(result, Err(Error::SessionLost));
        if matches!(staged, Err(Error::SessionLost)) || committed.as_ref().is_some_and(is_lost) {
            self.copy_results.lost_in_a_row += 1;
        }
        match committed {
            None if lost_source.is_some() => {
                self.log_deferred(fail(partition))?;
                let source = self.state.partition_of_node(version.node);
                // Another request may have begun the next session meanwhile.
                if lost_source != Some(self.links[source].sessions) {
                    return Ok(());
                }
                self.end_session(source);
                return self.begin_next_session();
            }
            None if !matches!(staged, Err(Error::SessionLost)) => {
                self.log_deferred(fail(partition))?;
                if let Err(error) = staged {
                    self.copy_results.error = Some(error);
                }
                return Ok(());
            }
            Some(Ok(())) => self.log_commit(partition)?,
            Some(Err(error)) => {
                // It is unknown whether the commit happened.
                self.links[partition].is_staged = true;
                if matches!(error, Error::SessionLost) {
                    return self.renew_session(partition);
                }
                self.copy_results.error = Some(error);
                return Ok(());
            }
            None => {}
        }
        match staged {
            Ok(damage) => self.judge_copy(version, &damage),
            Err(Error::SessionLost) => {
                self.links[partition].is_lost = true;
                self.begin_next_session()
            }
            Err(error) => {
                self.copy_results.error = Some(error);
                Ok(())
            }
        }
    }

    /// Takes the new host's verdict about a copy.
    fn judge_copy(&mut self, version: NodeVersion, damage: &[DamagedSlot]) -> Result {
        let g = &self.state.params.geometry;
        let slots = g.slots(g.layer_of(version.node));
        let is_own = |slot: &DamagedSlot| slot.node == version.node && (slot.slot as usize) < slots;
        if !damage.iter().all(is_own) {
            let error = Error::Malformed("damage of slots that were not sent");
            self.copy_results.error = Some(error);
        } else if let Some(&slot) = damage.first() {
            self.copy_results.damaged = Some(slot);
        } else {
            let missing = core::mem::take(&mut self.copy_results.missing);
            self.copy_results = CopyResults { missing, ..CopyResults::default() };
            self.log_deferred(Record::Copied { nodes: vec![(version.node.0, version.attempt)] })?;
        }
        Ok(())
    }

    /// Whether a copy to a partition is in progress.
    pub(super) fn is_copying(&self, partition: usize) -> bool {
        self.state.running(partition).is_some_and(|running| running.copy().is_some())
    }

    /// Ends a copy of which it is unknown whether its commit happened.
    pub(super) fn end_copy(&mut self, partition: usize) -> Result {
        match self.outcome(partition) {
            Ok(record) => {
                self.links[partition].is_staged = false;
                record.map_or(Ok(()), |record| self.log_deferred(record))
            }
            Err(Error::SessionLost) => self.renew_session(partition),
            Err(error) => {
                self.copy_results.error = Some(error);
                Ok(())
            }
        }
    }

    /// Fails if the last copy has failed. If it was damaged, the old host's node is verified, and
    /// written anew if it is damaged, too.
    fn check_last_copy(&mut self) -> Result {
        if let Some(error) = self.copy_results.take_error() {
            return Err(error);
        }
        if self.copy_results.lost_in_a_row >= SESSIONS_MAX {
            self.copy_results.lost_in_a_row = 0;
            return Err(Error::SessionLost);
        }
        let Some(DamagedSlot { node, slot }) = self.copy_results.damaged.take() else {
            return Ok(());
        };
        let verdict = self.scrub(node)?;
        if verdict.lost.is_empty() && verdict.healed.is_empty() {
            self.copy_results.damaged_in_a_row += 1;
            if self.copy_results.damaged_in_a_row == DAMAGED_MAX {
                self.copy_results.damaged_in_a_row = 0;
                return Err(Error::Tampered { node: node.0, slot });
            }
        }
        Ok(())
    }
}
