//! What a scheme does on the memory bus, taken down to be timed.

use super::layout::Layout;
use crate::workload::LINE_LEN;
use std::sync::{Arc, Mutex, MutexGuard};
use traceless::trace::{Event, Op, Witness};
use traceless::types::Leaf;

/// What one step touches: a witness of trees, whose bytes are those of the memory.
#[derive(Clone, Default)]
pub struct Bus(Arc<Mutex<Step>>);

/// What a step reads and writes.
#[derive(Default)]
pub struct Step {
    pub reads: StepLines,
    pub writes: StepLines,
    /// In which tree.
    pub tree: usize,
}

/// Lines, as whole paths where that is what they are: a memory that only counts them need not know
/// where each lies.
#[derive(Default)]
pub struct StepLines {
    /// Paths, and of which tree.
    paths: Vec<(usize, Leaf)>,
    /// Other lines: bytes where they begin.
    lines: Vec<u64>,
}

impl StepLines {
    fn clear(&mut self) {
        self.paths.clear();
        self.lines.clear();
    }

    /// How many lines they are, of trees that lie as `layouts` say.
    pub fn count(&self, layouts: &[Layout]) -> u64 {
        let of_paths =
            self.paths.iter().map(|&(tree, _)| layouts[tree].path_lines()).sum::<usize>();
        (of_paths + self.lines.len()) as u64
    }

    /// Makes `lines` the bytes where they begin, in order.
    pub fn find(&self, layouts: &[Layout], lines: &mut Vec<u64>) {
        lines.clear();
        lines.extend_from_slice(&self.lines);
        for &(tree, leaf) in &self.paths {
            layouts[tree].path(leaf, lines);
        }
    }
}

impl Bus {
    /// Moves what was touched since the last call into `step`, whose own is forgotten.
    pub(super) fn take(&self, step: &mut Step) {
        step.reads.clear();
        step.writes.clear();
        core::mem::swap(&mut *self.step(), step);
    }

    /// What tree number `tree` tells.
    pub(super) fn tap(&self, tree: usize) -> Tap {
        Tap { bus: self.clone(), tree }
    }

    fn step(&self) -> MutexGuard<'_, Step> {
        self.0.lock().expect("nobody panics while holding it")
    }
}

/// Where a tree tells what it touches.
pub struct Tap {
    bus: Bus,
    tree: usize,
}

impl Tap {
    /// The path of `leaf` is read.
    pub fn read(&self, leaf: Leaf) {
        let mut step = self.bus.step();
        step.tree = self.tree;
        step.reads.paths.push((self.tree, leaf));
    }

    /// It is written.
    pub fn write(&self, leaf: Leaf) {
        self.bus.step().writes.paths.push((self.tree, leaf));
    }
}

/// A tree that is read slot by slot tells each of them. Of more bytes, all lines are touched.
impl Witness for Bus {
    fn see(&self, event: Event) {
        let end = event.at.saturating_add(u64::from(event.len)).div_ceil(LINE_LEN);
        let lines = (event.at / LINE_LEN..end).map(|line| line * LINE_LEN);
        let mut step = self.step();
        match event.op {
            Op::Read => step.reads.lines.extend(lines),
            Op::Write => step.writes.lines.extend(lines),
            Op::Sync => {}
        }
    }
}
