//! A scrub: verifies node after node, in the order of their numbers.
//!
//! A damaged node is written anew, without what was lost, so that damage does not gather. The host
//! observes which nodes are verified, and knows itself which are damaged.

use super::Gateway;
use super::names::Namespace;
use super::record::Record;
use super::rounds::Wait;
use super::sessions::SESSIONS_MAX;
use crate::error::{Error, Result};
use crate::geometry::Node;
use crate::host::DamagedSlot;
use crate::store::NodeVersion;

/// Attempts to write a damaged node anew. The first finds the damage again.
const RENEWALS_MAX: usize = 3;

/// A name with lost blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostName {
    /// What the name is for.
    pub namespace: Namespace,
    /// The name.
    pub name: Vec<u8>,
    /// How many of its blocks are lost.
    pub blocks: usize,
}

impl LostName {
    /// The record that removes the name.
    pub(super) fn removal(&self) -> Record {
        Record::Unbind { namespace: self.namespace, name: self.name.clone() }
    }
}

impl Gateway {
    /// Verifies all slots of a node, and returns the damaged ones. Their blocks are lost, and the
    /// node is written anew without them.
    pub fn scrub(&mut self, node: Node) -> Result<Vec<DamagedSlot>> {
        if node.0 >= self.state.params.geometry.nodes() {
            return Err(Error::Malformed("no such node"));
        }
        self.counts.scrubbed += 1;
        for _ in 0..SESSIONS_MAX {
            if self.lost {
                self.begin_next_session()?;
            }
            self.send_pending()?;
            match self.verify(node) {
                Err(Error::SessionLost) => self.lost = true,
                Err(other) => return Err(other),
                Ok(damage) if damage.is_empty() => return Ok(damage),
                // A disk or a line may have failed for a moment.
                Ok(_) => match self.verify(node) {
                    Err(Error::SessionLost) => self.lost = true,
                    Err(other) => return Err(other),
                    Ok(damage) if damage.is_empty() => return Ok(damage),
                    // The round that writes the node anew counts the damage.
                    Ok(damage) => {
                        self.log_damage(&damage)?;
                        self.flush()?;
                        self.write_anew(node)?;
                        return Ok(damage);
                    }
                },
            }
        }
        Err(Error::SessionLost)
    }

    fn verify(&mut self, node: Node) -> Result<Vec<DamagedSlot>> {
        while self.state.running.is_some() {
            self.finish(Wait::Long)?;
        }
        let version = NodeVersion { node, attempt: self.state.index.attempt(node) };
        self.worker.verify(self.state.round, version);
        self.worker.result(Wait::Long).expect("it is waited for").staged
    }

    fn write_anew(&mut self, node: Node) -> Result {
        let before = self.state.index.attempt(node);
        for _ in 0..RENEWALS_MAX {
            if self.state.index.attempt(node) != before {
                break;
            }
            self.begin(Some(node))?;
            self.finish(Wait::Long)?;
        }
        Ok(())
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
