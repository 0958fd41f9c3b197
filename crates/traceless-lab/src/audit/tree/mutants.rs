//! Tree schemes with one fault each. An audit that misses one proves nothing.
//!
//! All but one are Path ORAM as printed, with a map in memory or in a tree of its own. Without a
//! fault it passes ([`SoundTree`], [`SoundPair`]), so what an audit finds in a mutant is the fault.

use super::super::suite::{CaseKind, SelfTestCase};
use super::schemes::{NamedScheme, OneByOne, StepDriver, Tree, levels, rng, searches_first, tree};
use super::watch::TreeObserver;
use super::{TreeSize, Trees};
use std::collections::VecDeque;
use std::marker::PhantomData;
use traceless::controller::{Controller, Serve, StepKind, StepOutcome};
use traceless::rng::Rng;
use traceless::tree::{BucketTree, Header, Shape};
use traceless::types::Leaf;
use traceless::{Addr, Error, Hides, Result};

/// A mutant that the audit must find, or a sound twin that must pass.
pub type TreeCase = SelfTestCase<Trees>;

/// All planted faults, and the sound twins.
pub const PLANTED: [TreeCase; 18] = [
    sound_twin("mutant:sound-path", 1, path::<SoundTree>),
    planted("mutant:forgets-remap", "one remap of twenty is forgotten", path::<ForgetsRemap>),
    planted("mutant:remaps-to-previous", "one new leaf of twenty is the last", path::<Previous>),
    slow_to_find(
        "mutant:prefers-half",
        "one new leaf of twenty is in one half",
        path::<PrefersHalf>,
    ),
    planted("mutant:one-half", "only one half of the tree is used", path::<OneHalf>),
    slow_to_find("mutant:prefers-even", "one new leaf of twenty is even", path::<PrefersEven>),
    planted("mutant:remaps-near", "one new leaf of ten is near the last", path::<RemapsNear>),
    planted("mutant:leaf-of-block", "one new leaf of ten follows from the block", path::<OwnLeaf>),
    slow_to_find(
        "mutant:returns-early",
        "what is in the stash takes no path",
        path::<ReturnsEarly>,
    ),
    planted("mutant:skips-dummies", "nothing is done without a request", path::<SkipsDummies>),
    planted("mutant:dummy-for-block", "a dummy takes the last block's path", path::<NewestLeaf>),
    planted("mutant:one-dummy-path", "all dummies take one path", path::<OneLeaf>),
    planted("mutant:reads-only", "a path that did not change is not written", path::<SkipsClean>),
    planted("mutant:evicts-at-once", "a full stash takes a path more", path::<EvictsAtOnce>),
    sound_twin("mutant:sound-pair", 2, pair::<SoundPair>),
    TreeCase {
        scheme: pair_scheme("mutant:plb-beside-trees", pair::<PlbBeside>),
        kind: CaseKind::Fault("a cache of the map saves paths of the map's own tree"),
        size: SHORT,
    },
    TreeCase {
        scheme: pair_scheme("mutant:no-pattern", pair::<NoPattern>),
        kind: CaseKind::Fault("a tree is accessed when it is needed, not in its turn"),
        size: SHORT,
    },
    planted("mutant:searches-first", "what is at hand costs no path", searches_first),
];

const SHORT: TreeSize = TreeSize { blocks: 512, steps: 12_000, draws: 0 };
const LONG: TreeSize = TreeSize { steps: 40_000, ..SHORT };

type Build = fn(u64, &TreeObserver, u64) -> Result<Box<dyn StepDriver>>;

const fn planted(name: &'static str, fault: &'static str, build: Build) -> TreeCase {
    let scheme =
        NamedScheme { name, trees: 1, turns: 1, is_public: |_| false, has_templates: true, build };
    TreeCase { scheme, kind: CaseKind::Fault(fault), size: SHORT }
}

/// A fault that takes many steps to find.
const fn slow_to_find(name: &'static str, fault: &'static str, build: Build) -> TreeCase {
    TreeCase { size: LONG, ..planted(name, fault, build) }
}

