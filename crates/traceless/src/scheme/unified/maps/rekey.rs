//! A new key for all labels, when a group's counter has ended.
//!
//! The groups change over one after the other, from the last level of the map down to the user's
//! blocks: all members of a group move to the paths that the new key gives to counters of zero,
//! with one path access each, as after a counter overflow. So an observer sees ordinary paths;
//! their number and the time of the change depend on how often a block was accessed.

use super::{Maps, UnifiedAccess};
use crate::posmap::Labels;
use alloc::collections::VecDeque;
use traceless_core::error::Result;
use traceless_core::types::Addr;

/// Progress of a change of key.
pub struct Rekeying<L> {
    pub labels: L,
    pub top_labels: L,
    /// The next group: the levels above, and the groups before it, have the new key.
    level: usize,
    group: u64,
}

impl<L> Rekeying<L> {
    /// Whether a group has the new key.
    pub fn is_done(&self, level: usize, group: u64) -> bool {
        level > self.level || (level == self.level && group < self.group)
    }
}

impl<L: Labels> Maps<L> {
    /// Starts a change of key and returns true; returns false if the labels have no key, or if a
    /// change is already under way.
    pub fn begin_rekeying(&mut self) -> bool {
        let key = self.draw.key();
        let groups = &mut self.groups;
        let (labels, top_labels) = (groups.labels.rekeyed(&key), groups.top_labels.rekeyed(&key));
        let (Some(labels), Some(top_labels), None) = (labels, top_labels, &groups.rekeying) else {
            return false;
        };
        let level = self.places.levels();
        groups.rekeying = Some(Rekeying { labels, top_labels, level, group: 0 });
        true
    }

    /// Lists the next path accesses and returns their level: the accesses that move a group, or the
    /// ones that bring its entries into the PLB. The list stays empty when the change is complete.
    pub fn plan_rekeying(&mut self, plan: &mut VecDeque<UnifiedAccess>) -> Result<usize> {
        while let Some(Rekeying { level, group, .. }) = self.groups.rekeying {
            let fanout = self.groups.fanout(&self.places, level);
            let groups = self.places.count[level].div_ceil(fanout);
            if group < groups {
                let Some((missing, addr)) = self.missing_parent(level, group) else {
                    self.plan_group(level, group, None, plan)?;
                    self.move_on(level, group + 1);
                    return Ok(level);
                };
                self.plan(missing, addr, plan)?;
                return Ok(missing);
            }
            if let Some(below) = level.checked_sub(1) {
                self.move_on(below, 0);
            } else if let Some(done) = self.groups.rekeying.take() {
                (self.groups.labels, self.groups.top_labels) = (done.labels, done.top_labels);
            }
        }
        Ok(0)
    }

    fn move_on(&mut self, level: usize, group: u64) {
        if let Some(rekeying) = &mut self.groups.rekeying {
            (rekeying.level, rekeying.group) = (level, group);
        }
    }

    /// If the entries of a group are neither in trusted memory nor in the PLB: the level to bring
    /// first, and a user address below that block.
    fn missing_parent(&self, level: usize, group: u64) -> Option<(usize, Addr)> {
        let levels = self.places.levels();
        if level == levels || self.is_here(level + 1, group) {
            return None;
        }
        let addr = Addr((0..=level).fold(group, |first, _| first * self.places.fanout));
        let above = |below: &usize| self.is_here(below + 1, self.places.nth(below + 1, addr));
        Some(((level + 1..levels).find(above).unwrap_or(levels), addr))
    }
}
