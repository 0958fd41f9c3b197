//! A scrub: verifies node after node, in the order of their numbers.
//!
//! A damaged node is written anew, without what was lost, so that damage does not gather. The host
//! observes which nodes are verified, and knows itself which are damaged.

use super::Gateway;
use super::lost_name::LostName;
use super::rounds::Wait;
use super::sessions::SESSIONS_MAX;
use crate::error::{Error, Result};
use crate::geometry::Node;
use crate::host::DamagedSlot;
use crate::store::NodeVersion;
use core::time::Duration;

/// Attempts to write a damaged node anew: further slots may be damaged meanwhile.
const RENEWALS_MAX: usize = 4;

/// What a verification of a node has found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NodeVerdict {
    /// Damaged slots: their blocks are lost.
    pub lost: Vec<DamagedSlot>,
    /// Slots that were damaged, and read well the second time: from a second copy, or after a
    /// passing failure.
    pub healed: Vec<DamagedSlot>,
}

impl Gateway {
    /// Verifies all slots of a node. If some are damaged, the node is written anew, without the
    /// lost ones. If a round is in progress, it ends first.
    pub fn scrub(&mut self, node: Node) -> Result<NodeVerdict> {
        if node.0 >= self.state.params.geometry.nodes() {
            return Err(Error::Malformed("no such node"));
        }
        self.counts.scrubbed += 1;
        self.send_pending()?;
        let mut healed = self.verify(node)?;
        let Some(first) = healed.first().copied() else {
            self.found_damage.forget(node);
            return Ok(NodeVerdict::default());
        };
        // The host may have another copy, or a disk or a line may have failed for a moment.
        let lost = self.verify(node)?;
        if lost.is_empty() {
            self.found_damage.forget(node);
        }
        self.write_anew(lost.first().copied().unwrap_or(first))?;
        healed.retain(|slot| !lost.contains(slot));
        Ok(NodeVerdict { lost, healed })
    }

    /// Whether a round is in progress that would have to be waited for to verify a node.
    pub(crate) fn is_in_round(&mut self, node: Node) -> Result<bool> {
        self.finish_all(Wait::For(Duration::ZERO))?;
        Ok(self.state.running(self.state.partition_of_node(node)).is_some())
    }

    fn verify(&mut self, node: Node) -> Result<Vec<DamagedSlot>> {
        let partition = self.state.partition_of_node(node);
        for _ in 0..SESSIONS_MAX {
            if self.is_any_lost() {
                self.begin_next_session()?;
            }
            self.finish(partition, Wait::Long)?;
            if self.state.running(partition).is_some() {
                continue;
            }
            let version = NodeVersion { node, attempt: self.state.index.attempt(node) };
            if version.attempt == 0 {
                return Ok(Vec::new());
            }
            let round = self.state.partitions.round_at(self.state.params.geometry.root_of(node));
            let link = &mut self.links[partition];
            link.worker.verify(round, version);
            let damage = link.worker.result(Wait::Long).expect("it is waited for").staged;
            if matches!(damage, Err(Error::SessionLost)) {
                link.is_lost = true;
                continue;
            }
            let damage = damage?;
            self.report_damage(&[node], &damage)?;
            return Ok(damage);
        }
        Err(Error::SessionLost)
    }

    /// Writes the node of a damaged slot anew.
    fn write_anew(&mut self, damaged: DamagedSlot) -> Result {
        let DamagedSlot { node, slot } = damaged;
        let before = self.state.index.attempt(node);
        let partition = self.state.partition_of_node(node);
        for _ in 0..RENEWALS_MAX {
            self.begin(Some(node))?;
            self.finish(partition, Wait::Long)?;
            if self.state.index.attempt(node) != before {
                return Ok(());
            }
        }
        Err(Error::Tampered { node: node.0, slot })
    }

    /// Blocks that are lost until they are written again.
    pub fn lost_blocks(&self) -> usize {
        self.state.lost.len()
    }

    /// Names with lost blocks, in order.
    pub fn lost_names(&self) -> Vec<LostName> {
        self.state.lost_names()
    }

    /// Removes all names with lost blocks, and returns them.
    pub fn remove_lost_names(&mut self) -> Result<Vec<LostName>> {
        let names = self.lost_names();
        for name in &names {
            self.log_deferred(name.removal())?;
        }
        self.flush()?;
        Ok(names)
    }
}
