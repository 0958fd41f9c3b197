//! Recursive Path ORAM: each level of the position map in a tree of its own, of blocks without
//! bodies. The simulation keeps the labels beside the trees.
//!
//! The controller accesses the trees in a fixed order, from the last map to the user's blocks,
//! again and again. If no request needs a tree when its turn comes, its access is a dummy. So an
//! adversary does not learn from the order which blocks of the map were at hand. With a PLB for
//! each map, a tree need not be accessed each time: its *rate*, in accesses for each one of the
//! user's blocks, is public and fixed. A rate that is too low makes requests wait for the tree, and
//! one that is too high is spent on dummies.
//!
//! Paper: unified-oram, sections 2.2 and 3.2. The library's own recursion is
//! [`PathOram`](traceless::scheme::path::PathOram), which keeps the labels in the blocks.

use std::collections::VecDeque;
use traceless::controller::{Controller, Serve, StepKind, StepOutcome};
use traceless::error::{Error, Result};
use traceless::oram::Hides;
use traceless::posmap::{Flat, Plb};
use traceless::rng::Rng;
use traceless::tree::{BucketTree, Drains, Engine, Fill, Header};
use traceless::types::{Addr, Leaf};

/// A rate of one access a round; rates are in units of 1 / `RATE_ONE`.
pub const RATE_ONE: u32 = 1000;

/// The tree of a map.
pub struct MapLevel<T> {
    /// The tree.
    pub tree: T,
    /// Labels in a block of the tree.
    pub fanout: u64,
    /// The PLB for its blocks, and accesses to the tree for each [`RATE_ONE`] of the user's blocks.
    pub plb: Option<(Plb, u32)>,
}

/// The scheme, as a [`Controller`]. See the [module](self).
pub struct Recursive<T> {
    blocks: u64,
    levels: Vec<TreeLevel<T>>,
    rng: Box<dyn Rng>,
    requests: VecDeque<(u64, Addr)>,
    /// The tree that is accessed next.
    turn: usize,
    /// Without PLBs: the tree that the first request needs next. Its walk begins at the last tree,
    /// and waits there for that tree's turn; an eviction makes it wait for another round.
    walk: Option<usize>,
    failed: bool,
}

/// A tree and its labels. The first level is the tree of the user's blocks.
struct TreeLevel<T> {
    engine: Engine<T>,
    /// The labels of the tree's blocks.
    labels: Flat,
    /// Labels in a block of the tree; 1 for the user's blocks.
    fanout: u64,
    plb: Option<Plb>,
    /// Accesses for each round, and the part of further ones that has added up.
    rate: u32,
    saved: u32,
    drains: Drains,
}

impl<T: BucketTree> Recursive<T> {
    /// A scheme for `blocks` blocks in `data`. The first of `maps` holds the labels of `data`, each
    /// further map the labels of the map before. Each stash holds at most `stash_blocks` blocks,
    /// and is emptied above `drain_above`.
    pub fn new(
        blocks: u64,
        data: T,
        maps: Vec<MapLevel<T>>,
        (stash_blocks, drain_above): (usize, usize),
        rng: Box<dyn Rng>,
    ) -> Result<Self> {
        let in_rounds = maps.iter().all(|map| map.plb.is_none());
        if !in_rounds && maps.iter().any(|map| map.plb.is_none()) {
            return Err(Error::Geometry("either every map has a PLB, or none has"));
        }
        let (mut fewer, mut levels) = (blocks, vec![]);
        let data = MapLevel { tree: data, fanout: 1, plb: None };
        for (nth, MapLevel { tree, fanout, plb }) in core::iter::once(data).chain(maps).enumerate()
        {
            if nth > 0 && fanout < 2 {
                return Err(Error::Geometry("a block of the map holds at least two labels"));
            }
            fewer = fewer.div_ceil(fanout);
            if fewer > tree.shape().slots() || tree.shape().leaves() >= u64::from(u32::MAX) {
                return Err(Error::Geometry("more blocks than the tree has room for"));
            }
            let (plb, rate) = plb.map_or((None, RATE_ONE), |(plb, rate)| (Some(plb), rate));
            if !(1..=8 * RATE_ONE).contains(&rate) {
                return Err(Error::Geometry("a tree is accessed up to eight times a round"));
            }
            levels.push(TreeLevel {
                engine: Engine::new(tree, stash_blocks),
                labels: Flat::new(fewer as usize),
                fanout,
                plb,
                rate,
                saved: 0,
                drains: Drains::above(drain_above),
            });
        }
        let turn = levels.len() - 1;
        levels[turn].saved = levels[turn].rate;
        Ok(Self {
            blocks,
            levels,
            rng,
            requests: VecDeque::new(),
            turn,
            walk: in_rounds.then_some(turn),
            failed: false,
        })
    }

    /// Blocks that wait in the fullest stash.
    pub fn stash(&self) -> usize {
        self.levels.iter().map(|level| level.engine.stash().len()).max().unwrap_or(0)
    }

    /// Whether the tree that is accessed next is not the first of a round.
    pub fn is_in_a_round(&self) -> bool {
        self.turn + 1 < self.levels.len()
    }

