//! The schemes that lie in trees, over trees that report each access.

use super::watch::TreeObserver;
use std::collections::VecDeque;
use traceless::controller::{Controller, StepOutcome};
use traceless::posmap::{COUNTER_BITS, CompressedLabels, Labels, PlainLabels, Plb};
use traceless::rng::{Rng, SeededRng};
use traceless::scheme::circuit::{self, Circuit};
use traceless::scheme::path::PathOram;
use traceless::scheme::rho::{PATTERN, Rho};
use traceless::scheme::ring::{GhostRing, Params, Ring};
use traceless::scheme::unified::{Sizes, Unified};
use traceless::seal::Secret;
use traceless::tree::ir_alloc::IR_ORAM;
use traceless::tree::{
    BareTree, ObservedTree, PathWitness, STASH_BLOCKS, Shape, Substash, Treetop,
};
use traceless::{Addr, Result};

/// A tree that reports each path to a witness.
pub type Tree = ObservedTree<BareTree, Box<dyn PathWitness>>;

/// Bytes that a block would have with a body: they decide how many labels a block of the map holds.
const BLOCK_LEN: usize = 64;

/// A scheme by name.
#[derive(Clone, Copy, Debug)]
pub struct NamedScheme {
    pub name: &'static str,
    /// Number of trees.
    pub trees: u8,
    /// In this many steps each tree accesses at least one path that is drawn at random.
    pub turns: u64,
    /// Whether the step's number alone determines its path.
    pub is_public: fn(step: u64) -> bool,
    /// Whether each step shows the same events except for the path. Not so in Ring: its early
    /// reshuffles follow from earlier paths, which are random.
    pub has_templates: bool,
    pub build: fn(blocks: u64, observer: &TreeObserver, seed: u64) -> Result<Box<dyn StepDriver>>,
}

/// Runs a scheme one step at a time, with or without a request.
pub trait StepDriver {
    /// Makes the next step with at most one request, for `addr`. Returns whether the scheme
    /// accepted it.
    fn step(&mut self, addr: Option<u64>) -> Result<bool>;
}

/// All schemes without a known fault.
pub const SCHEMES: [NamedScheme; 12] = [
    scheme("path", 1, path),
    NamedScheme { turns: 3, ..scheme("recursive", 3, recursive) },
    scheme("unified", 1, |n, w, s| Ok(Box::new(OneByOne::new(unified(n, w, s, labels)?)))),
    scheme("compressed", 1, |n, w, s| Ok(Box::new(OneByOne::new(unified(n, w, s, compressed)?)))),
    NamedScheme {
        turns: 2,
        is_public: |step| step.is_multiple_of(2),
        ..scheme("circuit", 1, |n, w, s| {
            let shape = circuit::shape_for(n, circuit::Z)?;
            let tree = tree(w, 0, shape);
            let circuit = Circuit::new(n, tree, circuit::STASH_BLOCKS, rng(s, 0))?;
            Ok(Box::new(OneByOne::new(circuit)))
        })
    },
    NamedScheme {
        turns: 2,
        is_public: |step| step % (RING_RATE + 1) == RING_RATE,
        has_templates: false,
        ..scheme("ring", 1, ring)
    },
    scheme("ir-alloc", 1, |n, w, s| {
        let tree = tree(w, 0, IR_ORAM.shape(levels(n))?);
        Ok(Box::new(OneByOne::new(over(n, tree, s, labels)?)))
    }),
    scheme("ir-stash", 1, |n, w, s| {
        Ok(Box::new(OneByOne::new(over(n, substash(n, w)?, s, labels)?)))
    }),
    scheme("bundled", 1, bundled),
    NamedScheme { turns: PATTERN as u64, ..scheme("rho", 2, rho) },
    scheme("llc-d", 1, |n, w, s| Ok(Box::new(ExclusiveScheme::new(unified(n, w, s, labels)?)))),
    scheme("ir-dwb", 1, |n, w, s| {
        Ok(Box::new(EarlyWriteBackScheme::new(unified(n, w, s, labels)?)))
    }),
];

const RING_RATE: u64 = Params::Z4.rate as u64;

const fn scheme(
    name: &'static str,
    trees: u8,
    build: fn(u64, &TreeObserver, u64) -> Result<Box<dyn StepDriver>>,
) -> NamedScheme {
    NamedScheme { name, trees, turns: 1, is_public: |_| false, has_templates: true, build }
}

/// Levels for which data fill half of the tree.
pub fn levels(blocks: u64) -> usize {
    (blocks.max(4) / 2).ilog2() as usize
}

pub fn rng(seed: u64, nth: u64) -> Box<dyn Rng> {
    Box::new(SeededRng::new(seed.wrapping_mul(16).wrapping_add(nth)))
}

