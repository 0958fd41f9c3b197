//! The conformance suite on every scheme over trees, over geometries at both ends.
#![cfg(feature = "suite")]

use traceless::oblivious;
use traceless::scheme::linear::LinearScheme;
use traceless::scheme::path;
use traceless::suite;

#[test]
fn linear() {
    suite::conforms(&LinearScheme { blocks: 9, block_len: 64 });
}

fn path(blocks: u64, block_len: usize, change: impl FnOnce(&mut path::PathGeometry)) {
    let mut geometry = path::PathGeometry::new(blocks, block_len).unwrap();
    change(&mut geometry);
    geometry.check().unwrap();
    suite::conforms(&geometry);
}

#[test]
fn path_flat() {
    path(64, 512, |_| {});
}

#[test]
fn path_one_block() {
    path(1, 64, |g| g.unsynced_max = 3);
}

#[test]
fn path_two_blocks() {
    path(2, 256, |_| {});
}

#[test]
fn path_three_blocks_and_a_sync_each() {
    path(3, 64, |g| g.unsynced_max = 1);
}

#[test]
fn path_cached_levels() {
    path(101, 64, |g| (g.cached_levels, g.unsynced_max) = (3, 20));
}

#[test]
fn path_recursive() {
    path(300, 64, |g| (g.map_trees, g.map_block_len, g.unsynced_max) = (2, 24, 16));
}

#[test]
fn path_recursive_and_cached() {
    path(99, 33, |g| (g.map_trees, g.cached_levels, g.z) = (1, 2, 5));
}

fn oblivious(blocks: u64, block_len: usize, memory_levels: u8, unsynced_max: u32) {
    let geometry = oblivious::ArrayGeometry::new(blocks, block_len).unwrap();
    let geometry = oblivious::ArrayGeometry { memory_levels, unsynced_max, ..geometry };
    geometry.check().unwrap();
    suite::conforms(&geometry);
}

#[test]
fn oblivious_in_the_state() {
    oblivious(64, 64, 9, 3);
}

#[test]
fn oblivious_one_block() {
    oblivious(1, 64, 1, 1);
}

#[test]
fn oblivious_pages() {
    oblivious(50, 100, 1, 5);
}

#[test]
fn oblivious_three_blocks_and_a_sync_each() {
    oblivious(3, 256, 1, 1);
}