    fn try_step(&mut self) -> Result<StepOutcome> {
        let tree = self.turn;
        let level = &mut self.levels[tree];
        let kind = if level.drains.is_due(level.engine.stash().len()) {
            self.unrequested_access(tree, StepKind::Eviction)?
        } else {
            match self.requests.front() {
                Some(&(_, addr)) if self.wanted(addr) == tree => self.visit(tree, addr)?,
                _ => self.unrequested_access(tree, StepKind::Dummy)?,
            }
        };
        // The turn moves on after every kind of access: else an observer would learn which stash is
        // full.
        self.move_on();
        let is_served = kind == StepKind::Data;
        let finished = self.requests.front().filter(|_| is_served).map(|(id, _)| *id);
        if is_served {
            self.requests.pop_front();
        }
        Ok(StepOutcome { kind, finished })
    }

    /// The tree to be accessed next for a block.
    fn wanted(&self, addr: Addr) -> usize {
        if let Some(tree) = self.walk {
            return tree;
        }
        let is_here = |tree: usize| {
            let plb = self.levels[tree].plb.as_ref();
            plb.is_some_and(|plb| plb.find(self.block_of(addr, tree)).is_some())
        };
        let last = self.levels.len() - 1;
        (0..last).find(|&tree| is_here(tree + 1)).unwrap_or(last)
    }

    /// Chooses the tree of the next access.
    fn move_on(&mut self) {
        let level = &mut self.levels[self.turn];
        level.saved = level.saved.saturating_sub(RATE_ONE);
        while self.levels[self.turn].saved < RATE_ONE {
            self.turn = self.turn.checked_sub(1).unwrap_or(self.levels.len() - 1);
            let level = &mut self.levels[self.turn];
            level.saved += level.rate;
        }
    }

    /// Accesses a request's block of one tree. The map's block with its label is at hand.
    fn visit(&mut self, tree: usize, addr: Addr) -> Result<StepKind> {
        let (block, new) = (self.block_of(addr, tree), self.draw(tree));
        let old = self.levels[tree].labels.remap(block, new).unwrap_or_else(|| self.draw(tree));
        let TreeLevel { engine, plb, .. } = &mut self.levels[tree];
        engine.fetch(old)?;
        match plb {
            None => {
                engine.take(block, new)?;
            }
            Some(plb) => {
                engine.remove(block, &mut []);
                let (way, victim) = plb.evict(block);
                if !victim.is_empty() {
                    engine.put(victim, &[])?;
                }
                plb.fill(way, Header::new(block, new));
            }
        }
        engine.evict()?;
        self.touch_parent(block, tree + 1);
        let last = self.levels.len() - 1;
        self.walk = self.walk.map(|tree| tree.checked_sub(1).unwrap_or(last));
        Ok(if tree == 0 { StepKind::Data } else { StepKind::PosMap(tree as u8) })
    }

    /// Marks as used the block of `tree` that holds the label of `child`.
    fn touch_parent(&mut self, child: Addr, tree: usize) {
        let Some(TreeLevel { plb: Some(plb), fanout, .. }) = self.levels.get_mut(tree) else {
            return;
        };
        let way = plb.find(Addr(child.0 / *fanout)).expect("the walk came by, or began there");
        plb.touch(way);
    }

    fn unrequested_access(&mut self, tree: usize, kind: StepKind) -> Result<StepKind> {
        let leaf = self.draw(tree);
        self.levels[tree].engine.dummy(leaf)?;
        Ok(kind)
    }

    /// The block of a tree that an access to `addr` needs.
    fn block_of(&self, addr: Addr, tree: usize) -> Addr {
        Addr(self.levels[..=tree].iter().fold(addr.0, |block, level| block / level.fanout))
    }

    fn draw(&mut self, tree: usize) -> Leaf {
        Leaf(self.rng.below(self.levels[tree].engine.shape().leaves()))
    }
}

impl<T: Fill> Recursive<T> {
    /// Fills new trees with every block.
    pub fn fill(&mut self) -> Result {
        let mut blocks = self.blocks;
        for tree in 0..self.levels.len() {
            blocks = blocks.div_ceil(self.levels[tree].fanout);
            let labels: Vec<u32> = (0..blocks).map(|_| self.draw(tree).0 as u32).collect();
            let TreeLevel { engine, labels: map, .. } = &mut self.levels[tree];
            engine.fill_all(&labels, &mut |_, _| {})?;
            for (addr, &label) in (0..).map(Addr).zip(&labels) {
                map.remap(addr, Leaf(label.into()));
            }
        }
        Ok(())
    }
}

impl<T: BucketTree> Controller for Recursive<T> {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn block_len(&self) -> usize {
        0
    }

    fn submit(&mut self, id: u64, addr: Addr) -> Result {
        if addr.0 >= self.blocks {
            return Err(Error::OutOfRange { addr, blocks: self.blocks });
        }
        self.requests.push_back((id, addr));
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.requests.len()
    }

    fn step(&mut self, serve: Serve<'_>) -> Result<StepOutcome> {
        if self.failed {
            return Err(Error::Poisoned);
        }
        let issued = self.try_step().inspect_err(|_| self.failed = true)?;
        if let Some(id) = issued.finished {
            serve(id, &mut []);
        }
        Ok(issued)
    }

    fn sync(&mut self) -> Result {
        Ok(())
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }
}
