//! The conformance suite on every block scheme, over geometries at both ends.
#![cfg(feature = "suite")]

use traceless_block::datalair::DataLairScheme;
use traceless_block::deniable::DeniableGeometry;
use traceless_block::detwo::{DetWoGeometry, MapEntries, Refresh};
use traceless_block::hive::HiveScheme;
use traceless_block::plain::PlainScheme;
use traceless_block::{random, registry, sq};
use traceless_core::suite;

/// Every kind of the registry conforms, in each of its samples: or the one that the environment
/// variable `TRACELESS_KIND` names.
#[test]
fn every_kind_conforms() {
    let only = std::env::var("TRACELESS_KIND").ok();
    let is_tested = |name: &str| only.as_deref().is_none_or(|only| only == name);
    assert!(registry::KINDS.iter().any(|kind| is_tested(kind.name)), "no kind {only:?}");
    for kind in registry::KINDS.iter().filter(|kind| is_tested(kind.name)) {
        for (name, scheme) in (kind.samples)(70, 300, 512).unwrap() {
            println!("{} {name}", kind.name);
            suite::conforms(&*scheme);
        }
    }
}

fn detwo(blocks: u64, block_len: usize, refresh: &str, map_tiers: u8) {
    let refresh = Refresh::parse(refresh).unwrap();
    let geometry = DetWoGeometry::new(blocks, block_len, refresh, map_tiers).unwrap();
    suite::conforms(&geometry);
}

fn detwo_pointers(blocks: u64, block_len: usize, refresh: &str, map_tiers: u8) {
    let refresh = Refresh::parse(refresh).unwrap();
    let geometry = DetWoGeometry::new(blocks, block_len, refresh, map_tiers).unwrap();
    let geometry = geometry.with_map_entries(MapEntries::Pointers).unwrap();
    suite::conforms(&geometry);
}

#[test]
fn deniable() {
    suite::conforms(&DeniableGeometry::new(1700, 64).unwrap());
}

#[test]
fn plain() {
    suite::conforms(&PlainScheme { blocks: 70, block_len: 512 });
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

fn sq(geometry: sq::SqGeometry) {
    geometry.check().unwrap();
    suite::conforms(&geometry);
}

fn shape(blocks: u64, bucket: u32, fanout: u32, levels: u8) -> sq::SqGeometry {
    let geometry = sq::SqGeometry::with_shape(blocks, 128, bucket, fanout, levels).unwrap();
    // Few enough that a small test syncs by itself.
    sq::SqGeometry { unsynced_max: 4 * u64::from(bucket), ..geometry }
}

#[test]
fn sq_as_in_the_paper() {
    sq(shape(64, 4, 2, 4));
    sq(shape(100, 4, 2, 3));
}

#[test]
fn sq_wide() {
    sq(shape(200, 4, 4, 2));
    sq(shape(300, 8, 5, 2));
    sq(shape(70, 6, 3, 2));
}

#[test]
fn sq_one_level() {
    sq(sq::SqGeometry { unsynced_max: 4, ..shape(64, 4, 4, 1) });
    sq(sq::SqGeometry { unsynced_max: 1, ..shape(30, 2, 5, 1) });
}

#[test]
fn sq_a_last_level_smaller_than_its_pass() {
    sq(shape(20, 2, 3, 2));
}

#[test]
fn sq_chosen_shapes() {
    for blocks in [40, 500] {
        sq(sq::SqGeometry::new(blocks, 256, sq::SqPreferences::default()).unwrap());
    }
}

#[test]
fn sq_amortized() {
    sq(sq::SqGeometry { amortized: true, ..shape(100, 4, 3, 2) });
    sq(sq::SqGeometry { amortized: true, ..shape(64, 4, 2, 4) });
}

#[test]
fn sq_maps_on_disk() {
    sq(sq::SqGeometry { map: sq::MapPlace::Disk, ..shape(200, 4, 4, 2) });
    sq(sq::SqGeometry { map: sq::MapPlace::Disk, ..shape(90, 16, 2, 3) });
    sq(sq::SqGeometry { map: sq::MapPlace::Disk, ..shape(3000, 64, 3, 3) });
}

#[test]
fn sq_in_the_papers_cadence() {
    let geometry = shape(200, 8, 4, 2);
    sq(sq::SqGeometry { map: sq::MapPlace::Disk, cadence: sq::Cadence::Paper, ..geometry });
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

fn random(blocks: u64, block_len: usize, map_tiers: u8) -> random::RandomGeometry {
    random::RandomGeometry::new(blocks, block_len, map_tiers).unwrap()
}

#[test]
fn hive() {
    suite::conforms(&HiveScheme::new(random(64, 512, 0)));
}

#[test]
fn hive_one_block() {
    suite::conforms(&HiveScheme::new(random(1, 256, 0)));
}

#[test]
fn hive_map_on_the_store() {
    suite::conforms(&HiveScheme::new(random(300, 512, 1)));
}

#[test]
fn hive_two_map_tiers() {
    suite::conforms(&HiveScheme::new(random(2100, 128, 2)));
}

#[test]
fn datalair() {
    suite::conforms(&DataLairScheme::new(random(64, 512, 0)));
}

#[test]
fn datalair_two_blocks() {
    suite::conforms(&DataLairScheme::new(random(2, 256, 0)));
}

#[test]
fn datalair_map_on_the_store() {
    suite::conforms(&DataLairScheme::new(random(300, 512, 1)));
}

#[test]
fn datalair_two_map_tiers() {
    suite::conforms(&DataLairScheme::new(random(2100, 128, 2)));
}