const fn pair_scheme(name: &'static str, build: Build) -> NamedScheme {
    NamedScheme { name, trees: 2, turns: 1, is_public: |_| false, has_templates: true, build }
}

const fn sound_twin(name: &'static str, trees: u8, build: Build) -> TreeCase {
    let scheme =
        NamedScheme { name, trees, turns: 1, is_public: |_| false, has_templates: true, build };
    TreeCase { scheme, kind: CaseKind::SoundTwin, size: LONG }
}

fn path<F: TreeFault + 'static>(
    n: u64,
    observer: &TreeObserver,
    seed: u64,
) -> Result<Box<dyn StepDriver>> {
    let tree = tree(observer, 0, Shape::uniform(levels(n), 4)?);
    Ok(Box::new(OneByOne::new(PathMutant::<F>::new(n, tree, rng(seed, 0)))))
}

fn pair<F: PairFault + 'static>(
    n: u64,
    observer: &TreeObserver,
    seed: u64,
) -> Result<Box<dyn StepDriver>> {
    let shape = |blocks| Shape::uniform(levels(blocks), 4);
    let trees = [tree(observer, 0, shape(n)?), tree(observer, 1, shape(map_blocks(n))?)];
    Ok(Box::new(OneByOne::new(PairMutant::<F>::new(n, trees, [rng(seed, 0), rng(seed, 1)]))))
}

/// A fault. The default of each method is correct.
pub trait TreeFault: Send {
    /// The leaf of the path that the first request for a block reads.
    fn first(rng: &mut dyn Rng, leaves: u64) -> u64 {
        rng.below(leaves)
    }

    /// The new leaf of `block`, which was on `old`; `last` is the leaf of the access before.
    fn remap(rng: &mut dyn Rng, leaves: u64, old: u64, last: u64, block: u64) -> u64 {
        let _ = (old, last, block);
        rng.below(leaves)
    }

    /// The leaf of a dummy access, or none for no access; `newest` is the new leaf of the block
    /// that was requested last.
    fn dummy(rng: &mut dyn Rng, leaves: u64, newest: u64) -> Option<u64> {
        let _ = newest;
        Some(rng.below(leaves))
    }

    /// Whether a block in the stash is served without an access.
    const RETURNS_EARLY: bool = false;

    /// Whether a path on which nothing changed is not written.
    const SKIPS_CLEAN: bool = false;

    /// If more blocks than this are in the stash, a step accesses a second path.
    const EVICTS_ABOVE: usize = usize::MAX;
}

/// No fault.
pub struct SoundTree;

impl TreeFault for SoundTree {}

/// Declares a fault that chooses one new leaf of `share` wrongly.
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
    /// A block stays on its leaf, so the next request for it reads the same path.
    ForgetsRemap, one in 20, |rng, leaves, old, last, block| old
}
remaps! {
    /// A block moves to the leaf of the access before.
    Previous, one in 20, |rng, leaves, old, last, block| last
}
remaps! {
    /// One half of the tree is accessed more often.
    PrefersHalf, one in 20, |rng, leaves, old, last, block| rng.below(leaves / 2)
}
remaps! {
    /// Of two neighbouring leaves, the even one is accessed more often.
    PrefersEven, one in 20, |rng, leaves, old, last, block| rng.below(leaves) & !1
}
remaps! {
    /// A block moves near the leaf of the access before.
    RemapsNear, one in 10, |rng, leaves, old, last, block| last / 16 * 16 + rng.below(16)
}
remaps! {
    /// The leaf follows from the block's number.
    OwnLeaf, one in 10, |rng, leaves, old, last, block| block % leaves
}

/// Only one half of the tree is accessed. A test that does not know the tree's shape misses this.
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

/// A block in the stash needs no path, so steps without a path show how often a block is requested
/// again.
pub struct ReturnsEarly;

impl TreeFault for ReturnsEarly {
    const RETURNS_EARLY: bool = true;
}

/// Without a request there is no access, so the rate of accesses shows the rate of requests.
pub struct SkipsDummies;

