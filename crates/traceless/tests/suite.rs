//! The conformance suite on every scheme, over geometries at both ends.
#![cfg(feature = "suite")]

use traceless::build::SchemeConfig;
use traceless::scheme::detwo::{Geometry, Refresh};
use traceless::scheme::random;
use traceless::suite;

fn detwo(blocks: u64, block_len: usize, refresh: &str, map_tiers: u8) {
    let refresh = Refresh::parse(refresh).unwrap();
    let geometry = Geometry::new(blocks, block_len, refresh, map_tiers).unwrap();
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

fn random(blocks: u64, block_len: usize, map_tiers: u8) -> random::Geometry {
    random::Geometry::new(blocks, block_len, map_tiers).unwrap()
}

#[test]
fn hive() {
    suite::conforms(&SchemeConfig::Hive(random(64, 512, 0)));
}

#[test]
fn hive_one_block() {
    suite::conforms(&SchemeConfig::Hive(random(1, 256, 0)));
}

#[test]
fn hive_map_on_the_store() {
    suite::conforms(&SchemeConfig::Hive(random(300, 512, 1)));
}

#[test]
fn hive_two_map_tiers() {
    suite::conforms(&SchemeConfig::Hive(random(2100, 128, 2)));
}

#[test]
fn datalair() {
    suite::conforms(&SchemeConfig::DataLair(random(64, 512, 0)));
}

#[test]
fn datalair_two_blocks() {
    suite::conforms(&SchemeConfig::DataLair(random(2, 256, 0)));
}

#[test]
fn datalair_map_on_the_store() {
    suite::conforms(&SchemeConfig::DataLair(random(300, 512, 1)));
}

#[test]
fn datalair_two_map_tiers() {
    suite::conforms(&SchemeConfig::DataLair(random(2100, 128, 2)));
}
