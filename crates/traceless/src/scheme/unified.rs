//! Unified ORAM: one tree holds the user's blocks and all levels of their position map.
//!
//! Blocks of the map that were used lately wait in a cache, the PLB, and not in the tree: a request
//! begins at the first level that is there, and accesses one path for each level below. Since all
//! are paths of one tree, nobody sees which level is meant, nor whether the cache knew it; but how
//! many there are depends on earlier requests, so a claim needs issue at a fixed rate.
//!
//! What leaves the PLB goes into the stash, under the label that it was given on its way in, and
//! needs no path access. Labels are [`Plain`](crate::posmap::Plain), or
//! [`Compressed`](crate::posmap::Compressed): then a counter that overflows puts the whole group on
//! other paths, one path access for each member, whether it exists or not. When the counter of a
//! group ends, all labels get another key.
//!
//! Paper: unified-oram, sections 3 to 5.

mod rekey;

use self::rekey::Rekeying;
use crate::controller::{Controller, Issued, Kind, Serve};
use crate::error::{Error, Result};
use crate::oram::Hides;
use crate::posmap::{Draw, Labels, Lookaside, Plb};
use crate::rng::Rng;
use crate::tree::{BucketTree, Drains, Engine, Header, TREE_BLOCKS_MAX};
use crate::types::{Addr, Leaf};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Sizes of a unified ORAM.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The user's blocks.
    pub blocks: u64,
    /// Levels of the position map in the tree; one more lies in trusted memory.
    pub map_levels: u8,
    /// Blocks of the tree that one of the user's consists of. They share a counter.
    pub parts: u64,
    /// Blocks that the stash holds at most.
    pub stash_blocks: usize,
}

/// The scheme, as a [`Controller`]. See the [module](self).
pub struct Unified<T, L, P = Plb> {
    engine: Engine<T>,
    maps: Maps<L, P>,
    drains: Drains,
    requests: VecDeque<(u64, Addr)>,
    /// The level whose block comes next for the request that is under way; 0 is the user's.
    level: Option<usize>,
    /// The path accesses that this takes.
    planned: VecDeque<Planned>,
    /// The user's block, as far as its parts are here, and their headers.
    body: Vec<u8>,
    held: Vec<Header>,
    failed: bool,
}

/// Every level of the position map: what is in the PLB and beside it.
struct Maps<L, P> {
    places: Places,
    labels: L,
    /// How the level in trusted memory is kept, and its entries.
    top_labels: L,
    top: Vec<u8>,
    /// In a simulation, the entries of all blocks of the map.
    beside: Vec<u8>,
    plb: P,
    draw: Draw,
    /// On the way to another key.
    rekeying: Option<Rekeying<L>>,
}

/// Where in the tree's addresses each level lies.
struct Places {
    parts: u64,
    fanout: u64,
    /// Of each level: its blocks, and the address of the first.
    count: Vec<u64>,
    base: Vec<u64>,
}

/// A path access to come.
#[derive(Clone, Copy)]
struct Planned {
    purpose: Purpose,
    addr: Addr,
    /// Which child of its group the block belongs to.
    nth: usize,
    /// The path that it is on now, and is on then.
    old: Leaf,
    new: Leaf,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The block that the walk is about.
    Own,
    /// Its group gets other labels.
    Sibling,
    /// As that, but the last group is not full.
    Nobody,
}

