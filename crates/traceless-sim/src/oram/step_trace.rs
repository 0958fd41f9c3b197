//! The accesses of a scheme to the memory bus, recorded so that they can be timed.

use super::layout::Layout;
use crate::workload::LINE_LEN;
use std::sync::{Arc, Mutex, MutexGuard};
use traceless::trace::{Event, Op, Witness};
use traceless::types::Leaf;

/// The lines that one step touches: a witness of trees. Its events hold byte addresses of the
/// memory.
#[derive(Clone, Default)]
pub struct StepTrace(Arc<Mutex<Step>>);

/// The lines that a step reads and writes.
#[derive(Default)]
pub struct Step {
    pub reads: StepLines,
    pub writes: StepLines,
    /// The tree that the step accesses.
    pub tree: usize,
}

/// Lines that a step touches. Whole paths are kept as paths, because a memory that only counts
/// lines need not know where each lies.
#[derive(Default)]
pub struct StepLines {
    /// Paths, each with the number of its tree.
    paths: Vec<(usize, Leaf)>,
    /// Other lines, by their first bytes.
    lines: Vec<u64>,
}

impl StepLines {
    fn clear(&mut self) {
        self.paths.clear();
        self.lines.clear();
    }

    /// The number of lines, in trees that lie as `layouts` say.
    pub fn count(&self, layouts: &[Layout]) -> u64 {
        let of_paths =
            self.paths.iter().map(|&(tree, _)| layouts[tree].path_lines()).sum::<usize>();
        (of_paths + self.lines.len()) as u64
    }

    /// Replaces the contents of `lines` by the first bytes of these lines, in order.
    pub fn find(&self, layouts: &[Layout], lines: &mut Vec<u64>) {
        lines.clear();
        lines.extend_from_slice(&self.lines);
        for &(tree, leaf) in &self.paths {
            layouts[tree].path(leaf, lines);
        }
    }
}

impl StepTrace {
    /// Moves what was touched since the last call into `step`, which replaces its contents.
    pub(super) fn take(&self, step: &mut Step) {
        step.reads.clear();
        step.writes.clear();
        core::mem::swap(&mut *self.step(), step);
    }

    /// The recorder of tree number `tree`.
    pub(super) fn recorder(&self, tree: usize) -> PathRecorder {
        PathRecorder { step_trace: self.clone(), tree }
    }

    fn step(&self) -> MutexGuard<'_, Step> {
        self.0.lock().expect("no thread panics while holding it")
    }
}

/// Records the paths that a tree touches.
pub struct PathRecorder {
    step_trace: StepTrace,
    tree: usize,
}

impl PathRecorder {
    /// Records that the path of `leaf` is read.
    pub fn read(&self, leaf: Leaf) {
        let mut step = self.step_trace.step();
        step.tree = self.tree;
        step.reads.paths.push((self.tree, leaf));
    }

    /// Records that the path of `leaf` is written.
    pub fn write(&self, leaf: Leaf) {
        self.step_trace.step().writes.paths.push((self.tree, leaf));
    }
}

/// Records each event of a tree that is read slot by slot. An event touches all lines that its
/// bytes lie in.
impl Witness for StepTrace {
    fn record(&self, event: Event) {
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