/// Tree number `number`, of blocks without bodies.
pub fn tree(observer: &TreeObserver, number: u8, shape: Shape) -> Tree {
    let witness: Box<dyn PathWitness> = Box::new(observer.tree(number, &shape));
    ObservedTree::new(BareTree::new(shape, 0), witness)
}

fn path(blocks: u64, observer: &TreeObserver, seed: u64) -> Result<Box<dyn StepDriver>> {
    let tree = tree(observer, 0, Shape::uniform(levels(blocks), 4)?);
    Ok(Box::new(OneByOne::new(PathOram::new(blocks, vec![tree], STASH_BLOCKS, rng(seed, 0))?)))
}

fn recursive(blocks: u64, observer: &TreeObserver, seed: u64) -> Result<Box<dyn StepDriver>> {
    // The labels of the map lie in the blocks' bodies.
    let tree = |number: u8, shape| {
        let witness: Box<dyn PathWitness> = Box::new(observer.tree(number, &shape));
        ObservedTree::new(BareTree::new(shape, BLOCK_LEN), witness)
    };
    let mut trees = vec![tree(0, Shape::uniform(levels(blocks), 4)?)];
    for (number, share) in [(1, 16), (2, 256)] {
        trees.push(tree(number, Shape::uniform(levels(blocks / share) + 1, 4)?));
    }
    Ok(Box::new(OneByOne::new(PathOram::new(blocks, trees, STASH_BLOCKS, rng(seed, 0))?)))
}

fn labels() -> Result<PlainLabels> {
    PlainLabels::in_block(BLOCK_LEN)
}

fn compressed() -> Result<CompressedLabels> {
    CompressedLabels::in_block(&Secret::from_bytes([7; 32]), BLOCK_LEN, COUNTER_BITS)
}

fn unified<L: Labels>(
    blocks: u64,
    observer: &TreeObserver,
    seed: u64,
    labels: impl Fn() -> Result<L>,
) -> Result<Unified<Treetop<Tree>, L>> {
    let shape = Shape::uniform(levels(blocks) + 1, 4)?;
    let below = tree(observer, 0, shape.only(|level| level >= CACHED));
    over(blocks, Treetop::new(shape, CACHED, below)?, seed, labels)
}

/// Two parts of each block share a label.
fn bundled(blocks: u64, observer: &TreeObserver, seed: u64) -> Result<Box<dyn StepDriver>> {
    let tree = tree(observer, 0, Shape::uniform(levels(2 * blocks) + 1, 4)?);
    let sizes =
        Sizes { blocks, map_levels: 2, parts: 2, bundled: true, stash_blocks: 2 * STASH_BLOCKS };
    let plb = Plb::new(8, 4, 0)?;
    let oram = Unified::new(sizes, tree, compressed()?, compressed()?, plb, rng(seed, 1))?;
    Ok(Box::new(OneByOne::new(oram)))
}

/// Levels of the tree in trusted memory.
const CACHED: usize = 2;

fn over<T: traceless::tree::BucketTree, L: Labels>(
    blocks: u64,
    tree: T,
    seed: u64,
    labels: impl Fn() -> Result<L>,
) -> Result<Unified<T, L>> {
    let sizes =
        Sizes { blocks, map_levels: 2, parts: 1, bundled: false, stash_blocks: STASH_BLOCKS };
    // A cache of few blocks of the map, so that both hits and misses occur.
    let plb = Plb::new(8, 4, 0)?;
    Unified::new(sizes, tree, labels()?, labels()?, plb, rng(seed, 1))
}

pub fn substash(blocks: u64, observer: &TreeObserver) -> Result<Substash<Tree>> {
    let shape = Shape::uniform(levels(blocks) + 1, 4)?;
    let below = tree(observer, 0, shape.only(|level| level >= CACHED));
    Substash::new(shape, CACHED, (3, 4), below)
}

/// A scheme that searches its stashes before it reads a path, and leaks by it.
pub fn searches_first(
    blocks: u64,
    observer: &TreeObserver,
    seed: u64,
) -> Result<Box<dyn StepDriver>> {
    let mut oram = over(blocks, substash(blocks, observer)?, seed, labels)?;
    oram.search_first();
    Ok(Box::new(OneByOne::new(oram)))
}

fn ring(blocks: u64, observer: &TreeObserver, seed: u64) -> Result<Box<dyn StepDriver>> {
    let params = Params::Z4;
    let shape = params.shape_for(blocks)?;
    let witness = observer.ring(params, &shape);
    let tree = GhostRing::new(params, shape, witness)?;
    Ok(Box::new(OneByOne::new(Ring::new(blocks, tree, rng(seed, 0))?)))
}

