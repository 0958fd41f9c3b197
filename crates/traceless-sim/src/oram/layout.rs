//! Which lines of memory a path touches.

use crate::workload::LINE_LEN;
use serde::{Deserialize, Serialize};
use traceless::store::DrawnPlaces;
use traceless::trace::{Event, Op};
use traceless::tree::{DrawnLeaves, HEADER_LEN, Shape, TreeLayout};
use traceless::types::Leaf;

/// How the slots of a tree lie in memory. With either kind, small subtrees lie together, so that a
/// path touches few rows (Ren et al., section 3.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayoutKind {
    /// Bucket after bucket. If the slots of a bucket are not a multiple of the number of channels,
    /// some channels have more lines of a path, and the other channels wait for them.
    Buckets,
    /// Each slot of a path is in the next channel, so that all channels have equally many lines of
    /// it, to within one. In each channel the lines of a subtree lie together: as many levels as
    /// fit a row.
    Spread,
}

/// The places of one tree's slots, each a line.
pub enum Layout {
    /// Bucket after bucket.
    Buckets {
        /// The tree's shape.
        shape: Shape,
        /// The offsets of its buckets, from `first` on.
        at: TreeLayout,
        /// The first byte of the tree.
        first: u64,
    },
    /// Slot after slot.
    Spread(Spread),
}

impl Layout {
    /// A layout from byte `first` on, in a memory of `channels` channels with neighbouring lines in
    /// different channels, and with rows of `row_len` bytes, counted over all channels together.
    pub fn new(kind: LayoutKind, shape: &Shape, row_len: usize, channels: u64, first: u64) -> Self {
        match kind {
            LayoutKind::Buckets => {
                let body_len = LINE_LEN as usize - HEADER_LEN;
                let at = TreeLayout::new(shape, body_len, |_| 0, row_len);
                Self::Buckets { shape: shape.clone(), at, first }
            }
            LayoutKind::Spread => {
                let row = (row_len as u64 / LINE_LEN / channels).max(1);
                Self::Spread(Spread::new(shape, channels, row, first))
            }
        }
    }

    /// The first byte after the tree.
    pub fn end(&self) -> u64 {
        match self {
            Self::Buckets { at, first, .. } => first + at.len(),
            Self::Spread(spread) => spread.end * spread.channels * LINE_LEN,
        }
    }

    /// Paths of the tree.
    pub fn leaves(&self) -> u64 {
        match self {
            Self::Buckets { shape, .. } => shape.leaves(),
            Self::Spread(spread) => spread.leaves,
        }
    }

    /// The buckets of the deepest level with slots; `None` if there are no slots.
    pub fn drawn_leaves(&self) -> Option<DrawnLines> {
        match self {
            Self::Buckets { shape, at, first } => {
                let leaves = DrawnLeaves::new(*first, shape, at.clone());
                (leaves.leaves > 0).then_some(DrawnLines::Buckets(leaves))
            }
            Self::Spread(spread) => spread.deepest().map(DrawnLines::Spread),
        }
    }

    /// Lines of a path.
    pub fn path_lines(&self) -> usize {
        match self {
            Self::Buckets { shape, .. } => shape.path_slots(),
            Self::Spread(spread) => spread.slots.len(),
        }
    }

    /// Adds the first bytes of the lines of a path, from the root down.
    #[inline]
    pub fn path(&self, leaf: Leaf, lines: &mut Vec<u64>) {
        match self {
            Self::Buckets { shape, at, first } => {
                for level in 0..shape.levels() {
                    let bucket = first + at.bucket_at(level, shape.bucket(leaf, level));
                    lines.extend((0..shape.z(level) as u64).map(|nth| bucket + nth * LINE_LEN));
                }
            }
            Self::Spread(spread) => spread.path(leaf, lines),
        }
    }
}

/// The leaves of a tree, of which a path shows one: by the first line of its deepest bucket.
pub enum DrawnLines {
    Buckets(DrawnLeaves),
    Spread(DeepestLevel),
}

impl DrawnPlaces for DrawnLines {
    fn places(&self) -> u64 {
        match self {
            Self::Buckets(leaves) => leaves.places(),
            Self::Spread(level) => level.leaves,
        }
    }

    fn shown_by(&self) -> Op {
        Op::Read
    }

