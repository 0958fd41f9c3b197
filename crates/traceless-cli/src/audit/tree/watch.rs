//! What is seen of a scheme that lies in trees, step by step.

use std::sync::{Arc, Mutex};
use traceless::scheme::ring::{GhostRing, Params};
use traceless::trace::{Event, Op, Witness};
use traceless::tree::{PathWitness, Shape};
use traceless::types::Leaf;
use traceless_audit::Template;

/// Bytes of a slot on the memory bus.
const LINE_LEN: u64 = 64;

/// One path that was accessed: the tree, and the leaf that it leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    pub tree: u8,
    pub leaf: u32,
}

/// What one step showed.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Shown {
    /// Each path once, in order.
    pub paths: Vec<Path>,
    /// All that was done, in order: the operation, and the tree, but not where in it.
    pub template: Template,
}

/// Where every tree of a scheme tells what is touched.
#[derive(Clone, Default)]
pub struct Watched {
    shown: Arc<Mutex<Shown>>,
    /// Leaves of each tree, by its number.
    leaves: Arc<Mutex<Vec<u64>>>,
}

impl Watched {
    /// What was seen since the last call.
    pub fn take(&self) -> Shown {
        core::mem::take(&mut self.shown.lock().expect("no witness panics"))
    }

    /// Leaves of tree number `tree`.
    pub fn leaves(&self, tree: u8) -> u64 {
        self.leaves.lock().expect("nobody panics")[usize::from(tree)]
    }

    fn has(&self, tree: u8, shape: &Shape) {
        let mut leaves = self.leaves.lock().expect("nobody panics");
        let trees = leaves.len().max(usize::from(tree) + 1);
        leaves.resize(trees, 0);
        leaves[usize::from(tree)] = shape.leaves();
    }

    /// The witness of tree number `tree`.
    pub fn tree(&self, tree: u8, shape: &Shape) -> impl PathWitness + use<> {
        self.has(tree, shape);
        let shown = self.shown.clone();
        move |op, leaf: Leaf| {
            let mut shown = shown.lock().expect("no witness panics");
            shown.template.see(u64::from(tree) << 1 | u64::from(op == Op::Write));
            shown.access(Path { tree, leaf: leaf.0 as u32 });
        }
    }

    /// The witness of a ring, whose buckets lie one after the other.
    pub fn ring(&self, params: Params, shape: &Shape) -> RingWitness {
        self.has(0, shape);
        let lines = (GhostRing::<()>::metadata_lines(params) + params.slots()) as u64;
        let bucket_len = lines * LINE_LEN;
        let last = shape.levels() - 1;
        let above: u64 = (0..last).map(|level| shape.buckets(level)).sum();
        RingWitness { shown: self.shown.clone(), bucket_len, leaves_at: above * bucket_len }
    }
}

impl Shown {
    fn access(&mut self, path: Path) {
        if self.paths.last() != Some(&path) {
            self.paths.push(path);
        }
    }
}

/// Sees the slots of a ring.
pub struct RingWitness {
    shown: Arc<Mutex<Shown>>,
    bucket_len: u64,
    /// First byte of the last level.
    leaves_at: u64,
}

impl Witness for RingWitness {
    fn see(&self, event: Event) {
        let mut shown = self.shown.lock().expect("no witness panics");
        shown.template.see(u64::from(event.op == Op::Write));
        if let Some(within) = event.at.checked_sub(self.leaves_at) {
            shown.access(Path { tree: 0, leaf: (within / self.bucket_len) as u32 });
        }
    }
}
