//! Builds a scheme from its configuration.

use super::config::{Allocation, BLOCK_LEN, Config, LabelKind, MapTree, Scheme, Start, Top};
use super::controller::SimController;
use super::layout::Layout;
use super::recursive::{self, Recursive};
use super::step_trace::StepTrace;
use super::tree::{CachedTop, LevelCounts, Tree};
use crate::error::{Error, Result, within};
use crate::workload::LINE_LEN;
use core::ops::Range;
use traceless::posmap::{CompressedLabels, Labels, PlainLabels, Plb};
use traceless::rng::{Rng, SeededRng};
use traceless::scheme::path::PathOram;
use traceless::scheme::rho::Rho;
use traceless::scheme::ring::{GhostRing, Ring, RingTop};
use traceless::scheme::unified::{Sizes, Unified};
use traceless::seal::Secret;
use traceless::tree::{BareTree, Shape, Substash, Treetop};

/// A scheme, and the properties of its trees.
pub struct Built {
    pub controller: Box<dyn SimController>,
    pub step_trace: StepTrace,
    pub seen: LevelCounts,
    /// For each tree, the places of its slots.
    pub layouts: Vec<Layout>,
    /// For each tree, the bytes of a path, for a memory that only counts bytes.
    pub path_bytes: Vec<u64>,
    /// Slots of all trees.
    pub slots: u64,
    /// Bits of the table that says where in the sub-stash the blocks of a cached bucket are.
    pub pointer_bits: u64,
}

/// The scheme of `config`, in a memory of `capacity` bytes and of `channels` channels; each line is
/// in the next channel after the line before it.
pub fn build(config: &Config, channels: u64, capacity: u64) -> Result<Built> {
    config.check()?;
    if !(config.row_len as u64).is_multiple_of(channels * LINE_LEN) {
        return Err(Error::Oram("`oram.row_len` is as many lines of 64 bytes in each channel"));
    }
    let config = config.resolved();
    Builder {
        rngs: 0,
        step_trace: StepTrace::default(),
        seen: LevelCounts::default(),
        slots: 0,
        pointer_bits: 0,
        end: 0,
        layouts: vec![],
        path_bytes: vec![],
        channels,
        capacity,
        config: &config,
    }
    .build()
}

struct Builder<'a> {
    config: &'a Config,
    channels: u64,
    capacity: u64,
    step_trace: StepTrace,
    seen: LevelCounts,
    slots: u64,
    pointer_bits: u64,
    end: u64,
    layouts: Vec<Layout>,
    path_bytes: Vec<u64>,
    /// Random number generators handed out so far.
    rngs: u64,
}

