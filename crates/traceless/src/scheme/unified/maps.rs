//! The position map: the blocks of its levels, their groups, and the plan of a walk through it.

mod rekey;

use super::Sizes;
use crate::posmap::{Labels, LeafDraw, Plb};
use crate::tree::TREE_BLOCKS_MAX;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use rekey::Rekeying;
use traceless_core::error::{Error, Result};
use traceless_core::store::Pages;
use traceless_core::types::{Addr, Leaf};

/// Every level of the position map.
pub(super) struct Maps<L> {
    pub(super) places: LevelPlaces,
    pub(super) groups: Groups<L>,
    pub(super) draw: LeafDraw,
    /// Number of groups that were relabelled because a counter was full.
    pub(super) group_remaps: u64,
}

/// The entries of all groups that are in trusted memory: in the PLB and beside it.
pub(super) struct Groups<L> {
    pub(super) labels: L,
    /// The labels of the level in trusted memory, and its entries.
    pub(super) top_labels: L,
    pub(super) top: Vec<u8>,
    /// In a simulation, the entries of all blocks of the map.
    pub(super) beside: Pages,
    pub(super) plb: Plb,
    /// A change of the label key that is under way.
    pub(super) rekeying: Option<Rekeying<L>>,
}

/// The addresses of each level's blocks in the tree.
pub(super) struct LevelPlaces {
    pub(super) parts: u64,
    pub(super) bundled: bool,
    pub(super) fanout: u64,
    /// For each level: the number of its blocks, and the address of the first.
    pub(super) count: Vec<u64>,
    base: Vec<u64>,
}

/// A planned path access.
#[derive(Clone, Copy)]
pub(super) struct UnifiedAccess {
    pub(super) purpose: UnifiedPurpose,
    pub(super) addr: Addr,
    /// The index of the block within its group.
    pub(super) nth: usize,
    /// The path of the block before and after the access.
    pub(super) old: Leaf,
    pub(super) new: Leaf,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UnifiedPurpose {
    /// The block that the walk is for.
    Own,
    /// A member of the same group, which gets another label.
    Sibling,
    /// A member that does not exist, since the last group is not full.
    NoMember,
}

impl<L: Labels> Maps<L> {
    /// The level at which a walk to a user block begins: the lowest level with its parent in the
    /// PLB, or the last level, since its parent is in trusted memory.
    pub(super) fn first_missing(&self, addr: Addr) -> usize {
        let is_here = |level| self.is_here(level, self.places.nth(level, addr));
        let levels = self.places.levels();
        (0..levels).find(|&below| is_here(below + 1)).unwrap_or(levels)
    }

    /// Whether the PLB holds block number `nth` of a level of the map.
    pub(super) fn is_here(&self, level: usize, nth: u64) -> bool {
        self.groups.plb.find(self.places.addr(level, nth, 0)).is_some()
    }

    /// In a simulation, the first path of a walk to `addr`, if the map can give it without drawing.
    pub(super) fn peek(&self, addr: Addr) -> Option<Leaf> {
        let Self { places, groups, .. } = self;
        let level = self.first_missing(addr);
        let (block, fanout) = (places.nth(level, addr), groups.fanout(places, level));
        let (group, nth) = (block / fanout, (block % fanout) as usize);
        let (labels, all, at) = if level == places.levels() {
            (&groups.top_labels, &groups.top[..], group)
        } else {
            let parent = places.addr(level + 1, group, 0);
            (&groups.labels, &groups.beside[..], parent.0 - places.base[1])
        };
        let len = labels.entries_len();
        labels.peek(&all[at as usize * len..][..len], nth)
    }

    /// Assigns new labels to the block of `level` for an access to `addr`, and lists the path
    /// accesses for it: one per path of the block, and before them, if its group is relabelled, as
    /// many for each possible sibling.
    pub(super) fn plan(
        &mut self,
        level: usize,
        addr: Addr,
        plan: &mut VecDeque<UnifiedAccess>,
    ) -> Result {
        let (block, fanout) =
            (self.places.nth(level, addr), self.groups.fanout(&self.places, level));
        self.plan_group(level, block / fanout, Some((block % fanout) as usize), plan)
    }

