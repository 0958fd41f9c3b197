//! A copy of a process, or of the machine that it runs on, goes on with the same keys and counts.
//! No nonce covers contents of both.
#![cfg(feature = "suite")]

use traceless_block::datalair::DataLairScheme;
use traceless_block::detwo::{DetWoGeometry, MapEntries, Refresh};
use traceless_block::hive::HiveScheme;
use traceless_block::plain::PlainScheme;
use traceless_block::ring::RingGeometry;
use traceless_block::{random, sq};
use traceless_core::rng::{Rng, SeededRng, System};
use traceless_core::scheme::contract::Scheme;
use traceless_core::suite::nonces_that_copies_share;

fn schemes() -> Vec<Box<dyn Scheme>> {
    let detwo = |blocks, refresh: &str, tiers| {
        DetWoGeometry::new(blocks, 512, Refresh::parse(refresh).unwrap(), tiers).unwrap()
    };
    let sq = |map| {
        let geometry = sq::SqGeometry::with_shape(100, 128, 4, 2, 3).unwrap();
        sq::SqGeometry { unsynced_max: 16, map, ..geometry }
    };
    let random = |tiers| random::RandomGeometry::new(100, 512, tiers).unwrap();
    vec![
        Box::new(PlainScheme { blocks: 70, block_len: 512 }),
        Box::new(detwo(64, "1", 0)),
        Box::new(detwo(300, "7/2", 1)),
        Box::new(detwo(64, "1", 0).with_map_entries(MapEntries::Pointers).unwrap()),
        Box::new(sq(sq::MapPlace::Memory)),
        Box::new(sq(sq::MapPlace::Disk)),
        Box::new(RingGeometry::with_buckets(100, 128, 6, &[4, 8]).unwrap()),
        Box::new(HiveScheme::new(random(0))),
        Box::new(DataLairScheme::new(random(1))),
    ]
}

/// A single test, as a copy has only the thread that forked it.
#[test]
fn copies_share_no_nonce() {
    for scheme in schemes() {
        let shared = nonces_that_copies_share(&*scheme, || Box::new(System));
        assert_eq!(shared, 0, "{scheme:?}");
        // The planted fault: salts of a generator with a copied state.
        let repeats = || -> Box<dyn Rng> { Box::new(SeededRng::new(3)) };
        assert!(nonces_that_copies_share(&*scheme, repeats) > 0, "{scheme:?}");
    }
}
