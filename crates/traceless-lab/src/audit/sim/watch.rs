//! What whoever watches the memory bus of a simulated processor sees: lines that are asked for, and
//! when. He knows how trees lie in memory, so that lines tell him paths.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use traceless::scheme::ring::{GhostRing, Params};
use traceless::trace::{Event, Op, Witness};
use traceless::tree::Shape;
use traceless::types::Leaf;
use traceless_sim::oram::Layout;
use traceless_sim::workload::LINE_LEN;

/// Where paths lie: what anybody knows of a memory that holds trees.
pub enum Atlas {
    /// The lines of all paths of all trees.
    Paths { lines: Vec<Vec<Vec<u64>>>, by_last_line: HashMap<u64, BusPath> },
    /// Buckets that lie one after the other, of which slots are read one by one: the first byte of
    /// the last level, bytes of a bucket, and how many there are on that level.
    Buckets { leaves_at: u64, bucket_len: u64, leaves: u64 },
}

/// A path: the tree, and the leaf that it leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BusPath {
    pub tree: u8,
    pub leaf: u32,
}

impl Atlas {
    /// Of trees that lie so.
    pub fn of(layouts: &[Layout]) -> Self {
        let path = |layout: &Layout, leaf| {
            let mut lines = vec![];
            layout.path(Leaf(leaf), &mut lines);
            lines
        };
        let tree = |layout: &Layout| (0..layout.leaves()).map(|leaf| path(layout, leaf)).collect();
        let lines: Vec<Vec<Vec<u64>>> = layouts.iter().map(tree).collect();
        let mut by_last_line = HashMap::new();
        for (tree, paths) in (0..).zip(&lines) {
            for (leaf, path) in (0..).zip(paths) {
                by_last_line.extend(path.last().map(|&line| (line, BusPath { tree, leaf })));
            }
        }
        Self::Paths { lines, by_last_line }
    }

    /// Of Ring ORAM, whose levels above `cached` are in the processor.
    pub fn of_ring(params: Params, shape: &Shape, cached: usize) -> Self {
        let lines = (GhostRing::<()>::metadata_lines(params) + params.slots()) as u64;
        let bucket_len = lines * LINE_LEN;
        let last = shape.levels() - 1;
        let above: u64 = (cached..last).map(|level| shape.buckets(level)).sum();
        Self::Buckets { leaves_at: above * bucket_len, bucket_len, leaves: shape.leaves() }
    }

    /// Leaves of each tree.
    pub fn leaves(&self) -> Vec<u64> {
        match self {
            Self::Paths { lines, .. } => lines.iter().map(|paths| paths.len() as u64).collect(),
            Self::Buckets { leaves, .. } => vec![*leaves],
        }
    }

    /// The lines of a path, if whole paths are read.
    pub fn lines(&self, path: BusPath) -> &[u64] {
        match self {
            Self::Paths { lines, .. } => &lines[usize::from(path.tree)][path.leaf as usize],
            Self::Buckets { .. } => &[],
        }
    }

    /// The paths that these lines are, one after the other, if they are whole ones; of buckets that
    /// are read slot by slot, the path that they are on.
    fn find(&self, lines: &[u64]) -> Vec<BusPath> {
        match self {
            Self::Paths { lines: trees, by_last_line } => {
                let (mut found, mut rest) = (vec![], lines);
                while !rest.is_empty() {
                    let first = |paths: &Vec<Vec<u64>>| {
                        let lines = rest.get(..paths.first()?.len())?;
                        let path = by_last_line.get(lines.last()?)?;
                        (self.lines(*path) == lines).then_some(*path)
                    };
                    let Some(path) = trees.iter().find_map(first) else { return vec![] };
                    rest = &rest[self.lines(path).len()..];
                    found.push(path);
                }
                found
            }
            Self::Buckets { leaves_at, bucket_len, .. } => {
                let deepest = lines.iter().max();
                let within = deepest.and_then(|line| line.checked_sub(*leaves_at));
                let leaf = within.map(|within| (within / bucket_len) as u32);
                leaf.map(|leaf| BusPath { tree: 0, leaf }).into_iter().collect()
            }
        }
    }
}

/// One slot: lines that are read together, and those that are written together after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slot {
    /// The paths that are read, if whole ones are.
    pub paths: Vec<BusPath>,
    /// Lines that are read, and lines that are written.
    pub reads: usize,
    pub writes: usize,
    /// Whether the lines of the paths are written that were read.
    pub is_written_back: bool,
    /// When it began, and when it was written.
    pub began: u64,
    pub wrote: u64,
    /// What was asked for last when it began.
    pub secret: u64,
}