    /// Like [`plan`](Self::plan), for member `own` of a group. With `None`, all members get labels
    /// under the next key.
    ///
    /// The group's parent is in the PLB, and may leave it while the plan is carried out.
    pub(super) fn plan_group(
        &mut self,
        level: usize,
        group: u64,
        own: Option<usize>,
        plan: &mut VecDeque<UnifiedAccess>,
    ) -> Result {
        let Self { places, groups, draw, group_remaps } = self;
        let Group { labels, next, entries } = groups.of(places, level, group);
        let is_spent = own.is_none_or(|own| labels.is_spent(entries, own));
        let all = 0..labels.fanout() as usize;
        let siblings = all.filter(|&nth| is_spent && Some(nth) != own);
        // Collect every old label before any of them changes.
        for nth in siblings.chain(own) {
            let member = group * labels.fanout() + nth as u64;
            let purpose = match nth {
                _ if Some(nth) == own => UnifiedPurpose::Own,
                _ if member < places.count[level] => UnifiedPurpose::Sibling,
                _ => UnifiedPurpose::NoMember,
            };
            for part in 0..places.paths_on(level) {
                let addr = places.addr(level, member, part);
                let old = match purpose {
                    UnifiedPurpose::NoMember => draw.leaf(),
                    _ => labels.leaf(entries, nth, addr, draw),
                };
                plan.push_back(UnifiedAccess { purpose, addr, nth, old, new: old });
            }
        }
        match own {
            None => entries.fill(0),
            Some(_) if is_spent => {
                labels.renew_group(entries)?;
                // A group of one is spent at each access, which costs nothing.
                *group_remaps += u64::from(labels.fanout() > 1);
            }
            Some(own) => labels.renew(entries, own, draw),
        }
        let labels = next.filter(|_| own.is_none()).unwrap_or(labels);
        for access in plan.iter_mut().filter(|access| access.purpose != UnifiedPurpose::NoMember) {
            access.new = labels.leaf(entries, access.nth, access.addr, draw);
        }
        // A sibling in the PLB is on no path; the path of its old label is accessed nevertheless.
        for access in plan.iter().filter(|access| access.purpose == UnifiedPurpose::Sibling) {
            if let Some(way) = groups.plb.find(access.addr) {
                groups.plb.relabel(way, access.new);
            }
        }
        Ok(())
    }
}

/// The entries of a group.
pub(super) struct Group<'a, L> {
    /// The scheme of the current labels.
    pub(super) labels: &'a L,
    /// The scheme under the next key, if the key is being changed.
    pub(super) next: Option<&'a L>,
    pub(super) entries: &'a mut [u8],
}

impl<L: Labels> Groups<L> {
    /// Blocks in a group of a level.
    pub(super) fn fanout(&self, places: &LevelPlaces, level: usize) -> u64 {
        if level == places.levels() { self.top_labels.fanout() } else { self.labels.fanout() }
    }

    /// Group number `group` of `level`. The entries for the user's blocks and for all but the last
    /// level of the map are in the group's parent, which this call marks as used.
    pub(super) fn of(&mut self, places: &LevelPlaces, level: usize, group: u64) -> Group<'_, L> {
        let Self { top, beside, labels, top_labels, plb, rekeying } = self;
        let is_top = level == places.levels();
        let now = if is_top { &*top_labels } else { &*labels };
        let next = rekeying.as_ref();
        let is_done = next.is_some_and(|next| next.is_done(level, group));
        let next = next.map(|next| if is_top { &next.top_labels } else { &next.labels });
        let labels = next.filter(|_| is_done).unwrap_or(now);
        let len = labels.entries_len();
        if is_top {
            return Group { labels, next, entries: &mut top[group as usize * len..][..len] };
        }
        let parent = places.addr(level + 1, group, 0);
        let way = plb.find(parent).expect("the walk came by, or began there");
        plb.touch(way);
        let entries = if beside.is_empty() {
            &mut plb.body_mut(way)[..len]
        } else {
            &mut beside[(parent.0 - places.base[1]) as usize * len..][..len]
        };
        Group { labels, next, entries }
    }
}

impl LevelPlaces {
    pub(super) fn new(sizes: &Sizes, fanout: u64) -> Result<Self> {
        let blocks = sizes.blocks.checked_mul(sizes.parts).filter(|&n| n <= TREE_BLOCKS_MAX);
        if sizes.parts == 0 || blocks.is_none() {
            return Err(Error::Geometry("a block has one or more parts, and all have a number"));
        }
        let mut places = Self {
            parts: sizes.parts,
            bundled: sizes.bundled,
            fanout,
            count: vec![sizes.blocks],
            base: vec![0],
        };
        for level in 0..usize::from(sizes.map_levels) {
            places.base.push(places.base[level] + places.count[level] * places.parts_on(level));
            places.count.push(places.count[level].div_ceil(fanout));
        }
        Ok(places)
    }

    /// Levels of the map in the tree.
    pub(super) fn levels(&self) -> usize {
        self.count.len() - 1
    }

    /// Blocks in the tree.
    pub(super) fn blocks(&self) -> u64 {
        self.base[self.levels()] + self.count[self.levels()] * self.parts_on(self.levels())
    }

    /// Blocks of the map.
    pub(super) fn map_blocks(&self) -> u64 {
        self.count[1..].iter().sum()
    }

    pub(super) fn parts_on(&self, level: usize) -> u64 {
        if level == 0 { self.parts } else { 1 }
    }

    /// Paths that the parts of a block are on.
    pub(super) fn paths_on(&self, level: usize) -> u64 {
        if self.bundled { 1 } else { self.parts_on(level) }
    }

    /// The parts that are on the same path as the part `first`, including it.
    pub(super) fn parts_on_path(
        &self,
        level: usize,
        first: Addr,
    ) -> impl Iterator<Item = Addr> + use<> {
        let parts = self.parts_on(level) / self.paths_on(level);
        (first.0..first.0 + parts).map(Addr)
    }

    /// The part that determines the label of a part of block number `nth` of a level.
    pub(super) fn labelled(&self, level: usize, nth: u64, part: u64) -> Addr {
        self.addr(level, nth, if self.bundled { 0 } else { part })
    }

    /// The number of the block of a level that an access to `addr` uses.
    pub(super) fn nth(&self, level: usize, addr: Addr) -> u64 {
        (0..level).fold(addr.0, |nth, _| nth / self.fanout)
    }

    /// The address in the tree of a part of block number `nth` of a level.
    pub(super) fn addr(&self, level: usize, nth: u64, part: u64) -> Addr {
        Addr(self.base[level] + nth * self.parts_on(level) + part)
    }
}