impl Builder<'_> {
    fn build(mut self) -> Result<Built> {
        let controller: Box<dyn SimController> = match self.config.scheme {
            Scheme::Dram => return Err(Error::Oram("`dram` is none")),
            Scheme::Path => self.path()?,
            Scheme::Recursive => self.recursive()?,
            Scheme::Ring => self.ring()?,
            _ if self.config.labels == Some(LabelKind::Compressed) => self.compressed()?,
            _ => {
                let fanout = self.config.map_fanout.expect("it is resolved");
                self.unified(|| Ok(PlainLabels::new(fanout)?))?
            }
        };
        let Self { step_trace, seen, layouts, path_bytes, slots, pointer_bits, .. } = self;
        Ok(Built { controller, step_trace, seen, layouts, path_bytes, slots, pointer_bits })
    }

    /// A random number generator of its own for each part.
    fn rng(&mut self) -> Box<dyn Rng> {
        self.rngs += 1;
        Box::new(SeededRng::new(self.config.seed.wrapping_mul(1 << 8).wrapping_add(self.rngs)))
    }

    fn blocks(&self) -> u64 {
        self.config.blocks.expect("it is resolved")
    }

    fn is_full(&self) -> bool {
        self.config.start == Start::Full
    }

    /// Notes that the memory is laid out up to this byte.
    fn end_at(&mut self, end: u64) -> Result {
        self.end = end;
        if end > self.capacity {
            return Err(Error::Oram("the memory is smaller than the tree"));
        }
        Ok(())
    }

    fn drain_above(&self) -> usize {
        self.config.drain_above.expect("it is resolved")
    }

    /// The tree of the user's blocks.
    fn data_tree(&mut self) -> Result<Tree> {
        let shape = self.config.shape()?;
        self.tree(shape, self.config.cached_levels, self.config.top.expect("it is resolved"))
    }

    /// A tree of line-sized blocks, the next in memory.
    fn tree(&mut self, shape: Shape, cached: usize, top: Top) -> Result<Tree> {
        self.tree_of(shape, cached, top, BLOCK_LEN)
    }

    fn tree_of(&mut self, shape: Shape, cached: usize, top: Top, block: usize) -> Result<Tree> {
        let below = shape.only(|level| level >= cached);
        // Blocks shorter than a line share lines, within a bucket.
        let lines = |level| (below.z(level) * block).div_ceil(BLOCK_LEN).min(255) as u8;
        let in_lines = Shape::per_level((0..below.levels()).map(lines).collect())?;
        let Config { layout, row_len, bucket, .. } = *self.config;
        let layout = Layout::new(layout, &in_lines, row_len, self.channels, self.end);
        self.end_at(layout.end())?;
        let bytes = |level| bucket.len(below.z(level) as u64, block as u64);
        self.path_bytes.push((0..below.levels()).map(bytes).sum());
        let recorder = self.step_trace.recorder(self.layouts.len());
        self.layouts.push(layout);
        let of_levels = |levels: Range<usize>| -> u64 {
            levels.map(|level| shape.buckets(level) * shape.z(level) as u64).sum()
        };
        self.slots += of_levels(0..shape.levels());
        let slots = of_levels(0..cached);
        // This tree reports nothing itself: the recorder reports what it touches.
        let below = BareTree::try_new(below, 0)
            .ok_or(Error::Oram("there is less memory here than its tree takes: 8 bytes a slot"))?;
        let cached = match top {
            _ if cached == 0 => CachedTop::Apart(Treetop::new(shape, cached, below)?),
            Top::Apart => CachedTop::Apart(Treetop::new(shape, cached, below)?),
            Top::Merged => {
                CachedTop::Substash(Substash::new(shape, cached, (1, slots as usize), below)?)
            }
            Top::SubStash => {
                let ways = self.config.top_ways;
                let sets = self.config.top_sets.unwrap_or(slots as usize / ways.max(1)).max(1);
                let room = sets.saturating_mul(ways) as u64;
                self.pointer_bits += slots * u64::from(room.next_power_of_two().ilog2());
                CachedTop::Substash(Substash::new(shape, cached, (sets, ways), below)?)
            }
        };
        let is_first = self.path_bytes.len() == 1;
        let mut tree = Tree::new(cached, recorder, self.seen.clone(), is_first);
        if self.config.forgets {
            tree.forget();
        }
        Ok(tree)
    }

    fn path(&mut self) -> Result<Box<dyn SimController>> {
        let tree = self.data_tree()?;
        let (blocks, rng) = (self.blocks(), self.rng());
        let mut path = PathOram::new(blocks, vec![tree], self.config.stash_blocks, rng)?;
        path.drain_above(self.drain_above());
        if self.is_full() {
            path.fill(&mut |_, _| {})?;
        }
        Ok(Box::new(path))
    }

    fn recursive(&mut self) -> Result<Box<dyn SimController>> {
        let data = self.data_tree()?;
        let mut maps = vec![];
        for map in self.config.map_trees.iter().flatten() {
            let MapTree { levels, fanout, block_bytes, rate } = *map;
            let shape = Shape::uniform(levels, self.config.z)?;
            let tree = self.tree_of(shape, 0, Top::Apart, block_bytes)?;
            let plb = || {
                let room = self.config.plb_bytes / block_bytes.max(1);
                Plb::new(room, self.config.plb_ways, 0)
            };
            let plb = rate.map(|rate| Ok::<_, Error>((plb()?, rate))).transpose()?;
            maps.push(recursive::MapLevel { tree, fanout, plb });
        }
        let stash = (self.config.stash_blocks, self.drain_above());
        let (blocks, rng) = (self.blocks(), self.rng());
        let mut recursive = Recursive::new(blocks, data, maps, stash, rng)?;
        if self.is_full() {
            recursive.fill()?;
        }
        Ok(Box::new(recursive))
    }

    fn compressed(&mut self) -> Result<Box<dyn SimController>> {
        let mut key = [0; 32];
        self.rng().fill(&mut key);
        let key = Secret::from_bytes(key);
        let Config { map_fanout, counter_bits, .. } = *self.config;
        let (fanout, bits) = map_fanout.zip(counter_bits).expect("they are resolved");
        self.unified(|| Ok(CompressedLabels::new(&key, fanout, bits)?.starting_at_random()))
    }

    fn unified<L: Labels + 'static>(
        &mut self,
        labels: impl Fn() -> Result<L>,
    ) -> Result<Box<dyn SimController>> {
        let tree = self.data_tree()?;
        let Config { bundle, map_levels, stash_blocks, plb_bytes, plb_ways, small, .. } =
            *self.config;
        let (parts, map_levels) = bundle.zip(map_levels).expect("they are resolved");
        let blocks = self.blocks() / parts;
        let sizes = Sizes { blocks, map_levels, parts, bundled: parts > 1, stash_blocks };
        let plb = Plb::new(plb_bytes / BLOCK_LEN, plb_ways, 0)?;
        let rng = self.rng();
        let mut main = Unified::new(sizes, tree, labels()?, labels()?, plb, rng)?;
        main.drain_above(self.drain_above());
        if self.config.searches_first == Some(true) {
            main.search_first();
        }
        if self.is_full() {
            main.fill(&mut |_, _| {})?;
        }
        if self.config.scheme != Scheme::Rho {
            return Ok(Box::new(main));
        }
        let shape = Shape::uniform(small.levels, small.z)?;
        let tree = self.tree(shape, small.cached_levels, Top::Apart)?;
        let tags = (small.sets, small.ways);
        let mut rho = Rho::new(main, tree, tags, small.stash_blocks, self.rng())?;
        rho.drain_above(small.drain_above);
        rho.access_small(small.per_main);
        Ok(Box::new(rho))
    }

    fn ring(&mut self) -> Result<Box<dyn SimController>> {
        let params = self.config.ring_params()?;
        let shape = params.shape_for(self.blocks())?;
        let cached = self.config.cached_levels;
        within("oram.cached_levels", cached as u64, 0..=shape.levels() as u64 - 1)?;
        let below = shape.only(|level| level >= cached);
        let buckets: u64 = (cached..shape.levels()).map(|level| shape.buckets(level)).sum();
        let lines = GhostRing::<()>::metadata_lines(params) + params.slots();
        self.end_at(buckets * lines as u64 * LINE_LEN)?;
        self.slots = buckets * params.slots() as u64;
        let Config { bucket, .. } = self.config;
        let path = (shape.levels() - cached) as u64;
        self.path_bytes.push(path * bucket.len(params.slots() as u64, BLOCK_LEN as u64));
        let tree = GhostRing::new(params, below, self.step_trace.clone())?;
        let (blocks, rng) = (self.blocks(), self.rng());
        if cached == 0 {
            return Ok(Box::new(Ring::new(blocks, tree, rng)?));
        }
        Ok(Box::new(Ring::new(blocks, RingTop::new(shape, cached, tree)?, rng)?))
    }
}

impl Allocation {
    /// The preset with this name.
    pub fn named(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}
