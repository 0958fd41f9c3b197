//! A copy of a process, or of the machine that it runs on, goes on with the same keys and counts.
//! No nonce covers contents of both.
#![cfg(feature = "suite")]

use traceless::build::SchemeConfig;
use traceless::oblivious;
use traceless::rng::{Rng, SeededRng, System};
use traceless::scheme::detwo::{DetWoGeometry, MapEntries, Refresh};
use traceless::scheme::{path, random, sq};
use traceless::suite::nonces_that_copies_share;

fn schemes() -> Vec<SchemeConfig> {
    let detwo = |blocks, refresh: &str, tiers| {
        DetWoGeometry::new(blocks, 512, Refresh::parse(refresh).unwrap(), tiers).unwrap()
    };
    let sq = |map| {
        let geometry = sq::SqGeometry::with_shape(100, 128, 4, 2, 3).unwrap();
        sq::SqGeometry { unsynced_max: 16, map, ..geometry }
    };
    let random = |tiers| random::RandomGeometry::new(100, 512, tiers).unwrap();
    vec![
        SchemeConfig::Plain { blocks: 70, block_len: 512 },
        SchemeConfig::Linear { blocks: 9, block_len: 64 },
        SchemeConfig::DetWo(detwo(64, "1", 0)),
        SchemeConfig::DetWo(detwo(300, "7/2", 1)),
        SchemeConfig::DetWo(detwo(64, "1", 0).with_map_entries(MapEntries::Pointers).unwrap()),
        SchemeConfig::Sq(sq(sq::MapPlace::Memory)),
        SchemeConfig::Sq(sq(sq::MapPlace::Disk)),
        SchemeConfig::Hive(random(0)),
        SchemeConfig::DataLair(random(1)),
        SchemeConfig::Path(path::PathGeometry::new(60, 32).unwrap()),
        SchemeConfig::Path(path::PathGeometry {
            map_trees: 2,
            map_block_len: 24,
            unsynced_max: 16,
            ..path::PathGeometry::new(300, 64).unwrap()
        }),
        SchemeConfig::Oblivious(oblivious::ArrayGeometry::new(600, 64).unwrap()),
    ]
}

/// One test alone, as a copy has only the thread that it was made by.
#[test]
fn copies_share_no_nonce() {
    for config in schemes() {
        let shared = nonces_that_copies_share(&config, || Box::new(System));
        assert_eq!(shared, 0, "{config:?}");
        // The planted fault: salts of a generator whose state is copied.
        let repeats = || -> Box<dyn Rng> { Box::new(SeededRng::new(3)) };
        assert!(nonces_that_copies_share(&config, repeats) > 0, "{config:?}");
    }
}