impl<T: BucketTree, L: Labels, P: Lookaside> Unified<T, L, P> {
    /// In `tree`, which holds nothing yet. `labels` are those of the map's blocks, `top_labels`
    /// those in trusted memory; with one key for both, since each block is a child once.
    pub fn new(
        sizes: Sizes,
        tree: T,
        labels: L,
        top_labels: L,
        plb: P,
        rng: Box<dyn Rng>,
    ) -> Result<Self> {
        let places = Places::new(&sizes, labels.fanout())?;
        let (shape, body_len, len) = (tree.shape(), tree.body_len(), labels.entries_len());
        if places.blocks() > TREE_BLOCKS_MAX.min(shape.slots()) {
            return Err(Error::Geometry("more blocks than the tree has room for"));
        }
        if body_len > 0 && body_len < len {
            return Err(Error::Geometry("a block of the map holds the entries of a group"));
        }
        let parts = sizes.parts as usize;
        if sizes.stash_blocks < parts {
            return Err(Error::Geometry("the stash holds a block of the user's"));
        }
        labels.check(shape.leaves(), sizes.parts)?;
        top_labels.check(shape.leaves(), sizes.parts)?;
        let groups = places.count[places.levels()].div_ceil(top_labels.fanout());
        let beside = if body_len == 0 { places.map_blocks() as usize * len } else { 0 };
        Ok(Self {
            maps: Maps {
                top: vec![0; groups as usize * top_labels.entries_len()],
                beside: vec![0; beside],
                draw: Draw::new(rng, shape.leaves()),
                places,
                labels,
                top_labels,
                plb,
                rekeying: None,
            },
            // The parts of a block come into the stash together.
            drains: Drains::above(sizes.stash_blocks - parts),
            requests: VecDeque::new(),
            level: None,
            planned: VecDeque::new(),
            body: vec![0; parts * body_len],
            held: Vec::with_capacity(parts),
            failed: false,
            engine: Engine::new(tree, sizes.stash_blocks),
        })
    }

    /// With more than `blocks` blocks in the stash a step does nothing but empty it.
    pub fn drain_above(&mut self, blocks: usize) {
        self.drains = Drains::above(blocks);
    }

    /// The engine.
    pub fn engine(&self) -> &Engine<T> {
        &self.engine
    }

    /// Bytes of trusted memory that the last level of the map takes.
    pub fn top_len(&self) -> usize {
        self.maps.top.len()
    }

    fn try_step(&mut self, serve: Serve<'_>) -> Result<Issued> {
        if self.drains.is_due(self.engine.stash().len()) {
            return self.unasked(Kind::Eviction);
        }
        let Some(&(id, addr)) = self.requests.front() else {
            return self.unasked(Kind::Dummy);
        };
        let level = self.plan(addr)?;
        let next = self.planned.pop_front().expect("a plan has at least the block's own access");
        self.engine.fetch(next.old)?;
        let kind = match (next.purpose, level) {
            (Purpose::Own, 0) => {
                self.hold(next, |body| serve(id, body))?;
                Kind::Data
            }
            (Purpose::Own, _) => {
                self.bring(next)?;
                Kind::PosMap(level as u8)
            }
            (Purpose::Sibling, _) => {
                self.engine.relabel(next.addr, next.new)?;
                Kind::PosMap(level as u8 + 1)
            }
            (Purpose::Nobody, _) => Kind::PosMap(level as u8 + 1),
        };
        self.engine.evict()?;
        let is_last = self.planned.is_empty();
        // A request that waited for another key begins anew: what it had in the PLB may be gone.
        let is_rekeying = self.maps.rekeying.is_some();
        self.level = if !is_last {
            Some(level)
        } else if is_rekeying {
            None
        } else {
            level.checked_sub(1)
        };
        let is_served = is_last && level == 0 && !is_rekeying;
        if is_served {
            self.requests.pop_front();
        }
        Ok(Issued { kind, finished: is_served.then_some(id) })
    }

    /// Makes sure that it is known which path accesses come next, and tells for which level.
    fn plan(&mut self, addr: Addr) -> Result<usize> {
        if !self.planned.is_empty() {
            return Ok(self.level.expect("an access of it was made"));
        }
        if self.maps.rekeying.is_none() {
            let level = self.level.unwrap_or_else(|| self.maps.first_missing(addr));
            match self.maps.plan(level, addr, &mut self.planned) {
                Err(Error::LabelsSpent) if self.maps.begin_rekeying() => self.planned.clear(),
                planned => return planned.map(|()| level),
            }
        }
        let level = self.maps.plan_rekeying(&mut self.planned)?;
        if !self.planned.is_empty() {
            return Ok(level);
        }
        // It is over, and the request goes on.
        let level = self.maps.first_missing(addr);
        self.maps.plan(level, addr, &mut self.planned)?;
        Ok(level)
    }