    fn drawn(&self, event: &Event) -> Option<u64> {
        let leaf = match self {
            Self::Buckets(leaves) => {
                leaves.layout.deepest_bucket_at(event.at.checked_sub(leaves.first)?)
            }
            Self::Spread(level) => level.leaf_at(event.at),
        };
        leaf.filter(|leaf| *leaf < self.places())
    }
}

/// The deepest level with slots of a [`Spread`].
pub struct DeepestLevel {
    level: LayoutLevel,
    /// The first slot of each bucket.
    slot: Slot,
    channels: u64,
    /// Buckets of the level.
    leaves: u64,
}

impl DeepestLevel {
    /// The bucket with its first line at byte `at`. The result may be too large for the level.
    fn leaf_at(&self, at: u64) -> Option<u64> {
        let level = &self.level;
        let (line, channel) = (at / LINE_LEN / self.channels, at / LINE_LEN % self.channels);
        let within = line.checked_sub(level.first)?;
        let (rows, in_row) = (within / level.row, within % level.row / level.subtree_len);
        let subtree = rows * level.in_row + in_row.min(level.in_row - 1);
        let from_subtree =
            within - rows * level.row - in_row.min(level.in_row - 1) * level.subtree_len;
        let from_first = from_subtree.checked_sub(self.slot.within)?;
        let nth = from_first / self.slot.stride;
        let turn = if level.turns { subtree } else { 0 };
        let is_first_line = from_first.is_multiple_of(self.slot.stride)
            && nth >> level.above == 0
            && channel == (self.slot.channel + turn) % self.channels;
        is_first_line.then_some((subtree << level.above) + nth)
    }
}

/// The layout of [`LayoutKind::Spread`]. Lines are counted in each channel separately.
pub struct Spread {
    channels: u64,
    levels: Vec<LayoutLevel>,
    slots: Vec<Slot>,
    leaves: u64,
    end: u64,
}

/// A level, and the subtrees that it is a part of.
#[derive(Clone, Copy)]
struct LayoutLevel {
    /// Bits of a leaf below the level, and levels of the subtree above it.
    below: u32,
    above: u32,
    /// The first line of the subtrees, lines of one subtree, how many share a row, and lines of a
    /// row.
    first: u64,
    subtree_len: u64,
    in_row: u64,
    row: u64,
    /// Whether each subtree begins one channel further on: else some channels would hold far more.
    turns: bool,
    /// The index of the level's first slot, and the index after its last.
    slots: (usize, usize),
}

/// A slot of a path.
#[derive(Clone, Copy)]
struct Slot {
    channel: u64,
    /// The slot's line in the level's first bucket in a subtree, and lines to that in the next
    /// bucket.
    within: u64,
    stride: u64,
}

/// Rows left free between the stretches of subtrees. It is odd, so that the next stretch moves to
/// another bank, and more than one, since the stretch before ends anywhere in a row.
const BANKS_APART: u64 = 3;

/// If more of the memory than this share is used, subtrees are as high as a row allows.
const USED_ENOUGH: f64 = 0.95;

impl Spread {
    fn new(shape: &Shape, channels: u64, row: u64, first: u64) -> Self {
        let spread = Self::beginning_with(shape.levels(), shape, channels, row, first);
        if spread.share_used(shape, first) > USED_ENOUGH {
            return spread;
        }
        // Subtrees that leave much of their rows free may fill them if the subtrees above are less
        // high.
        let others = (1..shape.levels())
            .map(|levels| Self::beginning_with(levels, shape, channels, row, first))
            .filter(|other| other.stretches() <= spread.stretches());
        others
            .min_by_key(|other| other.end)
            .filter(|other| other.end < spread.end)
            .unwrap_or(spread)
    }

    /// A layout in which the first subtrees have at most `levels_max` levels.
    fn beginning_with(
        levels_max: usize,
        shape: &Shape,
        channels: u64,
        row: u64,
        first: u64,
    ) -> Self {
        let (levels, slots, leaves) = (vec![], vec![], shape.leaves());
        let mut spread = Self { channels, levels, slots, leaves, end: 0 };
        spread.end = first.div_ceil(LINE_LEN * channels).next_multiple_of(row);
        let first = (0..shape.levels()).find(|&level| shape.z(level) > 0);
        let mut level = first.unwrap_or(shape.levels());
        while level < shape.levels() {
            let levels = spread.levels_in_row(shape, level, row);
            let is_first = spread.levels.is_empty();
            let levels = if is_first { levels.min(levels_max) } else { levels };
            spread.add_subtrees(shape, level, levels, row);
            level += levels;
        }
        spread
    }

