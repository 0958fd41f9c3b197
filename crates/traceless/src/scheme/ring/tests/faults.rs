//! Planted faults, which the tests must detect.

use super::trace::read_slots;
use super::*;
use bucket::Slots;
use std::panic::{AssertUnwindSafe, catch_unwind};
use traceless_core::trace::Recorder;

/// A fault in the metadata of a bucket. Arguments: the metadata as opened, and the metadata to be
/// written.
type Fault = fn(&[u8], &mut [u8]);

/// A tree that writes wrong metadata, except for renewed buckets.
struct Faulty<T> {
    tree: T,
    fault: Fault,
    opened: Vec<Vec<u8>>,
}

impl<T: RingTree> Faulty<T> {
    fn new(tree: T, fault: Fault) -> Self {
        Self { tree, fault, opened: vec![] }
    }
}

impl<T: RingTree> RingTree for Faulty<T> {
    fn params(&self) -> Params {
        self.tree.params()
    }
    fn shape(&self) -> &Shape {
        self.tree.shape()
    }
    fn body_len(&self) -> usize {
        self.tree.body_len()
    }
    fn open_path(&mut self, leaf: Leaf) -> Result {
        self.tree.open_path(leaf)?;
        let levels = 0..self.shape().levels();
        self.opened = levels.map(|level| self.tree.metadata(level).to_vec()).collect();
        Ok(())
    }
    fn metadata(&self, level: usize) -> &[u8] {
        self.tree.metadata(level)
    }
    fn metadata_mut(&mut self, level: usize) -> &mut [u8] {
        self.tree.metadata_mut(level)
    }
    fn read_slots(&mut self, slots: &[SlotAt]) -> Result {
        self.tree.read_slots(slots)
    }
    fn body(&self, nth: usize) -> &[u8] {
        self.tree.body(nth)
    }
    fn renew(&mut self, level: usize) {
        self.opened[level].clear();
        self.tree.renew(level);
    }
    fn new_body(&mut self, level: usize, slot: u8) -> &mut [u8] {
        self.tree.new_body(level, slot)
    }
    fn carry(&mut self, nth: usize, level: usize, slot: u8) {
        self.tree.carry(nth, level, slot);
    }
    fn write_path(&mut self) -> Result {
        for (level, opened) in self.opened.iter().enumerate().filter(|(_, o)| !o.is_empty()) {
            (self.fault)(opened, self.tree.metadata_mut(level));
        }
        self.tree.write_path()
    }
    fn sync(&mut self) -> Result {
        self.tree.sync()
    }
}

const READ_LEN: usize = size_of::<Slots>();

fn none(_: &[u8], _: &mut [u8]) {}

/// Forgets which slots were read, so that no bucket is ever reshuffled early.
fn forgets_reads(opened: &[u8], written: &mut [u8]) {
    written[..READ_LEN].copy_from_slice(&opened[..READ_LEN]);
}

/// Keeps a copy of a block in its bucket after the block was read.
fn keeps_copies(opened: &[u8], written: &mut [u8]) {
    written[READ_LEN..].copy_from_slice(&opened[READ_LEN..]);
}

/// Loses the first block of a bucket when another block is read.
fn loses_blocks(opened: &[u8], written: &mut [u8]) {
    if opened[READ_LEN..] != written[READ_LEN..] {
        written[READ_LEN..].fill(0);
    }
}

#[test]
fn slots_that_are_read_twice_are_noticed() {
    let run = |fault| {
        let witness = Arc::new(Recorder::default());
        let params = Params::Z4;
        let tree = GhostRing::new(params, params.shape_for(500).unwrap(), witness.clone());
        let mut ring = Ring::new(500, Faulty::new(tree.unwrap(), fault), rng()).unwrap();
        for id in 0..3000 {
            ring.submit(id, Addr(id % 7)).unwrap();
            ring.step(&mut |_, _| {}).unwrap();
        }
        read_slots(params, &witness.take()).twice
    };
    assert_eq!(run(none), 0);
    assert!(run(forgets_reads) > 100);
}

#[test]
fn blocks_that_are_kept_twice_or_lost_are_noticed() {
    let run = |fault| {
        let (params, blocks) = (Params::Z4, 200);
        let shape = params.shape_for(blocks).unwrap();
        let store = store_for(params, &shape, 8, &keys()[0]);
        let tree = Faulty::new(sealed(store, params, shape, 8), fault);
        let ring = Ring::new(blocks, tree, rng()).unwrap();
        catch_unwind(AssertUnwindSafe(|| behaves_like_an_array(ring, 4000)))
    };
    assert!(run(none).is_ok());
    assert!(run(keeps_copies).is_err());
    assert!(run(loses_blocks).is_err());
}