impl TreeFault for SkipsDummies {
    fn dummy(_: &mut dyn Rng, _: u64, _: u64) -> Option<u64> {
        None
    }
}

/// A dummy brings the last block down as far as possible, on the path to its leaf. The same path is
/// accessed again at the next request for the block.
pub struct NewestLeaf;

impl TreeFault for NewestLeaf {
    fn dummy(_: &mut dyn Rng, _: u64, newest: u64) -> Option<u64> {
        Some(newest)
    }
}

/// All dummies access the same leaf, so the adversary recognizes them.
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

/// A stash above its limit causes a second path, and its fill depends on the requests.
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
    /// A mutant in `tree`, which is empty.
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

    /// Serves a request for a block.
    fn access(&mut self, block: u64) -> Result {
        let leaves = self.tree.shape().leaves();
        let at = self.stash.iter().position(|header| header.is_of(Addr(block)));
        if F::RETURNS_EARLY && at.is_some() {
            return Ok(());
        }
        let label = self.leaf_of[block as usize];
        let old = label.unwrap_or_else(|| F::first(&mut *self.rng, leaves));
        let new = F::remap(&mut *self.rng, leaves, old, self.last, block);
        let is_new = self.leaf_of[block as usize].replace(new).is_none();
        (self.last, self.newest) = (old, new);
        self.access_path(old, |stash| {
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
            self.access_path(leaf, |_| Ok(()))?;
        }
        Ok(())
    }

    /// A dummy access.
    fn dummy(&mut self) -> Result {
        let leaves = self.tree.shape().leaves();
        let Some(leaf) = F::dummy(&mut *self.rng, leaves, self.newest) else { return Ok(()) };
        if F::SKIPS_CLEAN {
            let mut headers = vec![Header::EMPTY; self.tree.shape().path_slots()];
            return self.tree.read_path(Leaf(leaf), &mut headers);
        }
        self.access_path(leaf, |_| Ok(()))
    }

    /// Reads a path into the stash, calls `change`, and writes back as many blocks as fit.
    fn access_path(
        &mut self,
        leaf: u64,
        change: impl FnOnce(&mut Vec<Header>) -> Result,
    ) -> Result {
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
    /// Whether a step accesses the map's tree, given whether the entry is in the map's cache, and
    /// whether the step serves a request.
    fn reads_map(is_cached: bool, has_request: bool) -> bool;
}

/// No fault.
pub struct SoundPair;

impl PairFault for SoundPair {
    fn reads_map(_: bool, _: bool) -> bool {
        true
    }
}

/// A hit in a cache of the map saves a path of the map's tree, and the adversary observes that.
pub struct PlbBeside;

impl PairFault for PlbBeside {
    fn reads_map(is_cached: bool, _: bool) -> bool {
        !is_cached
    }
}

/// A step without a request accesses only the data tree.
pub struct NoPattern;

impl PairFault for NoPattern {
    fn reads_map(_: bool, has_request: bool) -> bool {
        has_request
    }
}

/// Labels per block of the map.
const FANOUT: u64 = 16;

/// Blocks of the map for this many data blocks.
pub fn map_blocks(blocks: u64) -> u64 {
    blocks.div_ceil(FANOUT).max(4)
}

/// Blocks of the map that the cache holds.
const PLB_BLOCKS: usize = 8;

/// Path ORAM with its map in a second tree; one step accesses both.
pub struct PairMutant<F> {
    data: PathMutant<SoundTree>,
    map: PathMutant<SoundTree>,
    plb: VecDeque<u64>,
    fault: PhantomData<F>,
}

impl<F: PairFault> PairMutant<F> {
    /// A pair in these trees, the second for the map.
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
        let request = self.data.requests.front().map(|(_, block)| block / FANOUT);
        let is_cached = request.is_some_and(|entry| self.plb.contains(&entry));
        if F::reads_map(is_cached, request.is_some()) {
            match request {
                Some(entry) => self.map.access(entry)?,
                None => self.map.dummy()?,
            }
        }
        if let Some(entry) = request {
            self.plb.retain(|cached| *cached != entry);
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