    /// Rows that a path touches, if no subtree is longer than a row.
    fn stretches(&self) -> usize {
        self.levels.iter().filter(|level| level.above == 0).count()
    }

    /// The share of the memory that holds slots.
    fn share_used(&self, shape: &Shape, first: u64) -> f64 {
        let all = self.end * self.channels - first / LINE_LEN;
        shape.slots() as f64 / all.max(1) as f64
    }

    /// Levels of the subtrees that begin on `first`, with no channel's part of one longer than a
    /// row; at least one level.
    fn levels_in_row(&self, shape: &Shape, first: usize, row: u64) -> usize {
        let mut lens = vec![0; self.channels as usize];
        let mut levels = 0;
        for level in first..shape.levels() {
            self.add_level(shape, first, level, &mut lens);
            if levels > 0 && lens.iter().any(|&len| len > row) {
                break;
            }
            levels += 1;
        }
        levels
    }

    /// Adds the lines of a level to the lines of a subtree in each channel.
    fn add_level(&self, shape: &Shape, first: usize, level: usize, lens: &mut [u64]) {
        for slot in shape.path_start(level)..shape.path_start(level + 1) {
            lens[slot % self.channels as usize] += 1 << (level - first);
        }
    }

    fn add_subtrees(&mut self, shape: &Shape, first: usize, levels: usize, row: u64) {
        // The numbers of a path's subtrees in two stretches may agree in their last bits, which
        // choose the bank: then both rows would always be in the same bank.
        self.end += BANKS_APART * row;
        let mut lens = vec![0; self.channels as usize];
        let (channels, leaves) = (self.channels as usize, shape.levels() - 1);
        for level in first..first + levels {
            let slots = shape.path_start(level)..shape.path_start(level + 1);
            let begin = self.slots.len();
            for slot in slots.clone() {
                let channel = slot % channels;
                let stride = slots.clone().filter(|other| other % channels == channel).count();
                let before = (slots.start..slot).filter(|other| other % channels == channel);
                let within = lens[channel] + before.count() as u64;
                let (channel, stride) = (channel as u64, stride as u64);
                self.slots.push(Slot { channel, within, stride });
            }
            self.add_level(shape, first, level, &mut lens);
            self.levels.push(LayoutLevel {
                below: (leaves - level) as u32,
                above: (level - first) as u32,
                first: self.end,
                subtree_len: 0,
                in_row: 1,
                row,
                turns: false,
                slots: (begin, self.slots.len()),
            });
        }
        let longest = lens.iter().copied().max().unwrap_or(0).max(1);
        let turns = longest * lens.len() as u64 * 9 > lens.iter().sum::<u64>() * 10;
        // A subtree longer than a row takes whole rows.
        let in_row = (row / longest).max(1);
        let row = row.max(longest.next_multiple_of(row));
        for level in self.levels.iter_mut().rev().take(levels) {
            *level = LayoutLevel { subtree_len: longest, in_row, row, turns, ..*level };
        }
        self.end += shape.buckets(first).div_ceil(in_row) * row;
    }

    fn deepest(&self) -> Option<DeepestLevel> {
        let level = *self.levels.iter().rev().find(|level| level.slots.0 < level.slots.1)?;
        let (slot, channels) = (self.slots[level.slots.0], self.channels);
        Some(DeepestLevel { level, slot, channels, leaves: self.leaves >> level.below })
    }

