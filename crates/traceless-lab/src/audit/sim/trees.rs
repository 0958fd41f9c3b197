//! Trees that report the lines of each accessed path to a memory bus.

use super::super::tree::schemes::Tree;
use super::watch::{Atlas, BusPath};
use std::sync::Arc;
use traceless::trace::{Event, Op, Surface, Witness};
use traceless::tree::{BareTree, ObservedTree, PathWitness, Shape};
use traceless::types::Leaf;
use traceless_sim::workload::LINE_LEN;

/// Tree number `number`, which reports the lines of each accessed path to `bus`.
pub fn observed_tree(
    number: u8,
    shape: Shape,
    atlas: &Arc<Atlas>,
    bus: impl Witness + 'static,
) -> Tree {
    let atlas = atlas.clone();
    let witness: Box<dyn PathWitness> = Box::new(move |op, leaf: Leaf| {
        touch(&bus, op, atlas.lines(BusPath { tree: number, leaf: leaf.0 as u32 }));
    });
    ObservedTree::new(BareTree::new(shape, 0), witness)
}

/// Reports accesses to `lines` to `bus`.
pub fn touch(bus: &dyn Witness, op: Op, lines: &[u64]) {
    for &at in lines {
        bus.record(Event { time: 0, surface: Surface::Dram, op, at, len: LINE_LEN as u32 });
    }
}
