//! Schemes in trees with one fault each, which every audit must find, or it has seen nothing.
//!
//! All but one are Path ORAM as printed, with a map in memory or in a tree of its own. Without a
//! fault it passes ([`SoundTree`], [`SoundPair`]), so what is found in the others is the fault.

use super::super::suite;
use super::schemes::{NamedScheme, OneByOne, StepDriver, Tree, levels, rng, searches_first, tree};
use super::watch::WatchedTree;
use super::{TreeSize, Trees};
use std::collections::VecDeque;
use std::marker::PhantomData;
use traceless::controller::{Controller, Serve, StepKind, StepOutcome};
use traceless::rng::Rng;
use traceless::tree::{BucketTree, Header, Shape};
use traceless::types::Leaf;
use traceless::{Addr, Error, Hides, Result};

/// One that must be found, or pass.
pub type Planted = suite::PlantedFault<Trees>;

/// All of them.
pub const PLANTED: [Planted; 18] = [
    sound("mutant:sound-path", 1, path::<SoundTree>),
    planted("mutant:forgets-remap", "one remap of twenty is forgotten", path::<ForgetsRemap>),
    planted("mutant:remaps-to-previous", "one new leaf of twenty is the last", path::<Previous>),
    subtle("mutant:prefers-half", "one new leaf of twenty is in one half", path::<PrefersHalf>),
    planted("mutant:one-half", "only one half of the tree is used", path::<OneHalf>),
    subtle("mutant:prefers-even", "one new leaf of twenty is even", path::<PrefersEven>),
    planted("mutant:remaps-near", "one new leaf of ten is near the last", path::<RemapsNear>),
    planted("mutant:leaf-of-block", "one new leaf of ten follows from the block", path::<OwnLeaf>),
    subtle("mutant:returns-early", "what is in the stash takes no path", path::<ReturnsEarly>),
    planted("mutant:skips-dummies", "nothing is done when nobody asks", path::<SkipsDummies>),
    planted("mutant:dummy-for-block", "a dummy takes the last block's path", path::<NewestLeaf>),
    planted("mutant:one-dummy-path", "all dummies take one path", path::<OneLeaf>),
    planted("mutant:reads-only", "a path that did not change is not written", path::<SkipsClean>),
    planted("mutant:evicts-at-once", "a full stash takes a path more", path::<EvictsAtOnce>),
    sound("mutant:sound-pair", 2, pair::<SoundPair>),
    Planted {
        scheme: two("mutant:plb-beside-trees", pair::<PlbBeside>),
        fault: Some("a cache of the map saves paths of the map's own tree"),
        size: SHORT,
    },
    Planted {
        scheme: two("mutant:no-pattern", pair::<NoPattern>),
        fault: Some("a tree is accessed when it is needed, not in its turn"),
        size: SHORT,
    },
    planted("mutant:searches-first", "what is at hand costs no path", searches_first),
];

const SHORT: TreeSize = TreeSize { blocks: 512, steps: 12_000, draws: 0 };
const LONG: TreeSize = TreeSize { steps: 40_000, ..SHORT };

type Build = fn(u64, &WatchedTree, u64) -> Result<Box<dyn StepDriver>>;

const fn planted(name: &'static str, fault: &'static str, build: Build) -> Planted {
    let scheme =
        NamedScheme { name, trees: 1, turns: 1, is_public: |_| false, has_templates: true, build };
    Planted { scheme, fault: Some(fault), size: SHORT }
}

/// One that takes long to be found.
const fn subtle(name: &'static str, fault: &'static str, build: Build) -> Planted {
    Planted { size: LONG, ..planted(name, fault, build) }
}

const fn two(name: &'static str, build: Build) -> NamedScheme {
    NamedScheme { name, trees: 2, turns: 1, is_public: |_| false, has_templates: true, build }
}

const fn sound(name: &'static str, trees: u8, build: Build) -> Planted {
    let scheme =
        NamedScheme { name, trees, turns: 1, is_public: |_| false, has_templates: true, build };
    Planted { scheme, fault: None, size: LONG }
}

fn path<F: TreeFault + 'static>(
    n: u64,
    watched: &WatchedTree,
    seed: u64,
) -> Result<Box<dyn StepDriver>> {
    let tree = tree(watched, 0, Shape::uniform(levels(n), 4)?);
    Ok(Box::new(OneByOne::new(PathMutant::<F>::new(n, tree, rng(seed, 0)))))
}