    #[inline]
    fn path(&self, leaf: Leaf, lines: &mut Vec<u64>) {
        for level in &self.levels {
            let bucket = leaf.0 >> level.below;
            let (subtree, nth) = (bucket >> level.above, bucket & ((1 << level.above) - 1));
            let (rows, in_row) = match level.in_row {
                1 => (subtree, 0),
                in_row => (subtree / in_row, subtree % in_row),
            };
            let at = level.first + rows * level.row + in_row * level.subtree_len;
            let turn = if level.turns { subtree } else { 0 };
            lines.extend(self.slots[level.slots.0..level.slots.1].iter().map(|slot| {
                let line = at + slot.within + nth * slot.stride;
                (line * self.channels + (slot.channel + turn) % self.channels) * LINE_LEN
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};
    use traceless::trace::Surface;
    use traceless::tree::ir_alloc::PRESETS;

    const ROW: usize = 32 << 10;

    fn shapes() -> Vec<Shape> {
        let mut shapes: Vec<Shape> =
            PRESETS.iter().map(|preset| preset.shape(15).unwrap().only(|l| l >= 3)).collect();
        shapes.extend((1..6).map(|z| Shape::uniform(13, z).unwrap()));
        shapes.push(Shape::per_level(vec![0, 0, 3, 1, 0, 2, 5, 4]).unwrap());
        shapes.push(Shape::uniform(1, 3).unwrap());
        shapes
    }

    fn lines_of(layout: &Layout, leaf: u64) -> Vec<u64> {
        let mut lines = vec![];
        layout.path(Leaf(leaf), &mut lines);
        lines
    }

    /// Each slot of a tree has a line of its own.
    #[test]
    fn slots_do_not_overlap() {
        for shape in shapes() {
            for (kind, channels) in
                [(LayoutKind::Buckets, 4), (LayoutKind::Spread, 4), (LayoutKind::Spread, 1)]
            {
                let layout = Layout::new(kind, &shape, ROW, channels, 1 << 20);
                assert_eq!(layout.leaves(), shape.leaves());
                let mut owners = HashMap::new();
                for leaf in 0..shape.leaves() {
                    let lines = lines_of(&layout, leaf);
                    assert_eq!(lines.len(), shape.path_slots());
                    assert_eq!(lines.len(), layout.path_lines());
                    let mut line = lines.iter();
                    for level in 0..shape.levels() {
                        for nth in 0..shape.z(level) {
                            let slot = (level, shape.bucket(Leaf(leaf), level), nth);
                            let line = *line.next().unwrap();
                            assert!(
                                line >= 1 << 20 && line < layout.end() && line.is_multiple_of(64)
                            );
                            assert_eq!(*owners.entry(line).or_insert(slot), slot);
                        }
                    }
                }
                assert_eq!(owners.len() as u64, shape.slots());
                let drawn = layout.drawn_leaves().unwrap();
                let deepest = (0..shape.levels()).rev().find(|&l| shape.z(l) > 0).unwrap();
                assert_eq!(drawn.places(), shape.buckets(deepest));
                for at in (0..layout.end() + 4096).step_by(64) {
                    let (surface, op) = (Surface::Dram, Op::Read);
                    let found = drawn.drawn(&Event { time: 0, surface, op, at, len: 64 });
                    let wanted = owners.get(&at).filter(|slot| (slot.0, slot.2) == (deepest, 0));
                    assert_eq!(found, wanted.map(|slot| slot.1), "{at}");
                }
            }
        }
    }

    /// No channel has more than its share of a path, to within a line where subtrees meet, and a
    /// path of 25 levels, ten of them cached, touches three rows.
    #[test]
    fn channels_share_a_path() {
        for preset in PRESETS {
            let shape = preset.shape(25).unwrap().only(|level| level >= 10);
            let layout = Layout::new(LayoutKind::Spread, &shape, ROW, 4, 0);
            for leaf in [0, 1, 0x0012_3456, shape.leaves() - 1] {
                let lines = lines_of(&layout, leaf);
                let of_channel = |channel| lines.iter().filter(|l| *l / 64 % 4 == channel).count();
                let most = (0..4).map(of_channel).max().unwrap();
                assert!(most <= shape.path_slots().div_ceil(4) + 1, "{}", preset.name);
                let rows: HashSet<u64> = lines.iter().map(|line| line / ROW as u64).collect();
                assert_eq!(rows.len(), 3);
            }
            let used = shape.slots() as f64 * 64.0 / layout.end() as f64;
            assert!(used > 0.95, "{}: {used} of the memory", preset.name);
        }
    }

    /// If buckets do not fill all channels, subtrees begin in different channels.
    #[test]
    fn channels_hold_as_much() {
        let shape = Shape::uniform(20, 3).unwrap();
        let layout = Layout::new(LayoutKind::Spread, &shape, ROW, 4, 0);
        let used = shape.slots() as f64 * 64.0 / layout.end() as f64;
        assert!(used > 0.7, "{used}");
        for leaf in [0, 77_777, shape.leaves() - 1] {
            let lines = lines_of(&layout, leaf);
            let of_channel = |channel| lines.iter().filter(|l| *l / 64 % 4 == channel).count();
            assert!((0..4).all(|channel| of_channel(channel) <= 15 + 3), "{lines:?}");
        }
    }
}