    /// Takes a block of the map out of the open path into the PLB.
    fn bring(&mut self, next: Planned) -> Result {
        let plb = &mut self.maps.plb;
        let (way, victim) = plb.evict(next.addr);
        if !victim.is_empty() {
            self.engine.put(victim, plb.body(way))?;
        }
        self.engine.remove(next.addr, plb.body_mut(way));
        plb.fill(way, Header::new(next.addr, next.new));
        Ok(())
    }

    /// Takes a part of the user's block out of the open path. The last one completes the block:
    /// then it is served, and all parts go into the stash.
    fn hold(&mut self, next: Planned, serve: impl FnOnce(&mut [u8])) -> Result {
        let len = self.engine.tree().body_len();
        self.engine.remove(next.addr, &mut self.body[self.held.len() * len..][..len]);
        self.held.push(Header::new(next.addr, next.new));
        if self.held.len() as u64 == self.maps.places.parts {
            serve(&mut self.body);
            for (nth, header) in self.held.drain(..).enumerate() {
                self.engine.put(header, &self.body[nth * len..][..len])?;
            }
        }
        Ok(())
    }

    /// A path access that no request is about.
    fn unasked(&mut self, kind: Kind) -> Result<Issued> {
        self.engine.dummy(self.maps.draw.leaf())?;
        Ok(Issued { kind, finished: None })
    }
}

impl<L: Labels, P: Lookaside> Maps<L, P> {
    /// The level below the first that the PLB holds for a block of the user's.
    fn first_missing(&self, addr: Addr) -> usize {
        let is_here = |level| self.is_here(level, self.places.nth(level, addr));
        let levels = self.places.levels();
        (0..levels).find(|&below| is_here(below + 1)).unwrap_or(levels)
    }

    /// Whether the PLB holds block number `nth` of a level of the map.
    fn is_here(&self, level: usize, nth: u64) -> bool {
        self.plb.find(self.places.addr(level, nth, 0)).is_some()
    }

    /// Blocks in a group of a level.
    fn fanout(&self, level: usize) -> u64 {
        if level == self.places.levels() { self.top_labels.fanout() } else { self.labels.fanout() }
    }

    /// Puts the block of `level` that an access to `addr` is about onto another path, in the map,
    /// and lists the path accesses for it: one a part, and before them, if its group gets other
    /// labels, as many for each possible sibling.
    fn plan(&mut self, level: usize, addr: Addr, plan: &mut VecDeque<Planned>) -> Result {
        let (block, fanout) = (self.places.nth(level, addr), self.fanout(level));
        self.plan_group(level, block / fanout, Some((block % fanout) as usize), plan)
    }

    /// As [`plan`](Self::plan) for member `own` of a group. Without one, all members get labels
    /// under the key that is to come.
    ///
    /// The group's parent is in the PLB, and may leave it when the plan is carried out.
    fn plan_group(
        &mut self,
        level: usize,
        group: u64,
        own: Option<usize>,
        plan: &mut VecDeque<Planned>,
    ) -> Result {
        let Self { places, labels, top_labels, top, beside, plb, draw, rekeying } = self;
        let is_top = level == places.levels();
        let of_level = |labels, top_labels| if is_top { top_labels } else { labels };
        let now = of_level(&*labels, &*top_labels);
        let next = rekeying.as_ref().map(|to| (of_level(&to.labels, &to.top_labels), to));
        let labels = next.filter(|(_, to)| to.is_done(level, group)).map_or(now, |(next, _)| next);
        let len = labels.entries_len();
        let entries = if is_top {
            &mut top[group as usize * len..][..len]
        } else {
            let parent = places.addr(level + 1, group, 0);
            let way = plb.find(parent).expect("the walk came by, or began there");
            plb.touch(way);
            if beside.is_empty() {
                &mut plb.body_mut(way)[..len]
            } else {
                &mut beside[(parent.0 - places.base[1]) as usize * len..][..len]
            }
        };
        let is_spent = own.is_none_or(|own| labels.is_spent(entries, own));
        let all = 0..labels.fanout() as usize;
        let siblings = all.filter(|&nth| is_spent && Some(nth) != own);
        // Every old label, before any changes.
        for nth in siblings.chain(own) {
            let member = group * labels.fanout() + nth as u64;
            let purpose = match nth {
                _ if Some(nth) == own => Purpose::Own,
                _ if member < places.count[level] => Purpose::Sibling,
                _ => Purpose::Nobody,
            };
            for part in 0..places.parts_on(level) {
                let addr = places.addr(level, member, part);
                let old = match purpose {
                    Purpose::Nobody => draw.leaf(),
                    _ => labels.leaf(entries, nth, addr, draw),
                };
                plan.push_back(Planned { purpose, addr, nth, old, new: old });
            }
        }
        match own {
            None => entries.fill(0),
            Some(_) if is_spent => labels.renew_group(entries)?,
            Some(own) => labels.renew(entries, own, draw),
        }
        let labels = next.filter(|_| own.is_none()).map_or(labels, |(next, _)| next);
        for access in plan.iter_mut().filter(|access| access.purpose != Purpose::Nobody) {
            access.new = labels.leaf(entries, access.nth, access.addr, draw);
        }
        // A sibling in the PLB is on no path; that of its old label is accessed all the same.
        for access in plan.iter().filter(|access| access.purpose == Purpose::Sibling) {
            if let Some(way) = plb.find(access.addr) {
                plb.relabel(way, access.new);
            }
        }
        Ok(())
    }
}

