//! What a scheme does on the memory bus, taken down to be timed.

use super::layout::Layout;
use std::sync::{Arc, Mutex, MutexGuard};
use traceless::trace::{Event, Op, Witness};
use traceless::types::Leaf;

/// The lines that one step touches, and in which tree.
#[derive(Clone, Default)]
pub struct Bus(Arc<Mutex<Lines>>);

/// Bytes where lines of memory begin.
#[derive(Default)]
pub struct Lines {
    /// Lines read.
    pub reads: Vec<u64>,
    /// Lines written.
    pub writes: Vec<u64>,
    /// Which tree they are of.
    pub tree: usize,
}

impl Bus {
    /// Moves what was touched since the last call into `lines`, whose own are forgotten.
    pub fn take(&self, lines: &mut Lines) {
        lines.reads.clear();
        lines.writes.clear();
        core::mem::swap(&mut *self.lines(), lines);
    }

    /// What tree number `tree` tells, whose lines lie as `layout` says.
    pub fn tap(&self, tree: usize, layout: Layout) -> Tap {
        Tap { bus: self.clone(), tree, layout }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().expect("nobody panics while holding it")
    }
}

/// Where a tree tells what it touches.
pub struct Tap {
    bus: Bus,
    tree: usize,
    layout: Layout,
}

impl Tap {
    /// The path of `leaf` is read.
    pub fn read(&self, leaf: Leaf) {
        let mut lines = self.bus.lines();
        lines.tree = self.tree;
        self.layout.path(leaf, &mut lines.reads);
    }

    /// It is written.
    pub fn write(&self, leaf: Leaf) {
        self.layout.path(leaf, &mut self.bus.lines().writes);
    }
}

/// A tree that is read slot by slot tells each of them.
impl Witness for Bus {
    fn see(&self, event: Event) {
        let mut lines = self.lines();
        match event.op {
            Op::Read => lines.reads.push(event.at),
            Op::Write => lines.writes.push(event.at),
            Op::Sync => {}
        }
    }
}
