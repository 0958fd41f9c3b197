//! The conformance suite on every scheme, over geometries at both ends.
#![cfg(feature = "suite")]

use traceless::build::SchemeConfig;
use traceless::scheme::detwo::{Geometry, MapEntries, Refresh};
use traceless::suite;

fn detwo(blocks: u64, block_len: usize, refresh: &str, map_tiers: u8) {
    let refresh = Refresh::parse(refresh).unwrap();
    let geometry = Geometry::new(blocks, block_len, refresh, map_tiers).unwrap();
    suite::conforms(&SchemeConfig::DetWo(geometry));
}

fn detwo_pointers(blocks: u64, block_len: usize, refresh: &str, map_tiers: u8) {
    let refresh = Refresh::parse(refresh).unwrap();
    let geometry = Geometry::new(blocks, block_len, refresh, map_tiers).unwrap();
    let geometry = geometry.with_map_entries(MapEntries::Pointers).unwrap();
    suite::conforms(&SchemeConfig::DetWo(geometry));
}

#[test]
fn plain() {
    suite::conforms(&SchemeConfig::Plain { blocks: 70, block_len: 512 });
}

#[test]
fn linear() {
    suite::conforms(&SchemeConfig::Linear { blocks: 9, block_len: 64 });
}

#[test]
fn detwo_one_to_one() {
    detwo(64, 512, "1", 0);
}

#[test]
fn detwo_small_holding_area() {
    detwo(100, 128, "7/2", 0);
}

#[test]
fn detwo_large_holding_area() {
    detwo(48, 128, "1/3", 0);
}

#[test]
fn detwo_two_blocks() {
    detwo(2, 4096, "1", 0);
}

#[test]
fn detwo_map_on_the_store() {
    detwo(300, 512, "1", 1);
}

#[test]
fn detwo_two_map_tiers() {
    detwo(4200, 128, "3/7", 2);
}

#[test]
fn detwo_pointers_one_to_one() {
    detwo_pointers(64, 512, "1", 0);
}

#[test]
fn detwo_pointers_small_holding_area() {
    detwo_pointers(100, 128, "7/2", 0);
}

#[test]
fn detwo_pointers_large_holding_area() {
    detwo_pointers(48, 128, "1/3", 0);
}

#[test]
fn detwo_pointers_on_the_store() {
    detwo_pointers(300, 512, "1", 1);
}

#[test]
fn detwo_pointers_in_two_tiers() {
    detwo_pointers(4200, 128, "3/7", 2);
}