impl Slot {
    /// Whether it looks as another does, but for paths and times, and as it must: whole paths that
    /// are read and written.
    pub fn looks_as(&self, other: &Self) -> bool {
        let looks = |slot: &Self| (slot.reads, slot.writes, slot.is_written_back);
        let trees = self.paths.iter().map(|path| path.tree);
        let is_whole = self.is_written_back && !self.paths.is_empty();
        is_whole && looks(self) == looks(other) && trees.eq(other.paths.iter().map(|p| p.tree))
    }

    /// What it looks like.
    pub fn told(&self) -> String {
        let Self { paths, reads, writes, is_written_back, .. } = self;
        let trees: Vec<_> = paths.iter().map(|path| path.tree.to_string()).collect();
        let what = match (trees.len(), is_written_back) {
            (0, _) => "of no whole path".to_owned(),
            (_, true) => format!("of paths in tree {}", trees.join(" and ")),
            (_, false) => format!("of other lines than the path in tree {}", trees.join(" and ")),
        };
        format!("{reads} lines read and {writes} written, {what}")
    }

    /// When it was.
    pub fn when(&self) -> String {
        format!("read in cycle {} and written in {}", self.began, self.wrote)
    }
}

/// The lines of a slot.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SlotLines {
    pub reads: Vec<u64>,
    pub writes: Vec<u64>,
}

/// What programs and whoever watches have in common: when enough was seen, programs end.
#[derive(Default)]
pub struct WatchState {
    is_enough: AtomicBool,
    asked: AtomicU64,
}

impl WatchState {
    /// Whether enough was seen.
    pub fn is_enough(&self) -> bool {
        self.is_enough.load(Ordering::Relaxed)
    }

    /// A program asks for a line, or for none.
    pub fn ask(&self, line: Option<u64>) {
        self.asked.store(line.map_or(0, |line| line + 1), Ordering::Relaxed);
    }
}

/// Whoever watches.
pub struct Watcher {
    atlas: Arc<Atlas>,
    shared: Arc<WatchState>,
    /// Slots that are enough, and of how many the lines are kept.
    wanted: usize,
    kept: usize,
    seen: Mutex<BusView>,
}

/// What was seen.
#[derive(Default)]
pub struct BusView {
    pub slots: Vec<Slot>,
    pub lines: Vec<SlotLines>,
    /// Lines that were asked for together just now.
    burst: Option<Burst>,
}

struct Burst {
    time: u64,
    op: Op,
    lines: Vec<u64>,
    secret: u64,
}

impl Watcher {
    /// Watches until `wanted` slots were seen, and keeps the lines of the first `kept`.
    pub fn new(
        atlas: Arc<Atlas>,
        shared: Arc<WatchState>,
        wanted: usize,
        kept: usize,
    ) -> Arc<Self> {
        Arc::new(Self { atlas, shared, wanted, kept, seen: Mutex::default() })
    }

    /// What was seen: so many whole slots, or fewer if there were.
    pub fn take(&self) -> BusView {
        let mut seen = core::mem::take(&mut *self.seen());
        if let Some(burst) = seen.burst.take() {
            self.close(&mut seen, burst);
        }
        seen.slots.truncate(self.wanted);
        seen.lines.truncate(self.kept);
        seen
    }

    fn seen(&self) -> MutexGuard<'_, BusView> {
        self.seen.lock().expect("no witness panics")
    }

    /// Nothing more comes together with what was asked for.
    fn close(&self, seen: &mut BusView, burst: Burst) {
        let Burst { time, op, lines, secret } = burst;
        let paths = self.atlas.find(&lines);
        match seen.slots.last_mut() {
            Some(slot) if op == Op::Write && slot.writes == 0 => {
                (slot.wrote, slot.writes) = (time, lines.len());
                slot.is_written_back = slot.paths == paths;
            }
            _ => {
                let (reads, writes) =
                    if op == Op::Write { (0, lines.len()) } else { (lines.len(), 0) };
                let (is_written_back, began, wrote) = (false, time, 0);
                let slot = Slot { paths, reads, writes, is_written_back, began, wrote, secret };
                seen.slots.push(slot);
                seen.lines.push(SlotLines::default());
                seen.lines.truncate(self.kept + 1);
            }
        }
        if let Some(kept) = seen.lines.get_mut(seen.slots.len() - 1) {
            *(if op == Op::Write { &mut kept.writes } else { &mut kept.reads }) = lines;
        }
        // The last one is whole when the next one begins.
        if seen.slots.len() > self.wanted {
            self.shared.is_enough.store(true, Ordering::Relaxed);
        }
    }
}