impl Places {
    fn new(sizes: &Sizes, fanout: u64) -> Result<Self> {
        let blocks = sizes.blocks.checked_mul(sizes.parts).filter(|&n| n <= TREE_BLOCKS_MAX);
        if sizes.parts == 0 || blocks.is_none() {
            return Err(Error::Geometry("a block has one or more parts, and all have a number"));
        }
        let mut places =
            Self { parts: sizes.parts, fanout, count: vec![sizes.blocks], base: vec![0] };
        for level in 0..usize::from(sizes.map_levels) {
            places.base.push(places.base[level] + places.count[level] * places.parts_on(level));
            places.count.push(places.count[level].div_ceil(fanout));
        }
        Ok(places)
    }

    /// Levels of the map in the tree.
    fn levels(&self) -> usize {
        self.count.len() - 1
    }

    /// Blocks in the tree.
    fn blocks(&self) -> u64 {
        self.base[self.levels()] + self.count[self.levels()] * self.parts_on(self.levels())
    }

    /// Those of the map.
    fn map_blocks(&self) -> u64 {
        self.count[1..].iter().sum()
    }

    fn parts_on(&self, level: usize) -> u64 {
        if level == 0 { self.parts } else { 1 }
    }

    /// Which block of a level an access to `addr` is about.
    fn nth(&self, level: usize, addr: Addr) -> u64 {
        (0..level).fold(addr.0, |nth, _| nth / self.fanout)
    }

    /// The address in the tree of a part of block number `nth` of a level.
    fn addr(&self, level: usize, nth: u64, part: u64) -> Addr {
        Addr(self.base[level] + nth * self.parts_on(level) + part)
    }
}

impl<T: BucketTree, L: Labels, P: Lookaside> Controller for Unified<T, L, P> {
    fn blocks(&self) -> u64 {
        self.maps.places.count[0]
    }

    fn block_len(&self) -> usize {
        self.body.len()
    }

    fn submit(&mut self, id: u64, addr: Addr) -> Result {
        if addr.0 >= self.blocks() {
            return Err(Error::OutOfRange { addr, blocks: self.blocks() });
        }
        self.requests.push_back((id, addr));
        Ok(())
    }

    fn step(&mut self, serve: Serve<'_>) -> Result<Issued> {
        if self.failed {
            return Err(Error::Poisoned);
        }
        // What was half done cannot be done again: the labels have changed.
        self.try_step(serve).inspect_err(|_| self.failed = true)
    }

    fn sync(&mut self) -> Result {
        if self.failed {
            return Err(Error::Poisoned);
        }
        self.engine.tree_mut().sync().inspect_err(|_| self.failed = true)
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }
}

#[cfg(all(test, feature = "std"))]
mod tests;
