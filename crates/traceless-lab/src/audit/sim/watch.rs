//! The view of an adversary at the memory bus of a simulated processor: accessed lines, and their
//! times. The adversary knows how trees lie in memory, so that lines reveal paths.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use traceless::scheme::ring::{GhostRing, Params};
use traceless::trace::{Event, Op, Witness};
use traceless::tree::Shape;
use traceless::types::Leaf;
use traceless_sim::oram::Layout;
use traceless_sim::workload::LINE_LEN;

/// The places of paths, which is public knowledge about a memory that holds trees.
pub enum Atlas {
    /// The lines of all paths of all trees.
    Paths { lines: Vec<Vec<Vec<u64>>>, by_last_line: HashMap<u64, BusPath> },
    /// Consecutive buckets that are read slot by slot: the first byte of the last level, bytes per
    /// bucket, and the number of buckets on that level.
    Buckets { leaves_at: u64, bucket_len: u64, leaves: u64 },
}

/// A path: the tree, and the leaf at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BusPath {
    pub tree: u8,
    pub leaf: u32,
}

impl Atlas {
    /// The atlas of trees with these layouts.
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

    /// The atlas of Ring ORAM, with the levels above `cached` in the processor.
    pub fn of_ring(params: Params, shape: &Shape, cached: usize) -> Self {
        let lines = (GhostRing::<()>::metadata_lines(params) + params.slots()) as u64;
        let bucket_len = lines * LINE_LEN;
        let last = shape.levels() - 1;
        let inner_buckets: u64 = (cached..last).map(|level| shape.buckets(level)).sum();
        Self::Buckets { leaves_at: inner_buckets * bucket_len, bucket_len, leaves: shape.leaves() }
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

    /// The successive paths that `lines` consist of, or none if a part is no whole path. For
    /// buckets that are read slot by slot, the path that they are on.
    fn find(&self, lines: &[u64]) -> Vec<BusPath> {
        match self {
            Self::Paths { lines: trees, by_last_line } => {
                let (mut paths_found, mut rest) = (vec![], lines);
                while !rest.is_empty() {
                    let first = |paths: &Vec<Vec<u64>>| {
                        let lines = rest.get(..paths.first()?.len())?;
                        let path = by_last_line.get(lines.last()?)?;
                        (self.lines(*path) == lines).then_some(*path)
                    };
                    let Some(path) = trees.iter().find_map(first) else { return vec![] };
                    rest = &rest[self.lines(path).len()..];
                    paths_found.push(path);
                }
                paths_found
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

/// One step of the controller: lines that are read together, and lines that are written together
/// after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The paths that are read, if whole paths are.
    pub paths: Vec<BusPath>,
    /// Number of lines read.
    pub reads: usize,
    /// Number of lines written.
    pub writes: usize,
    /// Whether the same paths are written that were read.
    pub is_written_back: bool,
    /// The cycle in which the step began.
    pub began: u64,
    /// The cycle of its writes; 0 if there were none after its reads.
    pub wrote: u64,
    /// The last requested line at the start of the step, plus one; 0 for none.
    pub secret: u64,
}

impl Step {
    /// Whether both steps look alike except for paths and times, and this one has the required
    /// form: whole paths that are read and written.
    pub fn looks_like(&self, other: &Self) -> bool {
        let looks = |step: &Self| (step.reads, step.writes, step.is_written_back);
        let trees = self.paths.iter().map(|path| path.tree);
        let is_whole = self.is_written_back && !self.paths.is_empty();
        is_whole && looks(self) == looks(other) && trees.eq(other.paths.iter().map(|p| p.tree))
    }

    /// A description of the step without paths and times.
    pub fn description(&self) -> String {
        let Self { paths, reads, writes, is_written_back, .. } = self;
        let trees: Vec<_> = paths.iter().map(|path| path.tree.to_string()).collect();
        let kind = match (trees.len(), is_written_back) {
            (0, _) => "of no whole path".to_owned(),
            (_, true) => format!("of paths in tree {}", trees.join(" and ")),
            (_, false) => format!("of other lines than the path in tree {}", trees.join(" and ")),
        };
        format!("{reads} lines read and {writes} written, {kind}")
    }

    /// The times of the step, in words.
    pub fn times(&self) -> String {
        format!("read in cycle {} and written in {}", self.began, self.wrote)
    }
}

/// The lines of a step.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct StepLines {
    pub reads: Vec<u64>,
    pub writes: Vec<u64>,
}

/// State that programs and the watcher share: programs end when the watcher has enough steps.
#[derive(Default)]
pub struct WatchState {
    has_enough: AtomicBool,
    request: AtomicU64,
}

impl WatchState {
    /// Whether the watcher has enough steps.
    pub fn has_enough(&self) -> bool {
        self.has_enough.load(Ordering::Relaxed)
    }

    /// Records that a program requests a line, or none.
    pub fn set_request(&self, line: Option<u64>) {
        self.request.store(line.map_or(0, |line| line + 1), Ordering::Relaxed);
    }
}

/// Observes the memory bus.
pub struct Watcher {
    atlas: Arc<Atlas>,
    shared: Arc<WatchState>,
    /// Steps to observe.
    steps_max: usize,
    /// Steps with all lines kept.
    lines_kept: usize,
    view: Mutex<BusView>,
}

/// What the adversary observed.
#[derive(Default)]
pub struct BusView {
    pub steps: Vec<Step>,
    pub lines: Vec<StepLines>,
    /// Lines of the last time and operation, still incomplete.
    burst: Option<Burst>,
}

struct Burst {
    time: u64,
    op: Op,
    lines: Vec<u64>,
    secret: u64,
}

impl Watcher {
    /// Watches until `steps_max` steps are complete, and keeps the lines of the first `lines_kept`.
    pub fn new(
        atlas: Arc<Atlas>,
        shared: Arc<WatchState>,
        steps_max: usize,
        lines_kept: usize,
    ) -> Arc<Self> {
        Arc::new(Self { atlas, shared, steps_max, lines_kept, view: Mutex::default() })
    }

    /// The observed steps: `steps_max` of them, or fewer if the program ended.
    pub fn take(&self) -> BusView {
        let mut view = core::mem::take(&mut *self.view());
        if let Some(burst) = view.burst.take() {
            self.close(&mut view, burst);
        }
        view.steps.truncate(self.steps_max);
        view.lines.truncate(self.lines_kept);
        view
    }

    fn view(&self) -> MutexGuard<'_, BusView> {
        self.view.lock().expect("no witness panics")
    }

    /// Adds a complete burst to its step.
    fn close(&self, view: &mut BusView, burst: Burst) {
        let Burst { time, op, lines, secret } = burst;
        let paths = self.atlas.find(&lines);
        match view.steps.last_mut() {
            Some(step) if op == Op::Write && step.writes == 0 => {
                (step.wrote, step.writes) = (time, lines.len());
                step.is_written_back = step.paths == paths;
            }
            _ => {
                let (reads, writes) =
                    if op == Op::Write { (0, lines.len()) } else { (lines.len(), 0) };
                let (is_written_back, began, wrote) = (false, time, 0);
                let step = Step { paths, reads, writes, is_written_back, began, wrote, secret };
                view.steps.push(step);
                view.lines.push(StepLines::default());
                view.lines.truncate(self.lines_kept + 1);
            }
        }
        if let Some(kept) = view.lines.get_mut(view.steps.len() - 1) {
            *(if op == Op::Write { &mut kept.writes } else { &mut kept.reads }) = lines;
        }
        // The last step is complete when the next one begins.
        if view.steps.len() > self.steps_max {
            self.shared.has_enough.store(true, Ordering::Relaxed);
        }
    }
}

impl Witness for Watcher {
    fn record(&self, event: Event) {
        let mut view = self.view();
        let Event { time, op, at, .. } = event;
        match &mut view.burst {
            Some(burst) if (burst.time, burst.op) == (time, op) => burst.lines.push(at),
            _ => {
                let secret = self.shared.request.load(Ordering::Relaxed);
                let next = Burst { time, op, lines: vec![at], secret };
                if let Some(burst) = view.burst.replace(next) {
                    self.close(&mut view, burst);
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
            watcher.record(Event { time, surface: Surface::Dram, op, at, len: 64 });
        }
    }

    #[test]
    fn lines_become_steps() {
        let atlas = atlas();
        assert_eq!(atlas.leaves(), [8, 4]);
        let shared = Arc::new(WatchState::default());
        let watcher = Watcher::new(atlas.clone(), shared.clone(), 4, 1);
        let path = |tree, leaf| BusPath { tree, leaf };
        let (big, small) = (path(0, 5), path(1, 2));
        show(&watcher, 3, Op::Read, atlas.lines(big));
        shared.set_request(Some(7));
        show(&watcher, 9, Op::Write, atlas.lines(big));
        let both = [atlas.lines(small), atlas.lines(big)].concat();
        show(&watcher, 20, Op::Read, &both);
        show(&watcher, 30, Op::Write, atlas.lines(small));
        show(&watcher, 40, Op::Read, &atlas.lines(big)[1..]);
        show(&watcher, 50, Op::Read, atlas.lines(big));
        show(&watcher, 60, Op::Read, atlas.lines(big));
        assert!(!shared.has_enough());
        show(&watcher, 70, Op::Read, atlas.lines(big));
        assert!(shared.has_enough());
        let view = watcher.take();
        let paths: Vec<_> = view.steps.iter().map(|step| step.paths.clone()).collect();
        assert_eq!(paths, [vec![big], vec![small, big], vec![], vec![big]]);
        let times: Vec<_> = view.steps.iter().map(|step| (step.began, step.wrote)).collect();
        assert_eq!(times, [(3, 9), (20, 30), (40, 0), (50, 0)]);
        let secrets: Vec<_> = view.steps.iter().map(|step| step.secret).collect();
        assert_eq!(secrets, [0, 8, 8, 8]);
        let written: Vec<_> = view.steps.iter().map(|step| step.is_written_back).collect();
        assert_eq!(written, [true, false, false, false]);
        assert_eq!(view.lines.len(), 1);
        assert_eq!(view.lines[0].reads, atlas.lines(big));
        assert_eq!(view.lines[0].writes, atlas.lines(big));
    }

    #[test]
    fn steps_look_alike_except_for_leaves_and_times() {
        let step = |tree, leaf, writes| Step {
            paths: vec![BusPath { tree, leaf }],
            reads: 6,
            writes,
            is_written_back: writes == 6,
            began: u64::from(leaf),
            wrote: 9,
            secret: u64::from(leaf),
        };
        assert!(step(0, 1, 6).looks_like(&step(0, 2, 6)));
        assert!(!step(1, 1, 6).looks_like(&step(0, 1, 6)));
        assert!(!step(0, 1, 0).looks_like(&step(0, 1, 6)));
        assert!(!step(0, 1, 0).looks_like(&step(0, 1, 0)), "no path is written");
        let description = step(1, 2, 6).description();
        assert_eq!(description, "6 lines read and 6 written, of paths in tree 1");
    }
}