impl Witness for Watcher {
    fn see(&self, event: Event) {
        let mut seen = self.seen();
        let Event { time, op, at, .. } = event;
        match &mut seen.burst {
            Some(burst) if (burst.time, burst.op) == (time, op) => burst.lines.push(at),
            _ => {
                let secret = self.shared.asked.load(Ordering::Relaxed);
                let begun = Burst { time, op, lines: vec![at], secret };
                if let Some(burst) = seen.burst.replace(begun) {
                    self.close(&mut seen, burst);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::computer::layouts_of;
    use super::*;
    use traceless::trace::Surface;

    fn atlas() -> Arc<Atlas> {
        let shapes = [Shape::uniform(4, 2).unwrap(), Shape::uniform(3, 2).unwrap()];
        Arc::new(Atlas::of(&layouts_of(&shapes)))
    }

    fn show(watcher: &Watcher, time: u64, op: Op, lines: &[u64]) {
        for &at in lines {
            watcher.see(Event { time, surface: Surface::Dram, op, at, len: 64 });
        }
    }

    #[test]
    fn lines_become_slots() {
        let atlas = atlas();
        assert_eq!(atlas.leaves(), [8, 4]);
        let shared = Arc::new(WatchState::default());
        let watcher = Watcher::new(atlas.clone(), shared.clone(), 4, 1);
        let path = |tree, leaf| BusPath { tree, leaf };
        let (big, small) = (path(0, 5), path(1, 2));
        show(&watcher, 3, Op::Read, atlas.lines(big));
        shared.ask(Some(7));
        show(&watcher, 9, Op::Write, atlas.lines(big));
        let both = [atlas.lines(small), atlas.lines(big)].concat();
        show(&watcher, 20, Op::Read, &both);
        show(&watcher, 30, Op::Write, atlas.lines(small));
        show(&watcher, 40, Op::Read, &atlas.lines(big)[1..]);
        show(&watcher, 50, Op::Read, atlas.lines(big));
        show(&watcher, 60, Op::Read, atlas.lines(big));
        assert!(!shared.is_enough());
        show(&watcher, 70, Op::Read, atlas.lines(big));
        assert!(shared.is_enough());
        let seen = watcher.take();
        let paths: Vec<_> = seen.slots.iter().map(|slot| slot.paths.clone()).collect();
        assert_eq!(paths, [vec![big], vec![small, big], vec![], vec![big]]);
        let times: Vec<_> = seen.slots.iter().map(|slot| (slot.began, slot.wrote)).collect();
        assert_eq!(times, [(3, 9), (20, 30), (40, 0), (50, 0)]);
        let secrets: Vec<_> = seen.slots.iter().map(|slot| slot.secret).collect();
        assert_eq!(secrets, [0, 8, 8, 8]);
        let written: Vec<_> = seen.slots.iter().map(|slot| slot.is_written_back).collect();
        assert_eq!(written, [true, false, false, false]);
        assert_eq!(seen.lines.len(), 1);
        assert_eq!(seen.lines[0].reads, atlas.lines(big));
        assert_eq!(seen.lines[0].writes, atlas.lines(big));
    }

    #[test]
    fn slots_look_alike_but_for_leaves_and_times() {
        let slot = |tree, leaf, writes| Slot {
            paths: vec![BusPath { tree, leaf }],
            reads: 6,
            writes,
            is_written_back: writes == 6,
            began: u64::from(leaf),
            wrote: 9,
            secret: u64::from(leaf),
        };
        assert!(slot(0, 1, 6).looks_as(&slot(0, 2, 6)));
        assert!(!slot(1, 1, 6).looks_as(&slot(0, 1, 6)));
        assert!(!slot(0, 1, 0).looks_as(&slot(0, 1, 6)));
        assert!(!slot(0, 1, 0).looks_as(&slot(0, 1, 0)), "no path is written");
        let told = slot(1, 2, 6).told();
        assert_eq!(told, "6 lines read and 6 written, of paths in tree 1");
    }
}