fn pair<F: PairFault + 'static>(
    n: u64,
    watched: &WatchedTree,
    seed: u64,
) -> Result<Box<dyn StepDriver>> {
    let shape = |blocks| Shape::uniform(levels(blocks), 4);
    let trees = [tree(watched, 0, shape(n)?), tree(watched, 1, shape(map_blocks(n))?)];
    Ok(Box::new(OneByOne::new(PairMutant::<F>::new(n, trees, [rng(seed, 0), rng(seed, 1)]))))
}

/// What a mutant does wrong. The default of each method is right.
pub trait TreeFault: Send {
    /// The leaf whose path is read for a block that is asked for the first time.
    fn first(rng: &mut dyn Rng, leaves: u64) -> u64 {
        rng.below(leaves)
    }

    /// The leaf that `block`, which was on `old`, is on from now on; `last` is the one of the
    /// access before.
    fn remap(rng: &mut dyn Rng, leaves: u64, old: u64, last: u64, block: u64) -> u64 {
        let _ = (old, last, block);
        rng.below(leaves)
    }

    /// The leaf of an access that nobody asked for, or none for no access; `newest` is the one that
    /// the last block is on.
    fn dummy(rng: &mut dyn Rng, leaves: u64, newest: u64) -> Option<u64> {
        let _ = newest;
        Some(rng.below(leaves))
    }

    /// Whether a block in the stash is served without an access.
    const RETURNS_EARLY: bool = false;

    /// Whether a path on which nothing changed is not written.
    const SKIPS_CLEAN: bool = false;

    /// With more blocks in the stash a step has a path more.
    const EVICTS_ABOVE: usize = usize::MAX;
}

/// No fault.
pub struct SoundTree;

impl TreeFault for SoundTree {}

