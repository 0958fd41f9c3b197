//! A copy of a process, or of the machine that it runs on, goes on with the same keys and counts.
//! No nonce covers contents of both.
#![cfg(feature = "suite")]

use traceless::oblivious;
use traceless::rng::{Rng, SeededRng, System};
use traceless::scheme::contract::Scheme;
use traceless::scheme::linear::LinearScheme;
use traceless::scheme::path;
use traceless::suite::nonces_that_copies_share;

fn schemes() -> Vec<Box<dyn Scheme>> {
    vec![
        Box::new(LinearScheme { blocks: 9, block_len: 64 }),
        Box::new(path::PathGeometry::new(60, 32).unwrap()),
        Box::new(path::PathGeometry {
            map_trees: 2,
            map_block_len: 24,
            unsynced_max: 16,
            ..path::PathGeometry::new(300, 64).unwrap()
        }),
        Box::new(oblivious::ArrayGeometry::new(600, 64).unwrap()),
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
