//! What an adversary observes of a scheme that lies in trees, step by step.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use traceless::scheme::ring::{GhostRing, Params};
use traceless::trace::{Event, Op, Surface, Witness};
use traceless::tree::{PathWitness, Shape};
use traceless::types::Leaf;
use traceless_audit::Template;

/// Bytes of a slot on the memory bus.
pub const LINE_LEN: u64 = 64;

/// One accessed path: the tree, and the leaf at the end of the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreePath {
    pub tree: u8,
    pub leaf: u32,
}

/// What the adversary observed in one step.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct StepView {
    /// Each path once, in order.
    pub paths: Vec<TreePath>,
    /// All accesses in order: the operation and the tree, without the place in it.
    pub template: Template,
}

/// Collects the accesses to all trees of a scheme.
#[derive(Clone, Default)]
pub struct TreeObserver {
    view: Arc<Mutex<StepView>>,
    /// Leaves of each tree, by its number.
    leaves: Arc<Mutex<Vec<u64>>>,
    recording: Option<Arc<Recording>>,
}

/// The witness of all events, and the number of the current step.
struct Recording {
    witness: Arc<dyn Witness>,
    step: AtomicU64,
}

/// Distance between two trees in the address space: more bytes than any tree has.
const TREE_LEN: u64 = 1 << 48;

impl Recording {
    fn record(&self, event: Event) {
        self.witness.record(Event { time: self.step.load(Ordering::Relaxed), ..event });
    }

    /// Reports the buckets of a path to the witness. Level follows level, from the root down.
    fn report_path(&self, tree: u8, shape: &Shape, op: Op, leaf: Leaf) {
        let mut level_at = u64::from(tree) * TREE_LEN;
        for level in 0..shape.levels() {
            let len = shape.z(level) as u64 * LINE_LEN;
            let at = level_at + shape.bucket(leaf, level) * len;
            if len > 0 {
                let surface = Surface::Dram;
                self.record(Event { time: 0, surface, op, at, len: len as u32 });
            }
            level_at += shape.buckets(level) * len;
        }
    }
}

impl TreeObserver {
    /// Keeps nothing itself; reports all events to `witness`.
    pub fn recording_to(witness: Arc<dyn Witness>) -> Self {
        let recording = Some(Arc::new(Recording { witness, step: AtomicU64::new(0) }));
        Self { recording, ..Self::default() }
    }

    /// Begins step number `step`, and drops the view of the step before.
    pub fn begin(&self, step: u64) {
        self.take();
        if let Some(recording) = &self.recording {
            recording.step.store(step, Ordering::Relaxed);
        }
    }

    /// What the adversary observed since the last call.
    pub fn take(&self) -> StepView {
        core::mem::take(&mut self.view.lock().expect("no witness panics"))
    }

    /// Leaves of tree number `tree`.
    pub fn leaves(&self, tree: u8) -> u64 {
        self.leaves.lock().expect("nobody panics")[usize::from(tree)]
    }

    fn add_tree(&self, tree: u8, shape: &Shape) {
        let mut leaves = self.leaves.lock().expect("nobody panics");
        let trees = leaves.len().max(usize::from(tree) + 1);
        leaves.resize(trees, 0);
        leaves[usize::from(tree)] = shape.leaves();
    }

    /// The witness of tree number `tree`.
    pub fn tree(&self, tree: u8, shape: &Shape) -> impl PathWitness + use<> {
        self.add_tree(tree, shape);
        let (view, recording, shape) = (self.view.clone(), self.recording.clone(), shape.clone());
        move |op, leaf: Leaf| {
            if let Some(recording) = &recording {
                recording.report_path(tree, &shape, op, leaf);
            }
            let mut view = view.lock().expect("no witness panics");
            view.template.add(u64::from(tree) << 1 | u64::from(op == Op::Write));
            view.access(TreePath { tree, leaf: leaf.0 as u32 });
        }
    }

    /// The witness of a ring with buckets one after the other.
    pub fn ring(&self, params: Params, shape: &Shape) -> RingWitness {
        self.add_tree(0, shape);
        let lines = (GhostRing::<()>::metadata_lines(params) + params.slots()) as u64;
        let bucket_len = lines * LINE_LEN;
        let last = shape.levels() - 1;
        let inner_buckets: u64 = (0..last).map(|level| shape.buckets(level)).sum();
        let (view, recording) = (self.view.clone(), self.recording.clone());
        RingWitness { view, recording, bucket_len, leaves_at: inner_buckets * bucket_len }
    }
}

impl StepView {
    fn access(&mut self, path: TreePath) {
        if self.paths.last() != Some(&path) {
            self.paths.push(path);
        }
    }
}

/// Observes accesses to the slots of a ring.
pub struct RingWitness {
    view: Arc<Mutex<StepView>>,
    recording: Option<Arc<Recording>>,
    bucket_len: u64,
    /// Position of the first byte of the last level.
    leaves_at: u64,
}

impl Witness for RingWitness {
    fn record(&self, event: Event) {
        if let Some(recording) = &self.recording {
            recording.record(event);
        }
        let mut view = self.view.lock().expect("no witness panics");
        view.template.add(u64::from(event.op == Op::Write));
        if let Some(within) = event.at.checked_sub(self.leaves_at) {
            view.access(TreePath { tree: 0, leaf: (within / self.bucket_len) as u32 });
        }
    }
}