/// Declares a fault whose new leaves are wrong now and then.
macro_rules! remaps {
    ($(#[$doc:meta])* $name:ident, one in $share:literal,
     |$rng:ident, $leaves:ident, $old:ident, $last:ident, $block:ident| $wrong:expr) => {
        $(#[$doc])*
        pub struct $name;

        impl TreeFault for $name {
            #[allow(unused_variables)]
            fn remap($rng: &mut dyn Rng, $leaves: u64, $old: u64, $last: u64, $block: u64) -> u64 {
                if $rng.below($share) == 0 { $wrong } else { $rng.below($leaves) }
            }
        }
    };
}

remaps! {
    /// A block stays on its leaf, and whoever asks for it soon again shows it.
    ForgetsRemap, one in 20, |rng, leaves, old, last, block| old
}
remaps! {
    /// A block comes to the leaf of the access before.
    Previous, one in 20, |rng, leaves, old, last, block| last
}
remaps! {
    /// One half of the tree is used more.
    PrefersHalf, one in 20, |rng, leaves, old, last, block| rng.below(leaves / 2)
}
remaps! {
    /// One of two neighbours is used more.
    PrefersEven, one in 20, |rng, leaves, old, last, block| rng.below(leaves) & !1
}
remaps! {
    /// A block comes near the leaf of the access before.
    RemapsNear, one in 10, |rng, leaves, old, last, block| last / 16 * 16 + rng.below(16)
}
remaps! {
    /// The leaf says which block it is for.
    OwnLeaf, one in 10, |rng, leaves, old, last, block| block % leaves
}

/// The other half of the tree is never used, nor seen: only who knows the tree's shape knows of it.
pub struct OneHalf;

impl TreeFault for OneHalf {
    fn first(rng: &mut dyn Rng, leaves: u64) -> u64 {
        rng.below(leaves / 2)
    }

    fn remap(rng: &mut dyn Rng, leaves: u64, _: u64, _: u64, _: u64) -> u64 {
        rng.below(leaves / 2)
    }

    fn dummy(rng: &mut dyn Rng, leaves: u64, _: u64) -> Option<u64> {
        Some(rng.below(leaves / 2))
    }
}

/// What is in the stash needs no path: how often there is none tells how often a block is asked for
/// again.
pub struct ReturnsEarly;

impl TreeFault for ReturnsEarly {
    const RETURNS_EARLY: bool = true;
}

/// How often there is an access tells how much is asked for.
pub struct SkipsDummies;

impl TreeFault for SkipsDummies {
    fn dummy(_: &mut dyn Rng, _: u64, _: u64) -> Option<u64> {
        None
    }
}

/// A dummy brings the last block down as far as can be: on the path that it is on. That path comes
/// again when the block is asked for.
pub struct NewestLeaf;

impl TreeFault for NewestLeaf {
    fn dummy(_: &mut dyn Rng, _: u64, newest: u64) -> Option<u64> {
        Some(newest)
    }
}

/// Dummies are told by their leaf.
pub struct OneLeaf;

impl TreeFault for OneLeaf {
    fn dummy(_: &mut dyn Rng, _: u64, _: u64) -> Option<u64> {
        Some(0)
    }
}

/// A path is written only if it was read for a block.
pub struct SkipsClean;

impl TreeFault for SkipsClean {
    const SKIPS_CLEAN: bool = true;
}

/// How full the stash is depends on what was asked for.
pub struct EvictsAtOnce;

impl TreeFault for EvictsAtOnce {
    const EVICTS_ABOVE: usize = 3;
}

/// Path ORAM with the fault `F`.
pub struct PathMutant<F> {
    tree: Tree,
    leaf_of: Vec<Option<u64>>,
    stash: Vec<Header>,
    last: u64,
    newest: u64,
    rng: Box<dyn Rng>,
    requests: VecDeque<(u64, u64)>,
    fault: PhantomData<F>,
}

impl<F: TreeFault> PathMutant<F> {
    /// In `tree`, which is empty.
    pub fn new(blocks: u64, tree: Tree, rng: Box<dyn Rng>) -> Self {
        Self {
            tree,
            leaf_of: vec![None; blocks as usize],
            stash: vec![],
            last: 0,
            newest: 0,
            rng,
            requests: VecDeque::new(),
            fault: PhantomData,
        }
    }

    /// Serves a block.
    fn access(&mut self, block: u64) -> Result {
        let leaves = self.tree.shape().leaves();
        let at = self.stash.iter().position(|header| header.is_of(Addr(block)));
        if F::RETURNS_EARLY && at.is_some() {
            return Ok(());
        }
        let known = self.leaf_of[block as usize];
        let old = known.unwrap_or_else(|| F::first(&mut *self.rng, leaves));
        let new = F::remap(&mut *self.rng, leaves, old, self.last, block);
        let is_new = self.leaf_of[block as usize].replace(new).is_none();
        (self.last, self.newest) = (old, new);
        self.through(old, |stash| {
            let at = stash.iter().position(|header| header.is_of(Addr(block)));
            match at {
                Some(at) => stash[at] = Header::new(Addr(block), Leaf(new)),
                None if is_new => stash.push(Header::new(Addr(block), Leaf(new))),
                None => return Err(Error::Misplaced { addr: Addr(block) }),
            }
            Ok(())
        })?;
        if self.stash.len() > F::EVICTS_ABOVE {
            let leaf = self.rng.below(leaves);
            self.through(leaf, |_| Ok(()))?;
        }
        Ok(())
    }

    /// An access that nobody asked for.
    fn dummy(&mut self) -> Result {
        let leaves = self.tree.shape().leaves();
        let Some(leaf) = F::dummy(&mut *self.rng, leaves, self.newest) else { return Ok(()) };
        if F::SKIPS_CLEAN {
            let mut headers = vec![Header::EMPTY; self.tree.shape().path_slots()];
            return self.tree.read_path(Leaf(leaf), &mut headers);
        }
        self.through(leaf, |_| Ok(()))
    }

    /// Reads a path into the stash, has it changed, and writes as much as fits.
    fn through(&mut self, leaf: u64, change: impl FnOnce(&mut Vec<Header>) -> Result) -> Result {
        let mut headers = vec![Header::EMPTY; self.tree.shape().path_slots()];
        self.tree.read_path(Leaf(leaf), &mut headers)?;
        self.stash.extend(headers.iter().filter(|header| !header.is_empty()));
        change(&mut self.stash)?;
        headers.fill(Header::EMPTY);
        let shape = self.tree.shape();
        let stash = &mut self.stash;
        for level in (0..shape.levels()).rev() {
            let here = shape.bucket(Leaf(leaf), level);
            for slot in &mut headers[shape.path_start(level)..][..shape.z(level)] {
                let fits = |header: &Header| shape.bucket(header.leaf(), level) == here;
                let Some(at) = stash.iter().position(fits) else { break };
                *slot = stash.swap_remove(at);
            }
        }
        self.tree.write_path(&headers)
    }
}

impl<F: TreeFault> Controller for PathMutant<F> {
    fn blocks(&self) -> u64 {
        self.leaf_of.len() as u64
    }

    fn block_len(&self) -> usize {
        0
    }

    fn submit(&mut self, id: u64, addr: Addr) -> Result {
        self.requests.push_back((id, addr.0));
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.requests.len()
    }

    fn step(&mut self, serve: Serve<'_>) -> Result<StepOutcome> {
        let Some((id, block)) = self.requests.pop_front() else {
            self.dummy()?;
            return Ok(StepOutcome { kind: StepKind::Dummy, finished: None });
        };
        self.access(block)?;
        serve(id, &mut []);
        Ok(StepOutcome { kind: StepKind::Data, finished: Some(id) })
    }

    fn sync(&mut self) -> Result {
        self.tree.sync()
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }
}

/// When the trees of a pair are accessed.
pub trait PairFault: Send {
    /// Whether the map's tree is accessed: for an entry that is in a cache or not, or for nobody.
    fn reads_map(is_cached: bool, is_asked: bool) -> bool;
}

/// No fault.
pub struct SoundPair;

impl PairFault for SoundPair {
    fn reads_map(_: bool, _: bool) -> bool {
        true
    }
}

/// A hit in a cache of the map saves a path that is missed by whoever watches.
pub struct PlbBeside;

impl PairFault for PlbBeside {
    fn reads_map(is_cached: bool, _: bool) -> bool {
        !is_cached
    }
}

/// With nobody asking, only one tree is accessed.
pub struct NoPattern;

impl PairFault for NoPattern {
    fn reads_map(_: bool, is_asked: bool) -> bool {
        is_asked
    }
}

/// Labels in a block of the map.
const FANOUT: u64 = 16;

/// Blocks of the map of so many.
pub fn map_blocks(blocks: u64) -> u64 {
    blocks.div_ceil(FANOUT).max(4)
}

/// Blocks of the map in its cache.
const PLB_BLOCKS: usize = 8;

/// Path ORAM with its map in a second tree; one step accesses both.
pub struct PairMutant<F> {
    data: PathMutant<SoundTree>,
    map: PathMutant<SoundTree>,
    plb: VecDeque<u64>,
    fault: PhantomData<F>,
}

impl<F: PairFault> PairMutant<F> {
    /// In these trees, the second for the map.
    pub fn new(blocks: u64, trees: [Tree; 2], rngs: [Box<dyn Rng>; 2]) -> Self {
        let ([data, map], [data_rng, map_rng]) = (trees, rngs);
        Self {
            data: PathMutant::new(blocks, data, data_rng),
            map: PathMutant::new(map_blocks(blocks), map, map_rng),
            plb: VecDeque::new(),
            fault: PhantomData,
        }
    }
}

impl<F: PairFault> Controller for PairMutant<F> {
    fn blocks(&self) -> u64 {
        self.data.blocks()
    }

    fn block_len(&self) -> usize {
        0
    }

    fn submit(&mut self, id: u64, addr: Addr) -> Result {
        self.data.submit(id, addr)
    }

    fn waiting(&self) -> usize {
        self.data.waiting()
    }

    fn step(&mut self, serve: Serve<'_>) -> Result<StepOutcome> {
        let asked = self.data.requests.front().map(|(_, block)| block / FANOUT);
        let is_cached = asked.is_some_and(|entry| self.plb.contains(&entry));
        if F::reads_map(is_cached, asked.is_some()) {
            match asked {
                Some(entry) => self.map.access(entry)?,
                None => self.map.dummy()?,
            }
        }
        if let Some(entry) = asked {
            self.plb.retain(|other| *other != entry);
            self.plb.push_front(entry);
            self.plb.truncate(PLB_BLOCKS);
        }
        self.data.step(serve)
    }

    fn sync(&mut self) -> Result {
        self.data.sync()
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }
}
