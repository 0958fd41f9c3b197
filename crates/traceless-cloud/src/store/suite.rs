//! The tests that every engine must pass.
//!
//! Each function panics if the store breaks the contract of [`NodeStore`]:
//!
//! ```
//! use traceless_cloud::store::{MemStore, suite};
//!
//! for geometry in suite::shapes() {
//!     suite::behaves(&MemStore::new(geometry), &geometry);
//! }
//! ```

use super::{CopyableStore, NodeStore, NodeVersion, SlotRead};
use crate::block_on::block_on;
use crate::geometry::{Geometry, Node};

/// Trees with a root, without a root, and of leaves alone.
pub fn shapes() -> [Geometry; 3] {
    let (roots, arity, layers, block_len) = (1, 3, 4, 64);
    let (round_slots, inner_slots, leaf_slots) = (10, 20, 25);
    let partition = 0;
    let whole = Geometry {
        roots,
        arity,
        layers,
        round_slots,
        inner_slots,
        leaf_slots,
        block_len,
        partition,
    };
    let rootless = Geometry { roots: 3, layers: 3, ..whole };
    [whole, rootless, Geometry { layers: 1, ..rootless }]
}

/// Checks reading, staging and committing of an empty store.
pub fn behaves(store: &impl NodeStore, g: &Geometry) {
    for sequence in 1..=40 {
        write_round(store, g, sequence);
        check_round(store, g, sequence);
        if sequence > 1 {
            check_round(store, g, sequence - 1);
        }
        assert_eq!(block_on(store.sequence()).unwrap(), sequence);
    }
    let versions = path(g, 40, 99);
    assert!(block_on(store.commit(41, &versions)).is_err(), "nothing is staged");
    block_on(store.stage(versions[0], &bytes_of(g, versions[0]))).unwrap();
    assert!(
        block_on(store.read_node(versions[0], &mut bytes_of(g, versions[0]))).is_err(),
        "not yet"
    );
    assert!(block_on(store.commit(43, &versions[..1])).is_err(), "a commit is missing");
    let replaced = path(g, 0, 1)[0];
    assert!(
        block_on(store.read_node(replaced, &mut bytes_of(g, replaced))).is_err(),
        "replaced long ago"
    );
    assert_eq!(block_on(store.sequence()).unwrap(), 40);
    block_on(store.stage(versions[0], &bytes_of(g, versions[0]))).unwrap();
    block_on(store.abandon()).unwrap();
    assert!(block_on(store.commit(41, &versions[..1])).is_err(), "it was abandoned");
    assert_eq!(block_on(store.sequence()).unwrap(), 40);
}

/// Checks that a store opens in the state of its last commit. `open` opens it anew, after the store
/// that it returned before was dropped.
pub fn reopens<S: NodeStore>(open: impl Fn() -> S, g: &Geometry) {
    for sequence in 1..=30 {
        let store = open();
        write_round(&store, g, sequence);
        // Versions that were staged and never committed are dropped.
        for version in path(g, sequence, 77) {
            block_on(store.stage(version, &bytes_of(g, version))).unwrap();
        }
        drop(store);
        let store = open();
        assert_eq!(block_on(store.sequence()).unwrap(), sequence);
        check_round(&store, g, sequence);
        if sequence > 1 {
            // With the versions that the last commit replaced.
            check_round(&store, g, sequence - 1);
        }
        let staged = path(g, sequence, 77);
        assert!(block_on(store.commit(sequence + 1, &staged)).is_err(), "staged before");
    }
}

/// Checks what a copy of another store must do. `open` opens the store anew, after the one that it
/// returned before was dropped.
pub fn is_copyable<S: CopyableStore>(open: impl Fn() -> S, g: &Geometry) {
    let stage = |store: &S, version| block_on(store.stage(version, &bytes_of(g, version))).unwrap();
    let number = |store: &S| block_on(store.sequence()).unwrap();
    let mut first = path(g, 4, 30);
    let store = open();
    for version in &first {
        stage(&store, *version);
        block_on(store.restore(0, &[*version])).unwrap();
    }
    drop(store);
    let store = open();
    let mut found = store.current().unwrap();
    first.sort_unstable();
    found.sort_unstable();
    assert_eq!((number(&store), found), (0, first), "before the first commit");
    for sequence in 1..=3 {
        write_round(&store, g, sequence);
    }
    let copied = path(g, 9, 50);
    for version in &copied {
        stage(&store, *version);
        block_on(store.restore(3, &[*version])).unwrap();
        assert_eq!(number(&store), 3);
        assert!(store.current().unwrap().contains(version));
    }
    stage(&store, copied[0]);
    assert!(block_on(store.restore(2, &copied[..1])).is_err(), "older than itself");
    assert!(block_on(store.restore(4, &path(g, 9, 51))).is_err(), "nothing is staged");
    assert_eq!(number(&store), 3);
    block_on(store.restore(7, &[])).unwrap();
    let mut before = store.current().unwrap();
    drop(store);
    let store = open();
    assert_eq!(number(&store), 7);
    let mut after = store.current().unwrap();
    before.sort_unstable();
    after.sort_unstable();
    assert_eq!(before, after);
    for version in &copied {
        let mut bytes = vec![0; bytes_of(g, *version).len()];
        block_on(store.read_node(*version, &mut bytes)).unwrap();
        assert!(bytes == bytes_of(g, *version));
    }
    assert!(block_on(store.commit(7, &[])).is_err());
    write_round(&store, g, 8);
    check_round(&store, g, 8);
    drop(store);
    assert_eq!(number(&open()), 8);
}

