//! Damage that attempts of rounds and verifications have found.
//!
//! The host reports damaged slots, and the gateway cannot check that. A slot counts as damaged if
//! two reports about one version of its node, one after the other, name it: a disk or a line may
//! have failed for a moment. What follows from reports is known to the host.

use crate::error::{Error, Result};
use crate::geometry::{Geometry, Node};
use crate::host::DamagedSlot;
use crate::store::NodeVersion;
use std::collections::{BTreeMap, BTreeSet};

/// At most a share of one in so many slots of a node may be given up unasked.
const SHARE_MAX: usize = 4;
/// So many queries may meet damage one after the other.
const QUERIES_IN_A_ROW_MAX: u32 = 16;
/// Slots that may be given up in any node.
const SLOTS_MIN: usize = 4;

/// The damaged slots of current versions.
#[derive(Default)]
pub struct FoundDamage {
    nodes: BTreeMap<u32, NodeDamage>,
    /// For each partition, its queries that met damage since one did not.
    queries_in_a_row: BTreeMap<usize, u32>,
    /// Whether much damage is given up, too.
    pub accepts_loss: bool,
}

struct NodeDamage {
    attempt: u64,
    /// Slots of the last report.
    reported: BTreeSet<u32>,
    /// Slots of two reports, one after the other.
    confirmed: BTreeSet<u32>,
}

impl FoundDamage {
    /// Takes a report about versions of nodes that were sent to the host. Fails if it names other
    /// slots.
    pub fn report(&mut self, g: &Geometry, sent: &[NodeVersion], damage: &[DamagedSlot]) -> Result {
        let mut slots: BTreeMap<NodeVersion, BTreeSet<u32>> = BTreeMap::new();
        for DamagedSlot { node, slot } in damage {
            let version = sent.iter().find(|version| version.node == *node);
            let version = version.filter(|version| {
                version.attempt != 0 && (*slot as usize) < g.slots(g.layer_of(version.node))
            });
            let version = version.ok_or(Error::Malformed("damage of slots that were not sent"))?;
            slots.entry(*version).or_default().insert(*slot);
        }
        for (NodeVersion { node, attempt }, reported) in slots {
            let known = self.nodes.get(&node.0).filter(|known| known.attempt == attempt);
            let (mut confirmed, before) = known.map_or_else(Default::default, |known| {
                (known.confirmed.clone(), known.reported.clone())
            });
            confirmed.extend(reported.intersection(&before));
            self.nodes.insert(node.0, NodeDamage { attempt, reported, confirmed });
        }
        Ok(())
    }

    /// A verification of a version has found nothing: what was reported before has passed.
    pub fn forget(&mut self, node: Node) {
        self.nodes.remove(&node.0);
    }

    /// Counts a query of a partition that met damage or did not. Returns false if too many did, one
    /// after the other: then its store is away, or another one, and nothing is given up.
    pub fn count_query(&mut self, partition: usize, is_damaged: bool) -> bool {
        let in_a_row = self.queries_in_a_row.entry(partition).or_default();
        if !is_damaged {
            *in_a_row = 0;
            return true;
        }
        if *in_a_row >= QUERIES_IN_A_ROW_MAX && !self.accepts_loss {
            return false;
        }
        *in_a_row += 1;
        true
    }

    /// The slots of a version that are given up. If they are a large share of the node, this fails,
    /// and the next attempt verifies the node anew.
    pub fn confirmed(&mut self, g: &Geometry, version: NodeVersion) -> Result<Vec<u32>> {
        let known = self.nodes.get(&version.node.0);
        let Some(known) = known.filter(|known| known.attempt == version.attempt) else {
            return Ok(Vec::new());
        };
        let slots = g.slots(g.layer_of(version.node));
        let limit = (slots / SHARE_MAX).max(SLOTS_MIN);
        match known.confirmed.first() {
            Some(&slot) if known.confirmed.len() > limit && !self.accepts_loss => {
                self.forget(version.node);
                Err(Error::Tampered { node: version.node.0, slot })
            }
            _ => Ok(known.confirmed.iter().copied().collect()),
        }
    }
}