fn rho(blocks: u64, observer: &TreeObserver, seed: u64) -> Result<Box<dyn StepDriver>> {
    const { assert!(PATTERN == 3) };
    let small = tree(observer, 1, Shape::uniform(levels(blocks).saturating_sub(3).max(2), 2)?);
    let main = unified(blocks, observer, seed, labels)?;
    let sets = (blocks as usize / 64).max(1);
    Ok(Box::new(OneByOne::new(Rho::new(main, small, (sets, 4), STASH_BLOCKS, rng(seed, 2))?)))
}

/// Runs a controller with one request at a time.
pub struct OneByOne<C> {
    controller: C,
    is_busy: bool,
}

impl<C: Controller> OneByOne<C> {
    pub fn new(controller: C) -> Self {
        Self { controller, is_busy: false }
    }
}

impl<C: Controller> StepDriver for OneByOne<C> {
    fn step(&mut self, addr: Option<u64>) -> Result<bool> {
        let mut taken = false;
        if let (false, Some(addr)) = (self.is_busy, addr) {
            self.controller.submit(0, Addr(addr))?;
            (self.is_busy, taken) = (true, true);
        }
        // A request served without a step is invisible; the step is for the next request or a
        // dummy.
        if self.is_busy && self.controller.finish_without_path(&mut |_, _| {})?.is_some() {
            self.is_busy = false;
        }
        let issued: StepOutcome = self.controller.step(&mut |_, _| {})?;
        self.is_busy &= issued.finished.is_none();
        Ok(taken)
    }
}

/// Lines in the cache above a scheme.
const LINES: usize = 64;

/// A unified ORAM below a cache that has the only copy of each of its lines.
struct ExclusiveScheme<L> {
    oram: Unified<Treetop<Tree>, L>,
    lines: VecDeque<u64>,
    /// Lines to fetch from the ORAM (`true`) or to return to it (`false`), in order.
    waiting: VecDeque<(u64, bool)>,
    is_busy: bool,
}

impl<L: Labels> ExclusiveScheme<L> {
    fn new(oram: Unified<Treetop<Tree>, L>) -> Self {
        Self { oram, lines: VecDeque::new(), waiting: VecDeque::new(), is_busy: false }
    }
}

impl<L: Labels> StepDriver for ExclusiveScheme<L> {
    fn step(&mut self, addr: Option<u64>) -> Result<bool> {
        let addr = addr.filter(|_| !self.is_busy && self.waiting.is_empty());
        if let Some(addr) = addr
            && !self.lines.contains(&addr)
        {
            if self.lines.len() == LINES {
                self.waiting.extend(self.lines.pop_front().map(|line| (line, false)));
            }
            self.lines.push_back(addr);
            self.waiting.push_back((addr, true));
        }
        if !self.is_busy
            && let Some((line, is_fetched)) = self.waiting.pop_front()
        {
            self.is_busy = true;
            if is_fetched {
                self.oram.submit_fetch(0, Addr(line))?;
            } else {
                self.oram.submit_return(0, Addr(line))?;
            }
        }
        // A return may take no step.
        if self.is_busy && self.oram.finish_without_path(&mut |_, _| {})?.is_some() {
            self.is_busy = false;
        }
        self.is_busy &= self.oram.step(&mut |_, _| {})?.finished.is_none();
        Ok(addr.is_some())
    }
}

/// A unified ORAM that gets the offer of a line whenever there is no request.
struct EarlyWriteBackScheme<L> {
    oram: Unified<Treetop<Tree>, L>,
    recent: VecDeque<u64>,
    is_busy: bool,
    has_offer: bool,
}

impl<L: Labels> EarlyWriteBackScheme<L> {
    fn new(oram: Unified<Treetop<Tree>, L>) -> Self {
        Self { oram, recent: VecDeque::new(), is_busy: false, has_offer: false }
    }
}

/// The identity of an offered line.
const OFFER: u64 = 1;

impl<L: Labels> StepDriver for EarlyWriteBackScheme<L> {
    fn step(&mut self, addr: Option<u64>) -> Result<bool> {
        let addr = addr.filter(|_| !self.is_busy);
        if let Some(addr) = addr {
            // Some lines are used again while they are offered.
            if self.has_offer && addr.is_multiple_of(2) {
                self.oram.withdraw();
                self.has_offer = false;
            }
            self.oram.submit(0, Addr(addr))?;
            self.is_busy = true;
            self.recent.push_back(addr);
        } else if !self.has_offer
            && let Some(line) = self.recent.pop_front()
        {
            self.oram.offer(OFFER, Addr(line))?;
            self.has_offer = true;
        }
        let finished = self.oram.step(&mut |_, _| {})?.finished;
        self.is_busy &= finished != Some(0);
        self.has_offer &= finished != Some(OFFER);
        Ok(addr.is_some())
    }
}