/// Checks that removed nodes are gone, and can be written again. `open` opens the store anew, after
/// the one that it returned before was dropped.
pub fn removes<S: CopyableStore>(open: impl Fn() -> S, g: &Geometry) {
    let store = open();
    for sequence in 1..=12 {
        write_round(&store, g, sequence);
    }
    let removed: Vec<Node> = g.nodes_of(0).collect();
    let is_removed = |version: &NodeVersion| removed.contains(&version.node);
    let mut left = store.current().unwrap();
    assert!(left.iter().any(is_removed));
    left.retain(|version| !is_removed(version));
    left.sort_unstable();
    let current = |store: &S| {
        let mut current = store.current().unwrap();
        current.sort_unstable();
        current
    };
    // What is staged of other trees stays.
    let staged = path(g, 1, 70).into_iter().filter(|version| !is_removed(version));
    let staged: Vec<NodeVersion> = staged.collect();
    for version in &staged {
        block_on(store.stage(*version, &bytes_of(g, *version))).unwrap();
    }
    block_on(store.remove(&removed)).unwrap();
    block_on(store.remove(&removed)).unwrap();
    let (new, node) = (path(g, 0, 71)[0], path(g, 0, 71)[0].node);
    if is_removed(&new) {
        // It gets a place of its own.
        block_on(store.stage(new, &bytes_of(g, new))).unwrap();
        block_on(store.remove(&[node])).unwrap();
    }
    block_on(store.commit(13, &staged)).unwrap();
    for version in &staged {
        left.retain(|old| old.node != version.node);
        left.push(*version);
    }
    left.sort_unstable();
    assert_eq!((current(&store), block_on(store.sequence()).unwrap()), (left.clone(), 13));
    drop(store);
    let store = open();
    assert_eq!((current(&store), block_on(store.sequence()).unwrap()), (left.clone(), 13));
    for version in left {
        let mut bytes = vec![0; bytes_of(g, version).len()];
        block_on(store.read_node(version, &mut bytes)).unwrap();
        assert!(bytes == bytes_of(g, version));
    }
    for sequence in 14..=25 {
        write_round(&store, g, sequence);
        check_round(&store, g, sequence);
    }
    drop(store);
    let store = open();
    check_round(&store, g, 25);
    assert!(current(&store).iter().any(is_removed));
}

/// The versions that a round writes under an attempt.
pub fn path(g: &Geometry, round: u64, attempt: u64) -> Vec<NodeVersion> {
    let node = |layer| g.node(layer, g.evicted(round));
    (0..g.layers).map(|layer| NodeVersion { node: node(layer), attempt }).collect()
}

/// The bytes of a version in these tests.
pub fn bytes_of(g: &Geometry, version: NodeVersion) -> Vec<u8> {
    let byte = (version.node.0 as u8).wrapping_mul(31) ^ version.attempt as u8;
    let slot = |slot: usize| vec![byte.wrapping_add(slot as u8 * 3); g.slot_len()];
    (0..g.slots(g.layer_of(version.node))).flat_map(slot).collect()
}

/// Stages and commits the round of a commit.
pub fn write_round(store: &impl NodeStore, g: &Geometry, sequence: u64) {
    let versions = path(g, sequence - 1, sequence);
    for version in &versions {
        block_on(store.stage(*version, &bytes_of(g, *version))).unwrap();
    }
    block_on(store.commit(sequence, &versions)).unwrap();
}

/// Checks that the nodes of the round of a commit can be read, whole and slot by slot.
pub fn check_round(store: &impl NodeStore, g: &Geometry, sequence: u64) {
    for version in path(g, sequence - 1, sequence) {
        let want = bytes_of(g, version);
        let mut node = vec![0; want.len()];
        block_on(store.read_node(version, &mut node)).unwrap();
        assert!(node == want);
        let never = NodeVersion { attempt: 0, ..version };
        let (mut first, mut second) = (vec![1; g.slot_len()], vec![1; g.slot_len()]);
        let mut reads = [
            SlotRead { version, slot: 3, into: &mut first },
            SlotRead { version: never, slot: 4, into: &mut second },
        ];
        block_on(store.read_slots(&mut reads)).unwrap();
        assert!(
            first == want[3 * g.slot_len()..][..g.slot_len()]
                && second.iter().all(|&byte| byte == 0)
        );
    }
}
